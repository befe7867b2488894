"""The HTTP client of the tests; cookies are sent only when a test sends them."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

import anyio
import httpx
from anyio.from_thread import start_blocking_portal
from fastapi import FastAPI

with warnings.catch_warnings():  # starlette would rather have httpx2
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

HOST = "kesin.test"
ADDRESS = "192.0.2.7"
PROXY = "198.51.100.1"
PORTS = {"http": 80, "https": 443}


class Client(TestClient):
    """Comes from ``address``, forgets every cookie, and shows a 500 instead of raising it."""

    def __init__(self, app: FastAPI, *, address: str = ADDRESS, scheme: str = "http") -> None:
        super().__init__(app, base_url=f"{scheme}://{HOST}", raise_server_exceptions=False, follow_redirects=False)
        self._transport = _AtOnce(self, (address, 50_000))
        self._cookies = _Cookies()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """One event loop for all requests of the block; without it, each has its own."""
        with start_blocking_portal() as self.portal:
            yield
        self.portal = None

    def request(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().request(*args, **kwargs)
        finally:
            self.cookies.clear()


class _Cookies(httpx.Cookies):
    """Those of a response that has none need not be looked for: it takes as long as a redirect."""

    def extract_cookies(self, response: httpx.Response) -> None:
        if "set-cookie" in response.headers:
            super().extract_cookies(response)


class _AtOnce(httpx.BaseTransport):
    """The whole response in one call to the event loop, where starlette's own makes eight."""

    def __init__(self, client: Client, address: tuple[str, int]) -> None:
        self._client = client
        self._address = address

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "path": unquote(url.path),
            "raw_path": url.raw_path.split(b"?", 1)[0],
            "root_path": "",
            "scheme": url.scheme,
            "query_string": url.query,
            "headers": [(name.lower().encode(), value.encode()) for name, value in request.headers.multi_items()],
            "client": self._address,
            "server": [url.host, url.port or PORTS[url.scheme]],
            "state": {},
        }
        with self._client._portal_factory() as portal:
            started, body = portal.call(self._answer, scope, request)
        return httpx.Response(
            started["status"],
            headers=[(name.decode(), value.decode()) for name, value in started["headers"]],
            stream=httpx.ByteStream(b"" if request.method == "HEAD" else body),
            request=request,
        )

    async def _answer(self, scope: dict[str, Any], request: httpx.Request) -> tuple[dict[str, Any], bytes]:
        started: dict[str, Any] = {"status": 500, "headers": []}
        parts: list[bytes] = []
        unread, over = [request], anyio.Event()

        async def receive() -> dict[str, Any]:
            if unread:  # not before: some bodies must never be read
                return {"type": "http.request", "body": unread.pop().read()}
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))
                if not message.get("more_body", False):
                    over.set()

        with suppress(Exception):  # it was answered with a 500 before
            await self._client.app(scope, receive, send)  # type: ignore[arg-type]
        return started, b"".join(parts)


def end_bulk_runs(runs: Any) -> None:
    """Wait until the background actions of a process have ended."""
    if (thread := runs._thread) is not None:
        thread.join(10)
