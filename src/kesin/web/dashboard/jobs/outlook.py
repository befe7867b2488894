"""The next thing that will happen to a job, and when: read from its lifecycle, never guessed.

Every automatic move that leaves the job's state is asked when its guards will let it. The earliest
is what happens next; what removes or expires the job comes after as "otherwise".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Asked, Job, failing_guard
from kesin.lifecycle.vocabulary import GONE, OWNED, Guard
from kesin.store.records import Pause

Kind = Literal["claim", "answer", "clock", "gone", "person", "paused", "over"]


@dataclass(frozen=True, slots=True)
class Next:
    """Something that will happen. ``at`` is None where nobody can know."""

    kind: Kind
    at: int | None = None
    move: str = ""
    to: str = ""
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is next, and what comes if it does not happen."""

    next: Next
    otherwise: tuple[Next, ...] = ()


def outlook(
    lifecycle: Lifecycle, job: Job, now: int, pauses: Sequence[Pause] = (), *, acts: bool = False
) -> Outlook:
    """``acts`` says whether there is something a person can do with the job where it is."""
    clock = _clock_moves(lifecycle, job, now)
    if job.phase == OWNED:
        return Outlook(Next("answer", job.lease_until), tuple(clock))
    claims = [
        Next("claim", at, move.name, move.target(job.state))
        for move in lifecycle.claims
        if job.state in move.sources and (at := _when(lifecycle, move, job, now)) is not None
    ]
    stopped = next((one for one in pauses if one.tenant in ("", job.tenant)), None)
    if claims and stopped:
        return Outlook(Next("paused", pause=stopped), tuple(clock))
    found = sorted([*claims, *clock], key=lambda one: one.at or 0)
    moving = [one for one in found if one.kind != "gone"]
    rest = tuple(one for one in found if one.kind == "gone")
    state = lifecycle.state.get(job.state)
    if moving and not (state and state.resting and acts and _is_far(moving[0], now)):
        return Outlook(moving[0], (*_later(moving), *rest))
    if acts and not (state and (state.terminal or state.success)):
        return Outlook(Next("person"), (*moving, *rest))
    if rest:
        return Outlook(rest[0])
    return Outlook(Next("person" if acts else "over"))


def _later(moving: Sequence[Next]) -> tuple[Next, ...]:
    """After what is next, each other end once."""
    first = moving[0]
    seen = {(first.kind, first.to)}
    told = []
    for one in moving[1:]:
        if (one.kind, one.to) not in seen:
            seen.add((one.kind, one.to))
            told.append(one)
    return tuple(told)


def _is_far(one: Next, now: int) -> bool:
    """More than a day away: until then the job waits for somebody rather than for the clock."""
    return one.at is not None and one.at - now > DAY_S * SECOND_US


def _clock_moves(lifecycle: Lifecycle, job: Job, now: int) -> list[Next]:
    found = []
    for move in lifecycle.clock_moves:
        if job.state in move.sources:
            at = _when(lifecycle, move, job, now)
            if at is not None:
                kind: Kind = "gone" if move.prunes else "clock"
                to = GONE if move.prunes else move.target(job.state)
                found.append(Next(kind, at, move.name, to))
    return sorted(found, key=lambda one: one.at or 0)


def _when(lifecycle: Lifecycle, move: Move, job: Job, now: int) -> int | None:
    """When the move's guards let it, as far as the job's own columns tell; None: never so."""
    times = [_time_of(guard, lifecycle, job) for guard in move.when]
    at = max(_known(times), default=0)
    asked = Asked(now=max(at, now), actor="")
    if failing_guard(move, job, lifecycle, asked, job.claim_seq) is not None:
        return None
    return at


def _known(times: Iterable[int | None]) -> list[int]:
    return [one for one in times if one is not None]


def _time_of(guard: Guard, lifecycle: Lifecycle, job: Job) -> int | None:
    """The moment from which a guard holds; None for those that have none, or are not armed."""
    match guard.kind:
        case "due":
            return job.run_at
        case "timer_over":
            return job.timer_at
        case "lease_over":
            return job.lease_until
        case "age_over":
            stamp: int | None = getattr(job, lifecycle.stamp_column(guard.names[0]))
            return None if stamp is None else stamp + guard.number * SECOND_US
        case _:
            return None
