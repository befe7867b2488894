"""A SQLite file written down and put back by SQLite's own online backup.

Putting back is one transaction inside the file that is there: it is never renamed, so no process
goes on with a file nobody else sees, and no log of the old file is applied to the new one.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from kesin.store.contract import Store
from kesin.store.sql.migrate import migrations, outstanding
from kesin.store.sqlite.store import SqliteStore
from kesin.store.transfer.dump import (
    Advance,
    Dump,
    Dumped,
    NotBackedUp,
    NotRestored,
    Read,
    described,
    holding,
    nothing_left,
    refuse_holding,
)

FILE: Final = "kesin.db"
PAGES: Final = 2_000  # copied between two reports of progress
BESIDE: Final = ("", "-wal", "-shm", "-journal", ".lock")  # what a database leaves in its folder


class SqliteDump(Dump):
    """The file at a path."""

    kind = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def size(self) -> int:
        if not self.path.is_file():
            raise NotBackedUp(f"there is no database at {self.path}")
        with closing(_connect(self.path)) as source:
            return _bytes(source)

    def take(self, folder: Path, advance: Advance) -> Dumped:
        copy = folder / FILE
        copy.touch(mode=0o600)
        with closing(_connect(self.path)) as source, closing(_connect(copy)) as target:
            # A snapshot that is held: else every write of somebody else would begin it anew.
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_master").fetchall()
            _copy(source, target, advance)
            target.execute("PRAGMA journal_mode = DELETE")  # one file, complete in itself
            return described("sqlite", _reads(target), _tables(target))

    def require_room(self, *, replace: bool) -> None:
        if self.path.exists():
            with self._alone() as target:
                self._refuse_holding(target, replace=replace)

    def room(self, folder: Path) -> tuple[Path, int]:
        """Once beside the file, once in it; and what is replaced is kept in a journal till then."""
        before = self.path.stat().st_size if self.path.exists() else 0
        return self.path.parent, 2 * (folder / FILE).stat().st_size + before

    def put_back(
        self,
        folder: Path,
        dumped: Dumped,
        finish: Callable[[Store], None],
        advance: Advance,
        *,
        replace: bool,
    ) -> list[str]:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self.path.with_name(f".{self.path.name}.restoring")
        try:
            os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise NotRestored(
                f"{beside} is there: another restore runs, or one was broken off; if none runs, "
                "delete it"
            ) from None
        with nothing_left(*(Path(f"{beside}{one}") for one in BESIDE)):
            shutil.copyfile(folder / FILE, beside)
            with closing(SqliteStore(beside)) as store:
                finish(store)
            with closing(_connect(beside)) as source, self._alone() as target:
                _check(source)
                self._refuse_holding(target, replace=replace)
                _copy(source, target, advance)
        todo = outstanding(migrations("sqlite"), dumped.schema)
        return [f"{one.version:04d}_{one.name}" for one in todo]

    @contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        """A connection while there is no other: SQLite leaves WAL mode for the only one there is.

        It stays the only one until it is closed.
        """
        with closing(_connect(self.path, timeout_s=0)) as connection:
            try:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                connection.execute("PRAGMA journal_mode = DELETE")
                connection.execute("BEGIN EXCLUSIVE")
                connection.execute("COMMIT")
            except sqlite3.OperationalError as problem:
                raise NotRestored(
                    f"{self.path} is in use ({problem}): stop the service, the workers, the sweeper"
                    " and whatever else has it open, and run this again"
                ) from None
            except sqlite3.DatabaseError as problem:
                raise self._unfit(problem) from None
            yield connection

    def _unfit(self, problem: sqlite3.DatabaseError) -> NotRestored:
        return NotRestored(
            f"{self.path} is damaged, or no database of kesin ({problem}): move it away, with what "
            "lies beside it"
        )

    def _refuse_holding(self, target: sqlite3.Connection, *, replace: bool) -> None:
        try:
            found = holding(_reads(target), _tables(target))
        except sqlite3.DatabaseError as problem:
            raise self._unfit(problem) from None
        refuse_holding(f"the database {self.path}", found, replace=replace)


def _connect(path: Path, timeout_s: float = 10.0) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=timeout_s)


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, advance: Advance) -> None:
    page = source.execute("PRAGMA page_size").fetchone()[0]
    left = _bytes(source) // page

    def tell(_: int, remaining: int, __: int) -> None:
        nonlocal left
        advance((left - remaining) * page)
        left = remaining

    source.backup(target, pages=PAGES, progress=tell)


def _check(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise NotRestored(f"the database in the backup is damaged: {found}")


def _bytes(connection: sqlite3.Connection) -> int:
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])


def _tables(connection: sqlite3.Connection) -> dict[str, list[str]]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {name: [] for (name,) in rows}


def _reads(connection: sqlite3.Connection) -> Read:
    def read(sql: str) -> list[tuple[Any, ...]]:
        return connection.execute(sql.replace("{", "").replace("}", "")).fetchall()

    return read
