"""The worker of batches: enqueues a job for each row, waits, and assembles the output file."""

import math
from collections.abc import Callable, Sequence
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
from kesin.workloads.pdf.batches import output as outputs
from kesin.workloads.pdf.batches.store import BatchOrder, PdfBatch, PdfBatchStore
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.store import UNFINISHED, RenderRequest, parse_job
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


class BatchInterrupted(Exception):
    """Processing of the batch ends early, with the action that it carries."""


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

    def requests(self, first: int, count: int) -> list[RenderRequest]:
        return self.order.requests(self.batch.batch_id, self.claim.tenant, first, count)

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
        end = self._end_batches
        super().__init__(
            batches.queue, self.run_batch, threads=threads, batch=1, in_transaction=end
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
                action: Act = interruption.args[0]
                return action
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
            return Failed("ROWS_MISSING", "the submitted rows are no longer in storage")
        row_jobs = {row_job.row: row_job for row_job in self.batches.feeder.row_jobs(job.id)}
        work = _BatchRun(job, batch, order, row_jobs, set(row_jobs))
        pause_s = MIN_PAUSE_S
        while True:
            self._require_wanted(job, run)
            changed = self._collect_ended_rows(work) + self._requeue_lost_rows(work)
            changed += self._feed_rows(work)
            if changed and job.id not in self.queue.renew([job]):
                raise feeder.BatchClaimLost(job.id)
            if len(work.results) == len(order.rows):
                result = self._finish(work, run)
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

    def _collect_ended_rows(self, work: _BatchRun) -> int:
        """Record the rows that have ended; returns their number. Only their jobs are read."""
        queue = self.batches.jobs.queue
        waiting = [work.row_jobs[row] for row in sorted(work.waiting)]
        states = queue.states([each.job_id for each in waiting if each.job_id])
        ended = [each for each in waiting if states.get(each.job_id) not in UNFINISHED]
        for at in range(0, len(ended), feeder.JOBS_PER_QUERY):
            chunk = ended[at : at + feeder.JOBS_PER_QUERY]
            jobs = queue.find([each.job_id for each in chunk if each.job_id])
            for row_job in chunk:
                self._record_row(work, row_job, jobs.get(row_job.job_id))
        return len(waiting) - len(work.waiting)

    def _record_row(self, work: _BatchRun, row_job: feeder.RowJob, job: Job | None) -> None:
        row = row_job.row
        state = feeder.row_state(job) if row_job.job_id else "failed"
        if state == "waiting":  # requeued between the two queries
            return
        work.waiting.discard(row)
        if state == "made" and job is not None:
            pdf = parse_job(job)
            facts = {fact: (pdf.result or {}).get(fact) for fact in ("pages", "bytes", "sha256")}
            made = feeder.BatchRowResult(row, row_job.job_id, pdf.artifact_key, **facts)
            work.results[row] = made
        elif state == "gone":
            work.mark_lost(row, missing=False)
        else:
            code = None if row_job.job_id else feeder.BAD_ROW
            work.results[row] = feeder.failed_row(row_job, job, code)

    def _requeue_lost_rows(self, work: _BatchRun) -> int:
        rows = sorted(work.lost)[: max(MAX_ROWS_IN_QUEUE - len(work.waiting), 0)]
        for row in rows:
            [request] = work.requests(row, 1)
            work.row_jobs[row] = self.batches.feeder.enqueue_again(
                work.claim, work.row_jobs[row], request, missing=work.lost[row]
            )
            del work.lost[row]
            work.waiting.add(row)
        return len(rows)

    def _feed_rows(self, work: _BatchRun) -> int:
        """Enqueue the next rows, as many as the queue takes; returns their number."""
        first = len(work.row_jobs)
        left = len(work.order.rows) - first
        if not left or len(work.waiting) > REFILL_BELOW:
            return 0
        queued = self.batches.jobs.queue.stats().states["queued"]
        count = min(left, MAX_ROWS_IN_QUEUE - len(work.waiting), self._queue_limit - queued)
        if count <= 0:
            return 0
        row_jobs = self.batches.feeder.feed(work.claim, first, work.requests(first, count))
        work.row_jobs |= {row_job.row: row_job for row_job in row_jobs}
        work.waiting |= {row_job.row for row_job in row_jobs}
        return len(row_jobs)

    def _finish(self, work: _BatchRun, run: RunContext) -> Done | Act | None:
        """Return the result of a batch whose rows have all ended; None if some must be redone."""
        started = self.queue.clock.monotonic()
        rows = [work.results[row] for row in sorted(work.results)]
        succeeded = [row_result for row_result in rows if row_result.artifact_key]
        result: dict[str, Any] = {
            "rows": len(rows),
            "made": len(succeeded),
            "failed": len(rows) - len(succeeded),
            "pages": sum(row_result.pages or 0 for row_result in succeeded),
        }
        files = outputs.BatchFiles(self.batches, work.batch, work.order, rows)
        failure: tuple[str, str] | None = None
        try:
            if succeeded:
                result |= files.assemble(lambda: self._require_wanted(work.claim, run))
            else:
                reason = rows[0].error_message or "no reason is known"
                failure = "EVERY_ROW_FAILED", f"row 1: {rows[0].error_code}: {reason}"
        except outputs.OutputTooLarge as problem:
            failure = "TOO_LARGE", str(problem)
        except RenderFailed as problem:
            failure = problem.code, problem.message
        except outputs.IncompleteRows as incomplete:
            missing, unreadable = incomplete.args
            rows_text = f"missing: {missing}, unreadable: {unreadable}"
            log.warning("batch_incomplete", batch=work.batch.batch_id, rows=rows_text)
            for row in missing:
                work.mark_lost(row, missing=True)
            for row in unreadable:
                row_job = work.row_jobs[row]
                work.results[row] = feeder.failed_row(row_job, None, feeder.UNREADABLE)
            return None
        result |= files.store_results()
        if failure is not None:  # like Failed, but with the results of the rows
            code, why = failure
            return Act("fail", code=code, message=why, category=Category.PERMANENT, result=result)
        result["seconds"] = round(self.queue.clock.monotonic() - started, 6)
        return Done(result) if len(succeeded) == len(rows) else Act("settle", result=result)

    def _end_batches(self, action: str, _: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        """Delete the row records of ended batches, in the transaction that ends them."""
        for outcome in outcomes:
            if outcome.result == "moved" and outcome.state not in UNFINISHED:
                cancel = action in {"stop", "fail", "retry"}
                self.batches.feeder.end_batch(outcome.id, cancel=cancel)


def build_worker(context: WorkloadContext) -> BatchWorker:
    return BatchWorker(open_batch_store(context), max_queued=context.settings.pdf_max_queued)
