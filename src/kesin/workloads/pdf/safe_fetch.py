"""Fetches an allow-listed URL without reaching internal addresses.

The name is resolved once, every address must be public, and the connection goes to an address that
was checked: a name that resolves differently later gains nothing. Redirects are rejected, since
their target was never allowed. `webhooks/worker.py` uses the same connections.
"""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from kesin.foundation.clock import SystemClock
from kesin.workloads.pdf.security import is_public

MAX_FETCHED_BYTES: Final = 10 * 1024 * 1024
MAX_ADDRESSES: Final = 4  # tried for a name
_CHUNK_BYTES: Final = 64 * 1024
_PORTS: Final = {"http": 80, "https": 443}


class FetchRefused(Exception):
    """The URL is not fetched; the message says why."""


class FetchedResource(NamedTuple):
    """The body behind a URL."""

    content_type: str
    body: bytes


def fetch(url: str, *, timeout_s: float = 10.0, public_only: bool = True) -> FetchedResource:
    """Fetch a URL; raises FetchRefused for everything but a plain 200."""
    try:
        with closing(GuardedConnection(url, timeout_s, public_only=public_only)) as connection:
            response = connection.request("GET", {"Accept-Encoding": "identity"})
            if response.status != http.HTTPStatus.OK:
                raise FetchRefused(f"it returned {response.status}")
            body = bytearray()
            while chunk := response.read1(_CHUNK_BYTES):
                body += chunk
                if len(body) > MAX_FETCHED_BYTES:
                    raise FetchRefused(f"it is larger than {MAX_FETCHED_BYTES} bytes")
            if connection.timed_out:  # a cut body reads like a complete one
                raise FetchRefused(f"it took longer than {timeout_s:g} s")
            content_type = response.getheader("Content-Type") or "application/octet-stream"
    except (OSError, http.client.HTTPException) as problem:
        reason = str(problem) or type(problem).__name__
        raise FetchRefused(f"it could not be read: {reason}") from problem
    return FetchedResource(content_type, bytes(body))


def _split_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise FetchRefused("it is not a valid URL") from None
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise FetchRefused("only http and https URLs with a host are fetched")
    if parts.username is not None or parts.password is not None:
        raise FetchRefused("a URL with a user name is not fetched")
    return parts


class GuardedConnection:
    """A connection to a checked address, cut by a timer: a socket's own restarts at each byte."""

    def __init__(self, url: str, timeout_s: float, *, public_only: bool) -> None:
        clock = SystemClock()
        deadline = clock.monotonic() + timeout_s
        self._parts = parts = _split_url(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        self._http = http.client.HTTPConnection(host, port)
        self._http.default_port = _PORTS[parts.scheme]  # the Host header omits the default port
        self._socket = _connect(_resolve(host, port, public_only=public_only), port, timeout_s)
        self._socket.settimeout(timeout_s)
        self.timed_out = False  # whether the timer has cut the connection
        self._timer = threading.Timer(max(deadline - clock.monotonic(), 0), self._abort)
        self._timer.daemon = True
        self._timer.start()
        try:
            if parts.scheme == "https":
                with self._timeout_checked():
                    wrap = partial(ssl.create_default_context().wrap_socket, server_hostname=host)
                    tls_socket = wrap(self._socket, do_handshake_on_connect=False)
                    self._socket = tls_socket  # the timer cuts this socket from now on
                    tls_socket.do_handshake()
        except BaseException:
            self.close()
            raise
        self._http.sock = self._socket

    def request(self, method: str, headers: dict[str, str], body: bytes | None = None) -> http.client.HTTPResponse:
        """Send a request and return the response, with its headers read."""
        path, query = self._parts.path or "/", self._parts.query
        target = f"{path}?{query}" if query else path
        with self._timeout_checked():
            self._http.request(method, target, body, headers)
            return self._http.getresponse()

    def close(self) -> None:
        self._timer.cancel()
        self._http.close()
        self._socket.close()

    @contextmanager
    def _timeout_checked(self) -> Iterator[None]:
        """Raise TimeoutError if it was cut, even without an error: a cut header looks complete."""
        try:
            yield
        except (OSError, http.client.HTTPException):
            if not self.timed_out:
                raise
        if self.timed_out:
            raise TimeoutError("no response came in time")

    def _abort(self) -> None:
        self.timed_out = True
        with suppress(OSError):
            # The plain socket's method: no closing handshake under TLS.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _resolve(host: str, port: int, *, public_only: bool) -> list[str]:
    try:
        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as problem:  # a name that cannot be encoded for a query
        raise OSError(str(problem)) from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in resolved))
    if public_only and not all(map(is_public, map(ip_address, addresses))):
        raise FetchRefused("its address is not public")
    return addresses[:MAX_ADDRESSES]


def _connect(addresses: Sequence[str], port: int, timeout_s: float) -> socket.socket:
    """Connect to the first address that answers; all attempts share the timeout."""
    for address in addresses[:-1]:
        with suppress(OSError):
            return socket.create_connection((address, port), timeout_s / len(addresses))
    return socket.create_connection((addresses[-1], port), timeout_s / len(addresses))
