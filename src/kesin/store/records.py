"""The records a store takes and returns: jobs to enqueue, outcomes, histories, counts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Literal, NamedTuple

from kesin.foundation.clock import Time, time_us
from kesin.foundation.text import storable
from kesin.lifecycle.model import NO_STAMPS, Job

HeldClaim = tuple[str, int]  # the id of a claimed job, and the token of the claim
AgedSince = tuple[str, int]  # the first stamp of a lifecycle, and a time
Result = Literal["inserted", "duplicate", "moved", "already", "refused", "busy", "unknown"]
_RESULTS_BY_REASON: dict[str, Result] = {"already": "already", "unknown": "unknown", "busy": "busy"}


class NewJobRow(NamedTuple):
    """A job to enqueue."""

    id: str
    payload: str
    max_attempts: int
    salt: int
    tenant: str = "default"
    dedup_key: str | None = None
    run_at: int | None = None
    note: str | None = None
    stamps: Mapping[str, int] = NO_STAMPS
    once: bool = False
    priority: int = 0
    after: tuple[str, ...] = ()  # the jobs that it waits for


DONE_RESULTS = ("inserted", "duplicate", "moved", "already")


class Outcome(NamedTuple):
    """The result for one job of a batch; ``state`` and ``seq`` are the job's current values.

    The ``reason`` for a refusal is ``stale`` (the claim was lost), ``state`` (no move of this name
    leaves the state), ``duplicate`` (the key is taken), or the name of the guard that failed.
    """

    result: Result
    id: str
    state: str | None = None
    seq: int = 0
    reason: str = ""
    holder: str | None = None  # the job that has the key, where the reason is ``duplicate``

    @property
    def done(self) -> bool:
        """Whether the request took effect, now or earlier."""
        return self.result in DONE_RESULTS


class Event(NamedTuple):
    """One entry of a job's history, with everything the move set."""

    job_id: str
    seq: int
    at: int
    move: str
    from_state: str
    to_state: str
    phase: int
    claim: int
    actor: str
    worker: str | None
    attempt: int
    attempt_base: int
    return_count: int
    max_attempts: int
    retry_count: int
    flags: int
    mask: int
    error_code: str | None
    error_category: str | None
    error_message: str | None
    note: str | None
    run_at: int | None
    timer_at: int | None
    result: str | None
    payload: str | None
    old_payload: str | None
    finished_at: int | None
    stamp_1: int | None
    stamp_2: int | None
    stamp_3: int | None
    stamp_4: int | None
    priority: int = 0  # where the move sets one


class Note(NamedTuple):
    """A note on a job or a queue; it does not change any job."""

    job_id: str | None
    at: int
    kind: str
    actor: str
    details: str | None


class MoveCount(NamedTuple):
    """How many jobs have made a move; '' is the source of new jobs and the target of prunes."""

    tenant: str
    move: str
    from_state: str
    to_state: str
    n: int
    at: int = 0  # the latest time of such a move; for prunes, the last move of the last pruned job


class Backlog(NamedTuple):
    """What one tenant's jobs wait for."""

    oldest_due_at: int | None  # when the job that waits longest became due
    first_created_at: dict[str, int]  # working state → creation of its oldest unclaimed job
    lease_over: int  # claimed jobs whose lease has expired
    aging: int  # unclaimed ready jobs whose stamp lies before the given time


class FailureCount(NamedTuple):
    """How many jobs with this error code rest in a state, or wait there to be tried again."""

    tenant: str
    state: str
    code: str
    category: str
    retries: bool  # a worker or the sweeper takes them on without anyone's help
    n: int
    since: int  # when the first of them came into the state
    next_at: int | None  # when the first of them is tried again
    latest: int = 0  # when the last of them came
    trend: tuple[tuple[int, int], ...] = ()  # half hour → how many of them came lately


class Definition(NamedTuple):
    """The stored description of a queue's lifecycle."""

    lifecycle: str
    states: tuple[str, ...]
    stamps: tuple[str, ...]
    flags: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Definition":
        """Parse the stored JSON; fields that an older version did not write are empty."""
        fields = json.loads(text)
        lists = (tuple(fields.get(name, ())) for name in cls._fields[1:])
        return cls(str(fields.get("lifecycle", "")), *lists)


