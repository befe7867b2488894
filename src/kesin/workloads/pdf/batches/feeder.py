"""Feeding the rows of a batch into the queue of jobs, each exactly once whoever dies on the way.

Which job serves which row is kept as facts of the batch, written in the transaction that makes the
jobs and only under the batch's claim: a worker that lost it writes nothing any more, and the next
one reads how far the last one came.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from kesin.engine.queue import New, Queue
from kesin.engine.validation import BadInput
from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Change, Job
from kesin.store.directory import Fact
from kesin.store.metadata import facts_of
from kesin.workloads.pdf.advice import describe
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.dispatch import enqueue_pdf_job
from kesin.workloads.pdf.jobs.stats import WORKLOAD
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStore, RenderRequest, job_of

SLICE: Final = 100  # jobs looked at in one question
ACTOR: Final = "batch:"
CANCELLED: Final = "CANCELLED"
EXPIRED: Final = "EXPIRED"
ARTIFACT_GONE: Final = "ARTIFACT_GONE"
BAD_ROW: Final = "BAD_ROW"
UNREADABLE: Final = "UNREADABLE"
_ROWS: Final = "rows:"
_PROGRESS: Final = "progress"
_WHY: Final = {
    CANCELLED: "its job was cancelled",
    EXPIRED: "its job waited for too long",
    ARTIFACT_GONE: "its PDF is not there any more, each time it was made",
    BAD_ROW: "its variables cannot be kept",
    UNREADABLE: "its PDF cannot be read",
}

Standing = Literal["waiting", "made", "failed", "gone"]


class ClaimLost(Exception):
    """Somebody else has the batch by now, or nobody needs it any more."""


class Fed(NamedTuple):
    """The job that serves a row. ``own``: it was made for this batch; ``times``: asked anew."""

    row: int  # from 0
    job_id: str  # '' for a row that could not be asked for
    own: bool = True
    times: int = 0


@dataclass(frozen=True, slots=True)
class RowResult:
    """What came of a row."""

    row: int
    job_id: str
    artifact_key: str | None = None
    pages: int | None = None
    bytes: int | None = None
    sha256: str | None = None
    error_code: str | None = None
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a batch is."""

    fed: int = 0
    made: int = 0
    failed: int = 0


