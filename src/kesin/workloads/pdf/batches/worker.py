"""The worker of batches: enqueues a job for each row, waits, and assembles the output file.

It renders nothing itself. A batch occupies a thread of its worker until it ends. Which job serves
which row is stored, so the next worker continues where a worker died.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kesin.engine.results import Act, Done, Failed, HandlerResult, RunContext
from kesin.engine.worker import Worker
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import Logger
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.store.errors import StoreUnreachable
from kesin.store.records import Outcome
from kesin.workloads.pdf.batches import feeder
from kesin.workloads.pdf.batches.output import (
    IncompleteRows,
    OutputTooLarge,
    assemble_output,
    store_results,
)
from kesin.workloads.pdf.batches.store import BatchOrder, PdfBatch, PdfBatchStore
from kesin.workloads.pdf.jobs.store import UNFINISHED, parse_job
from kesin.workloads.pdf.jobs.submit import RESUME_SHARE
from kesin.workloads.pdf.services import open_batch_store
from kesin.workloads.pdf.storage.base import NotStored, StorageDown

WORKER_THREADS: Final = 4  # batches at a time
MAX_ROWS_IN_QUEUE: Final = 100  # rows of one batch that have a waiting job
REFILL_BELOW: Final = 50  # waiting rows; more are enqueued at this number or below
MAX_ROW_RETRIES: Final = 3  # how often a row is enqueued again
MIN_PAUSE_S: Final = 0.2  # between two polls
MAX_PAUSE_S: Final = 1.0  # while nothing changes
_RELEASE: Final = Act("release")
log = Logger("kesin.pdf")


def build_worker(context: WorkloadContext) -> BatchWorker:
    """Build the worker of a process."""
    return BatchWorker(open_batch_store(context), max_queued=context.settings.pdf_max_queued)


class BatchInterrupted(Exception):
    """Processing of the batch ends early, with this result."""

    def __init__(self, result: Act) -> None:
        super().__init__(result.action)
        self.result = result


@dataclass(slots=True)
class _BatchRun:
    """The progress of a claimed batch. Rows are counted from 0."""

    claim: Job
    batch: PdfBatch
    order: BatchOrder
    row_jobs: dict[int, feeder.RowJob]  # of every row that was enqueued
    waiting: set[int]  # rows whose jobs have not ended
    results: dict[int, feeder.BatchRowResult] = field(default_factory=dict)
    lost: dict[int, bool] = field(default_factory=dict)  # row: whether only its file is missing
    saved_progress: feeder.BatchProgress | None = None

    @property
    def is_complete(self) -> bool:
        return len(self.results) == len(self.order.rows)

    @property
    def progress(self) -> feeder.BatchProgress:
        succeeded = sum(result.artifact_key is not None for result in self.results.values())
        return feeder.BatchProgress(len(self.row_jobs), succeeded, len(self.results) - succeeded)

    def mark_lost(self, row: int, *, missing: bool) -> None:
        """Schedule a row without a PDF to be enqueued again; it fails after MAX_ROW_RETRIES."""
        self.results.pop(row, None)
        if self.row_jobs[row].retries < MAX_ROW_RETRIES:
            self.lost[row] = missing
        else:
            self.results[row] = feeder.failed_row(self.row_jobs[row], None, feeder.ARTIFACT_GONE)


class BatchWorker(Worker):
    """Processes batches."""

    def __init__(
        self,
        batches: PdfBatchStore,
        *,
        max_queued: int = 1_000,
        wait: Callable[[float], None] | None = None,
        threads: int = WORKER_THREADS,
    ) -> None:
        super().__init__(
            batches.queue,
            self.run_batch,
            threads=threads,
            batch=1,
            in_transaction=self._end_batches,
        )
        self.batches = batches
        self._queue_limit = math.ceil(max_queued * RESUME_SHARE)  # jobs; then no row is enqueued
        self._wait = wait or self.pause

    def run_batch(self, job: Job, run: RunContext) -> HandlerResult:
        """Process a batch and return its result; waits while the store is unreachable."""
        while True:
            try:
                return self._run_claimed(job, run)
            except BatchInterrupted as interruption:
                return interruption.result
            except feeder.BatchClaimLost:
                return _RELEASE  # rejected by the store and logged
            except StorageDown as problem:
                return Failed("STORAGE_DOWN", str(problem))
            except StoreUnreachable as problem:
                log.warning("store_unreachable", batch=job.id, why=str(problem))
                if run.stopping or run.lost:
                    return _RELEASE
                self._wait(MAX_PAUSE_S)

    def _run_claimed(self, job: Job, run: RunContext) -> HandlerResult:
        self._require_wanted(job, run)
        batch = self.batches.parse_batch(job)
        try:
            order = self.batches.load_order(batch)
        except NotStored:
            return Failed("ROWS_MISSING", "what was sent is no longer in the storage")
        row_jobs = {row_job.row: row_job for row_job in self.batches.feeder.row_jobs(job.id)}
        batch_run = _BatchRun(job, batch, order, row_jobs, set(row_jobs))
        pause_s = MIN_PAUSE_S
        while True:
            self._require_wanted(job, run)
            changed = (
                self._collect_ended_rows(batch_run)
                + self._requeue_lost_rows(batch_run)
                + self._feed_rows(batch_run)
            )
            if batch_run.progress != batch_run.saved_progress:
                batch_run.saved_progress = batch_run.progress
                self.batches.feeder.save_progress(job, batch_run.saved_progress)
            if batch_run.is_complete:
                result = self._finish(batch_run, run)
                if result is not None:
                    return result
            elif changed:
                pause_s = MIN_PAUSE_S
            else:
                self._wait(pause_s)
                pause_s = min(pause_s * 2, MAX_PAUSE_S)

    def _require_wanted(self, job: Job, run: RunContext) -> None:
        """Raise BatchInterrupted or BatchClaimLost if processing must end."""
        if run.stopping or run.lost:
            raise BatchInterrupted(_RELEASE)
        current = self.queue.job(job.id)
        if current is None or current.claim_seq != job.claim_seq or current.state != "running":
            raise feeder.BatchClaimLost(job.id)
        if self.batches.parse_batch(current).cancel_asked:
            raise BatchInterrupted(Act("stop"))

    # Rows

    def _collect_ended_rows(self, batch_run: _BatchRun) -> int:
        """Record the rows that have ended; returns their number. Only their jobs are read."""
        queue = self.batches.jobs.queue
        rows = sorted(batch_run.waiting)
        ids = [batch_run.row_jobs[row].job_id for row in rows]
        states = queue.states([job_id for job_id in ids if job_id])
        ended = [
            row for row in rows if states.get(batch_run.row_jobs[row].job_id) not in UNFINISHED
        ]
        for at in range(0, len(ended), feeder.JOBS_PER_QUERY):
            chunk = ended[at : at + feeder.JOBS_PER_QUERY]
            jobs = queue.find(
                [batch_run.row_jobs[row].job_id for row in chunk if batch_run.row_jobs[row].job_id]
            )
            for row in chunk:
                self._record_row(batch_run, row, jobs.get(batch_run.row_jobs[row].job_id))
        return len(rows) - len(batch_run.waiting)

    def _record_row(self, batch_run: _BatchRun, row: int, job: Job | None) -> None:
        row_job = batch_run.row_jobs[row]
        state = feeder.row_state(job) if row_job.job_id else "failed"
        if state == "waiting":  # requeued between the two queries
            return
        batch_run.waiting.discard(row)
        if state == "made" and job is not None:
            batch_run.results[row] = feeder.succeeded_row(row_job, parse_job(job))
        elif state == "gone":
            batch_run.mark_lost(row, missing=False)
        else:
            batch_run.results[row] = feeder.failed_row(
                row_job, job, None if row_job.job_id else feeder.BAD_ROW
            )

    def _requeue_lost_rows(self, batch_run: _BatchRun) -> int:
        """Enqueue lost rows again; returns their number."""
        rows = sorted(batch_run.lost)[: max(MAX_ROWS_IN_QUEUE - len(batch_run.waiting), 0)]
        for row in rows:
            [request] = batch_run.order.requests(
                batch_run.batch.batch_id, batch_run.claim.tenant, row, 1
            )
            row_job, missing = batch_run.row_jobs[row], batch_run.lost[row]
            batch_run.row_jobs[row] = self.batches.feeder.enqueue_again(
                batch_run.claim, row_job, request, missing=missing
            )
            del batch_run.lost[row]
            batch_run.waiting.add(row)
        return len(rows)

    def _feed_rows(self, batch_run: _BatchRun) -> int:
        """Enqueue the next rows, as many as the queue takes; returns their number."""
        first = len(batch_run.row_jobs)
        left = len(batch_run.order.rows) - first
        if not left or len(batch_run.waiting) > REFILL_BELOW:
            return 0
        queued = self.batches.jobs.queue.stats().states["queued"]
        count = min(left, MAX_ROWS_IN_QUEUE - len(batch_run.waiting), self._queue_limit - queued)
        if count <= 0:
            return 0
        requests = batch_run.order.requests(
            batch_run.batch.batch_id, batch_run.claim.tenant, first, count
        )
        row_jobs = self.batches.feeder.feed(batch_run.claim, first, requests)
        batch_run.row_jobs |= {row_job.row: row_job for row_job in row_jobs}
        batch_run.waiting |= {row_job.row for row_job in row_jobs}
        return len(row_jobs)

    # The end

    def _finish(self, batch_run: _BatchRun, run: RunContext) -> Done | Act | None:
        """Return the result of a batch whose rows have all ended; None if some must be redone."""
        started = self.queue.clock.monotonic()
        rows = [batch_run.results[row] for row in sorted(batch_run.results)]
        succeeded = [row_result for row_result in rows if row_result.artifact_key]
        result: dict[str, Any] = {
            "rows": len(rows),
            "made": len(succeeded),
            "failed": len(rows) - len(succeeded),
            "pages": sum(row_result.pages or 0 for row_result in succeeded),
        }
        arguments = (self.batches, batch_run.batch, batch_run.order, rows)
        if not succeeded:
            first = rows[0]
            message = f"row 1: {first.error_code}: {first.error_message or 'no reason is known'}"
            return _fail_with_results(
                "EVERY_ROW_FAILED", message, result | store_results(*arguments)
            )
        try:
            result |= assemble_output(
                *arguments, lambda: self._require_wanted(batch_run.claim, run)
            )
        except OutputTooLarge as problem:
            return _fail_with_results("TOO_LARGE", str(problem), result | store_results(*arguments))
        except IncompleteRows as incomplete:
            log.warning("batch_incomplete", batch=batch_run.batch.batch_id, rows=str(incomplete))
            for row in incomplete.missing:
                batch_run.mark_lost(row, missing=True)
            for row in incomplete.unreadable:
                batch_run.results[row] = feeder.failed_row(
                    batch_run.row_jobs[row], None, feeder.UNREADABLE
                )
            return None
        result |= store_results(*arguments)
        result["seconds"] = round(self.queue.clock.monotonic() - started, 6)
        return Done(result) if len(succeeded) == len(rows) else Act("settle", result=result)

    def _end_batches(
        self, action: str, changes: Sequence[Change], outcomes: Sequence[Outcome]
    ) -> None:
        """Delete the row records of ended batches, in the transaction that ends them."""
        del changes
        for outcome in outcomes:
            if outcome.result == "moved" and outcome.state not in UNFINISHED:
                self.batches.feeder.end_batch(
                    outcome.id, cancel=action in {"stop", "fail", "retry"}
                )


def _fail_with_results(code: str, message: str, result: Mapping[str, Any]) -> Act:
    """Return a failure like ``Failed`` that also records the results of the rows."""
    return Act("fail", code=code, message=message, category=Category.PERMANENT, result=dict(result))
