"""The hourly cleanup deletes what has expired, and nothing else."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.engine.queue import Queue
from kesin.foundation.clock import ManualClock
from kesin.store.directory import MetadataEntry
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.pdf.batches.worker import BatchWorker
from kesin.workloads.pdf.cleanup import delete_expired
from kesin.workloads.pdf.jobs.heartbeat import PRUNE_AFTER_S, open_heartbeats
from kesin.workloads.pdf.jobs.store import PdfJobStatus, PdfJobStore
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from kesin.workloads.pdf.services import open_artifacts
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.local import LocalStorage
from tests.web.conftest import CRON_SECRET, _plain_logs  # noqa: F401  # one is a fixture
from tests.workloads.pdf.batching import TTL_S, BatchWorld, opened_batches

HOUR_S = 3_600
ORPHAN = "0" * 8 + "-0000-7000-8000-" + "0" * 12
AGES_S = st.lists(st.one_of(st.integers(0, 2 * TTL_S), st.integers(TTL_S - 2, TTL_S + 2)), min_size=1, max_size=3)


@pytest.fixture
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BatchWorld]:
    with opened_batches(request.param, tmp_path, request) as bindery:
        yield bindery


@pytest.fixture(scope="module")
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchWorld]:
    with opened_batches("sqlite", tmp_path_factory.mktemp("shop"), request) as shop:
        yield shop


@pytest.fixture
def bindery(shop: BatchWorld) -> Iterator[BatchWorld]:
    """One for the module: every test begins when all of the one before has expired."""
    shop.headers = shop.key("pdf")
    yield shop
    shop.recover()
    later(shop, 3 * TTL_S)
    later(shop, 1)
    assert not shop.metadata_names()
    assert files(shop, "pdfs") == []


def date_files(bindery: BatchWorld) -> None:
    """Give the files the time of the test's clock."""
    now = bindery.clock.monotonic()
    for path in bindery.folder.rglob("*"):
        if path.is_file() and path.stat().st_mtime > now + 365 * 86_400:
            os.utime(path, (now, now))


def later(bindery: BatchWorld, seconds: float) -> int:
    """Let time pass, then do what the sweeper does."""
    date_files(bindery)
    bindery.clock.advance(seconds)
    bindery.sweep("expire")
    return delete_expired(bindery.context)


def files(bindery: BatchWorld, folder: str) -> list[str]:
    return sorted(item.key for item in bindery.batches.storage.list(folder))


@pytest.mark.parametrize("either", ["sqlite", "postgres"], indirect=True)
def test_expired_batches_lose_their_files_and_others_keep_them(either):
    old = either.order("a", "bad")
    either.work()
    later(either, TTL_S - HOUR_S)
    young = either.order("c")
    either.work()
    later(either, HOUR_S + 1)
    assert either.get(old)["status"] == "expired"
    assert either.download(old).status_code == 410
    assert either.get(young)["status"] == "succeeded"
    assert either.download(young).status_code == 200
    assert len(files(either, "pdfs")) == 1
    later(either, TTL_S)
    assert files(either, "pdfs") == files(either, "batches") == []
    assert either.get(young)["results"] == []


def test_rows_and_files_of_earlier_attempts_are_deleted_before_the_output(bindery):
    batch_id = bindery.order("a")
    folder = bindery.batch(batch_id).input_key.rpartition("/")[0]
    bindery.batches.storage.put_bytes(f"{folder}/out-0000000000000001.zip", b"x", "")
    bindery.work()
    later(bindery, TTL_S - 1)
    assert {name.partition("-")[0] for name in bindery.stored()} == {"out", "results"}
    assert bindery.batch(batch_id).result["artifact_key"] in files(bindery, "batches")
    assert f"{folder}/out-0000000000000001.zip" not in files(bindery, "batches")
    assert bindery.get(batch_id)["results"][0]["status"] == "succeeded"


def test_unknown_files_are_deleted_once_they_are_old(bindery):
    storage = bindery.batches.storage
    storage.put_bytes(f"batches/{'a' * 32}/rows.json.gz", b"x", "")
    storage.put_bytes(f"batches/{'a' * 32}/out-0000000000000001.zip", b"x", "")
    storage.put_bytes(f"pdfs/{ORPHAN}/0000000000000001.pdf", b"x", "")
    storage.put_bytes("batches/of-somebody-else/rows.json.gz", b"x", "")
    assert later(bindery, HOUR_S) == 0
    assert later(bindery, TTL_S) == 3
    assert files(bindery, "batches") == ["batches/of-somebody-else/rows.json.gz"]
    assert files(bindery, "pdfs") == []
    storage.delete("batches/of-somebody-else/rows.json.gz")


def test_files_of_an_unfinished_batch_are_kept_however_old(bindery):
    batch_id = bindery.order("a")
    bindery.queue.claim("somebody")
    folder = bindery.batch(batch_id).input_key.rpartition("/")[0]
    bindery.batches.storage.put_bytes(f"{folder}/out-0000000000000001.zip", b"x", "")
    later(bindery, 3 * TTL_S)
    assert len(files(bindery, "batches")) == 2
    assert bindery.get(batch_id)["status"] == "running"