class Feeder:
    """The facts of batches and the jobs behind them."""

    def __init__(self, batches: Queue, jobs: PdfJobStore) -> None:
        self._batches = batches
        self._jobs = jobs
        self._facts = facts_of(batches.store)

    def fed(self, batch_id: str) -> list[Fed]:
        """The rows that have a job, in their order."""
        found: list[Fed] = []
        for fact in self._facts.facts(WORKLOAD, site=batch_id):
            if fact.name.startswith(_ROWS):
                found += _entries(fact)
        return sorted(found)

    def feed(self, claim: Job, first: int, requests: Sequence[RenderRequest]) -> list[Fed]:
        """Make jobs for the next rows and write down which; raises ClaimLost."""
        news: list[New] = []
        rows: list[int] = []  # of these
        for row, request in enumerate(requests, first):
            try:
                news.append(_new(request))
            except RenderFailed:
                continue
            rows.append(row)
        with self._under(claim):
            outcomes = self._jobs.queue.enqueue_many(news, actor=claim.tenant)
            asked = {
                row: Fed(row, one.id, own=one.result == "inserted")
                for row, one in zip(rows, outcomes, strict=True)
                if not isinstance(one, BadInput)
            }
            fed = [asked.get(row, Fed(row, "")) for row in range(first, first + len(requests))]
            self._put(claim.id, fed)
        self._send_for(fed)
        return fed

    def _send_for(self, fed: Sequence[Fed]) -> None:
        """Those that were made for this batch; of the others somebody else has."""
        for one in fed:
            if one.own and one.job_id:
                enqueue_pdf_job(one.job_id, store=self._jobs.queue.store)

    def again(self, claim: Job, fed: Fed, request: RenderRequest, *, missing: bool = False) -> Fed:
        """Ask once more for a row that has no PDF any more; raises ClaimLost.

        ``missing``: its job succeeded, and the storage says that it has nothing of it.
        """
        new = _new(request)
        queue = self._jobs.queue
        with self._under(claim):
            if missing:
                old = [Change(fed.job_id)]
                queue.apply("artifact_gone", old, role="producer", actor=claim.tenant)
            asked = queue.enqueue(new.payload, key=new.key, tenant=new.tenant, actor=new.tenant)
            now = Fed(fed.row, asked.id, own=asked.result == "inserted", times=fed.times + 1)
            for fact in self._facts.facts(WORKLOAD, site=claim.id):
                if fact.name.startswith(_ROWS):
                    entries = [now if one.row == fed.row else one for one in _entries(fact)]
                    if now in entries:
                        self._put(claim.id, entries)
        self._send_for([now])
        return now

    def note(self, claim: Job, progress: Progress) -> None:
        """Write down how far it is, for whoever asks; raises ClaimLost."""
        told = {"fed": progress.fed, "made": progress.made, "failed": progress.failed}
        with self._under(claim):
            now = self._batches.now()
            self._facts.put_fact(Fact(WORKLOAD, claim.id, _PROGRESS, canonical_json(told), now))

    def progress(self, batch_id: str) -> Progress:
        """How far it was when its worker last said so."""
        fact = self._facts.fact(WORKLOAD, batch_id, _PROGRESS)
        return Progress() if fact is None else Progress(**json.loads(fact.value))

    def end(self, batch_id: str, *, cancel: bool) -> None:
        """Forget a batch that is over, and take back what it still has in the line.

        To be called in the transaction that ends it. Jobs that somebody asked for before the
        batch did are left alone.
        """
        if cancel:
            own = [one.job_id for one in self.fed(batch_id) if one.own and one.job_id]
            for at in range(0, len(own), SLICE):
                jobs = self._jobs.queue.find(own[at : at + SLICE])
                changes = [Change(one.id) for one in jobs.values() if one.state == "queued"]
                if changes:
                    actor = ACTOR + batch_id
                    self._jobs.queue.apply("cancel", changes, role="producer", actor=actor)
        for fact in self._facts.facts(WORKLOAD, site=batch_id):
            self._facts.drop_fact(WORKLOAD, batch_id, fact.name)

    def remembered(self) -> set[str]:
        """The batches that have facts."""
        return {one.site for one in self._facts.facts(WORKLOAD) if one.site}

    def _put(self, batch_id: str, fed: Sequence[Fed]) -> None:
        told = [[one.job_id, int(one.own), one.times] for one in fed]
        name = f"{_ROWS}{fed[0].row:04d}"
        now = self._batches.now()
        self._facts.put_fact(Fact(WORKLOAD, batch_id, name, canonical_json(told), now))

    @contextmanager
    def _under(self, claim: Job) -> Iterator[None]:
        """A transaction that holds the batch's row: nobody moves it meanwhile."""
        with self._batches.store.transaction():
            if claim.id not in self._batches.renew([claim]):
                raise ClaimLost(claim.id)
            yield


def _new(request: RenderRequest) -> New:
    return New(request.body, key=request.key, tenant=request.owner)


def _entries(fact: Fact) -> list[Fed]:
    first = int(fact.name.removeprefix(_ROWS))
    return [
        Fed(row, job_id, bool(own), times)
        for row, (job_id, own, times) in enumerate(json.loads(fact.value), first)
    ]


def standing(job: Job | None) -> Standing:
    """How a row's job stands.

    *gone* may be asked for again: it had a PDF, or another batch took it away that had the same
    row. Whatever a person cancelled stays cancelled.
    """
    if job is None:
        return "gone"
    match job.state:
        case "queued" | "running":
            return "waiting"
        case "succeeded":
            return "made"
        case "expired" if job.result is not None and job.error_code is None:
            return "gone"
        case "expired" if job.move == "cancel" and job.actor.startswith(ACTOR):
            return "gone"
    return "failed"


def made_of(fed: Fed, job: PdfJob) -> RowResult:
    """The row of a job that succeeded."""
    made = job.made or {}
    return RowResult(
        fed.row,
        fed.job_id,
        artifact_key=job.artifact_key,
        pages=made.get("pages"),
        bytes=made.get("bytes"),
        sha256=made.get("sha256"),
    )


def failed_of(fed: Fed, job: Job | None, code: str | None = None) -> RowResult:
    """The row of a job that did not."""
    if code is None and job is not None:
        told = job_of(job)
        if told.error_code is not None:
            shown = told.error_code.value
            why = told.why if told.internal_code == shown else means(told.internal_code or "")
            return RowResult(fed.row, fed.job_id, error_code=shown, error_message=why)
        code = CANCELLED if job.move == "cancel" else EXPIRED
    code = code or EXPIRED
    return RowResult(fed.row, fed.job_id, error_code=code, error_message=_WHY[code])


def means(code: str) -> str:
    """A code of our own in words that name nothing of the inside."""
    told: str = describe(code)["en"]["means"]
    return told
