"""What goes into a store and comes out of it: jobs to enqueue, outcomes, histories, counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kesin.lifecycle.model import NO_STAMPS, Job

Result = Literal["inserted", "duplicate", "moved", "already", "refused", "busy", "unknown"]
_VERDICTS: dict[str, Result] = {"already": "already", "unknown": "unknown", "busy": "busy"}


class NewJob(NamedTuple):
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


class Outcome(NamedTuple):
    """What became of one job of a call. ``state`` and ``seq`` are as they are now.

    ``reason`` of a refusal is ``stale`` (the claim was lost), ``state`` (no move of this name
    leaves it), ``duplicate`` (its key is taken), or the name of the guard that stopped it.
    """

    result: Result
    id: str
    state: str | None = None
    seq: int = 0
    reason: str = ""
    holder: str | None = None  # the job that has the key, where the reason is ``duplicate``

    @property
    def done(self) -> bool:
        """The job is where the caller wants it, now or since before."""
        return self.result in ("inserted", "duplicate", "moved", "already")


class Event(NamedTuple):
    """One line of a job's history, with everything the move set."""

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


class Note(NamedTuple):
    """A remark beside the events: it changes nothing."""

    job_id: str | None
    at: int
    kind: str
    actor: str
    details: str | None


class Flow(NamedTuple):
    """How many jobs have made this move; '' is where births come from and prunes go."""

    tenant: str
    move: str
    from_state: str
    to_state: str
    n: int
    at: int = 0  # the latest time of such a move; of prunes, when the last job to go last moved


class Waiting(NamedTuple):
    """What one tenant's jobs are waiting for."""

    oldest_due_at: int | None  # when the job that waits longest became due
    first_created_at: dict[str, int]  # state on the way → birth of its oldest unclaimed job
    lease_over: int  # claimed jobs whose lease has run out
    aging: int  # unclaimed ready jobs whose stamp lies before the time asked for


class Definition(NamedTuple):
    """What the store remembers of a queue's lifecycle."""

    lifecycle: str
    states: tuple[str, ...]
    stamps: tuple[str, ...]
    flags: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> Definition:
        """From the JSON it is kept as; what an older version did not write is empty."""
        told = json.loads(text)
        lists = (tuple(told.get(name, ())) for name in cls._fields[1:])
        return cls(str(told.get("lifecycle", "")), *lists)


class Pause(NamedTuple):
    """A queue (tenant '') or one of its tenants that hands out no jobs."""

    queue: str
    tenant: str
    at: int
    actor: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs to list. Empty means all; everything given must hold."""

    states: tuple[str, ...] = ()
    tenants: tuple[str, ...] | None = None
    codes: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    created_from: int | None = None
    created_before: int | None = None
    moved_before: int | None = None
    dedup_key: str | None = None
    text: str | None = None  # part of the error message, whatever the case of its letters
    contains: str | None = None  # part of the payload's JSON text, letter by letter


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs, newest first, and where the next page starts (None at the end)."""

    jobs: list[Job]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue at a glance; the cost grows with states and tenants, not with jobs."""

    queue: str
    states: dict[str, int]
    tenants: dict[str, dict[str, int]] = field(default_factory=dict)
    oldest_due_at: int | None = None  # when the job that waits longest became due
    lease_over: int = 0  # claimed jobs whose lease has run out
    now: int = 0
    # Tenant → moves ever made: they tell of a move that leaves every count as it was.
    moves: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def total(self) -> int:
        """All jobs in the store."""
        return sum(self.states.values())


def refusal(why: str, job_id: str, state: str | None, seq: int) -> Outcome:
    """What a job answers that did not move."""
    result = _VERDICTS.get(why)
    if result:
        return Outcome(result, job_id, state, seq)
    return Outcome("refused", job_id, state, seq, why)
