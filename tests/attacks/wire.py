"""A client that sends bytes as they are: what the usual libraries would encode or refuse."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

PATIENCE_S = 90.0  # less than the sleep that one of the patterns asks for
STREAM = "text/event-stream"
Headers = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Reply:
    """A response; the status is 0 if the connection was closed without one."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    seconds: float = 0.0

    def header(self, name: str) -> str:
        """The first value of a header; empty if there is none."""
        return next((value for key, value in self.headers if key == name), "")

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def kind(self) -> str:
        return self.header("content-type").partition(";")[0]


class Wire:
    """One connection, opened again whenever the server has closed it."""

    def __init__(self, address: str, *, source: str = "127.0.0.1") -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        assert parts.port is not None
        self.to = (parts.hostname, parts.port)
        self.host = parts.netloc
        self._source = source
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def connect(self) -> socket.socket:
        """A new connection that the caller closes."""
        return socket.create_connection(self.to, PATIENCE_S, source_address=(self._source, 0))

    def ask(self, method: str, target: str, headers: Headers | None = None, body: bytes | None = None) -> Reply:
        """Send a request and read its response."""
        lines: dict[str, str | bytes] = {"host": self.host, **(headers or {})}
        if body is not None and "transfer-encoding" not in lines:
            lines.setdefault("content-length", str(len(body)))
        return self.send(request_head(method, target, lines.items()) + (body or b""), method)

    def send(self, request: bytes, method: str = "GET") -> Reply:
        """Send any bytes and read a response; retried once if the connection was a used one."""
        used = self._socket is not None
        reply = self._send_once(request, method)
        if used and not reply.status:
            reply = self._send_once(request, method)
        return reply

    def _send_once(self, request: bytes, method: str) -> Reply:
        if self._socket is None:
            self._socket = self.connect()
        began = time.perf_counter()
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before the end: read why
            self._socket.sendall(request)
        reply, reusable = _read(self._socket, method)
        if not reusable:
            self.close()
        return Reply(reply.status, reply.headers, reply.body, time.perf_counter() - began)


def request_head(method: str, target: str, headers: Iterable[tuple[str, str | bytes]]) -> bytes:
    """The head of a request, with nothing checked."""
    lines = [f"{method} {target} HTTP/1.1".encode("utf-8", "surrogatepass")]
    for name, value in headers:
        encoded = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        lines.append(name.encode() + b": " + encoded)
    return b"\r\n".join([*lines, b"", b""])


def read_reply(opened: socket.socket, method: str = "GET") -> Reply:
    """Read the next response of a connection."""
    return _read(opened, method)[0]


def _read(opened: socket.socket, method: str) -> tuple[Reply, bool]:
    response = http.client.HTTPResponse(opened, method=method)
    try:
        response.begin()
        headers = tuple((name.lower(), value) for name, value in response.getheaders())
        if dict(headers).get("content-type", "").startswith(STREAM):
            return Reply(response.status, headers), False
        body = response.read()
    except (http.client.HTTPException, ConnectionError):
        return Reply(0), False
    finally:
        response.close()
    return Reply(response.status, headers, body), not response.will_close
