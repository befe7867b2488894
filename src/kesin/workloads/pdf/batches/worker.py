"""The worker of batches: feeds rows in, waits for them, and has them put into one file.

It renders nothing itself. A batch holds a lane of its worker until it is over; a worker that dies
leaves behind which rows it fed, and the next one goes on from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kesin.engine.results import Act, Answer, Done, Failed, Run
from kesin.engine.worker import Worker
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import Logger
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.store.errors import StoreUnreachable
from kesin.store.records import Outcome
from kesin.workloads.pdf.batches.feeder import (
    ARTIFACT_GONE,
    BAD_ROW,
    SLICE,
    UNREADABLE,
    ClaimLost,
    Fed,
    Progress,
    RowResult,
    failed_of,
    made_of,
    standing,
)
from kesin.workloads.pdf.batches.output import Incomplete, TooMuch, gathered, kept_results
from kesin.workloads.pdf.batches.store import Batch, Order, PdfBatchStore
from kesin.workloads.pdf.jobs.store import ON_THE_WAY, job_of
from kesin.workloads.pdf.jobs.submit import RESUME_SHARE
from kesin.workloads.pdf.services import artifacts_of, jobs_of
from kesin.workloads.pdf.storage.base import NotStored, StorageDown

LANES: Final = 4  # batches at a time
WINDOW: Final = 100  # rows of one batch in the line at most
REFILL: Final = 50  # or fewer, and more are fed
MOST_TIMES: Final = 3  # a row is asked for anew
FIRST_PAUSE_S: Final = 0.2  # between two looks
LONGEST_PAUSE_S: Final = 1.0  # while nothing changes
_RELEASE: Final = Act("release")
log = Logger("kesin.pdf")


def worker_of(house: WorkloadContext) -> BatchWorker:
    """The worker of a process that does nothing else."""
    return BatchWorker(store_of(house), most_queued=house.settings.pdf_max_queued)


def store_of(house: WorkloadContext) -> PdfBatchStore:
    """The batches, with their storage."""
    queue = house.commands.queues["pdf_batches"]
    return PdfBatchStore(queue, jobs_of(house), artifacts_of(house))


class Interrupted(Exception):
    """The batch is to be let go of, and with which answer."""

    def __init__(self, answer: Act) -> None:
        super().__init__(answer.call)
        self.answer = answer


@dataclass(slots=True)
class _Work:
    """One batch in the hands of a worker. Rows are counted from 0."""

    claim: Job
    batch: Batch
    order: Order
    served: dict[int, Fed]  # every row that has had a job
    waiting: set[int]  # for their jobs
    ended: dict[int, RowResult] = field(default_factory=dict)
    gone: dict[int, bool] = field(default_factory=dict)  # whether only the file is missing
    told: Progress | None = None

    @property
    def is_over(self) -> bool:
        return len(self.ended) == len(self.order.rows)

    @property
    def progress(self) -> Progress:
        made = sum(one.artifact_key is not None for one in self.ended.values())
        return Progress(len(self.served), made, len(self.ended) - made)

    def lose(self, row: int, *, missing: bool) -> None:
        """There is no PDF any more: it is made again, but not for ever."""
        self.ended.pop(row, None)
        if self.served[row].times < MOST_TIMES:
            self.gone[row] = missing
        else:
            self.ended[row] = failed_of(self.served[row], None, ARTIFACT_GONE)


class BatchWorker(Worker):
    """Runs batches to their end."""

    def __init__(
        self,
        batches: PdfBatchStore,
        *,
        most_queued: int = 1_000,
        wait: Callable[[float], None] | None = None,
        threads: int = LANES,
    ) -> None:
        super().__init__(
            batches.queue, self.carried_out, threads=threads, batch=1, beside=self._beside
        )
        self.batches = batches
        self._line = math.ceil(most_queued * RESUME_SHARE)  # waiting jobs; then none is fed
        self._wait = wait or self.pause

    def carried_out(self, job: Job, run: Run) -> Answer:
        """What became of a batch; while the store is away, it is waited for."""
        while True:
            try:
                return self._carried_out(job, run)
            except Interrupted as stop:
                return stop.answer
            except ClaimLost:
                return _RELEASE  # is refused, and said so in the log
            except StorageDown as problem:
                return Failed("STORAGE_DOWN", str(problem))
            except StoreUnreachable as problem:
                log.warning("store_away", batch=job.id, why=str(problem))
                if run.stopping or run.lost:
                    return _RELEASE
                self._wait(LONGEST_PAUSE_S)

    def _carried_out(self, job: Job, run: Run) -> Answer:
        self._require_wanted(job, run)
        batch = self.batches.batch_of(job)
        try:
            order = self.batches.order_of(batch)
        except NotStored:
            return Failed("ROWS_MISSING", "what was sent is no longer in the storage")
        served = {one.row: one for one in self.batches.feeder.fed(job.id)}
        work = _Work(job, batch, order, served, set(served))
        pause_s = FIRST_PAUSE_S
        while True:
            self._require_wanted(job, run)
            changed = self._look(work) + self._ask_again(work) + self._feed(work)
            if work.progress != work.told:
                work.told = work.progress
                self.batches.feeder.note(job, work.told)
            if work.is_over:
                answer = self._finished(work, run)
                if answer is not None:
                    return answer
            elif changed:
                pause_s = FIRST_PAUSE_S
            else:
                self._wait(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _require_wanted(self, job: Job, run: Run) -> None:
        """Whether to go on; raises Interrupted or ClaimLost."""
        if run.stopping or run.lost:
            raise Interrupted(_RELEASE)
        now = self.queue.job(job.id)
        if now is None or now.claim_seq != job.claim_seq or now.state != "running":
            raise ClaimLost(job.id)
        if self.batches.batch_of(now).cancel_asked:
            raise Interrupted(Act("stop"))

    # Rows

    def _look(self, work: _Work) -> int:
        """See which rows have ended since; how many. Only theirs are read whole."""
        queue = self.batches.jobs.queue
        rows = sorted(work.waiting)
        ids = [work.served[row].job_id for row in rows]
        states = queue.states([one for one in ids if one])
        ended = [row for row in rows if states.get(work.served[row].job_id) not in ON_THE_WAY]
        for at in range(0, len(ended), SLICE):
            part = ended[at : at + SLICE]
            jobs = queue.find([work.served[row].job_id for row in part if work.served[row].job_id])
            for row in part:
                self._judge(work, row, jobs.get(work.served[row].job_id))
        return len(rows) - len(work.waiting)

    def _judge(self, work: _Work, row: int, job: Job | None) -> None:
        fed = work.served[row]
        stands = standing(job) if fed.job_id else "failed"
        if stands == "waiting":  # requeued between two questions
            return
        work.waiting.discard(row)
        if stands == "made" and job is not None:
            work.ended[row] = made_of(fed, job_of(job))
        elif stands == "gone":
            work.lose(row, missing=False)
        else:
            work.ended[row] = failed_of(fed, job, None if fed.job_id else BAD_ROW)

    def _ask_again(self, work: _Work) -> int:
        """Have those made once more that were lost; how many."""
        rows = sorted(work.gone)[: max(WINDOW - len(work.waiting), 0)]
        for row in rows:
            [request] = work.order.requests(work.batch.batch_id, work.claim.tenant, row, 1)
            fed, missing = work.served[row], work.gone[row]
            work.served[row] = self.batches.feeder.again(work.claim, fed, request, missing=missing)
            del work.gone[row]
            work.waiting.add(row)
        return len(rows)

    def _feed(self, work: _Work) -> int:
        """Make jobs of the next rows, as many as the line takes; how many."""
        first = len(work.served)
        left = len(work.order.rows) - first
        if not left or len(work.waiting) > REFILL:
            return 0
        in_line = self.batches.jobs.queue.stats().states["queued"]
        count = min(left, WINDOW - len(work.waiting), self._line - in_line)
        if count <= 0:
            return 0
        requests = work.order.requests(work.batch.batch_id, work.claim.tenant, first, count)
        fed = self.batches.feeder.feed(work.claim, first, requests)
        work.served |= {one.row: one for one in fed}
        work.waiting |= {one.row for one in fed}
        return len(fed)

    # The end

    def _finished(self, work: _Work, run: Run) -> Done | Act | None:
        """The answer to a batch whose rows have all ended; None if some must be made again."""
        since = self.queue.clock.monotonic()
        rows = [work.ended[row] for row in sorted(work.ended)]
        made = [one for one in rows if one.artifact_key]
        result: dict[str, Any] = {
            "rows": len(rows),
            "made": len(made),
            "failed": len(rows) - len(made),
            "pages": sum(one.pages or 0 for one in made),
        }
        kept = (self.batches, work.batch, work.order, rows)
        if not made:
            first = rows[0]
            why = f"row 1: {first.error_code}: {first.error_message or 'no reason is known'}"
            return _failed("EVERY_ROW_FAILED", why, result | kept_results(*kept))
        try:
            result |= gathered(*kept, lambda: self._require_wanted(work.claim, run))
        except TooMuch as problem:
            return _failed("TOO_LARGE", str(problem), result | kept_results(*kept))
        except Incomplete as found:
            log.warning("batch_incomplete", batch=work.batch.batch_id, rows=str(found))
            for row in found.missing:
                work.lose(row, missing=True)
            for row in found.unreadable:
                work.ended[row] = failed_of(work.served[row], None, UNREADABLE)
            return None
        result |= kept_results(*kept)
        result["seconds"] = round(self.queue.clock.monotonic() - since, 6)
        return Done(result) if len(made) == len(rows) else Act("settle", result=result)

    def _beside(self, call: str, changes: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        """Forget the rows of a batch in the transaction that ends it."""
        del changes
        for one in outcomes:
            if one.result == "moved" and one.state not in ON_THE_WAY:
                self.batches.feeder.end(one.id, cancel=call in {"stop", "fail", "retry"})


def _failed(code: str, message: str, result: Mapping[str, Any]) -> Act:
    """As Failed, with the results of the rows."""
    return Act("fail", code=code, message=message, category=Category.PERMANENT, result=dict(result))
