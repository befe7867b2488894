"""Fetch one allow-listed URL, and nothing that stands behind it.

The name is resolved once, every address must be a public one, and the connection goes to the
address that was looked at: a name that changes its mind in between gains nothing. Redirects are
refused, since their target was never allowed.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from kesin.foundation.clock import Clock, SystemClock

MAX_FETCHED_BYTES: Final = 10 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_PORTS: Final = {"http": 80, "https": 443}
_INSIDE: Final = tuple(  # translated, tunnelled or retired: behind them may be anything
    IPv6Network(net)
    for net in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "fec0::/10")
)


class Refused(Exception):
    """It is not fetched; the message says why."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was there."""

    content_type: str
    body: bytes


def public(address: str) -> bool:
    """Whether an address is one of the open Internet, however it is written."""
    parsed: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        elif any(parsed in net for net in _INSIDE):
            return False
    return parsed.is_global and not parsed.is_multicast


def fetch(
    url: str, *, timeout_s: float = 10.0, public_only: bool = True, clock: Clock | None = None
) -> Fetched:
    """The body behind a URL; raises Refused for everything but a plain 200."""
    clock = clock or SystemClock()
    until = clock.monotonic() + timeout_s
    parts = _parts(url)
    try:
        with _connected(parts, timeout_s, public_only=public_only) as connection:
            connection.request("GET", _target(parts), headers={"Accept-Encoding": "identity"})
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise Refused(f"it answered {response.status}")
            body = bytearray()
            while chunk := response.read1(_CHUNK_BYTES):
                body += chunk
                if len(body) > MAX_FETCHED_BYTES:
                    raise Refused(f"it is larger than {MAX_FETCHED_BYTES} bytes")
                if clock.monotonic() > until:
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


class _connected:  # noqa: N801 - reads as a word where it is used
    """A connection to the one address that was looked at, closed at the end."""

    def __init__(self, parts: SplitResult, timeout_s: float, *, public_only: bool) -> None:
        host = parts.hostname or ""
        port = parts.port or _PORTS[parts.scheme]
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(one[4][0]) for one in found]
        if public_only and not all(public(address) for address in addresses):
            raise Refused("its address is not a public one")
        self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        plain = socket.create_connection((addresses[0], port), timeout=timeout_s)
        try:
            self._connection.sock = (
                ssl.create_default_context().wrap_socket(plain, server_hostname=host)
                if parts.scheme == "https"
                else plain
            )
        except BaseException:
            plain.close()
            raise

    def __enter__(self) -> http.client.HTTPConnection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()
