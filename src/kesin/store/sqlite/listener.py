"""Notices commits of other processes to a SQLite file, so that idle workers need not wait to poll.

The kernel reports every write to the log beside the file, some of them before their commit can be
read: after a report the file is looked at again in growing pauses. Where the kernel has no such
reports, the file is looked at often. Only jobs that are due wake a thread.
"""

import ctypes
import os
import select
import socket
import sqlite3
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kesin.foundation.clock import monotonic
from kesin.store.errors import StoreError
from kesin.store.notify import POLL_S, Notifier, QueueListener

if TYPE_CHECKING:
    from kesin.store.sqlite.store import SqliteStore

FIRST_LOOK_S: Final = 0.001
LAST_LOOK_S: Final = 0.128  # a commit that takes longer to reach the disk is found by polling
MIN_PAUSE_S: Final = 0.002  # between looks: others may commit thousands of times a second
UNREPORTED_S: Final = 0.02  # between looks where nothing is reported, or while no thread waits
_IN_MODIFY: Final = 0x2
_MAX_REPORT_BYTES: Final = 65_536


class SqliteListener(QueueListener):
    """Wakes the threads that wait for a queue when another process made its jobs ready."""

    reconnect_errors = (sqlite3.Error, StoreError, OSError)

    def __init__(self, store: "SqliteStore", notifier: Notifier) -> None:
        super().__init__(notifier)
        self._store = store
        self._end: socket.socket | None = None

    def after_fork_in_child(self) -> None:
        """The connection that ends the thread stays with the parent, as the thread does."""
        super().after_fork_in_child()
        self._end = None

    def stop(self) -> None:
        """Stop the thread at once and wait for its end."""
        self._stopping.set()
        with suppress(AttributeError, OSError):  # it does not listen
            self._end.send(b".")  # type: ignore[union-attr]
        super().stop()

    def _messages(self) -> Generator[str | None, None, None]:
        ours, self._end = socket.socketpair()
        log = Path(f"{self._store.path}-wal")
        with ours, self._end, _writes_reported(log.parent) as reports:
            quiet_s = UNREPORTED_S if reports is None else POLL_S
            poll = select.poll()
            for watched in (ours, reports):
                if watched is not None:
                    poll.register(watched, select.POLLIN)
            seen, pause_s, looked_at = self._store.data_version(), quiet_s, 0.0
            while True:
                yield None
                found = dict(poll.poll(pause_s * 1_000))
                waiting = self._notifier.waiting()
                if reports in found:
                    least_s = MIN_PAUSE_S if waiting else UNREPORTED_S
                    self._stopping.wait(max(looked_at + least_s - monotonic(), 0))
                    if os.fsencode(log.name) in os.read(reports, _MAX_REPORT_BYTES):
                        pause_s = FIRST_LOOK_S
                elif pause_s < quiet_s:
                    pause_s = pause_s * 2 if pause_s < LAST_LOOK_S else quiet_s
                looked_at = monotonic()
                if waiting and (version := self._store.data_version()) != seen:
                    seen = version
                    yield from (queue for queue in waiting if self._store.peek(queue, limit=1))


@contextmanager
def _writes_reported(folder: Path) -> Iterator[int | None]:
    """A descriptor that becomes readable after a write to a file of the folder; None elsewhere."""
    if sys.platform != "linux":
        yield None
        return
    system = ctypes.CDLL(None, use_errno=True)
    descriptor = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:  # too many are in use
        yield None
        return
    try:
        watch = system.inotify_add_watch(descriptor, os.fsencode(folder), _IN_MODIFY)
        yield descriptor if watch >= 0 else None
    finally:
        os.close(descriptor)