def test_a_batch_cancelled_by_an_operator_cancels_its_rows(bindery):
    batch_id = bindery.order("a", "b")
    worker: BatchWorker = bindery.worker(lambda _seconds: worker.stop())
    worker.run_once()
    other = bindery.batches.jobs.create_job("card", {"variables": {"name": "c"}}, owner="other")
    bindery.queue.act("cancel", actor="tests", ids=[batch_id])
    assert len(bindery.pdf.peek(limit=10)) == 3
    assert later(bindery, 1) == 1
    assert [job.id for job in bindery.pdf.peek(limit=10)] == [other.job_id]
    assert not bindery.metadata_names()


def test_metadata_of_deleted_batches_and_dead_workers_are_deleted(bindery):
    directory = bindery.accounts.directory
    now = bindery.queue.now()
    directory.put_metadata(MetadataEntry("pdf", ORPHAN, "rows:0000", "[]", 1))
    directory.put_metadata(MetadataEntry("pdf", "", "worker:old", "{}", now))
    directory.put_metadata(MetadataEntry("pdf", "", "ledger", "null", now))
    bindery.clock.advance(PRUNE_AFTER_S)
    directory.put_metadata(MetadataEntry("pdf", "", "worker:new", "{}", bindery.queue.now()))
    assert later(bindery, 1) == 2
    assert not bindery.metadata_names()
    assert [sign.worker for sign in open_heartbeats(bindery.store).read(now)] == ["new"]
    assert directory.metadata_entry("pdf", "", "ledger") is not None


def test_a_storage_that_is_down_does_not_stop_the_rest_of_the_cleanup(bindery):
    batch_id = bindery.order("a")
    bindery.work()
    date_files(bindery)
    bindery.accounts.directory.put_metadata(MetadataEntry("pdf", ORPHAN, "rows:0000", "[]", 1))
    bindery.clock.advance(TTL_S)
    bindery.sweep("expire")
    artifacts = bindery.folder
    hidden = artifacts.rename(artifacts.with_name("unmounted"))
    artifacts.mkdir()  # an empty mount point
    assert delete_expired(bindery.context) == 1
    assert not bindery.metadata_names()
    artifacts.rmdir()  # nothing was begun there in the place of what is away
    hidden.rename(artifacts)
    assert delete_expired(bindery.context) > 0
    assert files(bindery, "batches") == []
    assert bindery.get(batch_id)["status"] == "expired"


def test_the_cron_route_cleans_up_as_the_sweeper_does(bindery):
    """A service without a sweeper depends on it."""
    artifacts = open_artifacts(bindery.context.settings, bindery.context.queue)
    key = artifacts.store_pdf(ORPHAN, b"%PDF-1.4")
    date_files(bindery)
    bindery.clock.advance(TTL_S)
    response = bindery.client.post("/api/cron/sweep", headers={"authorization": f"Bearer {CRON_SECRET}"})
    assert response.status_code == 200, response.text
    assert not artifacts.exists(key)


# Jobs


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PdfJobStore]:
    with closing(SqliteStore(":memory:")) as store:
        queue = Queue("pdf", pdf_lifecycle(), store, clock=ManualClock())
        folder = LocalStorage(tmp_path_factory.mktemp("artifacts"))
        yield PdfJobStore(queue, PdfArtifactStore(folder))  # its own clock is the disk's


@settings(max_examples=100)
@given(ages_s=AGES_S, ttl_s=st.sampled_from([None, TTL_S, TTL_S // 2, 1]))
def test_cleanup_expires_old_jobs_with_their_files_and_no_others(jobs, ages_s, ttl_s):
    """Feature: pdf-render-worker, Property 10: what has lived its time is expired and its file
    deleted; what has not is left as it is."""
    artifacts, clock = jobs.artifacts, jobs.queue.clock
    clock.advance(4 * TTL_S)  # all of the example before is over
    jobs.cleanup_expired()
    now_s = clock.monotonic()
    finished = {}
    for number, age_s in enumerate(sorted(ages_s, reverse=True)):
        clock.time_us = round((now_s - age_s) * 1_000_000)
        job = jobs.create_job("invoice", {"variables": {"number": number}})
        jobs.update_status(job.job_id, PdfJobStatus.RUNNING)
        key = artifacts.store_pdf(job.job_id, b"%PDF-1.4 " + str(number).encode())
        jobs.update_status(job.job_id, PdfJobStatus.SUCCEEDED, artifact_key=key)
        finished[job.job_id] = (age_s, key)
    clock.time_us = round(now_s * 1_000_000)
    over = {job_id for job_id, (age_s, _) in finished.items() if age_s >= (ttl_s or TTL_S)}
    assert jobs.cleanup_expired(ttl_s) == len(over)
    for job_id, (_, key) in finished.items():
        current = jobs.get_job(job_id)
        assert current is not None
        expected = PdfJobStatus.EXPIRED if job_id in over else PdfJobStatus.SUCCEEDED
        assert current.status is expected
        assert artifacts.exists(key) is (job_id not in over)
    assert jobs.cleanup_expired(ttl_s) == 0
