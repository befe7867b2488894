"""Hourly cleanup after jobs have expired: unused files, and records of ended batches and workers.

Jobs and batches leave the queue before their files leave the storage, so a file without a job or
batch is unused. If the storage is down, the next run deletes its files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import Logger
from kesin.lifecycle.budget import HOUR_S, SECOND_US
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.workloads.pdf.batches.feeder import Feeder
from kesin.workloads.pdf.batches.store import (
    FOLDER,
    KEY_PATTERN,
    BatchStatus,
    PdfBatch,
    PdfBatchStore,
)
from kesin.workloads.pdf.jobs.heartbeat import PRUNE_AFTER_S, open_heartbeats
from kesin.workloads.pdf.jobs.store import UNFINISHED, PdfJobStore, expire_jobs
from kesin.workloads.pdf.services import open_artifacts
from kesin.workloads.pdf.storage.base import StorageError

_CURRENT_STATES: Final = tuple(
    status.value for status in BatchStatus if status is not BatchStatus.EXPIRED
)
log = Logger("kesin.pdf")


def delete_expired(context: WorkloadContext) -> int:
    """Run the whole cleanup; return how many files, batches and workers were removed."""
    jobs = PdfJobStore(context.commands.queues["pdf"])
    batches = context.commands.queues["pdf_batches"]
    expire_jobs(batches)  # their own sweep comes later, and their files would stay until the next
    removed = forget_ended_batches(batches, Feeder(batches, jobs))
    removed += forget_silent_workers(jobs.queue)
    ttl_s = context.settings.pdf_ttl_hours * HOUR_S
    older_than_s = max(ttl_s - HOUR_S, ttl_s / 2)  # a file is younger than its job
    try:
        artifacts = open_artifacts(context)
        removed += artifacts.delete_orphans(jobs.find_used_artifacts, older_than_s)
        removed += delete_unused_batch_files(PdfBatchStore(batches, jobs, artifacts), older_than_s)
    except StorageError as problem:
        log.warning("cleanup_failed", why=str(problem))
    return removed


def delete_unused_batch_files(batches: PdfBatchStore, older_than_s: float) -> int:
    """Delete old batch files that no batch uses; return how many.

    The input of a batch is stored before the batch is enqueued, so files younger than
    ``older_than_s`` are left alone.
    """
    before_us = batches.queue.now() - round(older_than_s * SECOND_US)
    folders: set[str] = set()
    keys: set[str] = set()
    for batch in _current_batches(batches):
        if batch.is_over:
            keys |= batch.used_keys
        else:
            folders.add(batch.input_key.rpartition("/")[0])
    deleted = 0
    for file in batches.storage.list(FOLDER, before_us=before_us):
        ours = KEY_PATTERN.fullmatch(file.key) is not None
        if ours and file.key not in keys and file.key.rpartition("/")[0] not in folders:
            deleted += batches.storage.delete(file.key)
    return deleted


def _current_batches(batches: PdfBatchStore) -> Iterator[PdfBatch]:
    cursor: str | None = None
    while True:
        page = batches.queue.jobs(Filter(states=_CURRENT_STATES), limit=MAX_PAGE, cursor=cursor)
        yield from (batches.parse_batch(job) for job in page.jobs)
        cursor = page.cursor
        if cursor is None:
            return


def forget_ended_batches(batches: Queue, feeder: Feeder) -> int:
    """Drop the progress of ended batches and cancel their waiting rows; return how many batches.

    A batch that its worker ends does this itself. This covers batches that the sweeper or an
    operator ended.
    """
    forgotten = 0
    for batch_id in sorted(feeder.batch_ids()):
        with batches.store.transaction():
            batch = batches.job(batch_id)
            if batch is None or batch.state not in UNFINISHED:
                feeder.end_batch(batch_id, cancel=True)
                forgotten += 1
    return forgotten


def forget_silent_workers(queue: Queue) -> int:
    """Drop the heartbeats of workers that have long been silent; return how many."""
    return open_heartbeats(queue.store).prune(queue.now() - PRUNE_AFTER_S * SECOND_US)
