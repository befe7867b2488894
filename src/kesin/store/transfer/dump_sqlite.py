"""Dump of a SQLite file; restored inside it, as a renamed file could get the old one's WAL."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from kesin.store.sqlite.store import SqliteStore
from kesin.store.transfer.dump import LEFT_OUT, Advance, BackupRefused, Dump, DumpManifest, Finish, RestoreRefused

DATABASE_FILE: Final = "kesin.db"
PAGES_PER_STEP: Final = 2_000  # copied between two reports of progress
# The suffixes of a database file and of the files that SQLite and the store create next to it.
SIDE_FILE_SUFFIXES: Final = ("", "-wal", "-shm", "-journal", ".lock")


class SqliteDump(Dump):
    """The file at a path."""

    kind = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def size(self) -> int:
        if not self.path.is_file():
            raise BackupRefused(f"there is no database at {self.path}")
        with closing(_connect(self.path)) as source:
            return _size_bytes(source)

    def write(self, folder: Path, advance: Advance) -> DumpManifest:
        copy = folder / DATABASE_FILE
        copy.touch(mode=0o600)
        with closing(_connect(self.path)) as source, closing(_connect(copy)) as target:
            # Hold a snapshot: otherwise every write of another process would restart the backup.
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_master").fetchall()
            _copy(source, target, advance)
            target.execute("PRAGMA journal_mode = DELETE")  # a single, complete file
            if "fact" in self._tables(target):
                target.execute("PRAGMA secure_delete = ON")
                target.execute(f"DELETE FROM fact WHERE {LEFT_OUT}")  # a constant
            return self._describe(target)

    def check_target(self, *, replace: bool) -> None:
        if self.path.exists():
            with self._exclusive(replace=replace):
                pass

    def required_space(self, folder: Path) -> tuple[Path, int]:
        """Space for the working copy, the restored file and the journal of the replaced pages."""
        current_size = self.path.stat().st_size if self.path.exists() else 0
        return self.path.parent, 2 * (folder / DATABASE_FILE).stat().st_size + current_size

    def restore(self, folder: Path, _dump: DumpManifest, finish: Finish, advance: Advance, *, replace: bool) -> None:
        """Restore it; the file holds its schema itself."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        working_copy = self.path.with_name(f".{self.path.name}.restoring")
        try:
            os.close(os.open(working_copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise RestoreRefused(
                f"{working_copy} exists: another restore is running, or one was interrupted; if "
                "none is running, delete it"
            ) from None
        try:
            shutil.copyfile(folder / DATABASE_FILE, working_copy)
            with closing(SqliteStore(working_copy)) as store:
                finish(store)
            with closing(_connect(working_copy)) as source:
                result = source.execute("PRAGMA integrity_check(1)").fetchone()[0]
                if result != "ok":
                    raise RestoreRefused(f"the database in the backup is damaged: {result}")
                with self._exclusive(replace=replace) as target:
                    _copy(source, target, advance)
        finally:
            for suffix in SIDE_FILE_SUFFIXES:
                Path(f"{working_copy}{suffix}").unlink(missing_ok=True)

    @contextmanager
    def _exclusive(self, *, replace: bool) -> Iterator[sqlite3.Connection]:
        """The only connection to a file: SQLite leaves WAL mode only while there is no other."""
        with closing(_connect(self.path, timeout_s=0)) as connection:
            try:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                connection.execute("PRAGMA journal_mode = DELETE")
                connection.execute("BEGIN EXCLUSIVE")
                connection.execute("COMMIT")
                self._refuse_overwrite(f"the database {self.path}", connection, replace=replace)
            except sqlite3.OperationalError as problem:
                raise RestoreRefused(
                    f"{self.path} is in use ({problem}): stop the service, the workers, the sweeper"
                    " and any other program that has it open, then run this again"
                ) from None
            except sqlite3.DatabaseError as problem:
                raise RestoreRefused(
                    f"{self.path} is damaged, or is not a Kesin database ({problem}): move it "
                    "away, along with the files next to it"
                ) from None
            yield connection

    def _tables(self, connection: sqlite3.Connection) -> dict[str, list[str]]:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: [] for (name,) in rows}


def _connect(path: Path, timeout_s: float = 10.0) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=timeout_s)


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, advance: Advance) -> None:
    page = source.execute("PRAGMA page_size").fetchone()[0]
    remaining_pages = _size_bytes(source) // page

    def report(_: int, remaining: int, __: int) -> None:
        nonlocal remaining_pages
        advance((remaining_pages - remaining) * page)
        remaining_pages = remaining

    source.backup(target, pages=PAGES_PER_STEP, progress=report)


def _size_bytes(connection: sqlite3.Connection) -> int:
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])
