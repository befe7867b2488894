"""A disk that is full or cannot be written: writes are refused whole and reported.

What is tried is in ``disk_parts``: it runs in a process that has disks of its own, or limits that
stand in for them.
"""

from __future__ import annotations

import errno
import sqlite3

from kesin.store.sqlite.connections import as_disk_error
from tests.faults.small_disk import can_mount, run_part


def test_a_disk_that_is_full_or_read_only_loses_nothing_and_is_reported(request, tmp_path):
    """Limits stand in for disks where this user may not mount, and in the long form."""
    kinds = ["mounts"] if can_mount() else ["limits"]
    if can_mount() and request.config.getoption("--long"):
        kinds.append("limits")
    for kind in kinds:
        folder = tmp_path / kind
        folder.mkdir()
        run_part("tests.faults.disk_parts", kind, folder)


def test_every_way_a_disk_fails_has_its_code():
    def of_sqlite(code: int) -> str | None:
        problem = sqlite3.OperationalError("no")
        problem.sqlite_errorcode = code
        trouble = as_disk_error(problem, "kesin.db")
        return trouble.code if trouble else None

    assert of_sqlite(sqlite3.SQLITE_FULL) == "disk_full"
    assert of_sqlite(sqlite3.SQLITE_IOERR_WRITE) == "disk_failing"
    assert of_sqlite(sqlite3.SQLITE_READONLY_DIRECTORY) == "read_only"
    assert of_sqlite(sqlite3.SQLITE_CORRUPT_INDEX) == "damaged"
    assert of_sqlite(sqlite3.SQLITE_NOTADB) == "damaged"
    assert of_sqlite(sqlite3.SQLITE_BUSY) is None
    assert of_sqlite(sqlite3.SQLITE_CONSTRAINT_UNIQUE) is None
    codes = {
        number: as_disk_error(OSError(number, "no"), "kesin.db").code
        for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
    }
    assert list(codes.values()) == ["disk_full", "disk_full", "read_only", "read_only"]
