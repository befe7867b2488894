"""What a move means, in plain Python: the reference every store is held against.

Nothing here talks to a database. The conformance tests run random histories through a store and
through these functions and compare every column; replay folds events with the same row type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from kesin.lifecycle.budget import SECOND_US, Backoff
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.vocabulary import GONE, OWNED, After, Fixed, Guard


class Job(NamedTuple):
    """One job: the hot row, then the body row beside it. Times are microseconds since 1970.

    A NamedTuple because a claim makes hundreds of them: building one is a tenth of the cost of a
    frozen dataclass. ``payload`` and ``result`` stay JSON text until asked for.
    """

    id: str
    queue: str
    tenant: str
    state: str
    phase: int
    move: str
    actor: str
    seq: int
    claim_seq: int
    payload_seq: int
    worker: str | None
    attempt_count: int
    attempt_base: int
    return_count: int
    max_attempts: int
    retry_count: int
    salt: int
    flags: int
    error_code: str | None
    error_category: str | None
    error_message: str | None
    note: str | None
    result: str | None
    new_payload: str | None
    created_at: int
    moved_at: int
    run_at: int | None
    timer_at: int | None
    claimed_at: int | None
    lease_until: int | None
    finished_at: int | None
    stamp_1: int | None
    stamp_2: int | None
    stamp_3: int | None
    stamp_4: int | None
    dedup_key: str | None
    payload: str

    @property
    def data(self) -> Any:  # JSON is whatever the producer sent
        """The payload, decoded."""
        return json.loads(self.payload)

    @property
    def outcome(self) -> Any:
        """The result, decoded; None before there is one."""
        return None if self.result is None else json.loads(self.result)

    @property
    def attempts_left(self) -> int:
        """Counted claims this budget still allows."""
        return self.max_attempts - (self.attempt_count - self.attempt_base)

    @property
    def token(self) -> int:
        """What a finish must show to prove it still holds the claim."""
        return self.claim_seq


JOB_COLUMNS = Job._fields
HOT_COLUMNS = JOB_COLUMNS[: JOB_COLUMNS.index("dedup_key")]
NO_STAMPS: Mapping[str, int] = MappingProxyType({})


class Change(NamedTuple):
    """What a caller says about one job when asking for a move."""

    id: str
    token: int | None = None
    error_code: str | None = None
    error_category: str | None = None
    error_message: str | None = None
    result: str | None = None
    run_at: int | None = None
    payload: str | None = None
    max_attempts: int | None = None
    note: str | None = None
    stamps: Mapping[str, int] = NO_STAMPS


@dataclass(frozen=True, slots=True)
class Asked:
    """The circumstances of a call: when, by whom, with which options and which slots taken."""

    now: int
    actor: str
    worker: str | None = None
    lease_us: int = 60 * SECOND_US
    options: frozenset[str] = frozenset()
    slots_taken: frozenset[str] = frozenset()


def holds(  # noqa: C901, PLR0911, PLR0912  # a table: one line a guard
    guard: Guard, job: Job, lifecycle: Lifecycle, asked: Asked, token: int | None
) -> bool:
    """Whether one guard lets the move through."""
    used = job.attempt_count - job.attempt_base
    match guard.kind:
        case "due":
            return job.run_at is not None and job.run_at <= asked.now
        case "unclaimed":
            return job.phase != OWNED
        case "holds_claim":
            return job.phase == OWNED and job.claim_seq == token
        case "lease_over":
            return (
                job.phase == OWNED and job.lease_until is not None and job.lease_until <= asked.now
            )
        case "timer_over":
            return job.timer_at is not None and job.timer_at <= asked.now
        case "timer_not_over":
            return job.timer_at is None or job.timer_at > asked.now
        case "budget_left":
            return used < job.max_attempts
        case "budget_spent":
            return used >= job.max_attempts
        case "retries_left":
            return job.retry_count < guard.number
        case "code_in":
            return job.error_code in guard.names
        case "code_not_in":
            return job.error_code not in guard.names
        case "category_in":
            return job.error_category in guard.names
        case "returns_left":
            return job.return_count < lifecycle.max_returns
        case "was_claimed":
            return job.claim_seq > job.payload_seq
        case "option":
            return (guard.names[0] in asked.options) == bool(guard.number)
        case "flag_set":
            return bool(job.flags & lifecycle.flag_bit(guard.names[0]))
        case "flag_not_set":
            return not job.flags & lifecycle.flag_bit(guard.names[0])
        case "age_over":
            stamp: int | None = getattr(job, lifecycle.stamp_column(guard.names[0]))
            return stamp is not None and stamp <= asked.now - guard.number * SECOND_US
        case "slot_free":
            return guard.names[0] not in asked.slots_taken


def failing_guard(
    move: Move, job: Job, lifecycle: Lifecycle, asked: Asked, token: int | None
) -> Guard | None:
    """The first guard that stops the move; None when all hold."""
    for guard in move.when:
        if not holds(guard, job, lifecycle, asked, token):
            return guard
    return None


def step(lifecycle: Lifecycle, move: Move, job: Job, change: Change, asked: Asked) -> Job:
    """The job after the move. Guards are not asked here."""
    at = max(asked.now, job.moved_at)
    to = move.target(job.state)
    new: dict[str, Any] = {
        "state": to,
        "move": move.name,
        "actor": asked.actor,
        "seq": job.seq + 1,
        "moved_at": at,
        "note": change.note,
    }
    owned = _step_claim(move, job, asked, at, new)
    new["phase"] = OWNED if owned else lifecycle.unowned_phase(to)
    _step_counters(move, job, change, new)
    _step_error(move, change, new)
    new.update(_step_times(lifecycle, move, job, change, at))
    if move.result == "record":
        new["result"] = change.result
    new["new_payload"] = None
    if move.payload == "replace":
        new["payload"] = new["new_payload"] = change.payload
        new["payload_seq"] = job.seq + 1
    for flag in move.flag:
        new["flags"] = new.get("flags", job.flags) | lifecycle.flag_bit(flag)
    return job._replace(**new)


def _step_claim(move: Move, job: Job, asked: Asked, at: int, new: dict[str, Any]) -> bool:
    if move.claim == "take":
        new.update(worker=asked.worker, claimed_at=at, claim_seq=job.seq + 1)
        new["lease_until"] = at + asked.lease_us
        return True
    if move.claim == "drop":
        new.update(worker=None, claimed_at=None, lease_until=None)
        return False
    return job.phase == OWNED


def _step_counters(move: Move, job: Job, change: Change, new: dict[str, Any]) -> None:
    match move.attempt:
        case "count":
            new["attempt_count"] = job.attempt_count + 1
        case "return":
            new["attempt_base"] = job.attempt_base + 1
            if move.guard("returns_left"):
                new["return_count"] = job.return_count + 1
        case "renew":
            new["attempt_base"] = job.attempt_count
            new["return_count"] = 0
            new["max_attempts"] = change.max_attempts or job.max_attempts
        case "keep":
            pass
    if move.retry == "count":
        new["retry_count"] = job.retry_count + 1


def _step_error(move: Move, change: Change, new: dict[str, Any]) -> None:
    if isinstance(move.error, Fixed):
        new["error_code"] = move.error.code
        new["error_category"] = move.error.category.value
        new["error_message"] = move.error.message
    elif move.error == "record":
        new["error_code"] = change.error_code
        new["error_category"] = change.error_category
        new["error_message"] = change.error_message
    elif move.error == "clear":
        new.update(error_code=None, error_category=None, error_message=None)


def _step_times(
    lifecycle: Lifecycle, move: Move, job: Job, change: Change, at: int
) -> dict[str, int | None]:
    new: dict[str, int | None] = {}
    if isinstance(move.run_at, Backoff):
        new["run_at"] = at + move.run_at.delay_us(tries(move.run_at, job), job.salt)
    elif move.run_at == "now":
        new["run_at"] = at
    elif move.run_at == "input":
        new["run_at"] = at if change.run_at is None else change.run_at
    elif move.run_at == "clear":
        new["run_at"] = None
    if isinstance(move.timer, Backoff | After):
        armed = not move.timer_for or change.error_category in move.timer_for
        wait = (
            move.timer.seconds * SECOND_US
            if isinstance(move.timer, After)
            else move.timer.delay_us(tries(move.timer, job), job.salt)
        )
        new["timer_at"] = at + wait if armed else None
    elif move.timer == "clear":
        new["timer_at"] = None
    for stamp in move.stamp:
        new[lifecycle.stamp_column(stamp)] = at
    for stamp in move.unstamp:
        new[lifecycle.stamp_column(stamp)] = None
    for stamp in move.stamp_input:
        new[lifecycle.stamp_column(stamp)] = change.stamps.get(stamp)
    return new


def tries(backoff: Backoff, job: Job) -> int:
    """Which delay of the schedule is next."""
    if backoff.counts == "retries":
        return job.retry_count
    return job.attempt_count - job.attempt_base - 1


def edges(lifecycle: Lifecycle) -> list[tuple[Move, str, str]]:
    """Every declared (move, from, to), STAY resolved; births come from '', prunes go there."""
    return [
        (move, source, move.target(source))
        for move in lifecycle.moves
        for source in move.sources or (GONE,)
    ]
