"""Enqueues each row of a batch once: which job serves it is stored in the same transaction."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, Literal, NamedTuple

from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue, apply_changes
from kesin.engine.results import Act
from kesin.engine.validation import BadInput
from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Change, Job
from kesin.store.directory import MetadataEntry
from kesin.store.metadata import metadata_for
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.dispatch import enqueue_pdf_job
from kesin.workloads.pdf.jobs.store import WORKLOAD, PdfJobStore, RenderRequest, parse_job

JOBS_PER_QUERY: Final = 100  # jobs read by one query
ACTOR_PREFIX: Final = "batch:"
CANCELLED: Final = "CANCELLED"
EXPIRED: Final = "EXPIRED"
ARTIFACT_GONE: Final = "ARTIFACT_GONE"
BAD_ROW: Final = "BAD_ROW"
UNREADABLE: Final = "UNREADABLE"
RELEASE: Final = Act("release")  # rejected and logged by the store if the claim is lost
_ROWS_PREFIX: Final = "rows:"
_MESSAGES: Final = {
    CANCELLED: "its job was cancelled",
    EXPIRED: "its job waited too long",
    ARTIFACT_GONE: "its PDF disappeared every time it was rendered",
    BAD_ROW: "its variables cannot be stored",
    UNREADABLE: "its PDF cannot be read",
}

RowState = Literal["waiting", "made", "failed", "gone"]


class BatchInterrupted(Exception):
    """Processing of a batch ends early, with the action that it carries."""


class RowJob(NamedTuple):
    """The job that serves a row. ``own``: it was enqueued for this batch."""

    row: int  # from 0
    job_id: str  # '' for a row that could not be enqueued
    own: bool = True
    retries: int = 0


class BatchRowResult(NamedTuple):
    """The result of a row."""

    row: int
    job_id: str
    artifact_key: str | None = None
    pages: int | None = None
    bytes: int | None = None
    sha256: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class Feeder:
    """Stores which job serves which row, and enqueues the jobs."""

    def __init__(self, batches: Queue, jobs: PdfJobStore) -> None:
        self._batches = batches
        self._jobs = jobs
        self._facts = metadata_for(batches.store)

    def row_jobs(self, batch_id: str) -> list[RowJob]:
        return sorted(row_job for group in self._row_groups(batch_id) for row_job in group)

    def feed(self, claim: Job, first: int, requests: Sequence[RenderRequest]) -> list[RowJob]:
        """Enqueue the next rows and store their jobs; raises BatchInterrupted."""
        new_jobs: dict[int, NewJob] = {}  # by row
        for row, request in enumerate(requests, first):
            with suppress(RenderFailed):
                new_jobs[row] = NewJob(request.body, key=request.key, tenant=request.owner)
        row_jobs = [RowJob(row, "") for row in range(first, first + len(requests))]
        with self._holding_claim(claim):
            outcomes = self._jobs.queue.enqueue_many(list(new_jobs.values()), actor=claim.tenant)
            for row, outcome in zip(new_jobs, outcomes, strict=True):
                if not isinstance(outcome, BadInput):
                    own = outcome.result == "inserted"
                    row_jobs[row - first] = RowJob(row, outcome.id, own)
            self._save_row_jobs(claim.id, row_jobs)
        self._dispatch(row_jobs)
        return row_jobs

    def _dispatch(self, row_jobs: Sequence[RowJob]) -> None:
        """Notify workers of the jobs enqueued for this batch; the others were announced before."""
        for row_job in row_jobs:
            if row_job.own and row_job.job_id:
                enqueue_pdf_job(row_job.job_id, store=self._jobs.queue.store)

    def enqueue_again(self, claim: Job, lost: RowJob, request: RenderRequest, *, missing: bool = False) -> RowJob:
        """Enqueue a row that lost its PDF (``missing``: only the file); raises BatchInterrupted."""
        queue, key, owner = self._jobs.queue, request.key, request.owner
        with self._holding_claim(claim):
            if missing:
                old = [Change(lost.job_id)]
                apply_changes(queue, "artifact_gone", old, role="producer", actor=claim.tenant)
            outcome = queue.enqueue(request.body, key=key, tenant=owner, actor=owner)
            own = outcome.result == "inserted"
            row_job = RowJob(lost.row, outcome.id, own, retries=lost.retries + 1)
            for group in self._row_groups(claim.id):
                if group[0].row <= lost.row <= group[-1].row:
                    group[lost.row - group[0].row] = row_job
                    self._save_row_jobs(claim.id, group)
        self._dispatch([row_job])
        return row_job

    def end_batch(self, batch_id: str, *, cancel: bool) -> None:
        """Forget a batch in the transaction that ends it; ``cancel`` cancels its queued jobs."""
        if cancel:
            own_ids = [each.job_id for each in self.row_jobs(batch_id) if each.own and each.job_id]
            for at in range(0, len(own_ids), JOBS_PER_QUERY):
                jobs = self._jobs.queue.find(own_ids[at : at + JOBS_PER_QUERY])
                changes = [Change(job.id) for job in jobs.values() if job.state == "queued"]
                if changes:
                    actor = ACTOR_PREFIX + batch_id
                    apply_changes(self._jobs.queue, "cancel", changes, role="producer", actor=actor)
        for fact in self._facts.metadata_entries(WORKLOAD, site=batch_id):
            self._facts.delete_metadata(WORKLOAD, batch_id, fact.name)

    def batch_ids(self) -> set[str]:
        return {fact.site for fact in self._facts.metadata_entries(WORKLOAD) if fact.site}

    def _save_row_jobs(self, batch_id: str, row_jobs: Sequence[RowJob]) -> None:
        entries = [[row_job.job_id, int(row_job.own), row_job.retries] for row_job in row_jobs]
        name, now = f"{_ROWS_PREFIX}{row_jobs[0].row:04d}", self._batches.now()
        entry = MetadataEntry(WORKLOAD, batch_id, name, canonical_json(entries), now)
        self._facts.put_metadata(entry)

    def _row_groups(self, batch_id: str) -> Iterator[list[RowJob]]:
        """Yield the rows that have a job, in the groups in which they were enqueued."""
        for fact in self._facts.metadata_entries(WORKLOAD, site=batch_id):
            if fact.name.startswith(_ROWS_PREFIX):
                first = int(fact.name.removeprefix(_ROWS_PREFIX))
                entries = enumerate(json.loads(fact.value), first)
                yield [RowJob(row, job, bool(own), again) for row, (job, own, again) in entries]

    @contextmanager
    def _holding_claim(self, claim: Job) -> Iterator[None]:
        """Open a transaction that locks the batch, so that nothing else moves it."""
        with self._batches.store.transaction():
            if claim.id not in self._batches.renew([claim]):
                raise BatchInterrupted(RELEASE)
            yield


def row_state(job: Job | None) -> RowState:
    """Return the state of a row's job; one that is *gone* may be enqueued again."""
    if job is None:
        return "gone"
    match job.state:
        case "queued" | "running":
            return "waiting"
        case "succeeded":
            return "made"
        case "expired" if job.result_json is not None and job.error_code is None:
            return "gone"
        case "expired" if job.move == "cancel" and job.actor.startswith(ACTOR_PREFIX):
            return "gone"  # of another batch with the same row; what a user cancelled stays so
    return "failed"


def row_result(row_job: RowJob, job: Job | None, code: str | None = None) -> BatchRowResult:
    """Return the result of a row whose job has ended, or which fails with this code."""
    result = partial(BatchRowResult, row_job.row, row_job.job_id)
    if code is None and job is not None:
        pdf_job = parse_job(job)
        if job.state == "succeeded":
            facts = {fact: (pdf_job.result or {}).get(fact) for fact in ("pages", "bytes", "sha256")}
            return result(pdf_job.artifact_key, **facts)
        if pdf_job.error_code is not None:
            return result(error_code=pdf_job.error_code.value, error_message=pdf_job.public_message)
        code = CANCELLED if job.move == "cancel" else EXPIRED
    code = code or EXPIRED
    return result(error_code=code, error_message=_MESSAGES[code])
