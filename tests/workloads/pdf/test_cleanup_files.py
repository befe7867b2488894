"""Files live as long as their jobs: the tenth property of the seed."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kesin.engine.queue import Queue
from kesin.foundation.clock import ManualClock
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.pdf.jobs.store import PdfJobStatus, PdfJobStore
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.local import LocalStorage

TTL_S = 24 * 3_600
AGES_S = st.lists(
    st.one_of(st.integers(0, 2 * TTL_S), st.integers(TTL_S - 2, TTL_S + 2)), min_size=1, max_size=4
)


@pytest.fixture(scope="module")
def store():
    with tempfile.TemporaryDirectory() as folder:
        opened = SqliteStore(":memory:")
        yield opened, Path(folder)
        opened.close()


_runs = iter(range(10_000))


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(ages_s=AGES_S, ttl_s=st.sampled_from([None, TTL_S, TTL_S // 2, 1]))
def test_cleanup_expires_old_jobs_with_their_files_and_no_others(store, ages_s, ttl_s):
    """Feature: pdf-render-worker, Property 10: what has lived its time is expired and its file
    deleted; what has not is left as it is."""
    opened, folder = store
    clock = ManualClock()
    queue = Queue(f"pdf{next(_runs)}", pdf_lifecycle(), opened, clock=clock)
    storage = LocalStorage(folder / queue.name)
    artifacts = PdfArtifactStore(storage)  # its own clock is the disk's
    jobs = PdfJobStore(queue, artifacts)
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
