"""Ranges of a large PDF cost one verification, and a damaged file is refused."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kesin.foundation.clock import ManualClock, wall_clock_us
from kesin.workloads.pdf.api import download
from kesin.workloads.pdf.storage import artifacts
from kesin.workloads.pdf.storage import artifacts as known_sound
from kesin.workloads.pdf.storage.artifacts import MIN_VERIFIED_AGE_S, VERIFIED_TTL_S, PdfArtifactStore
from kesin.workloads.pdf.storage.base import StoredObject
from kesin.workloads.pdf.storage.local import LocalStorage
from tests.web.conftest import error_of
from tests.workloads.pdf.front import Front

PIECE = 1_000
NOW_US = 1_700_000_000_000_000
OLD = StoredObject("pdfs/a/1.pdf", 5_000, NOW_US - MIN_VERIFIED_AGE_S * 1_000_000, "mark")


@pytest.fixture
def large(own_front, monkeypatch) -> Front:
    """Every PDF is large, and old when it is downloaded."""
    monkeypatch.setattr(download, "CHUNK_BYTES", PIECE)
    monkeypatch.setattr(artifacts, "CHUNK_BYTES", PIECE)
    own_front.clock.time_us = wall_clock_us() + 60_000_000
    own_front.beat()
    return own_front


@pytest.fixture
def readings(large, monkeypatch) -> list[tuple[int, int]]:
    """Every part of a file that is read."""
    ranges: list[tuple[int, int]] = []
    read = large.shelf.get_range

    def noted(key: str, start: int, end: int) -> bytes:
        ranges.append((start, end))
        return bytes(read(key, start, end))

    monkeypatch.setattr(large.shelf, "get_range", noted, raising=False)
    return ranges


def in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(5)
        file.write(b"9")


def set_back(path: Path) -> None:
    before = path.stat()
    in_place(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(path: Path) -> None:
    before, other = path.stat(), path.with_name("other")
    other.write_bytes(path.read_bytes()[:-1] + b"?")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


def test_many_parts_cost_one_reading(large, readings):
    me = large.owner()
    job_id = large.done(me)
    size = (large.seen(job_id).result or {})["bytes"]
    for start in range(5):
        assert large.fetch(me, job_id, range=f"bytes={start}-9").status_code == 206
    assert sum(end - start for start, end in readings) == size + sum(range(6, 11))
    large.clock.advance(VERIFIED_TTL_S)
    readings.clear()
    large.fetch(me, job_id, range="bytes=0-9")
    assert sum(end - start for start, end in readings) == size + 10


def test_a_file_that_was_sound_and_is_not_any_more_is_refused(large):
    me = large.owner()
    for damage in (in_place, set_back, replaced):
        job_id = large.done(me)
        assert large.fetch(me, job_id, range="bytes=0-9").status_code == 206
        damage(large.settings.data_dir / "artifacts" / (large.seen(job_id).artifact_key or ""))
        with capture_logs():
            response = large.fetch(me, job_id, range="bytes=0-9")
        assert (response.status_code, error_of(response)["code"]) == (410, "ARTIFACT_DAMAGED"), damage


def test_only_what_can_be_known_again_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(known_sound, "MAX_VERIFIED_FILES", 2)
    clock, read = ManualClock(NOW_US), list[str]()
    monkeypatch.setattr(known_sound, "verify_artifact", lambda _, key, __: read.append(key))
    store = PdfArtifactStore(LocalStorage(tmp_path), clock)

    def is_known(stored: StoredObject, sha256: str = "sha") -> bool:
        before = len(read)
        store.verify(stored, sha256)
        return len(read) == before

    young = StoredObject("pdfs/a/2.pdf", 5_000, OLD.modified_us + 1, "mark")
    unmarked = StoredObject("pdfs/a/3.pdf", 5_000, OLD.modified_us)
    assert [is_known(stored) for stored in (OLD, young, unmarked)] == [False] * 3
    assert [is_known(stored) for stored in (OLD, young, unmarked)] == [True, False, False]
    assert not is_known(OLD, "another")
    assert is_known(OLD)
    clock.advance(-1)
    assert not is_known(OLD)  # a clock that was set back knows nothing
    clock.advance(1)
    for name in "bc":
        assert not is_known(StoredObject(name, 5_000, OLD.modified_us, "mark"))
    assert not is_known(OLD)
