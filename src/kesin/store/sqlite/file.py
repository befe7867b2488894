"""The file of a SQLite database: disk errors with their remedies, and the write lock."""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kesin.store.errors import StoreTrouble

_PRIMARY: Final = 0xFF  # the lowest byte of an extended code is the plain one
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

_SENTENCES: Final = {
    "disk_full": (
        "the disk under {path} is full and nothing was written",
        "free up disk space, and work continues",
    ),
    "disk_failing": (
        "the disk under {path} is failing ({problem}) and nothing was written",
        "check that it has free space and works",
    ),
    "read_only": (
        "{path} cannot be written ({problem})",
        "let this user write to the file and its folder, or name another with KESIN_DATA_DIR",
    ),
    "damaged": (
        "the database {path} is damaged ({problem})",
        "stop kesin, keep copies of the file and of the files next to it, and restore a backup",
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
