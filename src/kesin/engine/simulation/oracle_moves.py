"""What a move should have changed, by the pure functions that the stores' statements come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from kesin.lifecycle import model
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.model import Change, Job, MoveContext, ParentMark
from kesin.lifecycle.vocabulary import OWNED
from kesin.store.records import Event

Moves = tuple[Move, ...]
Parents = dict[str, dict[str, ParentMark]]  # child → parent → how it is
NO_CHANGE = Change("")


class BrokenPromise(BaseException):
    """A promise that did not hold; as an Exception, it would count as the handler's failure."""

    def __init__(self, rule: str, why: str) -> None:
        super().__init__(f"{rule}: {why}")
        self.rule = rule


def break_promise(rule: str, why: str) -> NoReturn:
    raise BrokenPromise(rule, why)


@dataclass(frozen=True)
class MoveOracle:
    """The queue before a call, and the events that the call added."""

    queue: str
    lifecycle: Lifecycle
    rows: Mapping[str, Job]
    new_events: Mapping[str, Sequence[Event]]  # by job; empty if the job is gone
    paused: frozenset[str]
    history: Mapping[str, Sequence[Event]]  # by job, before the call
    meters: dict[str, int]  # tenant → when its claims are paid off, where there is a rate
    parents: Parents

    def _row(self, job_id: str) -> Job:
        return self.rows.get(job_id) or break_promise("answer", f"{job_id} was not there")

    def _row_after(self, job: Job, moves: Moves, change: Change, context: MoveContext) -> Job:
        """The row that the job's new events should lead to."""
        events = self.new_events.get(job.id, ())
        if not events:
            break_promise("event", f"{job.id} moved without an event")
        matching = [move for move in moves if _matches_event(move, job, events[0])]
        if not matching:
            edge = f"{events[0].from_state} → {events[0].to_state}"
            break_promise("declared", f"{events[0].move} ({edge}) is not a move that was requested")
        move = self._allowed_move(tuple(matching), job, change, context)
        new = model.apply_move(self.lifecycle, move, job, change, context)
        links = self.lifecycle.chained_moves(move)
        if move.stage:
            links = tuple(link for link in links if "clock" in link.by)
        then = events[1] if len(events) > 1 else None
        second = tuple(link for link in links if then and _matches_event(link, new, then))
        if second:
            link = self._allowed_move(second, new, NO_CHANGE, context)
            new = model.apply_move(self.lifecycle, link, new, NO_CHANGE, context)
        elif any(self._is_possible(link, new, NO_CHANGE, context) for link in links):
            break_promise("chain", f"{job.id} made {move.name} without its chained move")
        if len(events) != new.seq - job.seq:
            break_promise("event", f"{job.id} left {len(events)} events, not {new.seq - job.seq}")
        return new

    def _allowed_move(self, moves: Moves, job: Job, change: Change, context: MoveContext) -> Move:
        if change.token is not None and has_lost_claim(job, change.token):
            break_promise("fence", f"{job.id} made {moves[0].name} for a claim that was lost")
        rules, seen = self.lifecycle, self._seen_by(job, context)
        failing = [model.failing_guard(move, job, rules, seen, change.token) for move in moves]
        for move, guard in zip(moves, failing, strict=True):
            if guard is None and job.state in move.sources:
                return move
        break_promise("guard", f"{job.id} made {moves[0].name} though {failing[0]} did not hold")

    def _is_possible(self, move: Move, job: Job, change: Change, context: MoveContext) -> bool:
        """Whether nothing prevented the move, before the call and after it."""
        stale = change.token is not None and has_lost_claim(job, change.token)
        if job.state not in move.sources or stale:
            return False
        seen = self._seen_by(job, context)
        if model.failing_guard(move, job, self.lifecycle, seen, change.token) is not None:
            return False
        to, source = self.lifecycle.state.get(move.to), self.lifecycle.state[job.state]
        if to is None:
            return True
        if to.capacity and self._may_have_used(to, job) >= to.capacity:
            return False
        if not to.holds_key or source.holds_key or job.dedup_key is None:
            return True
        key = self._key(job)
        return not any(
            self._key(other) == key and (other.id in self.new_events or self._holds_key(other))
            for other in self.rows.values()
            if other.id != job.id
        )

    def _seen_by(self, job: Job, context: MoveContext) -> MoveContext:
        """The context with what the job's guards see of other jobs."""
        others = [other for other in self.rows.values() if not self._has_left(other)]
        meter = model.meter_of(self.lifecycle.claims[0])
        used = meter is not None and not meter.left(self.meters.get(job.tenant, 0), context.now)
        full = model.full_states(self.lifecycle, job, others)
        mark = model.parents_mark(self.parents.get(job.id, {}).values())
        return replace(context, slots_taken=full, rate_used=used, parents=mark)

    def _may_have_used(self, state: State, job: Job) -> int:
        """How many slots other jobs had before this call or took in it."""
        rows = [row for row in self.rows.values() if row.id != job.id]
        if state.per_tenant:
            rows = [row for row in rows if row.tenant == job.tenant]
        came = sum(
            row.state != state.name and any(event.to_state == state.name for event in self.new_events.get(row.id, ()))
            for row in rows
        )
        return came + sum(row.state == state.name for row in rows)

    def _has_left(self, job: Job) -> bool:
        """Whether the job left its state by this call; a wake-up may keep the state."""
        events = self.new_events.get(job.id)
        return events is not None and (not events or events[-1].to_state != job.state)

    def _holds_key(self, job: Job) -> bool:
        holds = job.once or self.lifecycle.state[job.state].holds_key
        return job.dedup_key is not None and bool(holds)

    @staticmethod
    def _key(job: Job) -> tuple[str, str | None]:
        return (job.tenant, job.dedup_key)


def _matches_event(move: Move, job: Job, event: Event) -> bool:
    fits = job.state in move.sources and move.target(job.state) == event.to_state
    return fits and move.name == event.move


def has_lost_claim(job: Job, token: int | None) -> bool:
    return job.phase != OWNED or job.claim_seq != token


def mismatch(row: Job | None, expected: Job | None) -> str:
    """How a row differs from the expected one: whether it is there, or the first column."""
    if row is None or expected is None:
        job = row or expected
        presence = "is there" if row else "is not there"
        return f"{job.id if job else ''} {presence}, and should {'not be' if row else 'be'}"
    for column, actual, correct in zip(Job._fields, row, expected, strict=True):
        if actual != correct:
            return f"{row.id} after {row.move}: {column} is {actual!r}, and should be {correct!r}"
    return row.id
