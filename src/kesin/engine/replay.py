"""Events → rows, and the difference, which is always empty.

The fold knows nothing of lifecycles: an event says itself which columns its move set. What never
changes after birth (queue, tenant, salt, key, first payload) is not repeated in events; the
guard keeps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from kesin.lifecycle.model import JOB_COLUMNS, Job
from kesin.store.contract import Store
from kesin.store.declarations import MASK
from kesin.store.records import Event, Flow

_SINGLE = (
    "run_at",
    "timer_at",
    "result",
    "finished_at",
    "stamp_1",
    "stamp_2",
    "stamp_3",
    "stamp_4",
)
_NOT_REPLAYED = {"lease_until"}
_STEP = 500  # jobs between two reports of progress


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a row and its history disagree."""

    job_id: str
    what: str
    row: object
    replayed: object

    def __str__(self) -> str:
        return f"{self.job_id}: {self.what} is {self.row!r}, its events say {self.replayed!r}"


@dataclass(slots=True)
class Verified:
    """The outcome of an audit: truthy when nothing differs."""

    queue: str
    jobs: int = 0
    events: int = 0
    different: int = 0
    differences: list[Difference] = field(default_factory=list)  # the first of them
    counters: Literal["agree", "differ", "not compared: jobs moved"] = "agree"

    def __bool__(self) -> bool:
        return not self.different

    def add(self, difference: Difference, most: int) -> None:
        """Count a difference, and keep the first ones."""
        self.different += 1
        if len(self.differences) < most:
            self.differences.append(difference)


def fold(birth: Job, events: Iterable[Event]) -> dict[str, Any]:
    """The row these events lead to; ``birth`` lends only what never changes."""
    row: dict[str, Any] = dict.fromkeys(JOB_COLUMNS)
    for column in ("id", "queue", "tenant", "salt", "dedup_key", "payload"):
        row[column] = getattr(birth, column)
    row.update(claim_seq=0, payload_seq=1, flags=0)
    for event in events:
        _apply(row, event)
    return row


def _apply(row: dict[str, Any], event: Event) -> None:
    if event.seq == 1:
        row["created_at"] = event.at
    row.update(
        state=event.to_state,
        phase=event.phase,
        move=event.move,
        actor=event.actor,
        seq=event.seq,
        moved_at=event.at,
        worker=event.worker,
        attempt_count=event.attempt,
        attempt_base=event.attempt_base,
        return_count=event.return_count,
        max_attempts=event.max_attempts,
        retry_count=event.retry_count,
        flags=event.flags,
        note=event.note,
        new_payload=event.payload,
    )
    if event.claim == 1:
        row.update(claim_seq=event.seq, claimed_at=event.at)
    elif event.claim == 0:
        row["claimed_at"] = None
    if event.mask & MASK["error"]:
        for column in ("error_code", "error_category", "error_message"):
            row[column] = getattr(event, column)
    for column in _SINGLE:
        if event.mask & MASK[column]:
            row[column] = getattr(event, column)
    if event.payload is not None:
        row.update(payload=event.payload, payload_seq=event.seq)


def differences(job: Job, events: list[Event]) -> Iterator[Difference]:
    """What a job's history says otherwise than its row."""
    numbers = [event.seq for event in events]
    if numbers != list(range(1, job.seq + 1)):
        yield Difference(job.id, "the event sequence", job.seq, numbers)
        return
    replayed = fold(job, events)
    for column in JOB_COLUMNS:
        if column not in _NOT_REPLAYED and getattr(job, column) != replayed[column]:
            yield Difference(job.id, column, getattr(job, column), replayed[column])
    state = ""
    for event in events:
        if event.from_state != state:
            yield Difference(job.id, f"the state before event {event.seq}", event.from_state, state)
        state = event.to_state


def verify(
    store: Store, queue: str, *, most: int = 100, progress: Callable[[int], None] | None = None
) -> Verified:
    """Replay every job of a queue and compare; then compare the counters with the rows.

    Counters are compared only if nothing moved meanwhile: rows and counters are read one after
    the other. ``progress`` is told how many jobs have been read since it was last told.
    """
    before = store.flows(queue)
    outcome = Verified(queue)
    counts: Counter[tuple[str, str]] = Counter()
    for job, events in store.scan(queue):
        outcome.jobs += 1
        outcome.events += len(events)
        counts[job.tenant, job.state] += 1
        for difference in differences(job, events):
            outcome.add(difference, most)
        if progress and outcome.jobs % _STEP == 0:
            progress(_STEP)
    if progress:
        progress(outcome.jobs % _STEP)
    if store.flows(queue) != before:
        outcome.counters = "not compared: jobs moved"
        return outcome
    for difference in miscounts(queue, before, counts):
        outcome.counters = "differ"
        outcome.add(difference, most)
    return outcome


def miscounts(
    queue: str, flows: list[Flow], counts: Counter[tuple[str, str]]
) -> Iterator[Difference]:
    """Where the counters say otherwise than the rows."""
    counted: Counter[tuple[str, str]] = Counter()
    for flow in flows:
        counted[flow.tenant, flow.to_state] += flow.n
        counted[flow.tenant, flow.from_state] -= flow.n
    for tenant, state in sorted({*counted, *counts}):
        if state and counted[tenant, state] != counts[tenant, state]:
            what = f"the count of {tenant}/{state}"
            yield Difference(queue, what, counts[tenant, state], counted[tenant, state])
