"""A line to PostgreSQL or Redis that fails when and how the test says, by what travels on it.

The proxy listens on a port of this machine and talks to the server's socket. It reads requests
whole, so "before it arrived" and "after it was carried out" are facts and not guesses.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol, Self

How = Literal[
    "pass",
    "cut_before",  # the request never arrives, and the line is cut
    "cut_after",  # the server carries it out and answers; the line is cut instead
    "swallow",  # the request never arrives, and nothing is cut: half-open
    "mute",  # the server carries it out, and its answer never comes: half-open
    "hold",  # carried out; the answer comes once ``release`` is called
]
Rule = Callable[[bytes], How]
Door = Literal["open", "away", "silent"]  # how new connections are met
HALF_OPEN = ("swallow", "mute")
LISTENING = (b"LISTEN ", b"\r\nSUBSCRIBE\r\n")
CHUNK = 65_536


class Speaks(Protocol):
    """How to tell one request from the next, and a whole answer."""

    def request(self, data: bytes, *, first: bool) -> int:
        """How many bytes the first whole request in ``data`` has; 0 if it is not whole yet."""

    def counts(self, request: bytes, *, first: bool) -> bool:
        """Whether it is a call of the store's, and not part of getting to know each other."""

    def answered(self, data: bytes) -> bool:
        """Whether this is the whole answer: what was asked for is committed."""


class Postgres:
    """Messages have a letter and a length; a request ends with Sync or is one Query."""

    def request(self, data: bytes, *, first: bool) -> int:
        if first:
            return _whole(data, 0, len(data))
        at = 0
        while end := _whole(data, at + 1, len(data)):
            if data[at : at + 1] in (b"S", b"Q", b"X", b"p"):
                return end
            at = end
        return 0

    def counts(self, request: bytes, *, first: bool) -> bool:
        return not first and request[:1] not in (b"X", b"p")

    def answered(self, data: bytes) -> bool:
        at = 0
        while end := _whole(data, at + 1, len(data)):
            if data[at : at + 1] == b"Z":
                return True
            at = end
        return False


def _whole(data: bytes, at: int, size: int) -> int:
    """Where the message ends whose length stands at ``at``; 0 if that is beyond what is there."""
    if at + 4 > size:
        return 0
    end = at + int.from_bytes(data[at : at + 4])
    return end if end <= size else 0


class Redis:
    """A request is an array of strings. A script is over before the first byte of its answer."""

    def request(self, data: bytes, *, first: bool) -> int:
        head, found, _ = data.partition(b"\r\n")
        at = len(head) + 2
        for _ in range(int(head[1:]) if found else 0):
            end = data.find(b"\r\n", at)
            if end < 0:
                return 0
            at = end + 2 + int(data[at + 1 : end]) + 2
        return at if found and at <= len(data) else 0

    def counts(self, request: bytes, *, first: bool) -> bool:
        return b"\r\nEVALSHA\r\n" in request or b"\r\nSUBSCRIBE\r\n" in request

    def answered(self, data: bytes) -> bool:
        return bool(data)


class Line:
    """One connection: a thread up to the server, a thread down to the client."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.server = socket.socket(socket.AF_UNIX)
        self.server.connect(str(proxy.server))
        self.how: How = "pass"
        self.threads = [threading.Thread(target=one, name="proxy", daemon=True) for one in (self.up, self.down)]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def up(self) -> None:
        """Requests, each judged; a line that is half-open stays so."""
        data, first, speaks = b"", True, self.proxy.speaks
        with suppress(OSError):
            while self.how != "cut_before" and (more := self.client.recv(CHUNK)):
                data += more
                while size := speaks.request(data, first=first):
                    request, data = data[:size], data[size:]
                    if speaks.counts(request, first=first) and self.how not in HALF_OPEN:
                        self.how = self.proxy.judge(request)
                    first = False
                    if self.how == "cut_before":
                        break
                    if self.how != "swallow":
                        self.server.sendall(request)
        self.cut()

    def down(self) -> None:
        """Answers, as far as they may come; the client is cut off once the server has let go."""
        with self.client, self.server:
            with suppress(OSError):
                self._answers()
            self.cut()
            with suppress(OSError):
                self.client.shutdown(socket.SHUT_RDWR)
            self.proxy.forget(self)
            self.threads[0].join()

    def _answers(self) -> None:
        kept = b""
        while data := self.server.recv(CHUNK):
            kept += data
            answered = self.proxy.speaks.answered(kept)
            if self.how == "hold":
                self.proxy.released.wait()
            if self.how == "cut_after":
                if answered:
                    self.cut()
            elif self.how not in HALF_OPEN:
                self.client.sendall(kept)
                kept = b""
            elif answered:
                self.proxy.answered.set()

    def cut(self) -> None:
        """Hang up: the server undoes what it has begun, and closes its end."""
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_WR)


class Proxy:
    """``rule`` says of every call how it fares; ``door`` how new connections do."""

    def __init__(self, server: Path, speaks: Speaks) -> None:
        self.server = server
        self.speaks = speaks
        self.rule: Rule = passing
        self.door: Door = "open"
        self.calls = 0  # that arrived here, of whatever fate
        self.listeners = 0  # of them, those that ask to be told
        self.struck = threading.Event()  # a call did not pass
        self.answered = threading.Event()  # the server has answered a muted call
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._lines: set[Line] = set()
        self._silent: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self.released.set()
        self.mend()
        self.cut()

    def judge(self, request: bytes) -> How:
        with self._lock:
            self.calls += 1
            self.listeners += listens(request)
            how = self.rule(request)
        if how != "pass":
            self.struck.set()
        return how

    def fail(self, how: How, *, nth: int = 1, having: bytes = b"") -> None:
        """The nth call from now on that has these bytes fares so; the others pass."""
        left = nth

        def rule(request: bytes) -> How:
            nonlocal left
            left -= having in request
            return how if left == 0 and having in request else "pass"

        for event in (self.struck, self.answered, self.released):
            event.clear()
        self.rule = rule

    def silence(self) -> None:
        """Every line there is goes half-open, and new ones are taken and never answered."""
        self.rule, self.door = swallowing, "silent"
        for line in self.lines():
            line.how = "swallow"

    def mend(self) -> None:
        """From now on everything passes; a line that went silent stays silent."""
        self.rule, self.door = passing, "open"
        with self._lock:
            silent, self._silent = self._silent, []
        for one in silent:
            one.close()

    def release(self) -> None:
        """What is held goes on."""
        self.released.set()

    def cut(self) -> None:
        """Cut every line there is."""
        for line in self.lines():
            line.cut()
            line.threads[1].join()

    @property
    def knocks(self) -> int:
        """How many wait at the door that is silent."""
        return len(self._silent)

    def lines(self) -> list[Line]:
        with self._lock:
            return list(self._lines)

    def forget(self, line: Line) -> None:
        with self._lock:
            self._lines.discard(line)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._meet(client)

    def _meet(self, client: socket.socket) -> None:
        if self.door == "away":
            client.close()
            return
        with self._lock:
            if self.door == "silent":
                self._silent.append(client)
                return
            line = Line(self, client)
            self._lines.add(line)
        line.start()


def listens(request: bytes) -> bool:
    return any(word in request for word in LISTENING)


def passing(_request: bytes) -> How:
    return "pass"


def swallowing(_request: bytes) -> How:
    return "swallow"
