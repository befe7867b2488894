"""Replays events into rows: each event has what its move set, and a guard protects the rest."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Literal

from kesin.lifecycle.codec import fingerprint_of
from kesin.lifecycle.model import JOB_COLUMNS, Job
from kesin.store.contract import Store
from kesin.store.counters import count_jobs
from kesin.store.declarations import EVENT_COLUMN_BITS
from kesin.store.records import Event, MoveCount, RulesVersion
from kesin.store.rules import accounted_effects, jobs_by_state

# Those that every event has under the same name.
_COPIED_COLUMNS = (
    *("phase", "move", "actor", "seq", "worker", "attempt_base", "return_count"),
    *("max_attempts", "retry_count", "flags", "note"),
)
_NOT_REPLAYED = {"lease_until"}
_PROGRESS_EVERY = 500  # jobs between two progress reports


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that differs between a row and its history."""

    job_id: str
    subject: str
    row: object
    replayed: object

    def __str__(self) -> str:
        return f"{self.job_id}: {self.subject} is {self.row!r}, expected {self.replayed!r}"


@dataclass(slots=True)
class Verification:
    """The result of replaying a queue; it is truthy if nothing differs."""

    queue: str
    jobs: int = 0
    events: int = 0
    different: int = 0
    differences: list[Difference] = field(default_factory=list)  # only the first ones
    counters: Literal["agree", "differ", "not compared: jobs moved"] = "agree"

    def __bool__(self) -> bool:
        return not self.different

    def add(self, difference: Difference, max_differences: int) -> None:
        """Count a difference; keep it if there is room."""
        self.different += 1
        if len(self.differences) < max_differences:
            self.differences.append(difference)


def fold(created: Job, events: Iterable[Event]) -> dict[str, Any]:
    """The row these events lead to; ``created`` supplies only the columns that never change."""
    unchanging = ("id", "queue", "tenant", "salt", "dedup_key", "payload", "once", "priority")
    stored = zip(JOB_COLUMNS, created, strict=True)
    row = {column: value if column in unchanging else None for column, value in stored}
    row.update(claim_seq=0, payload_seq=1, flags=0)
    for event in events:
        _apply(row, event)
    return row


def _apply(row: dict[str, Any], event: Event) -> None:
    if event.seq == 1:
        row["created_at"] = event.at
    row |= {column: getattr(event, column) for column in _COPIED_COLUMNS}
    row |= {"state": event.to_state, "moved_at": event.at}
    row |= {"attempt_count": event.attempt, "new_payload": event.payload}
    if event.claim == 1:
        row.update(claim_seq=event.seq, claimed_at=event.at)
    elif event.claim == 0:
        row["claimed_at"] = None
    for column, bit in EVENT_COLUMN_BITS.items():
        if event.mask & bit:
            row[column] = getattr(event, column)
    if event.payload is not None:
        row.update(payload=event.payload, payload_seq=event.seq)


def differences(job: Job, events: list[Event]) -> Iterator[Difference]:
    """The differences between a job's row and its replayed history."""
    sequence = [event.seq for event in events]
    if sequence != list(range(1, job.seq + 1)):
        yield Difference(job.id, "the event sequence", job.seq, sequence)
        return
    replayed = fold(job, events)
    for column, value in zip(JOB_COLUMNS, job, strict=True):
        if column not in _NOT_REPLAYED and value != replayed[column]:
            yield Difference(job.id, column, value, replayed[column])
    state = ""
    for event in events:
        if event.from_state != state:
            yield Difference(job.id, f"the state before event {event.seq}", event.from_state, state)
        state = event.to_state


def verify(
    store: Store, queue: str, *, max_differences: int = 100, progress: Callable[[int], None] | None = None
) -> Verification:
    """Replay every job of a queue, compare it with its row, then compare the counters.

    Counters are compared only if no job moved during the check, because rows and counters are read
    one after the other. ``progress`` receives the number of jobs read since its last call.
    """
    before = store.move_counts(queue)
    result = Verification(queue)
    for difference in undeclared(store, queue):
        result.add(difference, max_differences)
    counts: Counter[tuple[str, str]] = Counter()
    for job, events in store.scan(queue):
        result.jobs += 1
        result.events += len(events)
        counts[job.tenant, job.state] += 1
        for difference in differences(job, events):
            result.add(difference, max_differences)
        if progress and result.jobs % _PROGRESS_EVERY == 0:
            progress(_PROGRESS_EVERY)
    if progress:
        progress(result.jobs % _PROGRESS_EVERY)
    if store.move_counts(queue) != before:
        result.counters = "not compared: jobs moved"
        return result
    for difference in counter_differences(queue, before, counts):
        result.counters = "differ"
        result.add(difference, max_differences)
    return result


def undeclared(store: Store, queue: str) -> Iterator[Difference]:
    """What the database accepts although no version of the rules declares it."""
    versions = store.rules(queue)
    yield from _changed_versions(queue, versions)
    known = accounted_effects(versions)
    for (_, *names), effects in sorted(store.declared(queue).items()) if versions else ():
        move, source, target = names
        edge = f"the move {move} ({source or 'enqueue'} → {target or 'prune'})"
        declared = known.get((move, source, target), [])
        if declared is None:
            continue
        if not declared:
            yield Difference(queue, edge, "accepted", "declared in the rules")
            continue
        settable = reduce(or_, (each.mask for each in declared))
        if effects.mask & ~settable:
            yield Difference(queue, f"what {edge} may set", effects.mask, settable)
        ages = sorted({each.min_age_us for each in declared})
        if effects.min_age_us not in ages:
            yield Difference(queue, f"the age of {edge}", effects.min_age_us, ages)
    for state in sorted(store.retired_states(queue)):
        if jobs := jobs_by_state(store.move_counts(queue)).get(state):
            yield Difference(queue, f"the jobs in the retired state {state}", jobs, 0)


def _changed_versions(queue: str, versions: list[RulesVersion]) -> Iterator[Difference]:
    """Versions of the rules that were not written by a queue that was opened."""
    for before, version in zip([None, *versions], versions, strict=False):
        subject = f"version {version.version} of the rules"
        if version.version and version.fingerprint != fingerprint_of(version.definition):
            yield Difference(queue, subject, "changed", "unchanged")
        if before is not None and version.version != before.version + 1:
            after = f"after version {version.version - 1}"
            yield Difference(queue, subject, f"after version {before.version}", after)
        if before and before.version and version.virtual_time and not before.virtual_time:
            yield Difference(queue, f"the clock of {subject}", "injected", "the database's")


def counter_differences(queue: str, flows: list[MoveCount], counts: Counter[tuple[str, str]]) -> Iterator[Difference]:
    tenants = count_jobs(queue, flows).tenants.items()
    counted = {(tenant, state): n for tenant, states in tenants for state, n in states.items()}
    for tenant, state in sorted({*counted, *counts}):
        jobs, said = counts[tenant, state], counted.get((tenant, state), 0)
        if jobs != said:
            yield Difference(queue, f"the count of {tenant}/{state}", jobs, said)
