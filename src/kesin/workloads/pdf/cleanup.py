"""The hourly tidying, once jobs have expired: files nobody knows, facts of what is over.

Everything leaves the queue first and the storage after it, so what is found here belongs to nobody.
A storage that is down is tidied next time.
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
from kesin.workloads.pdf.batches.store import FOLDER, OURS, Batch, BatchStatus, PdfBatchStore
from kesin.workloads.pdf.jobs.heartbeat import FORGET_S, signs_of
from kesin.workloads.pdf.jobs.store import ON_THE_WAY, PdfJobStore
from kesin.workloads.pdf.services import artifacts_of
from kesin.workloads.pdf.storage.base import StorageError

BATCH: Final = 1_000
_LIVING: Final = tuple(one.value for one in BatchStatus if one is not BatchStatus.EXPIRED)
log = Logger("kesin.pdf")


def tidied(house: WorkloadContext) -> int:
    """Do all of it; how many files, batches and workers were forgotten."""
    jobs = PdfJobStore(house.commands.queues["pdf"])
    batches = house.commands.queues["pdf_batches"]
    expire(batches)
    done = forget_batches(batches, Feeder(batches, jobs)) + forget_workers(jobs.queue)
    ttl_s = house.settings.pdf_ttl_hours * HOUR_S
    older_than_s = max(ttl_s - HOUR_S, ttl_s / 2)  # a file is younger than its job
    try:
        artifacts = artifacts_of(house)
        done += artifacts.sweep_orphans(jobs.known_artifacts, older_than_s)
        done += sweep_batches(PdfBatchStore(batches, jobs, artifacts), older_than_s)
    except StorageError as problem:
        log.warning("not_tidied", why=str(problem))
    return done


def expire(queue: Queue) -> None:
    """Let batches expire now: their own turn comes after this one, and their files would wait."""
    for move in queue.lifecycle.clock_moves:
        if move.stage == "expire":
            while queue.sweep(move, limit=BATCH) == BATCH:
                pass


def sweep_batches(batches: PdfBatchStore, older_than_s: float) -> int:
    """Delete old files of batches that no batch needs; how many.

    What was sent is written before its batch is: who is younger than a batch can be is left alone.
    """
    before_us = batches.queue.now() - round(older_than_s * SECOND_US)
    folders: set[str] = set()
    keys: set[str] = set()
    for batch in _living(batches):
        if batch.is_over:
            keys |= batch.used_keys
        else:
            folders.add(batch.input_key.rpartition("/")[0])
    swept = 0
    for one in batches.storage.list(FOLDER, before_us=before_us):
        ours = OURS.fullmatch(one.key) is not None
        if ours and one.key not in keys and one.key.rpartition("/")[0] not in folders:
            swept += batches.storage.delete(one.key)
    return swept


def _living(batches: PdfBatchStore) -> Iterator[Batch]:
    cursor: str | None = None
    while True:
        page = batches.queue.jobs(Filter(states=_LIVING), limit=MAX_PAGE, cursor=cursor)
        yield from (batches.batch_of(one) for one in page.jobs)
        cursor = page.cursor
        if cursor is None:
            return


def forget_batches(batches: Queue, feeder: Feeder) -> int:
    """Drop what is remembered of batches that are over, and their rows that still wait; how many.

    A batch's own end does that; what the clock or an operator ended is met here.
    """
    forgotten = 0
    for batch_id in sorted(feeder.remembered()):
        with batches.store.transaction():
            batch = batches.job(batch_id)
            if batch is None or batch.state not in ON_THE_WAY:
                feeder.end(batch_id, cancel=True)
                forgotten += 1
    return forgotten


def forget_workers(queue: Queue) -> int:
    """Drop the signs of life of workers that have long been silent; how many."""
    return signs_of(queue.store).forget(queue.now() - FORGET_S * SECOND_US)
