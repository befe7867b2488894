"""Webhooks: a worker scans for subjects that ended, and so misses no end, whatever caused it.

The owner's URL is checked at each attempt, and never logged.
"""

import base64
import hashlib
import hmac
import http.client
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args

from kesin.engine.queue import Queue, apply_changes
from kesin.engine.results import Act, Done, Failed, HandlerResult
from kesin.engine.worker import Worker
from kesin.engine.worker_thread import ClaimShare
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import Clock, iso
from kesin.foundation.logs import Logger
from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid, RequestConflict
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import HOUR_S, SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job, wait_us
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter, Outcome
from kesin.workloads.pdf.jobs.store import UNFINISHED, parse_job
from kesin.workloads.pdf.lifecycle import MAX_WAIT_S, WEBHOOK_DELAYS
from kesin.workloads.pdf.links import PdfLinks
from kesin.workloads.pdf.safe_fetch import FetchRefused, GuardedConnection
from kesin.workloads.pdf.security import is_internal_url, validate_url

log = Logger("kesin.pdf")

Kind = Literal["job", "batch"]
QUEUE: Final = "pdf_webhooks"
SUBJECT_QUEUES: Final[Mapping[Kind, str]] = {"job": "pdf", "batch": "pdf_batches"}
WORKER_THREADS: Final = 4  # a slow receiver delays one of them
REQUESTS_PER_THREAD: Final = 4  # sent in parallel
POLL_S: Final = 1.0
SCAN_INTERVAL_S: Final = 1.0  # between scans, however busy the threads are
MAX_SCANNED: Final = 2_000  # by one scan; the next scan continues
_OFF: Final = "webhooks are off: set KESIN_PDF_WEBHOOK_SECRET and KESIN_PDF_WEBHOOKS to turn them on"
_NOT_ALLOWED: Final = "this webhook_url matches no pattern of KESIN_PDF_WEBHOOKS"
_WAITING: Final = Filter(states=("waiting",))


TIMEOUT_S: Final = 10.0  # for the whole exchange, from name resolution to the response
MAX_REPLY_BYTES: Final = 4 * 1024  # read and discarded: some servers mind if it is not read
MAX_RETRY_AFTER_S: Final = HOUR_S  # the longest pause a receiver may ask for
DELETED_STATUS: Final = "expired"  # of a deleted subject: only expired ones are deleted
WHSEC: Final = "whsec_"
_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "Kesin-Webhooks"}
_BUSY: Final = (http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.SERVICE_UNAVAILABLE)


class Subscription(NamedTuple):
    """The payload of a delivery: which subject it reports, and to which URL."""

    kind: Kind
    subject: str
    url: str
    link_s: int | None = None  # for which a link to the PDF is valid, if the message has one


def parse_subscription(delivery: Job) -> Subscription | None:
    match delivery.payload:
        case {"kind": kind, "subject": str(subject), "url": str(url)} if kind in get_args(Kind):
            return Subscription(kind, subject, url, delivery.payload.get("link_s"))
    return None


def post(url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, int | None]:
    """Return the status and the pause asked for; raises FetchRefused, OSError or HTTPException."""
    public_only = not is_internal_url(url)
    with closing(GuardedConnection(url, TIMEOUT_S, public_only=public_only)) as connection:
        response = connection.request("POST", {**_HEADERS, **headers}, body)
        status, retry_after = response.status, response.getheader("Retry-After", "")
        with suppress(OSError, http.client.HTTPException):  # the status is all that counts
            response.read1(MAX_REPLY_BYTES)
        return status, _parse_seconds(retry_after)


def _parse_seconds(header: str) -> int | None:
    """Parse Retry-After as seconds; None for a date, which the lifecycle's own delays cover."""
    return min(int(header), MAX_RETRY_AFTER_S) if re.fullmatch(r"[0-9]{1,9}", header) else None


def deliver(
    delivery: Job, subscription: Subscription, body: bytes, headers: Mapping[str, str], clock: Clock
) -> HandlerResult:
    started = clock.monotonic()
    try:
        status, pause_s = post(subscription.url, body, headers)
    except FetchRefused as problem:
        return Failed("HOOK_REFUSED", str(problem))
    except (OSError, http.client.HTTPException) as problem:
        late = isinstance(problem, TimeoutError)
        why = f"{type(problem).__name__}: {problem}"[:200]
        return Failed("HOOK_UNREACHABLE", Message("no response came in time") if late else why)
    if status in range(200, 300):
        elapsed_ms = round((clock.monotonic() - started) * 1_000)
        return Done({"status": status, "ms": elapsed_ms, "attempt": delivery.attempt_count})
    message = Message("it returned %(status)s", status=status)
    if status == http.HTTPStatus.GONE:
        return Failed("HOOK_GONE", message)
    delay_us = wait_us(WEBHOOK_DELAYS, delivery)
    # A shorter pause would use up the attempts.
    if status not in _BUSY or pause_s is None or pause_s * SECOND_US <= delay_us:
        return Failed("HOOK_BAD_ANSWER", message)
    why = "the receiver returned %(status)s and requested a pause of %(n)s s"
    later = partial(Act, "later", code="HOOK_BAD_ANSWER", category=Category.TRANSIENT)
    return later(message=Message(why, status=status, n=pause_s), run_in_s=pause_s)


