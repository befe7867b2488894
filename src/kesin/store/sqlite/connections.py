"""The connections of one process to a SQLite file: one writer, a reader for each thread.

SQLite notes for each process which locks it has. A child that inherited the note would believe in
locks that only its parent has, and write to a log that another process deletes. So forks wait for
running calls, and the child closes what it inherited before it opens connections of its own: file
locks of SQLite belong to processes, those of the parent stay.
"""

import errno
import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kesin.foundation.forks import ForkAware, keep_for_ever
from kesin.store.errors import StoreError, StoreTrouble, StoreUnreachable
from kesin.store.ownership import driver_connection, no_transaction, not_ours
from kesin.store.sql.dialect import Dialect

_PRIMARY: Final = 0xFF  # the lowest byte of an extended code is the plain one
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

_SENTENCES: Final = {
    "disk_full": ("the disk under {path} is full and nothing was written", "free up disk space to continue"),
    "disk_failing": (
        "the disk under {path} is failing ({problem}) and nothing was written",
        "check that it has free space and works",
    ),
    "read_only": (
        "{path} cannot be written ({problem})",
        "give this user write access to the file and its folder, or set another folder in KESIN_DATA_DIR",
    ),
    "damaged": (
        "the database {path} is damaged ({problem})",
        "stop Kesin, keep copies of the file and of the files next to it, and restore a backup",
    ),
}
_CODES: Final = {
    sqlite3.SQLITE_FULL: "disk_full",
    sqlite3.SQLITE_IOERR: "disk_failing",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_PERM: "read_only",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
}


def as_disk_error(problem: sqlite3.Error | OSError, path: str) -> StoreTrouble | None:
    """The error as StoreTrouble with a remedy; None if it has nothing to do with the disk."""
    if isinstance(problem, OSError):
        code: str | None = "disk_full" if problem.errno in _FULL else "read_only"
        why = problem.strerror or type(problem).__name__
    else:
        code = _CODES.get(getattr(problem, "sqlite_errorcode", 0) & _PRIMARY)
        why = str(problem)
    if code is None:
        return None
    what, remedy = _SENTENCES[code]
    return StoreTrouble(what.format(path=path, problem=why), remedy, code)


@contextmanager
def disk_errors_translated(path: str) -> Iterator[None]:
    """Raise disk errors inside the block as StoreTrouble, and other errors unchanged."""
    try:
        yield
    except (sqlite3.Error, OSError) as problem:
        disk_error = as_disk_error(problem, path)
        if disk_error is None:
            raise
        raise disk_error from problem


class FileLock:
    """A lock file: its holder may write. The kernel passes it on in order, also when one dies."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file = self._open()

    def _open(self) -> int | None:
        if self._path is None:
            return None
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the lock and hold it inside the block."""
        if self._file is None:
            self._file = self._open()
        file = self._file
        if file is None:
            yield
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if self._file == file:  # else this is a child, forked inside the block
                fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        self._path = None
        self.after_fork_in_child()

    def after_fork_in_child(self) -> None:
        """Close the parent's descriptor, which unlocks nothing; the next use opens another."""
        # All copies have one lock: this one would exclude no process, and outlive a killed parent.
        if self._file is not None:
            os.close(self._file)
            self._file = None


BUSY_TIMEOUT_S = 10.0
OLDEST_SQLITE = (3, 38, 0)  # STRICT tables, ->> and unixepoch()
SQLITE = Dialect(
    name="sqlite",
    greater=lambda left, right: f"iif({left} > {right}, {left}, {right})",  # max() costs a call
    now=":now",
    modulo="%",
    param=lambda name: f":{name}",
    table=lambda name: name,
    array=lambda values: None if values is None else json.dumps(list(values)),
    is_in=lambda column, name: f"{column} IN (SELECT value FROM json_each(:{name}))",
    given_slot="g.value",
    fragments={
        "as_text": "",
        "news": "j.phase IN (2, 3)",
        "among_ids": "IN (SELECT value FROM json_each(:ids))",
        "among_names": "IN (SELECT value FROM json_each(:names))",
        "keep_lock": "",  # a transaction is alone
        "skip_locked": "",
        "now": ":now",
        "pairs": "(SELECT value ->> 0 AS child, value ->> 1 AS parent FROM json_each(:pairs))",
    },
)


def check_version() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old: Kesin needs 3.38 or newer")


def connect(path: str, *, reader: bool = False) -> sqlite3.Connection:
    """Open the file; a ``reader`` cannot write."""
    try:
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.Error as problem:
        unreachable = StoreUnreachable(f"cannot open the database {path}: {problem}")
        raise as_disk_error(problem, path) or unreachable from problem
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")  # 0005_copying.sql relies on it
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cache_size = -65536")
    # SQLite's own handles ASCII only.
    connection.create_function("lower", 1, lambda t: t and str(t).lower(), deterministic=True)
    if reader:
        connection.execute("PRAGMA query_only = ON")
    return connection


FORK_WAIT_S: Final = 5.0  # a fork waits this long for a running call; then the child is useless


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


class CallersSqlite:
    """Runs statements as the store needs them, whatever the connection's owner prefers."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, sql: str, params: Any = ()) -> sqlite3.Cursor:
        cursor = self._connection.cursor(sqlite3.Cursor)
        cursor.row_factory = None
        return cursor.execute(sql, params)


@contextmanager
def callers_connection(given: Any, path: str) -> Iterator[CallersSqlite]:
    """The connection that was given, in a transaction that may write, ready for the store."""
    connection = driver_connection(given)
    if not isinstance(connection, sqlite3.Connection):
        raise not_ours(connection, "give a sqlite3, SQLAlchemy or Django connection")
    text_factory, connection.text_factory = connection.text_factory, str
    try:
        callers = CallersSqlite(connection)
        began = _begin(connection, callers, path)
        try:
            yield callers
        except BaseException:
            if began and connection.in_transaction:
                callers.execute("ROLLBACK")
            raise
    finally:
        connection.text_factory = text_factory


def _begin(connection: sqlite3.Connection, callers: CallersSqlite, path: str) -> bool:
    """Begin a transaction, unless the connection is in one; whether it was begun."""
    file = callers.execute("PRAGMA database_list").fetchone()[2]
    if not file or not Path(path).exists() or not Path(path).samefile(file):
        raise StoreError("within: the connection is to another database, not the queue's")
    if not connection.in_transaction:
        by_itself = getattr(connection, "autocommit", False) is True  # since Python 3.12
        if by_itself or connection.isolation_level is None:
            raise no_transaction("execute BEGIN IMMEDIATE first")
        callers.execute("BEGIN IMMEDIATE")
        return True
    return False
