"""What was changed on the disk behind Kesin's back is never handed out, and is told plainly."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kesin.engine.queue import Queue
from kesin.engine.replay import verify
from kesin.foundation.settings import load_settings
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreTrouble
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.pdf.api import download
from kesin.workloads.pdf.storage import artifacts
from tests.cli.conftest import _logs_as_before, _own_settings, kesin  # noqa: F401  # fixtures
from tests.faults.conftest import fill
from tests.web.conftest import error_of
from tests.workloads.pdf.front import Front, front_over, order
from tests.workloads.pdf.s3 import S3Server

PAGE = 4096


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("front")
    with closing(SqliteStore(folder / "kesin.db")) as store, front_over(store, folder) as front:
        yield front
        assert verify(store, "pdf").differences == []


def place_of(front: Front, job_id: str) -> Path:
    return front.settings.data_dir / "artifacts" / (front.seen(job_id).artifact_key or "")


def flip(path: Path) -> None:
    """One bit, in the middle; the size stays."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "one bit": flip,
    "half of it": lambda path: os.truncate(path, path.stat().st_size // 2),
    "nothing left": lambda path: os.truncate(path, 0),
    "too much": lambda path: path.write_bytes(path.read_bytes() + b"%"),
}


def test_a_damaged_pdf_is_refused_and_made_again_when_it_is_asked_for(front):
    for damage, headers in [*((damage, {}) for damage in DAMAGES), ("half of it", {"range": "bytes=0-9"})]:
        me, body = front.owner(), order()
        job_id = front.done(me, body)
        whole = front.fetch(me, job_id).content
        DAMAGES[damage](place_of(front, job_id))
        with capture_logs() as log_lines:
            answer = front.fetch(me, job_id, **headers)
        assert (answer.status_code, error_of(answer)["code"]) == (410, "ARTIFACT_DAMAGED"), damage
        assert [line["event"] for line in log_lines].count("artifact_damaged") == 1
        again = front.done(me, body)
        assert again != job_id
        assert front.fetch(me, again).content == whole
        assert front.moves(job_id)[-1] == "artifact_gone"


def test_a_large_pdf_that_is_damaged_breaks_off_before_its_end(front, monkeypatch):
    monkeypatch.setattr(download, "CHUNK_BYTES", 1_000)
    monkeypatch.setattr(artifacts, "CHUNK_BYTES", 1_000)
    me = front.owner()
    job_id = front.done(me)
    whole = front.fetch(me, job_id).content
    assert len(whole) > 3_000
    flip(place_of(front, job_id))
    job, sent = front.seen(job_id), list[bytes]()
    key, made = job.artifact_key or "", job.result or {}
    first = front.artifacts.storage.get_range(key, 0, 1_000)
    pieces = download._stream_pieces(front.artifacts.storage, key, first, (0, made["bytes"]), made["sha256"])
    with capture_logs(), pytest.raises(artifacts.ArtifactDamaged):
        sent.extend(pieces)
    assert 0 < len(b"".join(sent)) < len(whole)
    assert error_of(front.fetch(me, job_id))["code"] == "ARTIFACT_GONE"


def test_a_part_of_a_large_one_is_refused_as_well(front, monkeypatch):
    monkeypatch.setattr(download, "CHUNK_BYTES", 1_000)
    me = front.owner()
    job_id = front.done(me)
    assert front.fetch(me, job_id, range="bytes=0-9").content == b"%PDF-1.4 <"
    flip(place_of(front, job_id))
    with capture_logs():
        answer = front.fetch(me, job_id, range="bytes=0-9")
    assert (answer.status_code, error_of(answer)["code"]) == (410, "ARTIFACT_DAMAGED")


def test_an_object_changed_in_a_bucket_is_damaged():
    with S3Server() as server:
        storage = server.storage()
        key = artifacts.PdfArtifactStore(storage).store_pdf("job-1", b"%PDF-1.4 whole")
        sha256 = hashlib.sha256(b"%PDF-1.4 whole").hexdigest()
        assert artifacts.read_verified(storage, key, sha256) == b"%PDF-1.4 whole"
        [place] = server.folder.rglob(Path(key).name)
        flip(place)
        with capture_logs(), pytest.raises(artifacts.ArtifactDamaged):
            artifacts.read_verified(storage, key, sha256)
        assert storage.exists(key) is False


def test_a_reading_that_went_wrong_once_is_no_damage(front, monkeypatch):
    me = front.owner()
    job_id = front.done(me)
    whole = front.fetch(me, job_id).content
    storage, wrong = front.artifacts.storage, [b"not this"]
    read = storage.get_bytes
    monkeypatch.setattr(storage, "get_bytes", lambda key: wrong.pop() if wrong else read(key), raising=False)
    assert front.fetch(me, job_id).content == whole
    assert wrong == []


# The file of SQLite


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database with jobs in it, as bytes."""
    path = tmp_path_factory.mktemp("sound") / "kesin.db"
    with closing(SqliteStore(path)) as store:
        fill(Queue("task", task_lifecycle(), store), 500)
    return path.read_bytes()


def _spoil(data: bytes, start: int, pages: int) -> bytes:
    return data[:start] + b"\xa5" * (pages * PAGE) + data[start + pages * PAGE :]


SPOILT = {
    "its header": lambda data: b"\0" * 100 + data[100:],
    "half of it cut off": lambda data: data[: len(data) // 2],
    "a page of the schema": lambda data: _spoil(data, PAGE, 1),
    "pages of jobs": lambda data: _spoil(data, len(data) - 21 * PAGE, 20),
}


@pytest.mark.parametrize("which", SPOILT)
def test_a_damaged_database_is_told_without_a_traceback(which, sound, monkeypatch, kesin):  # noqa: F811
    monkeypatch.setenv("COLUMNS", "250")
    file = load_settings().database_file
    assert file is not None
    file.parent.mkdir()
    spoilt = SPOILT[which](sound)
    remedy = "restore a backup"
    for words in (("doctor",), ("audit", "verify")):
        shutil.rmtree(file.parent)
        file.parent.mkdir()
        file.write_bytes(spoilt)
        answer = kesin(*words)
        text = " ".join(f"{answer.out} {answer.err}".split())
        assert answer.code == 1, words
        assert "damaged (" in text, words
        assert remedy in text, words
        assert "Traceback" not in text
    assert file.read_bytes() == spoilt  # nothing was mended behind anybody's back


def test_a_database_damaged_under_a_running_store_is_told_with_its_code(sound, tmp_path):
    path = tmp_path / "kesin.db"
    path.write_bytes(sound)
    with closing(SqliteStore(path)) as store:
        with path.open("r+b") as file:
            file.seek(PAGE)
            file.write(b"\xa5" * (len(sound) - PAGE))
        with pytest.raises(StoreTrouble, match=r"is damaged .* restore a backup") as caught:
            list(store.scan("task"))
        assert caught.value.code == "damaged"
