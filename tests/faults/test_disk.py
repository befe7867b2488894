"""A disk that is full or cannot be written: refused whole, told plainly, and gone on with.

What is tried stands in ``disk_parts`` and ``read_only_parts``: each runs in a process that has a
disk of its own, or a limit that stands in for one.
"""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest

from kesin.store.sqlite.file import as_disk_error
from tests.faults.small_disk import can_mount, run_part

# The form that needs no rights stands in where nobody may mount, and runs in the long form anyway.


def kinds(request: pytest.FixtureRequest, real: str, instead: str) -> list[str]:
    if not can_mount():
        return [instead]
    return [real, instead] if request.config.getoption("--long") else [real]


def test_a_full_disk_loses_nothing_and_is_told(request, tmp_path):
    for kind in kinds(request, "tmpfs", "quota"):
        run_part("tests.faults.disk_parts", kind, _folder(tmp_path, kind))


def test_a_folder_that_cannot_be_written_is_told(request, tmp_path):
    for kind in kinds(request, "mount", "modes"):
        run_part("tests.faults.read_only_parts", kind, _folder(tmp_path, kind))


def _folder(tmp_path: Path, kind: str) -> Path:
    folder = tmp_path / kind
    folder.mkdir()
    return folder


def test_every_way_a_disk_fails_has_its_code():
    def of_sqlite(code: int) -> str | None:
        problem = sqlite3.OperationalError("no")
        problem.sqlite_errorcode = code
        found = as_disk_error(problem, "kesin.db")
        return found and found.code

    assert of_sqlite(sqlite3.SQLITE_FULL) == "disk_full"
    assert of_sqlite(sqlite3.SQLITE_IOERR_WRITE) == "disk_failing"
    assert of_sqlite(sqlite3.SQLITE_READONLY_DIRECTORY) == "read_only"
    assert of_sqlite(sqlite3.SQLITE_CORRUPT_INDEX) == "damaged"
    assert of_sqlite(sqlite3.SQLITE_NOTADB) == "damaged"
    assert of_sqlite(sqlite3.SQLITE_BUSY) is None
    assert of_sqlite(sqlite3.SQLITE_CONSTRAINT_UNIQUE) is None
    codes = {
        number: as_disk_error(OSError(number, "no"), "kesin.db").code  # type: ignore[union-attr]
        for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
    }
    assert list(codes.values()) == ["disk_full", "disk_full", "read_only", "read_only"]
