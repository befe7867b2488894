"""What will happen to a job next, and when: as soon as the guards of an automatic move hold."""

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.failures import allowed_from
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import GONE, OWNED
from kesin.store.records import Pause

Kind = Literal["claim", "slots", "answer", "parents", "clock", "gone", "person", "paused", "over"]


class Upcoming(NamedTuple):
    """Something that will happen. ``at`` is None where the time cannot be known."""

    kind: Kind
    at: int | None = None
    move: str = ""
    to: str = ""
    pause: Pause | None = None
    slots: int = 0  # of the state in which all are taken


class Outlook(NamedTuple):
    """What is next, and what happens otherwise."""

    next: Upcoming
    otherwise: tuple[Upcoming, ...] = ()


def outlook(
    lifecycle: Lifecycle,
    job: Job,
    now: int,
    pauses: Sequence[Pause] = (),
    full: Collection[str] = (),
) -> Outlook:
    """What happens to the job; ``full`` are the states that have no slot for it."""
    scheduled = _scheduled_moves(lifecycle, job, now)
    if job.phase == OWNED:
        return Outlook(Upcoming("answer", job.lease_until), tuple(scheduled))
    if job.state in lifecycle.waiting_states:
        return Outlook(Upcoming("parents"), tuple(scheduled))
    claims = [
        Upcoming("claim", at, move.name, move.target(job.state))
        for move in lifecycle.claims
        if job.state in move.sources and (at := allowed_from(lifecycle, move, job, now)) is not None
    ]
    pause = next((pause for pause in pauses if pause.tenant in ("", job.tenant)), None)
    if claims and pause:
        return Outlook(Upcoming("paused", pause=pause), tuple(scheduled))
    claims = [_with_slots(lifecycle, step, now, full) for step in claims]
    upcoming = sorted([*claims, *scheduled], key=lambda step: step.at or 0)
    moving = [step for step in upcoming if step.kind != "gone"]
    rest = tuple(step for step in upcoming if step.kind == "gone")
    state = lifecycle.state.get(job.state)
    acts = any("operator" in move.by and job.state in move.sources for move in lifecycle.moves)
    # More than a day away: until then the job waits for a person rather than for time.
    far = bool(moving) and (moving[0].at or 0) - now > DAY_S * SECOND_US
    if moving and not (state and state.resting and acts and far):
        return Outlook(moving[0], (*_later(moving), *rest))
    if acts and not (state and (state.terminal or state.success)):
        return Outlook(Upcoming("person"), (*moving, *rest))
    return Outlook(rest[0] if rest else Upcoming("person" if acts else "over"))


def _with_slots(lifecycle: Lifecycle, claim: Upcoming, now: int, full: Collection[str]) -> Upcoming:
    """The claim, or that it waits for a slot of the state that it leads to."""
    if claim.to not in full or (claim.at or 0) > now:
        return claim
    return claim._replace(kind="slots", slots=lifecycle.state[claim.to].capacity)


def _later(moving: Sequence[Upcoming]) -> tuple[Upcoming, ...]:
    """What follows after the first, each result once."""
    results: dict[tuple[str, str], Upcoming] = {}
    for upcoming in moving:
        results.setdefault((upcoming.kind, upcoming.to), upcoming)
    return tuple(results.values())[1:]


def _scheduled_moves(lifecycle: Lifecycle, job: Job, now: int) -> list[Upcoming]:
    upcoming = []
    for move in lifecycle.scheduled_moves:
        if job.state in move.sources:
            at = allowed_from(lifecycle, move, job, now)
            if at is not None:
                kind: Kind = "gone" if move.prunes else "clock"
                to = GONE if move.prunes else move.target(job.state)
                upcoming.append(Upcoming(kind, at, move.name, to))
    return sorted(upcoming, key=lambda step: step.at or 0)
