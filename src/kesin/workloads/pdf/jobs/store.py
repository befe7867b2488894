"""PDF jobs with the seed's names: a thin layer over the queue that adds no behaviour."""

import hashlib
import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

from kesin.engine.access.masking import MASK
from kesin.engine.queue import Queue, apply_changes
from kesin.foundation.encryption import KeyRing, SecretNotOpened
from kesin.foundation.logs import Logger
from kesin.foundation.messages import note_json
from kesin.foundation.text import as_object, canonical_json
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import age_over
from kesin.store.directory import MetadataEntry
from kesin.store.metadata import TRANSIENT, MetadataStore, metadata_for
from kesin.store.records import Outcome
from kesin.store.search import field_of
from kesin.workloads.pdf.config import FailSafePolicy
from kesin.workloads.pdf.errors import ADVICE, PdfErrorCode, RenderFailed, TemplateError, public_code
from kesin.workloads.pdf.security import MAX_DEPTH
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore

WORKLOAD: Final = "pdf"
STATS_KEY: Final = "ledger"
BUCKETS_S: Final = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)
VERSION: Final = 1  # of job keys
PASSWORDS: Final = f"pdf{TRANSIENT}"  # rows beside jobs, which have only an HMAC of them
DEFAULT_OWNER: Final = "default"
MAX_TITLE_VALUES: Final = 2  # of the variables, these first: their stored order tells nothing
TELLING_VARIABLES: Final = (
    *("number", "order.number", "title", "name", "site"),
    *("buyer.name", "customer.name", "order.customer", "customer"),
)
MAX_COUNTED_AHEAD: Final = 1_000  # jobs counted to find a position in the queue
STORED_PER_BYTE: Final = 4  # of a body: its wrapper, and numbers that are longer when stored
MAX_STORED_BYTES: Final = 256 * 1024 * STORED_PER_BYTE
_WRAPPER_DEPTH: Final = 4  # layers around the values of a request
log = Logger("kesin.pdf")


def compute_job_key(template_name: str, payload: Mapping[str, Any]) -> str:
    """Return the sha256 over canonical JSON of a template and all else that changes the bytes."""
    identity = {"v": VERSION, "template": template_name, "payload": payload}
    _check_json(identity, 0)
    # Nothing is normalised: 1 and 1.0 differ, because a template prints them differently.
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _check_json(value: Any, depth: int) -> None:
    """Reject what JSON would alter: keys that are not text, NaN and Infinity, too deep nesting."""
    if depth > MAX_DEPTH + _WRAPPER_DEPTH:
        raise TemplateError("values are nested deeper than %(n)s levels", n=MAX_DEPTH)
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise TemplateError("variable names must be text")
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            _check_json(inner, depth + 1)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise TemplateError("NaN and Infinity are not JSON")
    elif value is not None and not isinstance(value, str | int | bool):
        raise TemplateError("a %(kind)s is not a JSON value", kind=type(value).__name__)


class PdfJobStatus(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"


UNFINISHED: Final = frozenset({PdfJobStatus.QUEUED, PdfJobStatus.RUNNING})  # of batches too
REUSABLE: Final = UNFINISHED | {PdfJobStatus.SUCCEEDED}


class UnknownJob(KeyError):
    """No job has this id."""


class IllegalTransition(ValueError):
    """The lifecycle has no such move from the job's state, or its conditions do not hold."""


@dataclass(frozen=True, slots=True)
class PdfJob:
    """A snapshot of a job. Times are seconds since 1970."""

    job_id: str
    job_key: str
    status: PdfJobStatus
    template_name: str
    payload: dict[str, Any]  # what the PDF depends on: variables, engine, paper …
    artifact_key: str | None
    error_code: PdfErrorCode | None
    retry_count: int
    created_at: float
    started_at: float | None
    finished_at: float | None
    owner: str = DEFAULT_OWNER
    metadata: Mapping[str, Any] | None = None  # timeout, file_name, webhook_url, title …
    result: Mapping[str, Any] | None = None  # pages, bytes, sha256, engine, seconds, warnings
    error_message: str | None = None
    internal_code: str | None = None  # error_code before it is mapped to a public code

    @property
    def public_message(self) -> str | None:
        """The error message; a code that is UNKNOWN outside is described without details."""
        if self.error_code is PdfErrorCode.UNKNOWN and self.internal_code != self.error_code:
            return ADVICE.find(self.internal_code or "").means
        return self.error_message


@dataclass(frozen=True)
class RenderRequest:
    """A request for a PDF: the same type from the route to the queue."""

    template: str
    payload: Mapping[str, Any]  # what the PDF depends on: variables, engine, paper …
    owner: str = DEFAULT_OWNER
    metadata: Mapping[str, Any] = field(default_factory=dict)  # the rest: see PdfJob.metadata
    fail_safe: FailSafePolicy = FailSafePolicy.STRICT
    settles: tuple[str, str] | None = None  # a failed job that this makes again, and who asks
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)  # never in the payload

    @cached_property
    def key(self) -> str:
        """The dedup key. Identical requests of an owner share it; two owners never share a job."""
        return compute_job_key(self.template, {"owner": self.owner, "asked": self.payload})

    @property
    def body(self) -> dict[str, Any]:
        return {"template": self.template, "payload": self.payload, "manner": dict(self.metadata)}


