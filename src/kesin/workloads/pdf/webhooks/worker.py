"""Telling others that a PDF is there: promised with the job, kept when it has ended.

A promise is written in the transaction of the job it tells of, so there is never one without the
other. Nobody is woken by the job's end: the worker looks through the promises that wait and asks
where their jobs are, many at once. So whatever ends a job is told, a render, an operator or the
clock, and a crash in between loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from kesin.engine.queue import Queue
from kesin.engine.results import Answer, Failed
from kesin.engine.worker import Worker
from kesin.engine.worker_thread import Share
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import Logger
from kesin.foundation.problems import Clash
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Change, Job
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter, Outcome
from kesin.workloads.pdf.security import validate_url
from kesin.workloads.pdf.webhooks.delivery import (
    GONE,
    Kind,
    Promise,
    delivered,
    message,
    promise_of,
    secret_of,
    signed,
)
from kesin.workloads.pdf.webhooks.lifecycle import WAIT_S

log = Logger("kesin.pdf")

QUEUE: Final = "pdf_webhooks"
QUEUES: Final[Mapping[Kind, str]] = {"job": "pdf", "batch": "pdf_batches"}  # of what is told of
LANES: Final = 4  # a receiver that is slow holds up one of them
AT_ONCE: Final = 4  # requests of one lane
POLL_S: Final = 1.0
LOOK_EVERY_S: Final = 1.0  # through the promises that wait, however busy the lanes are
MOST_LOOKED_AT: Final = 2_000  # in one look; the next one goes on
_WAITING: Final = Filter(states=("waiting",))


class Hooks:
    """What may be promised, and what it is signed with."""

    def __init__(self, house: WorkloadContext) -> None:
        self.queue: Queue = house.commands.queues[QUEUE]
        secret = house.settings.pdf_webhook_secret
        self._master = secret.get_secret_value() if secret else ""
        self._patterns = tuple(house.settings.pdf_webhooks.split())

    def check(self, url: str) -> None:
        """Raise Clash (WEBHOOK_REFUSED) unless this address may be told."""
        self._require_on()
        if not self.allows(url):
            raise _refused("this webhook_url is not one of those that may be told here")

    def allows(self, url: str) -> bool:
        """Whether the list has it now."""
        return bool(self._master) and validate_url(url, self._patterns)

    def promise(self, kind: Kind, subject_id: str, owner: str, url: str) -> Outcome:
        """Promise to tell; made in the transaction of the subject. Twice the same is once."""
        promise = Promise(kind, subject_id, url)
        mark = hashlib.sha256(url.encode()).hexdigest()
        return self.queue.enqueue(
            promise.payload(),
            key=f"{kind}:{subject_id}:{mark}",
            tenant=owner,
            delay_s=WAIT_S,
            actor=owner,
        )

    def secret(self, owner: str) -> str:
        """What this owner's messages are signed with; raises Clash where webhooks are off."""
        self._require_on()
        return secret_of(self._master, owner)

    def _require_on(self) -> None:
        if not self._master or not self._patterns:
            raise _refused(
                "webhooks are off here: "
                "KESIN_PDF_WEBHOOK_SECRET and KESIN_PDF_WEBHOOKS turn them on"
            )


def _refused(why: str) -> Clash:
    return Clash(why, code="WEBHOOK_REFUSED")


