"""Cases of a lifecycle, run on the reference model: an action on a job, and what becomes of it."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change, Job, MoveContext, apply_move, failing_guard
from kesin.lifecycle.vocabulary import Role
from tests.lifecycle.adversary import NOW, new_job
from tests.tables import table as run_table

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LEASE = 60 * SECOND
PAST, FUTURE = NOW - SECOND, NOW + SECOND
STALE = -1  # the token of a claim that was lost

# A claimed job: the claim is a minute old, and its lease runs for another hour.
CLAIMED: dict[str, Any] = {
    "worker": "worker-1",
    "seq": 4,
    "claim_seq": 4,
    "claimed_at": NOW - MINUTE,
    "lease_until": NOW + HOUR,
    "attempt_count": 1,
}
LOST = {**CLAIMED, "lease_until": NOW}  # the same, with the lease over this instant


def error(code: str, category: str, message: str = "as told") -> dict[str, Any]:
    """The three error columns of a row."""
    return {"error_code": code, "error_category": category, "error_message": message}


NO_ERROR = dict.fromkeys(("error_code", "error_category", "error_message"))
NO_CLAIM = dict.fromkeys(("worker", "claimed_at", "lease_until"))


@dataclass(frozen=True)
class Within:
    """Any time from ``first`` to ``last``: what a jitter may draw."""

    first: int
    last: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and self.first <= other <= self.last

    def __hash__(self) -> int:
        return hash((self.first, self.last))


@dataclass(frozen=True)
class Row:
    """A case: this action by this role on this job makes these moves and leaves these columns.

    ``given`` and ``then`` name columns or stamps; a job was due a second ago unless ``given`` says
    otherwise. ``change`` is what the caller says about the job. ``path`` holds one move per event;
    ``refused`` names instead the guard that stops the action, or ``state`` or ``role``.
    """

    action: str
    by: Role
    source: str
    given: dict[str, Any] = field(default_factory=dict)
    change: dict[str, Any] = field(default_factory=dict)
    options: frozenset[str] = frozenset()
    path: str = ""
    then: dict[str, Any] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    refused: str = ""


def rows(table: dict[str, Row]) -> Any:
    """Run a test over a table, each row under its own sentence."""
    return run_table("row", [pytest.param(row, id=name) for name, row in table.items()])


def refused(action: str, by: Role, source: str, why: str, **given: Any) -> Row:
    """A case in which the action is refused."""
    return Row(action, by, source, given=given, refused=why)


def hold(lifecycle: Lifecycle, row: Row) -> None:
    """Run the action of a row on the reference model and compare."""
    given = {"run_at": PAST, **_columns(lifecycle, row.given)}
    job = new_job(lifecycle, state=row.source, **given)
    if row.refused:
        assert row.refused in refusals(lifecycle, row, job)
        return
    events = made(lifecycle, row, job)
    assert " + ".join(_line(before, after) for before, after in events) == row.path
    last = events[-1][1]
    wanted = _columns(lifecycle, row.then)
    assert {column: getattr(last, column) for column in wanted} == wanted
    kept = [lifecycle.stamp_column(c) if c not in Job._fields else c for c in row.kept]
    assert {c: getattr(last, c) for c in kept} == {c: getattr(job, c) for c in kept}
    assert (last.seq, last.moved_at) == (job.seq + len(events), NOW)


def made(lifecycle: Lifecycle, row: Row, job: Job) -> list[tuple[Job, Job]]:
    """The moves of the action, each as the job before and after it."""
    context = _context(row)
    change = Change(job.id, **{"token": job.claim_seq, **row.change})
    open_to = [m for m in lifecycle.actions[row.action] if row.by in m.by and not m.chained]
    move = _only(lifecycle, open_to, job, context, change.token)
    assert move is not None, f"{row.action} is refused: {refusals(lifecycle, row, job)}"
    events = [(job, apply_move(lifecycle, move, job, change, context))]
    link = _only(lifecycle, lifecycle.chained_moves(move), events[0][1], context, None)
    if link is not None:
        after = events[0][1]
        events.append((after, apply_move(lifecycle, link, after, Change(job.id), context)))
    return events


def refusals(lifecycle: Lifecycle, row: Row, job: Job) -> set[str]:
    """What stops the action: a guard of each alternative that leaves the state."""
    context, token = _context(row), row.change.get("token", job.claim_seq)
    if not lifecycle.allows(row.action, row.by):
        return {"role"}
    meant = [
        move
        for move in lifecycle.actions[row.action]
        if row.by in move.by and job.state in move.sources and not move.chained
    ]
    stops = [failing_guard(move, job, lifecycle, context, token) for move in meant]
    if not all(stops):
        return set()
    return {stop.kind for stop in stops if stop} or {"state"}


def _context(row: Row) -> MoveContext:
    return MoveContext(NOW, row.by, "worker-2", LEASE, row.options)


def _only(lifecycle: Lifecycle, moves: Any, job: Job, context: MoveContext, token: int | None) -> Move | None:
    fitting = [
        move
        for move in moves
        if job.state in move.sources and failing_guard(move, job, lifecycle, context, token) is None
    ]
    assert len(fitting) <= 1, f"{[move.name for move in fitting]} all fit"
    return fitting[0] if fitting else None


def _columns(lifecycle: Lifecycle, named: dict[str, Any]) -> dict[str, Any]:
    known = Job._fields
    return {name if name in known else lifecycle.stamp_column(name): value for name, value in named.items()}


def _line(before: Job, after: Job) -> str:
    return f"{after.move}: {before.state} → {after.state}"
