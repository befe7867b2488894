"""The connections of one process to a SQLite file: one writer, a reader for each thread.

SQLite notes for each process which locks it has. A child that inherited the note would believe in
locks that only its parent has, and write to a log that another process deletes. So forks wait for
running calls, and the child closes what it inherited before it opens connections of its own: file
locks of SQLite belong to processes, those of the parent stay.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kesin.foundation.forks import ForkAware, keep_for_ever
from kesin.store.errors import StoreError
from kesin.store.sqlite.connection import connect
from kesin.store.sqlite.file import FileLock, disk_errors_translated

FORK_WAIT_S: Final = 5.0  # a fork waits so long for each running call; the child is useless then


@dataclass(slots=True, eq=False)
class ReaderConnection:
    """A thread's own connection, and the lock that it holds while it reads."""

    connection: sqlite3.Connection
    thread: threading.Thread = field(default_factory=threading.current_thread)
    lock: threading.RLock = field(default_factory=threading.RLock)


class SqliteConnections(ForkAware):
    """Opens connections on demand; ``lock`` is held by the thread that writes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._in_memory = path == ":memory:"
        self._forking = threading.local()
        self._forked_in_use = False
        self._local = threading.local()
        self.lock = threading.RLock()
        self.readers: list[ReaderConnection] = []
        self._writer: sqlite3.Connection | None = connect(path)
        try:
            with disk_errors_translated(path):
                self.write_lock = FileLock(None if self._in_memory else Path(path + ".lock"))
        except BaseException:
            self._writer.close()
            raise
        self.watch_forks()

    @property
    def writer(self) -> sqlite3.Connection:
        """The writer, for the thread that holds the lock."""
        if self._writer is None:
            self._require_own()
            self._writer = connect(self._path)
        return self._writer

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The reader of this thread, in use until the block ends."""
        reader: ReaderConnection | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._add_reader()
        with reader.lock:
            yield reader.connection

    @contextmanager
    def scanning(self) -> Iterator[sqlite3.Connection]:
        """A reader of its own for a long read, closed when the block ends."""
        reader = self._add_reader()
        try:
            with reader.lock:
                yield reader.connection
        finally:
            with self.lock:
                if reader in self.readers:  # else this is a child, where it is closed
                    self.readers.remove(reader)
                    reader.connection.close()

    def _add_reader(self) -> ReaderConnection:
        """Open a reader, and close the readers of threads that have ended."""
        self._require_own()
        with self.lock:
            for reader in self.readers:
                if not reader.thread.is_alive():
                    reader.connection.close()
            self.readers = [reader for reader in self.readers if reader.thread.is_alive()]
            self.readers.append(ReaderConnection(connect(self._path, reader=True)))
            return self.readers[-1]

    def close(self) -> None:
        with self.lock:
            self.ignore_forks()
            for reader in self.readers:
                reader.connection.close()
            self.readers.clear()
            if self._writer is not None:
                self._writer.close()
            self.write_lock.close()

    # Forks

    def before_fork(self) -> None:
        """Wait for running calls, and hold back new ones."""
        locks = [self.lock] if self.lock.acquire(timeout=FORK_WAIT_S) else []
        readers = list(self.readers)
        locks += [reader.lock for reader in readers if reader.lock.acquire(timeout=FORK_WAIT_S)]
        open_connections = [reader.connection for reader in readers]
        open_connections += [] if self._writer is None else [self._writer]
        self._forking.locks = locks
        self._forking.idle = len(locks) == 1 + len(readers) and not any(
            connection.in_transaction for connection in open_connections
        )

    def after_fork_in_parent(self) -> None:
        for lock in getattr(self._forking, "locks", ()):
            lock.release()

    def after_fork_in_child(self) -> None:
        """Begin without connections; what was in use at the fork cannot even be closed."""
        idle = getattr(self._forking, "idle", False)
        inherited = [reader.connection for reader in self.readers]
        if self._writer is not None and not (self._in_memory and idle):
            inherited.append(self._writer)
            self._writer = None
        self.lock, self._local, self.readers = threading.RLock(), threading.local(), []
        self.write_lock.after_fork_in_child()
        self._forked_in_use = self._forked_in_use or not idle
        for connection in inherited:
            if idle:
                connection.close()
            else:
                keep_for_ever(connection)

    def _require_own(self) -> None:
        if self._forked_in_use:
            raise StoreError(
                f"this process was forked while its parent used {self._path}: fork outside of"
                " transactions, or start the process with 'spawn'"
            )
