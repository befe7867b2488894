"""PDFs in a storage: their keys, and the deletion of those that no job has."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.foundation.clock import ManualClock, wall_clock_us
from kesin.workloads.pdf.storage import artifacts
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.base import BadKey, KeyTaken, NotStored, StorageBackend
from kesin.workloads.pdf.storage.local import LocalStorage

JOB = "019a0000-0000-7000-8000-000000000001"
DAY_S = 86_400
JOB_IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}", fullmatch=True)


@pytest.fixture
def storage(tmp_path) -> StorageBackend:
    """A folder: what every storage promises is in test_base."""
    return LocalStorage(tmp_path / "artifacts")


@pytest.fixture
def clock() -> ManualClock:
    """Beside the storage's own, which tells the ages."""
    return ManualClock(wall_clock_us())


@pytest.fixture
def store(storage, clock) -> PdfArtifactStore:
    return PdfArtifactStore(storage, clock)


def no_storage() -> PdfArtifactStore:
    return PdfArtifactStore(None, ManualClock())  # type: ignore[arg-type]


def none_known(keys: Sequence[str]) -> set[str]:
    return set()


def test_each_pdf_of_a_job_is_stored_read_and_deleted(store):
    first, second = store.store_pdf(JOB, b"first"), store.store_pdf(JOB, b"second")
    assert (store.get_pdf(first), store.get_pdf(second)) == (b"first", b"second")
    assert store.delete_pdf(first) is True
    assert store.delete_pdf(first) is False
    assert (store.exists(first), store.exists(second)) == (False, True)
    with pytest.raises(NotStored):
        store.get_pdf(first)


def test_a_key_names_the_job_and_the_time(clock):
    clock.time_us = 1_700_000_000_123_456
    store = PdfArtifactStore(None, clock)  # type: ignore[arg-type]
    assert store.generate_key(JOB) == f"pdfs/{JOB}/1700000000123456.pdf"
    before = wall_clock_us()
    key = PdfArtifactStore(None).generate_key(JOB)  # type: ignore[arg-type]  # by the machine's clock
    assert before <= int(key.rpartition("/")[2].removesuffix(".pdf")) <= wall_clock_us()


@settings(max_examples=100)
@given(first=JOB_IDS, second=JOB_IDS, jumps=st.lists(st.integers(-3, 3), max_size=10))
def test_keys_are_unique(first, second, jumps):
    """Feature: pdf-render-worker, Property 9: artifact keys are unique.

    Different jobs never share one, and neither do two renders of one job, within a microsecond
    or after the clock jumped back.
    """
    clock = ManualClock()
    store = PdfArtifactStore(None, clock)  # type: ignore[arg-type]
    if first != second:  # two processes, at the same moment
        assert store.generate_key(first) != no_storage().generate_key(second)
    keys = []
    for jump in [0, *jumps]:
        clock.time_us += jump
        keys += [store.generate_key(first), store.generate_key(second)]
    assert len(set(keys)) == len(keys)


def test_threads_share_no_key():
    store = no_storage()
    with ThreadPoolExecutor(4) as threads:
        made = threads.map(lambda _: [store.generate_key(JOB) for _ in range(500)], range(4))
    keys = [key for some in made for key in some]
    assert len(set(keys)) == len(keys) == 2000


@given(job_id=st.text() | st.sampled_from(["", "..", "a/b", "../x", "a\\b", "a\0", "a\n", ".a", "-a", "ş", "a" * 129]))
def test_a_job_id_cannot_move_its_key(job_id):
    try:
        key = no_storage().generate_key(job_id)
    except BadKey:
        return
    assert key.split("/")[:2] == ["pdfs", job_id]
    assert len(key.split("/")) == 3


def test_two_processes_with_the_same_key_lose_no_pdf(tmp_path):
    first, second = (PdfArtifactStore(LocalStorage(tmp_path), ManualClock()) for _ in range(2))
    keys = [first.store_pdf(JOB, b"one"), second.store_pdf(JOB, b"two")]
    assert [first.get_pdf(key) for key in keys] == [b"one", b"two"]


