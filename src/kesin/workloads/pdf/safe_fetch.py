"""Fetch one allow-listed URL, and nothing that stands behind it.

The name is resolved once, every address must be a public one, and the connection goes to the
address that was looked at: a name that changes its mind in between gains nothing. Redirects are
refused, since their target was never allowed. `delivering.py` sends webhooks on the same line.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, Self
from urllib.parse import SplitResult, urlsplit

from kesin.foundation.clock import SystemClock
from kesin.workloads.pdf.security import is_public

MAX_FETCHED_BYTES: Final = 10 * 1024 * 1024
MAX_ADDRESSES: Final = 4  # of one name that are tried
_CHUNK_BYTES: Final = 64 * 1024
_PORTS: Final = {"http": 80, "https": 443}


class Refused(Exception):
    """It is not fetched; the message says why."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was there."""

    content_type: str
    body: bytes


def public(address: str) -> bool:
    """Whether an address that a name resolved to is one of the open Internet."""
    return is_public(ip_address(address.partition("%")[0]))


def fetch(url: str, *, timeout_s: float = 10.0, public_only: bool = True) -> Fetched:
    """The body behind a URL; raises Refused for everything but a plain 200."""
    try:
        with Line(url, timeout_s, public_only=public_only) as line:
            response = line.ask("GET", headers={"Accept-Encoding": "identity"})
            if response.status != http.HTTPStatus.OK:
                raise Refused(f"it answered {response.status}")
            body = bytearray()
            while chunk := response.read1(_CHUNK_BYTES):
                body += chunk
                if len(body) > MAX_FETCHED_BYTES:
                    raise Refused(f"it is larger than {MAX_FETCHED_BYTES} bytes")
            if line.late:  # what breaks off reads like what ends
                raise Refused(f"it took longer than {timeout_s:g} s")
            kind = response.getheader("Content-Type") or "application/octet-stream"
    except (OSError, http.client.HTTPException) as problem:
        raise Refused(
            f"it could not be read: {str(problem) or type(problem).__name__}"
        ) from problem
    return Fetched(kind, bytes(body))


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Refused("it cannot be read as a URL") from None
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise Refused("only http and https URLs with a host are fetched")
    if parts.username is not None or parts.password is not None:
        raise Refused("a URL with a user in it is not fetched")
    return parts


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


class Line:
    """A connection to an address that was looked at; closed at the end, cut when time is over.

    Cut by a timer, since a socket's own time begins anew with every byte that comes.
    """

    def __init__(self, url: str, timeout_s: float, *, public_only: bool) -> None:
        clock = SystemClock()
        until = clock.monotonic() + timeout_s
        self._parts = parts = _parts(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        self._http = http.client.HTTPConnection(host, port)
        self._http.default_port = _PORTS[parts.scheme]  # which the Host header leaves out
        self._socket = _dialled(_looked_up(host, port, public_only=public_only), port, timeout_s)
        self._socket.settimeout(timeout_s)
        self._late = threading.Event()
        self._timer = threading.Timer(max(until - clock.monotonic(), 0), self._cut)
        self._timer.daemon = True
        self._timer.start()
        try:
            if parts.scheme == "https":
                with self._in_time():
                    self._secure(host)
        except BaseException:
            self.close()
            raise
        self._http.sock = self._socket

    @property
    def late(self) -> bool:
        """Whether it was cut."""
        return self._late.is_set()

    def ask(
        self, method: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """Send a request; the answer, with its head read."""
        with self._in_time():
            self._http.request(method, _target(self._parts), body, dict(headers or {}))
            return self._http.getresponse()

    def close(self) -> None:
        """Hang up."""
        self._timer.cancel()
        self._http.close()
        self._socket.close()

    def _secure(self, host: str) -> None:
        secured = ssl.create_default_context().wrap_socket(
            self._socket, server_hostname=host, do_handshake_on_connect=False
        )
        self._socket = secured  # from here on this is what a cut cuts
        secured.do_handshake()

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Whatever comes of a line that was cut is that it took too long.

        A head that breaks off reads like one that ends, so this is asked without an error too.
        """
        try:
            yield
        except (OSError, http.client.HTTPException):
            if not self.late:
                raise
        if self.late:
            raise TimeoutError("no answer came in time")

    def _cut(self) -> None:
        self._late.set()
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # under TLS too: no farewell

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _looked_up(host: str, port: int, *, public_only: bool) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as problem:  # a name that no name server could be asked for
        raise OSError(str(problem)) from None
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    if public_only and not all(public(address) for address in addresses):
        raise Refused("its address is not a public one")
    return addresses[:MAX_ADDRESSES]


def _dialled(addresses: Sequence[str], port: int, timeout_s: float) -> socket.socket:
    """The first that answers; all of them together have the time of one."""
    for address in addresses[:-1]:
        with suppress(OSError):
            return socket.create_connection((address, port), timeout_s / len(addresses))
    return socket.create_connection((addresses[-1], port), timeout_s / len(addresses))
