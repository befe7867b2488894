"""The moves that most lifecycles share, one function for each.

Each function returns a `Move` with the guards and effects that all moves of this kind share. Any
field of a `Move` can be given by keyword and replaces the value that the function would set:
``complete("running", "succeeded", name="succeed")``.
"""

from typing import Any, Literal, TypedDict, Unpack

from kesin.lifecycle import vocabulary as guards
from kesin.lifecycle.budget import DAY_S, Backoff
from kesin.lifecycle.declare import Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.vocabulary import GONE, STAY, After, Fixed, Guard, Role, Stage

Sources = str | tuple[str, ...]

PARENT_FAILED = Fixed("PARENT_FAILED", Category.PERMANENT, "a job that it depends on did not succeed")
OUT_OF_ATTEMPTS = Fixed("MAX_ATTEMPTS", Category.PERMANENT, "all attempts were used")
DISMISSED = Fixed(
    "DISMISSED", Category.PERMANENT, "an operator dismissed this failure; the history has the original error"
)


class MoveFields(TypedDict, total=False):
    """The fields of a `Move` that a declaration may give by keyword."""

    name: str
    action: str
    by: tuple[Role, ...]
    when: tuple[Guard, ...]
    claim: Literal["take", "drop", "keep"]
    attempt: Literal["count", "return", "renew", "keep"]
    retry: Literal["count", "keep"]
    error: Literal["record", "clear", "keep"] | Fixed
    run_at: Literal["now", "input", "clear", "keep"] | Backoff
    timer: Literal["clear", "keep"] | After | Backoff
    timer_for: tuple[Category, ...]
    stamp: tuple[str, ...]
    stamp_input: tuple[str, ...]
    unstamp: tuple[str, ...]
    result: Literal["record", "keep"]
    flag: tuple[str, ...]
    payload: Literal["replace", "keep"]
    priority: Literal["input", "keep"]
    then: str
    chained: bool
    stage: Stage | None
    doc: str


def enqueue(to: str, **fields: Unpack[MoveFields]) -> Move:
    """A producer creates a job, due at the requested time."""
    return _move("enqueue", (), to, fields, by=("producer",), run_at="input")


def enqueue_after(to: str, **fields: Unpack[MoveFields]) -> Move:
    """A producer creates a job that waits in ``to`` until its parents end."""
    return _move("enqueue_after", (), to, fields, by=("producer",), run_at="input")


# Workers


def claim(sources: Sources, to: str, **fields: Unpack[MoveFields]) -> Move:
    """A worker claims a due job, and an attempt is counted."""
    when = (guards.due, guards.unclaimed, guards.budget_left)
    return _by_worker("claim", sources, to, fields, when=when, claim="take", attempt="count")


def complete(sources: Sources, to: str, **fields: Unpack[MoveFields]) -> Move:
    """The work is done: the result is recorded, and the error of an earlier attempt is cleared."""
    return _ends("complete", sources, to, fields, error="clear", result="record")


def fail(sources: Sources, to: str, **fields: Unpack[MoveFields]) -> Move:
    """The work has failed permanently."""
    return _ends("fail", sources, to, fields, error="record")


def retry(sources: Sources, to: str, delay: Backoff | Literal["input"], **fields: Unpack[MoveFields]) -> Move:
    """An attempt failed and the budget allows another one later."""
    when = (guards.holds_claim, guards.budget_left)
    return _by_worker("retry", sources, to, fields, when=when, error="record", run_at=delay)


def retry_spent(sources: Sources, to: str, **fields: Unpack[MoveFields]) -> Move:
    """The last attempt failed: the job keeps the error of that attempt."""
    when = (guards.holds_claim, guards.budget_spent)
    return _ends("retry", sources, to, fields, when=when, error="record")


def release(sources: Sources, to: str, **fields: Unpack[MoveFields]) -> Move:
    """A worker that is stopping returns the job and its attempt."""
    when = (guards.holds_claim, guards.returns_left)
    return _by_worker("release", sources, to, fields, when=when, attempt="return", run_at="now")


# The sweeper


def unblock(sources: Sources, to: str, **fields: Unpack[MoveFields]) -> Move:
    """All parents of the job have succeeded."""
    return _settles("unblock", sources, to, fields, when=(guards.parents_done,), run_at="now")


def parent_failed(sources: Sources, to: str, **fields: Unpack[MoveFields]) -> Move:
    """A parent of the job has stopped without succeeding."""
    ends: dict[str, Any] = {"error": PARENT_FAILED, "stamp": ("finished_at",)}
    return _settles("parent_failed", sources, to, fields, when=(guards.parents_failed,), **ends)