def build_message(subscription: Subscription, status: str, subject: Job | None, at: int, links: PdfLinks) -> bytes:
    """Build the message, the same at every attempt; a deleted subject has only its status."""
    ended_at = subject.finished_at if subject and subject.finished_at is not None else at
    build_data = _job_data if subscription.kind == "job" else _batch_data
    data = build_data(subscription.subject, status, subject)
    if subscription.link_s and subject and status == "succeeded":
        url, ends_s = links.create(parse_job(subject), subscription.link_s, since_s=at / SECOND_US)
        data["link"] = {"url": url, "expires_at": iso(ends_s * SECOND_US)}
    content = {"type": f"pdf.{subscription.kind}.{status}", "timestamp": iso(ended_at), "data": data}
    return canonical_json(content).encode()


def _job_data(job_id: str, status: str, subject: Job | None) -> dict[str, Any]:
    job = None if subject is None else parse_job(subject)
    output = (job and job.result) or {}
    return {
        "job_id": job_id,
        "status": status,
        "error_code": job and job.error_code,
        "template_name": job and job.template_name,
        **{fact: output.get(fact) for fact in ("sha256", "pages", "bytes")},
        "download_url": f"/pdf/jobs/{job_id}/download" if status == "succeeded" else None,
        "retry_count": job and job.retry_count,
        "finished_at": iso(subject.finished_at) if subject else None,
    }


def _batch_data(batch_id: str, status: str, subject: Job | None) -> dict[str, Any]:
    output = (subject and subject.result) or {}
    payload = subject.payload if subject and isinstance(subject.payload, dict) else {}
    has_file = status in {"succeeded", "partial"}
    return {
        "batch_id": batch_id,
        "status": status,
        "error_code": subject and subject.error_code,
        "template_name": payload.get("template"),
        "rows": payload.get("rows"),
        **{fact: output.get(fact) for fact in ("made", "failed", "sha256", "pages", "bytes")},
        "download_url": f"/pdf/batches/{batch_id}/download" if has_file else None,
        "finished_at": iso(subject.finished_at) if subject else None,
    }


def derive_secret(master: str, owner: str) -> str:
    """Derive an owner's secret from the master secret; it does not reveal the master."""
    digest = hmac.digest(master.encode(), f"kesin webhook {owner}".encode(), "sha256")
    return WHSEC + base64.b64encode(digest).decode()


def signature_headers(secret: str, message_id: str, at_s: int, body: bytes) -> dict[str, str]:
    key = base64.b64decode(secret.removeprefix(WHSEC))
    signed_text = f"{message_id}.{at_s}.".encode("utf-8", "replace")
    digest = hmac.digest(key, signed_text + body, "sha256")
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


class Webhooks:
    """Creates subscriptions and holds the allowed URLs and the secrets."""

    def __init__(self, context: WorkloadContext) -> None:
        self.queue: Queue = context.commands.queues[QUEUE]
        secret = context.settings.pdf_webhook_secret
        self._master = secret.get_secret_value() if secret else ""
        self._patterns = tuple(context.settings.pdf_webhooks.split())
        self._is_on = bool(self._master and self._patterns)

    def require_allowed(self, url: str) -> None:
        """Raise Invalid (WEBHOOK_REFUSED), which names the field, unless the URL is allowed."""
        refusal = _NOT_ALLOWED if self._is_on else _OFF
        if not self.allows(url):
            fields = [{"field": "webhook_url", "message": refusal, "rule": "allowed"}]
            raise Invalid(refusal, code="WEBHOOK_REFUSED", details={"fields": fields})

    def allows(self, url: str) -> bool:
        return bool(self._master) and validate_url(url, self._patterns)

    def subscribe(self, kind: Kind, subject_id: str, owner: str, url: str, link_s: int | None = None) -> Outcome:
        """Enqueue a subscription, in the transaction of its subject; a duplicate is ignored."""
        key = f"{kind}:{subject_id}:{hashlib.sha256(url.encode()).hexdigest()}"
        payload = Subscription(kind, subject_id, url, link_s)._asdict()
        return self.queue.enqueue(payload, key=key, tenant=owner, delay_s=MAX_WAIT_S, actor=owner)

    def secret(self, owner: str) -> str:
        """Return the secret that signs an owner's messages; raises RequestConflict if off."""
        if not self._is_on:
            raise RequestConflict(_OFF, code="WEBHOOK_REFUSED")
        return derive_secret(self._master, owner)


