"""Taking turns between processes: an advisory lock on a file beside the database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: SQLite's own busy handler has to do
    fcntl = None  # type: ignore[assignment]


class Turns:
    """Who holds the lock may write. The kernel hands it on, in order, also when a process dies."""

    def __init__(self, path: Path | None) -> None:
        self._file = None
        if path is not None and fcntl is not None:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def mine(self) -> Iterator[None]:
        """Wait for the turn and keep it inside the block."""
        if self._file is None:
            yield
            return
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
