"""Hourly cleanup: files that no job or batch uses, and records of ended batches and workers."""

from typing import Final

from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import Logger
from kesin.lifecycle.budget import HOUR_S, SECOND_US
from kesin.store.records import Filter
from kesin.workloads.common.stores import job_pages
from kesin.workloads.pdf.batches import store as batch_store
from kesin.workloads.pdf.batches.feeder import Feeder
from kesin.workloads.pdf.jobs.dispatch import dispatch_waiting
from kesin.workloads.pdf.jobs.heartbeat import open_heartbeats
from kesin.workloads.pdf.jobs.store import UNFINISHED, PdfJobStore, expire_jobs
from kesin.workloads.pdf.links import PdfLinks
from kesin.workloads.pdf.services import open_artifacts
from kesin.workloads.pdf.storage.base import StorageError
from kesin.workloads.pdf.uploads.store import PdfUploads

_CURRENT: Final = Filter(states=tuple(s.value for s in batch_store.BatchStatus if s != "expired"))
log = Logger("kesin.pdf")


def delete_expired(context: WorkloadContext) -> int:
    """Run the whole cleanup; return how many files, batches and workers were removed."""
    jobs = PdfJobStore(context.commands.queues["pdf"])
    batches = context.commands.queues["pdf_batches"]
    expire_jobs(batches)  # their own sweep comes later, and their files would stay until the next
    removed = forget_ended_batches(batches, Feeder(batches, jobs))
    removed += open_heartbeats(jobs.queue.store).prune(jobs.queue.now())
    removed += PdfLinks(context.settings, jobs.queue).prune()
    ttl_s = context.settings.pdf_ttl_hours * HOUR_S
    older_than_s = max(ttl_s - HOUR_S, ttl_s / 2)  # a file is younger than its job
    try:
        artifacts = open_artifacts(context.settings, context.queue)
        removed += artifacts.delete_orphans(jobs.find_used_artifacts, older_than_s)
        store = batch_store.PdfBatchStore(batches, jobs, artifacts)
        removed += delete_unused_batch_files(store, older_than_s)
        uploads = PdfUploads(artifacts.storage, jobs.queue.now, context.settings.pdf_upload_hours)
        removed += uploads.delete_old(context.settings.pdf_ttl_hours)
    except StorageError as problem:
        log.warning("cleanup_failed", why=str(problem))
    return removed


def tend_jobs(context: WorkloadContext) -> None:
    """Do what is due every few seconds: lost messages, and passwords of jobs that have ended."""
    dispatch_waiting(context.queue)
    PdfJobStore(context.queue).forget_old_passwords()


def delete_unused_batch_files(batches: batch_store.PdfBatchStore, older_than_s: float) -> int:
    """Delete old files without a batch, and count them; a young one may precede its batch."""
    before_us = batches.queue.now() - round(older_than_s * SECOND_US)
    folders, keys = set[str](), set[str]()
    for page in job_pages(batches.queue, _CURRENT):
        for batch in map(batches.parse_batch, page):
            if batch.is_over:
                keys |= {batch.result.get(name, "") for name in ("artifact_key", "results_key")}
            else:
                folders.add(batch.input_key.rpartition("/")[0])
    deleted = 0
    for file in batches.storage.list(batch_store.FOLDER, before_us=before_us):
        ours = batch_store.KEY_PATTERN.fullmatch(file.key) is not None
        if ours and file.key not in keys and file.key.rpartition("/")[0] not in folders:
            deleted += batches.storage.delete(file.key)
    return deleted


def forget_ended_batches(batches: Queue, feeder: Feeder) -> int:
    """Cancel the rows of batches that the sweeper or an operator ended; return how many."""
    forgotten = 0
    for batch_id in sorted(feeder.batch_ids()):
        with batches.store.transaction():
            batch = batches.job(batch_id)
            if batch is None or batch.state not in UNFINISHED:
                feeder.end_batch(batch_id, cancel=True)
                forgotten += 1
    return forgotten