class WebhookSender(Worker):
    """Finds the subscriptions whose subject has ended, and delivers them."""

    def __init__(self, context: WorkloadContext) -> None:
        self.webhooks = Webhooks(context)
        super().__init__(
            self.webhooks.queue,
            batch_handler=self.send,
            plan=self.plan_claims,
            threads=WORKER_THREADS,
            batch=REQUESTS_PER_THREAD,
            poll_s=POLL_S,
        )
        queues = context.commands.queues
        self._links = PdfLinks(context.settings, queues[SUBJECT_QUEUES["job"]])
        self._subjects = {kind: queues[name] for kind, name in SUBJECT_QUEUES.items()}
        self._scan_lock = threading.Lock()
        self._scanned_at: float | None = None  # in monotonic seconds
        self._cursor: str | None = None

    def plan_claims(self) -> Iterator[ClaimShare]:
        """Scan the waiting subscriptions, then claim the deliveries that are due."""
        if self._scan_lock.acquire(blocking=False):  # one thread scans at a time
            try:
                now = self.queue.clock.monotonic()
                if self._scanned_at is None or now - self._scanned_at >= SCAN_INTERVAL_S:
                    self._scanned_at = now
                    self.scan()
            finally:
                self._scan_lock.release()
        yield ClaimShare(None, REQUESTS_PER_THREAD)

    def scan(self) -> int:
        """Mark the next subscriptions ready whose subject has ended; returns their number."""
        ready = 0
        for _ in range(MAX_SCANNED // MAX_PAGE):
            page = self.queue.jobs(_WAITING, limit=MAX_PAGE, cursor=self._cursor)
            self._cursor = page.cursor
            ready += self._mark_ready(page.jobs)
            if self._cursor is None:
                break
        return ready

    def _mark_ready(self, waiting: Sequence[Job]) -> int:
        subscriptions = {delivery.id: parse_subscription(delivery) for delivery in waiting}
        states = {
            kind: queue.states(_subjects_of(kind, subscriptions.values())) for kind, queue in self._subjects.items()
        }
        changes = []
        for delivery_id, subscription in subscriptions.items():
            status = DELETED_STATUS
            if subscription is not None:
                status = states[subscription.kind].get(subscription.subject, status)
                if status in UNFINISHED:
                    continue
            changes.append(Change(delivery_id, note=canonical_json({"status": status})))
        if not changes:
            return 0
        outcomes = apply_changes(self.queue, "ready", changes, role="producer", actor="webhooks")
        return sum(outcome.result == "moved" for outcome in outcomes)

    def send(self, deliveries: Sequence[Job]) -> list[HandlerResult]:
        subscriptions = [parse_subscription(delivery) for delivery in deliveries]
        subjects: dict[str, Job] = {}
        for kind, queue in self._subjects.items():
            subjects |= queue.find(_subjects_of(kind, subscriptions))
        with ThreadPoolExecutor(len(deliveries), "kesin-webhook") as pool:
            return list(pool.map(partial(self._send_logged, subjects=subjects), deliveries))

    def _send_logged(self, delivery: Job, subjects: Mapping[str, Job]) -> HandlerResult:
        try:
            result = self._attempt(delivery, subjects)
        except Exception as problem:  # fails this delivery only: the others must not be sent again
            log.exception("webhook_failed", job=delivery.id)
            result = Failed(type(problem).__name__, "it could not be sent")
        code = getattr(result, "code", None)
        log.info("webhook_tried", job=delivery.id, attempt=delivery.attempt_count, code=code)
        return result

    def _attempt(self, delivery: Job, subjects: Mapping[str, Job]) -> HandlerResult:
        subscription = parse_subscription(delivery)
        if subscription is None:
            return Failed("SUBJECT_GONE", "this webhook has no job")
        if not self.webhooks.allows(subscription.url):
            return Failed("HOOK_REFUSED", "its address is not an allowed webhook address")
        subject = subjects.get(subscription.subject)
        status, ready_at = self._subject_status(delivery, subject)
        if status in UNFINISHED:
            message = Message("its job is still %(state)s", state=status)
            return Failed("NEVER_ENDED", message)
        body = build_message(subscription, status, subject, ready_at, self._links)
        now_s, secret = self.queue.now() // SECOND_US, self.webhooks.secret(delivery.tenant)
        headers = signature_headers(secret, delivery.id, now_s, body)
        return deliver(delivery, subscription, body, headers, self.queue.clock)

    def _subject_status(self, delivery: Job, subject: Job | None) -> tuple[str, int]:
        """Return the status and time at which its end was seen: it may have expired since."""
        for event in self.queue.events(delivery.id):
            if event.move == "ready" and event.note:
                note: dict[str, Any] = json.loads(event.note)
                return str(note.get("status")), event.at
        return (subject.state if subject else DELETED_STATUS), delivery.created_at


def _subjects_of(kind: Kind, subscriptions: Iterable[Subscription | None]) -> list[str]:
    return [each.subject for each in subscriptions if each and each.kind == kind]
