"""A small HTTP client for a running Kesin server, for simulators and the demonstration."""

import json
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPException
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from kesin.foundation.problems import Invalid, Unavailable

TIMEOUT_S: Final = 30.0


class ApiResponse(NamedTuple):
    """What the server answered."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: Any


Send = Callable[[str, str, Mapping[str, Any] | None], ApiResponse]  # method, path, JSON


def over_http(url: str, key: str, *, timeout_s: float = TIMEOUT_S) -> Send:
    """Requests to a running server. Redirects are not followed: the key goes to no other server."""
    base = checked_url(url)
    opener = build_opener(ProxyHandler({}), _NoRedirects)

    def send(method: str, path: str, body: Mapping[str, Any] | None) -> ApiResponse:
        data = None if body is None else json.dumps(body).encode()
        headers = {"x-api-key": key, "content-type": "application/json"}
        request = Request(base + path, data, headers, method=method)  # noqa: S310  # checked above
        try:
            with opener.open(request, timeout=timeout_s) as response:
                return _response(response.status, response.headers.items(), response.read())
        except HTTPError as refused:
            with refused:
                return _response(refused.code, refused.headers.items(), refused.read())
        except (URLError, HTTPException, OSError) as problem:
            why = getattr(problem, "reason", None) or problem
            raise Unavailable(f"no answer from {base} ({why}): is `kesin serve` running?") from None

    return send


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _response(status: int, headers: Iterable[tuple[str, str]], body: bytes) -> ApiResponse:
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        decoded = None
    return ApiResponse(status, {name.lower(): value for name, value in headers}, decoded)


def checked_url(url: str) -> str:
    """The address of a server without its last slash; raises Invalid if it is none."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        fits = fits and parts.username is None and not (parts.query or parts.fragment)
    except ValueError:
        fits = False
    if not fits:
        raise Invalid(f"{url!r} is no address of a server, like http://127.0.0.1:8000")
    return url.rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether the address is this machine itself."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
