"""Fills in templates in children with limits, kept for the next: one costs half a document."""

import atexit
import contextlib
import socket
import threading
from functools import lru_cache
from typing import Any, Final

from kesin.foundation.clock import SystemClock
from kesin.foundation.forks import ForkAware, keep_for_ever
from kesin.workloads.pdf.channel import Child, ChildChannel, ChildLimits, raise_failure
from kesin.workloads.pdf.errors import TEMPLATE_TOO_COSTLY, PdfErrorCode, RenderFailed
from kesin.workloads.pdf.limits import MAX_HTML_BYTES
from kesin.workloads.pdf.templating.sandbox import template_failure

CHILD_MODULE: Final = "kesin.workloads.pdf.templating.fill_child"
START_S: Final = 20.0
MAX_REPLY_BYTES: Final = 4 * MAX_HTML_BYTES
MAX_IDLE: Final = 2  # children that wait for a task
LIMITS: Final = ChildLimits(cpu_s=3.0, wall_s=20.0, memory_bytes=512 * 1024 * 1024)


def too_costly(name: str, limits: ChildLimits) -> RenderFailed:
    return template_failure(name, limits.exceeded(), code=TEMPLATE_TOO_COSTLY)


class FillHelper(ForkAware):
    """The helper process; thread-safe."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._idle: list[ChildChannel] = []
        self.watch_forks()
        atexit.register(self.stop)

    def after_fork_in_child(self) -> None:
        """Leave the helper to the parent; this process starts one of its own."""
        keep_for_ever((self._child, self._idle))
        self._lock, self._child, self._idle = threading.Lock(), None, []

    def run(self, name: str, library: int, task: dict[str, Any], body: bytes, limits: ChildLimits) -> bytes:
        """Run a task; raises RenderFailed, TEMPLATE_TOO_COSTLY if it used up its limits."""
        request = {"name": name, "limits": limits._asdict(), **task}
        kept = self._take_kept(library)
        if kept is not None:
            with contextlib.suppress(EOFError, OSError):  # perhaps it died before: a new one tells
                return self._exchange(kept, request, body, limits)
        try:
            return self._exchange(self._start(library), request, body, limits)
        except (EOFError, OSError):  # the child died before its reply
            raise too_costly(name, limits) from None

    def _exchange(self, channel: ChildChannel, request: dict[str, Any], body: bytes, limits: ChildLimits) -> bytes:
        with contextlib.ExitStack() as stack:
            stack.callback(channel.close)
            deadline = self._clock.monotonic() + limits.wall_s
            try:
                channel.send(request, body, deadline)
                head, reply = channel.receive(deadline)
            except TimeoutError:
                why, n = "the template was not filled in within %(n)s s", f"{limits.wall_s:g}"
                raise RenderFailed(PdfErrorCode.NAVIGATION_TIMEOUT, why, n=n) from None
            with self._lock:
                if not head.pop("last", False) and len(self._idle) < MAX_IDLE:
                    stack.pop_all()
                    self._idle.append(channel)
        if "code" in head:
            raise_failure(head)
        return reply

    def stop(self) -> None:
        """Stop the helper; tasks in hand still end."""
        child, self._child = self._child, None
        while self._idle:
            self._idle.pop().close()
        if child is not None:
            child.kill()

    def _take_kept(self, library: int) -> ChildChannel | None:
        """Return the connection to an idle child that took the file of the library, if any."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                channel = self._idle.pop()
            with contextlib.suppress(TimeoutError, EOFError, OSError):
                channel.send_file(library, self._clock.monotonic() + START_S)
                return channel
            channel.close()

    def _start(self, library: int) -> ChildChannel:
        """Return the connection to a new child; a helper that was killed is replaced once."""
        for _ in range(2):
            ours, theirs = socket.socketpair()
            channel = ChildChannel(ours, MAX_REPLY_BYTES)
            with self._lock:
                if self._child is None or not self._child.alive:
                    self.stop()
                    self._child = Child(CHILD_MODULE)
                helper = self._child
            try:
                with theirs:
                    socket.send_fds(helper.socket, [b"."], [theirs.fileno()])
                channel.send_file(library, self._clock.monotonic() + START_S)
            except (TimeoutError, EOFError, OSError):
                channel.close()
                with self._lock:
                    if self._child is helper:
                        self.stop()
            else:
                return channel
        why = "the process that fills in templates did not start"
        raise RenderFailed(PdfErrorCode.BROWSER_LAUNCH_FAILED, why)


@lru_cache(maxsize=1)
def fill_helper() -> FillHelper:
    """The helper of this process, which all libraries share."""
    return FillHelper()
