"""Which failed jobs wait for a person: those that no claim and no scheduled move takes back."""

from typing import Final

from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Job, MoveContext, failing_guard
from kesin.lifecycle.vocabulary import READY, RESTING, Fixed, Guard

ERROR_GUARDS: Final = frozenset({"code_in", "code_not_in", "category_in"})


def failure_states(lifecycle: Lifecycle) -> tuple[str, ...]:
    """The states in which jobs rest without success: failed, held, partly done."""
    return tuple(
        state.name
        for state in lifecycle.states
        if state.resting and not state.success and state.name not in lifecycle.waiting_states
    )


def ready_states(lifecycle: Lifecycle) -> tuple[str, ...]:
    """The states from which workers claim."""
    names = (state.name for state in lifecycle.states)
    return tuple(name for name in names if lifecycle.unowned_phase(name) == READY)


def revivals(lifecycle: Lifecycle) -> tuple[Move, ...]:
    """The sweeper's moves that take failed jobs back to where workers claim them."""
    resting, ready = set(failure_states(lifecycle)), set(ready_states(lifecycle))
    return tuple(
        move
        for move in lifecycle.scheduled_moves
        if move.to in ready and resting & set(move.sources) and not move.guard("age_over")
    )


def decided_codes(lifecycle: Lifecycle) -> frozenset[str]:
    """The error codes of a decision: declared so, or recorded by a person only, as on a cancel."""
    fixed = [(move, move.error.code) for move in lifecycle.moves if isinstance(move.error, Fixed)]
    decided = {code for move, code in fixed if "operator" in move.by}
    decided |= {error.code for _, error in lifecycle.default_errors}
    decided -= {code for move, code in fixed if "operator" not in move.by}
    return frozenset(decided | {code.name for code in lifecycle.errors.codes if code.decision})


def decided_moves(lifecycle: Lifecycle) -> frozenset[str]:
    """The moves that only record a decision."""
    codes = decided_codes(lifecycle)
    others = {m.name for m in lifecycle.moves if getattr(m.error, "code", None) not in codes}
    return frozenset(move.name for move in lifecycle.moves) - others


def retried_at(lifecycle: Lifecycle, job: Job, now: int) -> int | None:
    """From when the job is tried again without anyone's help; None: never."""
    if job.phase == READY:
        return job.run_at
    if job.phase != RESTING:
        return None
    times = [allowed_from(lifecycle, move, job, now) for move in revivals(lifecycle) if job.state in move.sources]
    return min((at for at in times if at is not None), default=None)


def allowed_from(lifecycle: Lifecycle, move: Move, job: Job, now: int) -> int | None:
    """From when the move's guards hold, by the job's own columns; None: never."""
    times = (_time_of(guard, lifecycle, job) for guard in move.when)
    at = max((time for time in times if time is not None), default=0)
    context = MoveContext(now=max(at, now), actor="")
    if failing_guard(move, job, lifecycle, context, job.claim_seq) is not None:
        return None
    return at


def _time_of(guard: Guard, lifecycle: Lifecycle, job: Job) -> int | None:
    """The time from which a guard holds; None if it does not depend on time."""
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