class Submitted(NamedTuple):
    """The job that serves a request, and whether the request created the job."""

    job: PdfJob
    new: bool


class PdfJobStore:
    """Creates and finds jobs. ``artifacts`` is asked whether a finished job still has its PDF."""

    def __init__(self, queue: Queue, artifacts: PdfArtifactStore | None = None) -> None:
        self.queue = queue
        self.queue.max_payload_bytes = max(queue.max_payload_bytes, MAX_STORED_BYTES)
        self.artifacts = artifacts
        self._rows = metadata_for(queue.store)

    def create_job(
        self,
        template_name: str,
        payload: Mapping[str, Any],
        *,
        owner: str = DEFAULT_OWNER,
        metadata: Mapping[str, Any] | None = None,
    ) -> PdfJob:
        """Return the job for this payload: a new job, or the job that has or will have its PDF."""
        return self.enqueue(RenderRequest(template_name, payload, owner, metadata or {})).job

    def enqueue(self, request: RenderRequest) -> Submitted:
        """Return the job for a request. Of two identical requests at once, one creates it."""
        body, key, owner = request.body, request.key, request.owner
        for _ in range(3):
            outcome = self.queue.enqueue(body, key=key, tenant=owner, actor=owner)
            if outcome.result == "inserted":
                return Submitted(self._require_job(outcome.id), new=True)
            existing = self.get_job(outcome.id)
            if existing is None or existing.status not in REUSABLE:
                continue  # it released its key a moment ago
            if existing.status is PdfJobStatus.SUCCEEDED and self._has_lost_pdf(existing):
                outcome = self._replace(existing, body, key)
                existing = self._require_job(outcome.id)
            return Submitted(existing, new=outcome.result == "inserted")
        raise RuntimeError("the job keeps changing: try again")

    def _replace(self, old: PdfJob, body: dict[str, Any], key: str) -> Outcome:
        """Expire a job and enqueue a new one, or find that of a producer that just did so."""
        log.info("artifact_gone", job=old.job_id)
        changes, owner = [Change(old.job_id)], old.owner
        with self.queue.store.transaction():
            apply_changes(self.queue, "artifact_gone", changes, role="producer", actor=owner)
            return self.queue.enqueue(body, key=key, tenant=owner, actor=owner)

    def _has_lost_pdf(self, job: PdfJob) -> bool:
        """Whether a finished job has lost its PDF; False while the storage is down."""
        if self.artifacts is None or job.artifact_key is None:
            return job.artifact_key is None
        return self.artifacts.is_lost(job.artifact_key)

    def get_job(self, job_id: str) -> PdfJob | None:
        job = self.queue.job(job_id)
        return None if job is None else parse_job(job)

    def find_by_key(self, job_key: str, *, owner: str = DEFAULT_OWNER) -> PdfJob | None:
        """Return the job that holds this key; failed and expired jobs have released theirs."""
        holder = self.queue.holders(owner, [job_key]).get(job_key)
        job = None if holder is None else self.get_job(holder)
        return job if job is not None and job.status in REUSABLE else None  # it may just have ended

    def find_reusable(self, request: RenderRequest, *, ask_storage: bool = True) -> PdfJob | None:
        """Return the job that has or will have this PDF, if ``enqueue`` would create none."""
        job = self.find_by_key(request.key, owner=request.owner)
        if job is None or not ask_storage or job.status is not PdfJobStatus.SUCCEEDED:
            return job
        return None if self._has_lost_pdf(job) else job

    def position(self, job: PdfJob) -> int | None:
        """Return the position in the queue, from 1; None for a job that does not wait."""
        if job.status is not PdfJobStatus.QUEUED:
            return None
        ahead = self.queue.store.count_ahead(self.queue.name, job.job_id, limit=MAX_COUNTED_AHEAD)
        return None if ahead is None else ahead + 1

    def compute_job_key(self, template_name: str, payload: Mapping[str, Any], owner: str = DEFAULT_OWNER) -> str:
        return RenderRequest(template_name, payload, owner).key

    def update_status(self, job_id: str, status: PdfJobStatus, **details: Any) -> PdfJob:
        """Make the move to this status, as a worker or the sweeper would; a retry is ``queued``."""
        job = self.queue.job(job_id)
        if job is None:
            raise UnknownJob(job_id)
        match status:
            case PdfJobStatus.RUNNING:
                moved = bool(self.queue.claim(str(details.get("worker") or "worker"), ids=[job_id]))
            case PdfJobStatus.SUCCEEDED:
                if not details.get("artifact_key"):
                    raise IllegalTransition("a job succeeds with an artifact_key: where its PDF is")
                moved = self.succeed(job, details)
            case PdfJobStatus.FAILED:
                code = str(details.get("error_code") or PdfErrorCode.UNKNOWN)
                moved = self.fail(job, code, str(details.get("message") or code))
            case PdfJobStatus.QUEUED:  # the move *fail* has requeued it
                moved = job.state == status and details.get("retry_count") == job.retry_count > 0
            case _:
                expire_jobs(self.queue)
                current = self.queue.job(job_id)
                moved = current is not None and current.state == PdfJobStatus.EXPIRED != job.state
        if not moved:
            raise IllegalTransition(f"job {job_id} is {job.state}: it cannot become {status} now")
        return self._require_job(job_id)

    def succeed(self, job: Job, result: Mapping[str, Any]) -> bool:
        """Record a PDF stored under ``result["artifact_key"]``; False if the claim is lost."""
        change = Change(job.id, job.claim_seq, result=canonical_json(dict(result)))
        return self._finish("succeed", job, change)

    def fail(self, job: Job, code: str, message: str) -> bool:
        resolved = self.queue.lifecycle.errors.resolve(code, channel="worker", category=None)
        category, text, note = resolved.category.value, message[:1_000], note_json(message)
        failed = partial(Change, job.id, job.claim_seq, error_code=code, error_category=category)
        return self._finish("fail", job, failed(error_message=text, note=note))

    def _finish(self, action: str, job: Job, change: Change) -> bool:
        with self.queue.store.transaction():
            outcomes = apply_changes(self.queue, action, [change], actor=job.worker or "worker")
            self.record(action, [change], outcomes)
        return outcomes[0].result == "moved"

    def record(self, action: str, changes: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        """Count results and forget passwords, in the transaction that moves the jobs."""
        count_results(self._rows, self.queue.now(), action, changes, outcomes)
        moved = [outcome for outcome in outcomes if outcome.result == "moved"]
        self.forget_passwords(each.id for each in moved if each.state not in UNFINISHED)

    def put_passwords(self, job_id: str, passwords: Mapping[str, str], ring: KeyRing) -> None:
        """Store them sealed; call it in the transaction that enqueues the job."""
        sealed = json.dumps(ring.seal(f"pdf job {job_id}", canonical_json(dict(passwords))))
        self._rows.put_metadata(MetadataEntry(PASSWORDS, "", job_id, sealed, self.queue.now()))

    def open_passwords(self, job_id: str, ring: KeyRing | None) -> dict[str, str]:
        """Return the passwords of a job; raises RenderFailed if they are gone."""
        entry = self._rows.metadata_entry(PASSWORDS, "", job_id)
        if entry is not None and ring is not None:
            with suppress(SecretNotOpened):
                return dict(json.loads(ring.open(f"pdf job {job_id}", json.loads(entry.value))))
        why = "this job's passwords are gone: send the request again"
        raise RenderFailed(PdfErrorCode.PASSWORD_GONE, why)

    def forget_passwords(self, job_ids: Iterable[str]) -> None:
        """Delete those of these jobs; call it in the transaction that ends them."""
        for job_id in job_ids:
            self._rows.delete_metadata(PASSWORDS, "", job_id)

    def forget_old_passwords(self) -> int:
        """Forget the passwords of jobs that ended in any other way; return how many."""
        kept = [entry.name for entry in self._rows.metadata_entries(PASSWORDS)]
        states = self.queue.states(kept) if kept else {}  # an id is never used again
        ended = [each for each in kept if states.get(each) not in UNFINISHED]
        self.forget_passwords(ended)
        return len(ended)

    def cleanup_expired(self, ttl_seconds: int | None = None) -> int:
        """Expire jobs of this age, or the lifecycle's, then delete their files; return how many."""
        expired = expire_jobs(self.queue, ttl_seconds)
        if self.artifacts is not None:
            self.artifacts.delete_orphans(self.find_used_artifacts, 0)
        return expired

    def find_used_artifacts(self, artifact_keys: Sequence[str]) -> set[str]:
        """Return the keys that are in use: by a finished job, or possibly by a running job."""
        job_ids = {key: key.split("/")[1] for key in artifact_keys}
        jobs = [*map(parse_job, self.queue.find([*dict.fromkeys(job_ids.values())]).values())]
        running = {job.job_id for job in jobs if job.status is PdfJobStatus.RUNNING}
        kept = {job.artifact_key for job in jobs if job.status is PdfJobStatus.SUCCEEDED}
        return {key for key, job_id in job_ids.items() if job_id in running or key in kept}

    def _require_job(self, job_id: str) -> PdfJob:
        job = self.get_job(job_id)
        if job is None:
            raise UnknownJob(job_id)
        return job


def pdf_title(data: Any) -> str:
    """The template, or the title of HTML, and values that tell documents apart, none masked."""
    body = as_object(data)
    variables = as_object(as_object(body.get("payload")).get("variables"))
    fields = as_object(body.get("manner")).get("fields")
    names = (*TELLING_VARIABLES, *(fields if isinstance(fields, list) else ()), *variables)
    values = (field_of(variables, str(name)) for name in names if name != "lang")
    plain = (value for value in values if type(value) in {str, int, float})
    texts = [str(value) for value in plain if value and MASK not in str(value)]
    title = str(as_object(body.get("manner")).get("title") or MASK)
    template = str(body.get("template") or ("HTML" if MASK in title else title))
    return " · ".join([template, *dict.fromkeys(texts)][: 1 + MAX_TITLE_VALUES])


def parse_job(job: Job) -> PdfJob:
    """Convert a job of the queue; a job enqueued by other code may hold anything."""
    body = as_object(job.payload)
    result = None if job.result is None else as_object(job.result)
    return PdfJob(
        job_id=job.id,
        job_key=job.dedup_key or "",
        status=PdfJobStatus(job.state),
        template_name=str(body.get("template", "")),
        payload=as_object(body.get("payload")),
        artifact_key=(result or {}).get("artifact_key"),
        error_code=public_code(job.error_code),
        retry_count=job.retry_count,
        created_at=job.created_at / SECOND_US,
        started_at=None if job.stamp_1 is None else job.stamp_1 / SECOND_US,
        finished_at=None if job.finished_at is None else job.finished_at / SECOND_US,
        owner=job.tenant,
        metadata=as_object(body.get("manner")),
        result=result,
        error_message=job.error_message,
        internal_code=job.error_code,
    )


def expire_jobs(queue: Queue, ttl_seconds: int | None = None) -> int:
    """Expire jobs of this age (without one, of the lifecycle's); return how many."""
    moved = 0
    for move in [each for each in queue.lifecycle.scheduled_moves if each.stage == "expire"]:
        guards = {each.kind: each for each in move.when}
        if ttl_seconds is not None:
            guards["age_over"] = age_over(guards["age_over"].names[0], ttl_seconds)
        while count := queue.sweep(replace(move, when=tuple(guards.values())), limit=1_000):
            moved += count
    return moved


def password_mac(ring: KeyRing, owner: str, passwords: Mapping[str, str]) -> str:
    """Return an HMAC that is equal for equal passwords of an owner."""
    return ring.sign(f"kesin pdf passwords v1\n{canonical_json([owner, dict(passwords)])}")


@dataclass(slots=True)
class RenderStats:
    """The counters so far."""

    failures: dict[str, int] = field(default_factory=dict)  # by public code
    buckets: list[int] = field(default_factory=list)  # not cumulative; the last has no limit
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if len(self.buckets) != len(BUCKETS_S) + 1:  # none, or written with other buckets
            self.buckets = [0] * (len(BUCKETS_S) + 1)


def count_results(
    facts: MetadataStore, now: int, action: str, changes: Sequence[Change], outcomes: Sequence[Outcome]
) -> None:
    """Count the changes that moved a job. Call it in the transaction that moves the jobs."""
    ids = {outcome.id for outcome in outcomes if outcome.result == "moved"}
    if action not in {"succeed", "fail"} or not ids:
        return
    stats = _parse_stats(facts.lock_metadata(WORKLOAD, "", STATS_KEY, now))
    for change in (each for each in changes if each.id in ids):
        if action == "fail":
            code = str(public_code(change.error_code) or PdfErrorCode.UNKNOWN)
            stats.failures[code] = stats.failures.get(code, 0) + 1
            continue
        duration_s = float(json.loads(change.result or "{}").get("seconds") or 0)
        stats.buckets[bisect_left(BUCKETS_S, duration_s)] += 1
        stats.seconds += duration_s
    text = canonical_json(asdict(stats))
    facts.put_metadata(MetadataEntry(WORKLOAD, "", STATS_KEY, text, now))


def read_stats(facts: MetadataStore) -> RenderStats:
    return _parse_stats(facts.metadata_entry(WORKLOAD, "", STATS_KEY))


def _parse_stats(entry: MetadataEntry | None) -> RenderStats:
    return RenderStats(**((entry and json.loads(entry.value)) or {}))