def test_a_key_that_is_always_taken_is_given_up(tmp_path):
    class Full(LocalStorage):
        def put_bytes(self, key: str, data: bytes, content_type: str) -> None:
            raise KeyTaken(key)

    with pytest.raises(KeyTaken):
        PdfArtifactStore(Full(tmp_path)).store_pdf(JOB, b"x")


# Orphans.


def test_a_pdf_of_no_job_is_deleted_once_it_is_old(store, clock):
    owned, orphan = store.store_pdf("owned", b"x"), store.store_pdf("orphan", b"x")

    def known(keys: Sequence[str]) -> set[str]:
        return {owned} & set(keys)

    assert store.delete_orphans(known, older_than_s=DAY_S) == 0
    assert store.exists(orphan) is True
    clock.advance(DAY_S + 3_600)
    assert store.delete_orphans(known, older_than_s=DAY_S) == 1
    assert store.exists(orphan) is False
    assert store.exists(owned) is True
    assert store.delete_orphans(known, older_than_s=DAY_S) == 0
    with pytest.raises(ValueError, match="-1"):
        store.delete_orphans(known, older_than_s=-1)


def test_ages_are_those_of_the_files(tmp_path, clock):
    store = PdfArtifactStore(LocalStorage(tmp_path), clock)
    old, fresh = store.store_pdf("old", b"x"), store.store_pdf("fresh", b"x")
    seconds = clock.time_us / 1_000_000
    os.utime(tmp_path / old, (seconds - 101, seconds - 101))
    os.utime(tmp_path / fresh, (seconds - 99, seconds - 99))
    assert store.delete_orphans(none_known, older_than_s=100) == 1
    assert (store.exists(old), store.exists(fresh)) == (False, True)


def test_a_sweep_asks_in_batches(store, clock, monkeypatch):
    monkeypatch.setattr(artifacts, "ORPHAN_BATCH", 3)
    keys = {store.store_pdf(f"job-{number}", b"x") for number in range(8)}
    batches: list[list[str]] = []

    def known(batch: Sequence[str]) -> set[str]:
        batches.append(list(batch))
        return {batch[0]}

    clock.advance(DAY_S)
    assert store.delete_orphans(known, older_than_s=3_600) == 5
    assert [len(batch) for batch in batches] == [3, 3, 2]
    assert {key for batch in batches for key in batch} == keys
    assert {item.key for item in store.storage.list()} == {batch[0] for batch in batches}


def test_a_sweep_leaves_foreign_files(store, clock):
    keys = {
        "zips/a/1.pdf", "pdfs/1.pdf", "pdfs/a/b/1.pdf", "pdfs/a/report.pdf", "pdfs/a/1.txt",
        "other.pdf",
    }  # fmt: skip
    for key in keys:
        store.storage.put_bytes(key, b"x", "application/pdf")
    clock.advance(DAY_S)
    assert store.delete_orphans(none_known, older_than_s=0) == 0
    assert {item.key for item in store.storage.list()} == keys


def test_a_sweep_takes_what_crashes_left_half_done(tmp_path, clock):
    store = PdfArtifactStore(LocalStorage(tmp_path), clock)
    (tmp_path / "pdfs" / "a").mkdir(parents=True)
    (tmp_path / "pdfs" / "a" / ".put-1234").write_bytes(b"half")
    clock.advance(DAY_S)
    assert store.delete_orphans(none_known, older_than_s=3_600) == 0
    assert not (tmp_path / "pdfs").exists()


def test_a_sweep_that_cannot_learn_what_is_known_deletes_nothing(store, clock):
    key = store.store_pdf(JOB, b"x")

    def away(keys: Sequence[str]) -> set[str]:
        raise ConnectionError("the database is away")

    clock.advance(DAY_S)
    with pytest.raises(ConnectionError):
        store.delete_orphans(away, older_than_s=0)
    assert store.exists(key) is True
