"""One POST to an external server: never to our own network, with limits on time and size.

The producer chooses the URL, so it must not give access to addresses that only this machine can
reach. The name is resolved once, and the connection uses the checked address, so a name that
changes in between has no effect. Redirects are not followed, and proxies are not used.
"""

import re
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple, Self
from urllib.parse import SplitResult, urlsplit

from kesin import Failed
from kesin_courier.addresses import is_public
from kesin_courier.settings import CourierSettings

MAX_URL = 2_048
MAX_QUOTE_BYTES = 500  # of a response: its text is only quoted in error messages
MAX_ADDRESSES = 4  # tried for one name
LONGEST_PAUSE_S = 3_600  # that a receiver may request
_PLAIN = re.compile(r"[\x21-\x7e]+")
_PORTS = {"http": 80, "https": 443}


class BadAddress(ValueError):
    """The URL is invalid."""


class Reply(NamedTuple):
    """The receiver's response."""

    status: int
    text: str
    pause_s: int | None  # from Retry-After


def read_url(url: str) -> SplitResult:
    """The parts of a URL; raises BadAddress with the reason if it is invalid."""
    if len(url) > MAX_URL or not _PLAIN.fullmatch(url):
        raise BadAddress(f"a URL must have 1…{MAX_URL} ASCII characters and no spaces")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise BadAddress(f"this is not a URL: {problem}") from None
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise BadAddress("a URL must start with https:// or http:// and contain a host")
    if parts.username is not None:
        raise BadAddress("a URL must not contain a user name or password")
    return parts


def post(url: str, body: bytes, headers: Mapping[str, str], settings: CourierSettings) -> Reply:
    """Send it once. Raises Failed if there is no response, or if the address is refused."""
    try:
        parts = read_url(url)
    except BadAddress as problem:
        raise Failed("BAD_ADDRESS", str(problem)) from None
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    addresses = _resolved(host, port, allow_private=settings.allow_private)
    sock = _connected(addresses, port, settings.timeout_s)
    secure = parts.scheme == "https"
    connection = (HTTPSConnection if secure else HTTPConnection)(host, port)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    with closing(connection), _Deadline(sock, settings.timeout_s) as line:
        connection.sock = line.secured(host) if secure else sock
        return _exchange(connection, path, body, headers, line)


def _resolved(host: str, port: int, *, allow_private: bool) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise Failed("NO_ANSWER", f"the name {host} was not found: {problem}") from None
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    if not allow_private and not all(map(is_public, addresses)):
        raise Failed("PRIVATE_ADDRESS", f"{host} is not a public address")
    return addresses[:MAX_ADDRESSES]


def _connected(addresses: list[str], port: int, timeout_s: float) -> socket.socket:
    """A connection to the first address that accepts one, within ``timeout_s`` in total."""
    problem: OSError | None = None
    for address in addresses:
        try:
            return socket.create_connection((address, port), timeout_s / len(addresses))
        except OSError as refused:
            problem = refused
    code = "TIMEOUT" if isinstance(problem, TimeoutError) else "NO_ANSWER"
    raise Failed(code, f"no connection: {problem}")


def _exchange(
    connection: HTTPConnection,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    line: "_Deadline",
) -> Reply:
    connection.request("POST", path, body, dict(headers))
    with connection.getresponse() as answer:
        if line.late:  # truncated headers look like complete ones
            raise TimeoutError
        quote = b""
        with suppress(OSError, HTTPException):
            quote = answer.read(MAX_QUOTE_BYTES)
        pause_s = _seconds(answer.getheader("Retry-After", ""))
        return Reply(answer.status, quote.decode("utf-8", "replace"), pause_s)


def _seconds(wanted: str) -> int | None:
    """The pause that the receiver requests; for a date, the lifecycle's own pauses apply."""
    return min(int(wanted), LONGEST_PAUSE_S) if re.fullmatch(r"[0-9]{1,9}", wanted) else None


class _Deadline:
    """Closes the connection after a time: a socket's own timeout restarts with every byte.

    Connection errors are raised as Failed.
    """

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        sock.settimeout(seconds)
        self._sock = sock
        self._late = threading.Event()
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    @property
    def late(self) -> bool:
        """Whether the deadline closed the connection."""
        return self._late.is_set()

    def secured(self, host: str) -> ssl.SSLSocket:
        """The connection with TLS, after checking the certificate of that host."""
        context = ssl.create_default_context()
        secured = context.wrap_socket(
            self._sock, server_hostname=host, do_handshake_on_connect=False
        )
        self._sock = secured  # from now on, the deadline closes this socket
        secured.do_handshake()
        return secured

    def _cut(self) -> None:
        self._late.set()
        with suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)  # no TLS closing handshake

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> None:
        self._timer.cancel()
        self._sock.close()
        if isinstance(problem, ssl.SSLCertVerificationError):
            raise Failed("BAD_CERTIFICATE", problem.verify_message) from None
        if isinstance(problem, TimeoutError) or (problem and self.late):
            raise Failed("TIMEOUT", "there was no response in time") from None
        if isinstance(problem, OSError | HTTPException | ValueError):
            raise Failed("NO_ANSWER", f"{type(problem).__name__}: {problem}") from None
