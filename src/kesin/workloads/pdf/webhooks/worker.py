"""Webhooks: a worker scans for subjects that ended, and so misses no end, whatever caused it."""

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from kesin.engine.queue import Queue, apply_changes
from kesin.engine.results import Failed, HandlerResult
from kesin.engine.worker import Worker
from kesin.engine.worker_thread import ClaimShare
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import Logger
from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid, RequestConflict
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Change, Job
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter, Outcome
from kesin.workloads.pdf.jobs.store import UNFINISHED
from kesin.workloads.pdf.links import PdfLinks
from kesin.workloads.pdf.security import validate_url
from kesin.workloads.pdf.webhooks import delivery as sending
from kesin.workloads.pdf.webhooks.delivery import Kind, Subscription, parse_subscription
from kesin.workloads.pdf.webhooks.lifecycle import MAX_WAIT_S

log = Logger("kesin.pdf")

QUEUE: Final = "pdf_webhooks"
SUBJECT_QUEUES: Final[Mapping[Kind, str]] = {"job": "pdf", "batch": "pdf_batches"}
WORKER_THREADS: Final = 4  # a slow receiver delays one of them
REQUESTS_PER_THREAD: Final = 4  # sent in parallel
POLL_S: Final = 1.0
SCAN_INTERVAL_S: Final = 1.0  # between scans, however busy the threads are
MAX_SCANNED: Final = 2_000  # by one scan; the next scan continues
_OFF: Final = "webhooks are off here: KESIN_PDF_WEBHOOK_SECRET and KESIN_PDF_WEBHOOKS turn them on"
_NOT_ALLOWED: Final = "this webhook_url matches no pattern of KESIN_PDF_WEBHOOKS"
_WAITING: Final = Filter(states=("waiting",))


class Webhooks:
    """Creates subscriptions and holds the allowed URLs and the secrets."""

    def __init__(self, context: WorkloadContext) -> None:
        self.queue: Queue = context.commands.queues[QUEUE]
        secret = context.settings.pdf_webhook_secret
        self._master = secret.get_secret_value() if secret else ""
        self._patterns = tuple(context.settings.pdf_webhooks.split())

    def require_allowed(self, url: str) -> None:
        """Raise Invalid (WEBHOOK_REFUSED), which names the field, unless the URL is allowed."""
        why = _NOT_ALLOWED if self._is_on else _OFF
        if not self.allows(url):
            fields = [{"field": "webhook_url", "message": why, "rule": "allowed"}]
            raise Invalid(why, code="WEBHOOK_REFUSED", details={"fields": fields})

    def allows(self, url: str) -> bool:
        return bool(self._master) and validate_url(url, self._patterns)

    def subscribe(
        self, kind: Kind, subject_id: str, owner: str, url: str, link_s: int | None = None
    ) -> Outcome:
        """Enqueue a subscription, in the transaction of its subject; a duplicate is ignored."""
        key = f"{kind}:{subject_id}:{hashlib.sha256(url.encode()).hexdigest()}"
        payload = Subscription(kind, subject_id, url, link_s)._asdict()
        return self.queue.enqueue(payload, key=key, tenant=owner, delay_s=MAX_WAIT_S, actor=owner)

    def secret(self, owner: str) -> str:
        """Return the secret that signs an owner's messages; raises RequestConflict if off."""
        if not self._is_on:
            raise RequestConflict(_OFF, code="WEBHOOK_REFUSED")
        return sending.derive_secret(self._master, owner)

    @property
    def _is_on(self) -> bool:
        return bool(self._master and self._patterns)


class WebhookSender:
    """Finds the subscriptions whose subject has ended, and delivers them."""

    def __init__(self, context: WorkloadContext) -> None:
        self.webhooks = Webhooks(context)
        self._queue = self.webhooks.queue
        queues = context.commands.queues
        self._links = PdfLinks(context.settings, queues[SUBJECT_QUEUES["job"]])
        self._subjects = {kind: queues[name] for kind, name in SUBJECT_QUEUES.items()}
        self._scan_lock = threading.Lock()
        self._scanned_at: float | None = None  # in monotonic seconds
        self._cursor: str | None = None

    def plan(self) -> Iterator[ClaimShare]:
        """Scan the waiting subscriptions, then claim the deliveries that are due."""
        if self._scan_lock.acquire(blocking=False):  # one thread scans at a time
            try:
                now = self._queue.clock.monotonic()
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
            page = self._queue.jobs(_WAITING, limit=MAX_PAGE, cursor=self._cursor)
            self._cursor = page.cursor
            ready += self._mark_ready(page.jobs)
            if self._cursor is None:
                break
        return ready

    def _mark_ready(self, waiting: Sequence[Job]) -> int:
        subscriptions = {delivery.id: parse_subscription(delivery) for delivery in waiting}
        states = {
            kind: queue.states(_subjects_of(kind, subscriptions.values()))
            for kind, queue in self._subjects.items()
        }
        changes = []
        for delivery_id, subscription in subscriptions.items():
            status = sending.DELETED_STATUS
            if subscription is not None:
                status = states[subscription.kind].get(subscription.subject, status)
                if status in UNFINISHED:
                    continue
            changes.append(Change(delivery_id, note=canonical_json({"status": status})))
        if not changes:
            return 0
        outcomes = apply_changes(self._queue, "ready", changes, role="producer", actor="webhooks")
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
        body = sending.build_message(subscription, status, subject, ready_at, self._links)
        now_s, secret = self._queue.now() // SECOND_US, self.webhooks.secret(delivery.tenant)
        headers = sending.signature_headers(secret, delivery.id, now_s, body)
        return sending.deliver(delivery, subscription, body, headers, self._queue.clock)

    def _subject_status(self, delivery: Job, subject: Job | None) -> tuple[str, int]:
        """Return the status and time at which its end was seen: it may have expired since."""
        for event in self._queue.events(delivery.id):
            if event.move == "ready" and event.note:
                note: dict[str, Any] = json.loads(event.note)
                return str(note.get("status")), event.at
        return (subject.state if subject else sending.DELETED_STATUS), delivery.created_at


def _subjects_of(kind: Kind, subscriptions: Iterable[Subscription | None]) -> list[str]:
    return [each.subject for each in subscriptions if each and each.kind == kind]


def build_worker(context: WorkloadContext) -> Worker:
    sender = WebhookSender(context)
    return Worker(
        context.commands.queues[QUEUE],
        batch_handler=sender.send,
        plan=sender.plan,
        threads=WORKER_THREADS,
        batch=REQUESTS_PER_THREAD,
        poll_s=POLL_S,
    )
