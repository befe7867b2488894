"""PDFs by WeasyPrint: no browser, no scripts, no network; layout differs from Chromium's.

It works in a child process that is kept warm, because only a process can be stopped in the middle
of a computation. The child ends by itself when we do, even while it computes (see
`weasy_child.py`).
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
from importlib.util import find_spec
from typing import Any, Final

from kesin.foundation.clock import Clock, SystemClock
from kesin.workloads.pdf.engines.base import Paper, Rendered, check_ranges
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.limits import (
    MAX_PDF_BYTES,
    check_html,
    check_pages,
    check_pdf,
    graceful_s,
    too_long,
)

CHILD: Final = "kesin.workloads.pdf.engines.weasyprint_child"
START_S: Final = 20.0  # a slow disk reads a great many modules
LENGTH: Final = struct.Struct(">Q")

_REPLY_MAX: Final = MAX_PDF_BYTES + 64 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_GONE_S: Final = 5.0


class _Child:
    """The process, and the socket it listens on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", CHILD, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self._socket = ours

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: dict[str, Any], body: bytes, until: float) -> None:
        head = json.dumps(message).encode()
        for part in (LENGTH.pack(len(head)), head, LENGTH.pack(len(body)), body):
            self._socket.settimeout(self._left(until))
            self._socket.sendall(part)

    def receive(self, until: float) -> tuple[dict[str, Any], bytes]:
        head = json.loads(self._part(until))
        return head, self._part(until)

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GONE_S)

    def _part(self, until: float) -> bytes:
        (length,) = LENGTH.unpack(self._exactly(LENGTH.size, until))
        if length > _REPLY_MAX:
            raise EOFError("the answer is too long to be one")
        return self._exactly(length, until)

    def _exactly(self, length: int, until: float) -> bytes:
        came = bytearray()
        while len(came) < length:
            self._socket.settimeout(self._left(until))
            chunk = self._socket.recv(min(length - len(came), _CHUNK_BYTES))
            if not chunk:
                raise EOFError("WeasyPrint's process died")
            came += chunk
        return bytes(came)

    def _left(self, until: float) -> float:
        left = until - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class WeasyPrintEngine:
    """Renders one document at a time; call it from one thread."""

    name = "weasyprint"

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._turn = threading.Lock()
        self._child: _Child | None = None

    @property
    def child_pid(self) -> int:
        """The process that computes; 0 while there is none."""
        return self._child.pid if self._child is not None else 0

    def warm_up(self) -> None:
        """Start the process before the first document comes; raises as `render` does."""
        with self._turn:
            self._started()

    def render(self, html: str, paper: Paper, *, timeout_s: float) -> Rendered:
        """A PDF of this HTML; raises RenderFailed and nothing else.

        Starting the process, where that is needed, has a time limit of its own.
        """
        try:
            with self._turn:
                began = self._clock.monotonic()
                check_html(html)
                check_ranges(paper.page_ranges)
                head, pdf = self._asked(html, paper, timeout_s)
        except RenderFailed:
            raise
        except Exception as problem:
            raise RenderFailed(PdfErrorCode.UNKNOWN, str(problem)) from problem
        if "code" in head:
            raise RenderFailed(head["code"], head["message"], details=head.get("details"))
        check_pdf(pdf)
        check_pages(head["pages"])
        seconds = self._clock.monotonic() - began
        return Rendered(pdf, head["pages"], self.name, tuple(head["warnings"]), seconds)

    def close(self) -> None:
        """End the process."""
        with self._turn:
            self._end()

    def _asked(self, html: str, paper: Paper, timeout_s: float) -> tuple[dict[str, Any], bytes]:
        child = self._started()
        limit_s = graceful_s(timeout_s)
        until = self._clock.monotonic() + limit_s
        try:
            child.send({"paper": paper.told(), "limit_s": limit_s}, html.encode(), until)
            return child.receive(until)
        except TimeoutError:
            self._end()
            raise RenderFailed(
                PdfErrorCode.NAVIGATION_TIMEOUT,
                too_long(timeout_s),
                details={"reason": "timeout"},
            ) from None
        except (EOFError, OSError):
            self._end()
            raise RenderFailed(
                PdfErrorCode.NAVIGATION_TIMEOUT,
                "WeasyPrint's process died before the document was printed",
                details={"reason": "crashed"},
            ) from None

    def _started(self) -> _Child:
        if self._child is not None and self._child.alive:
            return self._child
        self._end()
        if find_spec("weasyprint") is None:
            raise RenderFailed(
                PdfErrorCode.UNSUPPORTED_PLATFORM, "WeasyPrint is not installed here"
            )
        self._child = child = _Child(self._clock)
        try:
            hello, _ = child.receive(self._clock.monotonic() + START_S)
        except (TimeoutError, EOFError, OSError) as problem:
            self._end()
            raise RenderFailed(
                PdfErrorCode.BROWSER_LAUNCH_FAILED,
                f"WeasyPrint's process did not start: {str(problem) or 'it took too long'}",
            ) from None
        if "code" in hello:
            self._end()
            raise RenderFailed(hello["code"], hello["message"])
        return child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
