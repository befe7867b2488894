"""Jobs in the seed's words: a face of the queue, and nothing that the queue does not do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kesin.engine.queue import Queue
from kesin.foundation.logs import Logger
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.declare import Move
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import age_over
from kesin.store.metadata import facts_of
from kesin.store.records import Filter, Outcome
from kesin.workloads.pdf.config import FailSafePolicy
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed, shown
from kesin.workloads.pdf.jobs.stats import Ledger
from kesin.workloads.pdf.security import MAX_DEPTH
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.base import StorageError

VERSION: Final = 1
_AROUND: Final = 4  # layers around what was sent


def compute_job_key(template_name: str, payload: Mapping[str, Any]) -> str:
    """The sha256 over canonical JSON of a template and everything that changes the bytes.

    ``1`` and ``1.0`` differ, because a template prints them differently; lists keep their order;
    nothing is normalised. What does not change the bytes (a time-out, a webhook) has no place in
    ``payload``.
    """
    told = {"v": VERSION, "template": template_name, "payload": payload}
    return hashlib.sha256(canonical(told).encode("ascii")).hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys at every depth, without spaces, NaN or anything that is not JSON."""
    _check(value, 0)
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def _check(value: Any, depth: int) -> None:
    """Refuse what JSON would bend: keys that are no text, numbers that are none, endless depth."""
    if depth > MAX_DEPTH + _AROUND:
        raise RenderFailed(PdfErrorCode.TEMPLATE_ERROR, f"values nest deeper than {MAX_DEPTH}")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise RenderFailed(PdfErrorCode.TEMPLATE_ERROR, "names of variables are text")
            _check(inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check(inner, depth + 1)
    elif isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124
            raise RenderFailed(PdfErrorCode.TEMPLATE_ERROR, "NaN and Infinity are no JSON")
    elif value is not None and not isinstance(value, str | int | bool):
        raise RenderFailed(
            PdfErrorCode.TEMPLATE_ERROR, f"a {type(value).__name__} is no JSON value"
        )


ANYBODY: Final = "default"
MOST_AHEAD: Final = 1_000  # jobs counted to tell a place in line
# A body of 256 KiB with what is put around it, and with numbers that are longer once spelled out.
MAX_STORED_BYTES: Final = 1024 * 1024
_TRIES: Final = 3
_SWEEP: Final = 1_000
log = Logger("kesin.pdf")


class PdfJobStatus(StrEnum):
    """Where a job is."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"


ON_THE_WAY: Final = frozenset({PdfJobStatus.QUEUED, PdfJobStatus.RUNNING})  # batches alike
GOOD: Final = ON_THE_WAY | {PdfJobStatus.SUCCEEDED}


class UnknownJob(KeyError):
    """There is no job with this id."""


class IllegalTransition(ValueError):
    """The lifecycle has no such move from where the job is, or not for this reason or not yet."""


@dataclass(frozen=True, slots=True)
class PdfJob:
    """One job as it is now. Times are seconds since 1970."""

    job_id: str
    job_key: str
    status: PdfJobStatus
    template_name: str
    payload: dict[str, Any]  # what changes the bytes: variables, engine, paper, template_hash
    artifact_key: str | None
    error_code: PdfErrorCode | None
    retry_count: int
    created_at: float
    started_at: float | None
    finished_at: float | None
    owner: str = ANYBODY
    manner: Mapping[str, Any] | None = None  # what does not: timeout, file_name, webhook_url
    made: Mapping[str, Any] | None = None  # pages, bytes, sha256, engine, seconds, warnings
    why: str | None = None  # an error in words
    internal_code: str | None = None  # the error as it is counted inside


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """A PDF that a caller wants: the one type from the route to the queue."""

    template: str
    payload: Mapping[str, Any]  # what changes the bytes: variables, engine, paper, template_hash
    owner: str = ANYBODY
    manner: Mapping[str, Any] = field(default_factory=dict)  # what does not; see PdfJob.manner
    fail_safe: FailSafePolicy = FailSafePolicy.STRICT

    @property
    def key(self) -> str:
        """Equal requests of one owner have one key: two owners never share a job."""
        return compute_job_key(self.template, {"owner": self.owner, "asked": self.payload})

    @property
    def body(self) -> dict[str, Any]:
        """The request as the queue stores it."""
        return {"template": self.template, "payload": self.payload, "manner": dict(self.manner)}

    @property
    def webhook_url(self) -> str | None:
        """The address that is told when the job ends."""
        url: str | None = self.manner.get("webhook_url")
        return url


class Submitted(NamedTuple):
    """The job that serves a request, and whether the request created it."""

    job: PdfJob
    new: bool


class PdfJobStore:
    """Creates and finds jobs. ``artifacts`` tells whether a finished one still has its PDF."""

    def __init__(self, queue: Queue, artifacts: PdfArtifactStore | None = None) -> None:
        self.queue = queue
        self.queue.max_payload_bytes = max(queue.max_payload_bytes, MAX_STORED_BYTES)
        self.artifacts = artifacts
        self.ledger = Ledger(facts_of(queue.store), queue.now)

    def create_job(
        self,
        template_name: str,
        payload: Mapping[str, Any],
        *,
        owner: str = ANYBODY,
        manner: Mapping[str, Any] | None = None,
    ) -> PdfJob:
        """The job for this payload: a new one, or the one that has its PDF or will."""
        return self.enqueue(RenderRequest(template_name, payload, owner, manner or {})).job

    def enqueue(self, request: RenderRequest) -> Submitted:
        """As ``create_job``, and whether it is new. Of two equal ones at once, one is."""
        body, key, owner = request.body, request.key, request.owner
        for _ in range(_TRIES):
            outcome = self.queue.enqueue(body, key=key, tenant=owner, actor=owner)
            if outcome.result == "inserted":
                return Submitted(self._found(outcome.id), new=True)
            held = self.get_job(outcome.id)
            if held is None or held.status not in GOOD:
                continue  # it let go of its key a moment ago
            if held.status is PdfJobStatus.SUCCEEDED and self._is_gone(held):
                outcome = self._again(held, body, key)
                held = self._found(outcome.id)
            return Submitted(held, new=outcome.result == "inserted")
        raise RuntimeError("the job keeps changing hands: try again")

    def _again(self, old: PdfJob, body: dict[str, Any], key: str) -> Outcome:
        """Let the old job go and make a new one, both or neither.

        Another producer may have done it a moment ago: then this one meets the new job.
        """
        log.info("artifact_gone", job=old.job_id)
        with self.queue.store.transaction():
            self.queue.apply(
                "artifact_gone", [Change(old.job_id)], role="producer", actor=old.owner
            )
            return self.queue.enqueue(body, key=key, tenant=old.owner, actor=old.owner)

    def _is_gone(self, job: PdfJob) -> bool:
        """Whether a finished job has lost its PDF; a storage that is down has lost nothing."""
        if self.artifacts is None or job.artifact_key is None:
            return job.artifact_key is None
        try:
            return not self.artifacts.exists(job.artifact_key)
        except StorageError as problem:
            log.warning("storage_down", why=str(problem))
            return False

    def get_job(self, job_id: str) -> PdfJob | None:
        """The job with this id."""
        job = self.queue.job(job_id)
        return None if job is None else job_of(job)

    def get_jobs(self, job_ids: Sequence[str]) -> dict[str, PdfJob]:
        """Those of these ids that are jobs."""
        return {one: job_of(job) for one, job in self.queue.find(job_ids).items()}

    def find_by_key(self, job_key: str, *, owner: str = ANYBODY) -> PdfJob | None:
        """The job that holds this key: failed and expired ones have let it go."""
        holder = self.queue.holders(owner, [job_key]).get(job_key)
        job = None if holder is None else self.get_job(holder)
        return job if job is not None and job.status in GOOD else None  # it may just have ended

    def serving(self, request: RenderRequest) -> PdfJob | None:
        """The job that has this PDF or will: ``enqueue`` would return it, and create none."""
        job = self.find_by_key(request.key, owner=request.owner)
        if job is not None and job.status is PdfJobStatus.SUCCEEDED and self._is_gone(job):
            return None
        return job

    def position(self, job: PdfJob) -> int | None:
        """1 for the next in line; None for a job that does not wait."""
        if job.status is not PdfJobStatus.QUEUED:
            return None
        ahead = self.queue.store.ahead(self.queue.name, job.job_id, most=MOST_AHEAD)
        return None if ahead is None else ahead + 1

    def compute_job_key(
        self, template_name: str, payload: Mapping[str, Any], owner: str = ANYBODY
    ) -> str:
        """The key of such a request."""
        return RenderRequest(template_name, payload, owner).key

    def update_status(self, job_id: str, status: PdfJobStatus, **details: Any) -> PdfJob:
        """Make the move that leads to this status, as a worker or the clock would.

        A failure that is worth another try comes back as ``queued``: both moves are made in one
        transaction. ``EXPIRED`` is the clock's: it happens when the time is over. Raises
        UnknownJob and IllegalTransition, which are a KeyError and a ValueError.
        """
        job = self.queue.job(job_id)
        if job is None:
            raise UnknownJob(job_id)
        match status:
            case PdfJobStatus.RUNNING:
                moved = bool(self.queue.claim(_worker(details), ids=[job_id]))
            case PdfJobStatus.SUCCEEDED:
                moved = self.succeed(job, _made(details))
            case PdfJobStatus.FAILED:
                code = str(details.get("error_code") or PdfErrorCode.UNKNOWN)
                moved = self.fail(job, code, str(details.get("message") or code))
            case PdfJobStatus.QUEUED:  # the failure itself has seen to it
                moved = job.state == status and details.get("retry_count") == job.retry_count > 0
            case _:
                moved = self._expired(job)
        if not moved:
            raise IllegalTransition(f"job {job_id} is {job.state}: it cannot become {status} now")
        return self._found(job_id)

    def succeed(self, job: Job, made: Mapping[str, Any], *, actor: str | None = None) -> bool:
        """A PDF was made and stored under ``made["artifact_key"]``; False if the claim is lost."""
        change = Change(job.id, job.claim_seq, result=canonical_json(dict(made)))
        return self._finish("succeed", job, change, actor)

    def fail(self, job: Job, code: str, message: str, *, actor: str | None = None) -> bool:
        """No PDF came of it; False if the claim is lost."""
        found = self.queue.lifecycle.errors.resolve(code, channel="worker", category=None)
        change = Change(
            job.id,
            job.claim_seq,
            error_code=code,
            error_category=found.category.value,
            error_message=message[:1_000],
        )
        return self._finish("fail", job, change, actor)

    def _finish(self, call: str, job: Job, change: Change, actor: str | None) -> bool:
        with self.queue.store.transaction():
            outcomes = self.queue.apply(call, [change], actor=actor or job.worker or "worker")
            self.ledger.note(call, [change], outcomes)
        return outcomes[0].result == "moved"

    def cleanup_expired(self, ttl_seconds: int | None = None) -> int:
        """Expire what has lived so long (else: as long as the lifecycle says); how many jobs.

        The job first, then its file: a crash in between leaves a file that no job knows, and the
        next clean-up finds it.
        """
        expired = self._expire(ttl_seconds)
        if self.artifacts is not None:
            self.artifacts.sweep_orphans(self.known_artifacts, 0)
        return expired

    def _expire(self, ttl_seconds: int | None = None) -> int:
        moved = 0
        for move in self.queue.lifecycle.clock_moves:
            if move.stage != "expire":
                continue
            sooner = move if ttl_seconds is None else _aged(move, ttl_seconds)
            while batch := self.queue.sweep(sooner, limit=_SWEEP):
                moved += batch
        return moved

    def _expired(self, job: Job) -> bool:
        self._expire()
        now = self.queue.job(job.id)
        return now is not None and now.state == PdfJobStatus.EXPIRED != job.state

    def known_artifacts(self, artifact_keys: Sequence[str]) -> set[str]:
        """Those of these keys that are in use: by a finished job, or one that is being written."""
        owners = {key: key.split("/")[1] for key in artifact_keys}
        jobs = self.queue.find(list(dict.fromkeys(owners.values())))
        known = set()
        for key, job_id in owners.items():
            job = jobs.get(job_id)
            if job is None:
                continue
            if job.state == PdfJobStatus.RUNNING or (
                job.state == PdfJobStatus.SUCCEEDED and job_of(job).artifact_key == key
            ):
                known.add(key)
        return known

    def page(
        self,
        *,
        owner: str | None,
        status: PdfJobStatus | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[list[PdfJob], str | None]:
        """Some jobs, newest first, of one owner or of all, and where the next page begins."""
        where = Filter(
            states=() if status is None else (status.value,),
            tenants=None if owner is None else (owner,),
        )
        page = self.queue.jobs(where, limit=limit, cursor=cursor)
        return [job_of(one) for one in page.jobs], page.cursor

    def _found(self, job_id: str) -> PdfJob:
        job = self.get_job(job_id)
        if job is None:
            raise UnknownJob(job_id)
        return job


def job_of(job: Job) -> PdfJob:
    """A row of the queue in the seed's words; one made by hand may hold anything."""
    body = _object(job.data)
    made = None if job.outcome is None else _object(job.outcome)
    return PdfJob(
        job_id=job.id,
        job_key=job.dedup_key or "",
        status=PdfJobStatus(job.state),
        template_name=str(body.get("template", "")),
        payload=_object(body.get("payload")),
        artifact_key=(made or {}).get("artifact_key"),
        error_code=shown(job.error_code),
        retry_count=job.retry_count,
        created_at=job.created_at / SECOND_US,
        started_at=None if job.stamp_1 is None else job.stamp_1 / SECOND_US,
        finished_at=None if job.finished_at is None else job.finished_at / SECOND_US,
        owner=job.tenant,
        manner=_object(body.get("manner")),
        made=made,
        why=job.error_message,
        internal_code=job.error_code,
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _aged(move: Move, ttl_seconds: int) -> Move:
    """The same move after another time."""
    guards = tuple(
        age_over(guard.names[0], ttl_seconds) if guard.kind == "age_over" else guard
        for guard in move.when
    )
    return replace(move, when=guards)


def _worker(details: Mapping[str, Any]) -> str:
    return str(details.get("worker") or "worker")


def _made(details: Mapping[str, Any]) -> dict[str, Any]:
    key = details.get("artifact_key")
    if not key:
        raise IllegalTransition("a job succeeds with an artifact_key: where its PDF is")
    return dict(details)