class Listing(NamedTuple):
    """How the jobs of a queue are listed, as a program declared it."""

    title: str = ""  # a format of payload fields; empty: none was declared
    search: tuple[str, ...] = ()  # the payload fields that are searched, by dotted names


class RulesVersion(NamedTuple):
    """A version of a queue's lifecycle, as it was declared."""

    queue: str
    version: int  # 0: declared before versions were stored; it has names and edges only
    fingerprint: str
    definition: str
    virtual_time: bool  # its times are injected, as by tests and simulations
    declared_at: int

    @property
    def edges(self) -> set[tuple[str, str, str]]:
        """(move, from, to) of version 0."""
        edges = json.loads(self.definition)["edges"]
        return {(move, source, target) for move, source, target in edges}


class Progress(NamedTuple):
    """The progress of a job, as its handler last reported it."""

    at: int
    fraction: float | None  # 0…1
    message: str | None


class ScheduleRow(NamedTuple):
    """A schedule of a queue: its definition as JSON, and when it ticks next."""

    name: str
    definition: str
    next_at: int


class JobVersion(NamedTuple):
    """The version of a job: its last event and its number of notes; both only grow."""

    id: str
    seq: int
    notes: int


class JobHistory(NamedTuple):
    """A job with all its events and notes, its slot, and the jobs it came after: for copies."""

    job: Job
    events: list[Event]
    notes: list[Note]
    slot: str | None = None
    parents: Sequence[str] = ()


class Pause(NamedTuple):
    """A queue (tenant '') or one of its tenants whose jobs cannot be claimed."""

    queue: str
    tenant: str
    at: int
    actor: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs to list. An empty filter matches all jobs; every given condition must hold.

    Text is normalised in the same way as in the stores, and times are in microseconds.
    """

    states: tuple[str, ...] = ()
    tenants: tuple[str, ...] | None = None
    codes: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    created_from: Time | None = None
    created_before: Time | None = None
    moved_before: Time | None = None
    dedup_key: str | None = None
    text: str | None = None  # part of the error message, case-insensitive
    contains: str | None = None  # part of the payload's JSON text, case-sensitive
    search: str | None = None  # how a word of a searchable field, and what follows it, begins
    unclaimed: bool = False  # only jobs that no worker has
    oldest_first: bool = False  # the order of a list; otherwise the newest comes first

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, datetime):
                value = time_us(value, each.name)
            elif isinstance(value, str):
                value = storable(value)
            elif isinstance(value, Iterable):
                value = tuple(map(storable, value))
            object.__setattr__(self, each.name, value)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of jobs in the filter's order, and where the next page starts (None at the end)."""

    jobs: list[Job]
    cursor: str | None


class JobCount(NamedTuple):
    """How many jobs match: at least ``n`` if the count was ended by its limit."""

    n: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A summary of a queue; its cost depends on the number of states and tenants, not of jobs."""

    queue: str
    states: dict[str, int]
    tenants: dict[str, dict[str, int]] = field(default_factory=dict)
    oldest_due_at: int | None = None  # when the job that waits longest became due
    lease_over: int = 0  # claimed jobs whose lease has expired
    now: int = 0
    # Tenant → moves ever made: this changes even with a move that changes no count.
    moves: dict[str, int] = field(default_factory=dict, compare=False)
    counts: Sequence[MoveCount] = field(default=(), compare=False, repr=False)  # all this is of

    @property
    def moved(self) -> int:
        """The number of moves ever made; it changes with every move."""
        return sum(self.moves.values())

    @property
    def total(self) -> int:
        """The number of jobs in the queue."""
        return sum(self.states.values())


def refusal(reason: str, job_id: str, state: str | None, seq: int) -> Outcome:
    result = _RESULTS_BY_REASON.get(reason)
    if result:
        return Outcome(result, job_id, state, seq)
    return Outcome("refused", job_id, state, seq, reason)