def attempt_cap(sources: Sources, to: str, **fields: Unpack[MoveFields]) -> Move:
    """A waiting job has no attempts left."""
    when = (guards.unclaimed, guards.budget_spent)
    return _gives_up("attempt_cap", sources, to, fields, when=when, stage="cap")


def recover(sources: Sources, to: str, **fields: Unpack[MoveFields]) -> Move:
    """A worker died or lost its lease; the job is due again immediately."""
    effects: dict[str, Any] = {"claim": "drop", "run_at": "now", "stage": "recover"}
    when = (guards.lease_over, guards.budget_left)
    return _move("recover", sources, to, fields, by=("clock",), when=when, **effects)


def recover_spent(sources: Sources, to: str, **fields: Unpack[MoveFields]) -> Move:
    """A worker died or lost its lease during the last attempt."""
    when = (guards.lease_over, guards.budget_spent)
    return _gives_up("recover", sources, to, fields, when=when, claim="drop", stage="recover")


def expire(sources: Sources, to: str, seconds: int, *, since: str = "created_at", **fields: Unpack[MoveFields]) -> Move:
    """A job has become too old or, with ``since="finished_at"``, finished too long ago."""
    when: tuple[Guard, ...] = (guards.age_over(since, seconds),)
    if since == "finished_at":
        return _move("expire", sources, to, fields, by=("clock",), when=when, stage="expire")
    ends: dict[str, Any] = {"when": (guards.unclaimed, *when), "stamp": ("finished_at",)}
    return _move("expire", sources, to, fields, by=("clock",), stage="expire", **ends)


def prune(sources: Sources, *, days: int) -> Move:
    """A job is deleted this many days after it finished."""
    when = (guards.age_over("finished_at", days * DAY_S),)
    return _move("prune", sources, GONE, {}, by=("clock",), when=when, stage="prune")


# Operators


def requeue(sources: Sources, to: str, **fields: Unpack[MoveFields]) -> Move:
    """An operator retries a job, with a full budget."""
    effects: dict[str, Any] = {"attempt": "renew", "run_at": "now", "unstamp": ("finished_at",)}
    return _move("requeue", sources, to, fields, by=("operator",), **effects)


def cancel(sources: Sources, to: str, **fields: Unpack[MoveFields]) -> Move:
    """An operator or the producer ends a job that no worker has claimed."""
    effects: dict[str, Any] = {"by": ("operator", "producer"), "stamp": ("finished_at",)}
    return _move("cancel", sources, to, fields, when=(guards.unclaimed,), **effects)


def dismiss(source: str, *settled: str, **fields: Unpack[MoveFields]) -> Move:
    """An operator closes a failed job whose code is not in ``settled``; it can still be retried."""
    when = (guards.code_not_in(DISMISSED.code, *settled),)
    return _move("dismiss", source, source, fields, by=("operator",), when=when, error=DISMISSED)


def prioritize(sources: Sources, **fields: Unpack[MoveFields]) -> Move:
    """An operator moves a job ahead of or behind others of its tenant."""
    return _move("prioritize", sources, STAY, fields, by=("operator",), priority="input")


def _move(name: str, sources: Sources, to: str, fields: MoveFields, **kind: Any) -> Move:
    names = (sources,) if isinstance(sources, str) else sources
    return Move(**{"name": name, "sources": names, "to": to, **kind, **fields})


def _by_worker(name: str, sources: Sources, to: str, fields: MoveFields, **kind: Any) -> Move:
    worker: dict[str, Any] = {"by": ("worker",), "when": (guards.holds_claim,), "claim": "drop"}
    return _move(name, sources, to, fields, **{**worker, **kind})


def _ends(name: str, sources: Sources, to: str, fields: MoveFields, **kind: Any) -> Move:
    return _by_worker(name, sources, to, fields, stamp=("finished_at",), **kind)


def _settles(name: str, sources: Sources, to: str, fields: MoveFields, **kind: Any) -> Move:
    clock: dict[str, Any] = {"by": ("clock",), "action": "settle", "stage": "settle"}
    return _move(name, sources, to, fields, **clock, **kind)


def _gives_up(name: str, sources: Sources, to: str, fields: MoveFields, **kind: Any) -> Move:
    ends: dict[str, Any] = {"error": OUT_OF_ATTEMPTS, "stamp": ("finished_at",)}
    return _move(name, sources, to, fields, by=("clock",), **ends, **kind)
