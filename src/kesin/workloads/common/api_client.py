"""A small HTTP client for a running Kesin server, for simulators and the demonstration."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from kesin.foundation.problems import Invalid, Unavailable
from kesin.foundation.text import decode_json

TIMEOUT_S: Final = 30.0


class ApiResponse(NamedTuple):
    """What the server answered."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: Any


Send = Callable[[str, str, Mapping[str, Any] | None], ApiResponse]  # method, path, JSON


def over_http(url: str, key: str) -> Send:
    """Requests to a running server. Redirects are not followed: the key goes to no other server."""
    base = urlsplit(checked_url(url))
    connect = HTTPSConnection if base.scheme == "https" else HTTPConnection
    headers = {"x-api-key": key, "content-type": "application/json"}

    def send(method: str, path: str, body: Mapping[str, Any] | None) -> ApiResponse:
        data = None if body is None else json.dumps(body)
        try:
            with closing(connect(base.netloc, timeout=TIMEOUT_S)) as connection:
                connection.request(method, base.path + path, data, headers)
                response = connection.getresponse()
                text = response.read()
        except (HTTPException, OSError) as problem:
            why = f"no response from {base.geturl()} ({problem})"
            raise Unavailable(f"{why}: is `kesin serve` running?") from None
        names = {name.lower(): value for name, value in response.headers.items()}
        return ApiResponse(response.status, names, decode_json(text.decode("utf-8", "replace")))

    return send


def checked_url(url: str) -> str:
    """The address of a server without its last slash; raises Invalid if it is none."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        fits = fits and parts.username is None and not (parts.query or parts.fragment)
    except ValueError:
        fits = False
    if not fits:
        raise Invalid(f"{url!r} is not a server address such as http://127.0.0.1:8000")
    return url.rstrip("/")


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