class Messenger:
    """Finds the promises that can be kept, and keeps them."""

    def __init__(self, house: WorkloadContext) -> None:
        self.hooks = Hooks(house)
        self._queue = self.hooks.queue
        self._subjects = {kind: house.commands.queues[name] for kind, name in QUEUES.items()}
        self._ended = {
            kind: frozenset(
                one.name for one in queue.lifecycle.states if one.resting or one.terminal
            )
            for kind, queue in self._subjects.items()
        }
        self._looking = threading.Lock()
        self._looked: float | None = None  # in monotonic seconds
        self._cursor: str | None = None

    # Which can be kept

    def plan(self) -> Iterator[Share]:
        """Look through those that wait, then send what is due."""
        if self._looking.acquire(blocking=False):  # one lane is enough
            try:
                self._look_in_time()
            finally:
                self._looking.release()
        yield Share(None, AT_ONCE)

    def _look_in_time(self) -> None:
        now = self._queue.clock.monotonic()
        if self._looked is None or now - self._looked >= LOOK_EVERY_S:
            self._looked = now
            self.look()

    def look(self) -> int:
        """Make those ready whose subject has ended; how many. Goes on where the last look ended."""
        ready = 0
        for _ in range(MOST_LOOKED_AT // MAX_PAGE):
            page = self._queue.jobs(_WAITING, limit=MAX_PAGE, cursor=self._cursor)
            self._cursor = page.cursor
            ready += self._make_ready(page.jobs)
            if self._cursor is None:
                break
        return ready

    def _make_ready(self, waiting: Sequence[Job]) -> int:
        promises = {one.id: promise_of(one) for one in waiting}
        states = {
            kind: queue.states(
                [one.subject for one in promises.values() if one and one.kind == kind]
            )
            for kind, queue in self._subjects.items()
        }
        changes = []
        for delivery_id, promise in promises.items():
            status = GONE
            if promise is not None:
                status = states[promise.kind].get(promise.subject, GONE)
                if status not in self._ended[promise.kind]:
                    continue
            changes.append(Change(delivery_id, note=canonical_json({"status": status})))
        if not changes:
            return 0
        made = self._queue.apply("ready", changes, role="producer", actor="webhooks")
        return sum(one.result == "moved" for one in made)

    # Keeping them

    def send(self, deliveries: Sequence[Job]) -> list[Answer]:
        """Send them side by side; one answer each."""
        subjects = self._found(deliveries)
        if len(deliveries) == 1:
            return [self._sent(deliveries[0], subjects)]
        with ThreadPoolExecutor(len(deliveries), "kesin-webhook") as pool:
            return list(pool.map(lambda one: self._sent(one, subjects), deliveries))

    def _found(self, deliveries: Sequence[Job]) -> dict[str, Job]:
        promises = [one for one in map(promise_of, deliveries) if one]
        found: dict[str, Job] = {}
        for kind, queue in self._subjects.items():
            found |= queue.find([one.subject for one in promises if one.kind == kind])
        return found

    def _sent(self, delivery: Job, subjects: Mapping[str, Job]) -> Answer:
        try:
            answer = self._answer(delivery, subjects)
        except Exception as problem:  # of this one alone: the others must not be sent again
            log.exception("webhook_broken", job=delivery.id)
            answer = Failed(type(problem).__name__, "it could not be sent")
        code = getattr(answer, "code", None)
        log.info("webhook_tried", job=delivery.id, attempt=delivery.attempt_count, code=code)
        return answer

    def _answer(self, delivery: Job, subjects: Mapping[str, Job]) -> Answer:
        promise = promise_of(delivery)
        if promise is None:
            return Failed("SUBJECT_GONE", "this is no promise: there is nothing to tell of")
        if not self.hooks.allows(promise.url):
            return Failed("HOOK_REFUSED", "its address is not one of those that may be told here")
        subject = subjects.get(promise.subject)
        status, ready_at = self._news(delivery, subject)
        if status not in self._ended[promise.kind]:
            return Failed("NEVER_ENDED", f"what it tells of is still {status}")
        body = message(promise, status, subject, ready_at)
        now_s = self._queue.now() // SECOND_US
        headers = signed(self.hooks.secret(delivery.tenant), delivery.id, now_s, body)
        return delivered(delivery, promise, body, headers, self._queue.clock)

    def _news(self, delivery: Job, subject: Job | None) -> tuple[str, int]:
        """How the subject ended and when that was seen.

        Kept since then: a PDF that is told of a day late has succeeded, though it expired since.
        """
        for event in self._queue.events(delivery.id):
            if event.move == "ready" and event.note:
                told: dict[str, Any] = json.loads(event.note)
                return str(told.get("status")), event.at
        return (subject.state if subject else GONE), delivery.created_at


def worker_of(house: WorkloadContext) -> Worker:
    """The worker that keeps promises."""
    messenger = Messenger(house)
    return Worker(
        house.commands.queues[QUEUE],
        batch_handler=messenger.send,
        plan=messenger.plan,
        threads=LANES,
        batch=AT_ONCE,
        poll_s=POLL_S,
    )
