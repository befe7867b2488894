"""What both SQL stores do alike: claims, moves and sweeps.

A subclass brings the connection and runs statements; how a call is judged, chained, retried and
answered is the same for both and stands here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial, reduce
from operator import or_
from typing import Any, TypeVar, cast

from kesin.foundation.clock import wall_clock_us
from kesin.foundation.ids import first_id_of, is_id
from kesin.foundation.text import canonical_json
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import Role
from kesin.store.declarations import MASK_PLACE, declared_rows, only_added
from kesin.store.errors import StoreError
from kesin.store.limits import LAST_ID, MAX_BATCH, QUEUE_NAME, askable, bounded, option_params
from kesin.store.records import Filter, Outcome, refusal
from kesin.store.sql.input_rows import Statement
from kesin.store.sql.inserter import CONFLICT_TRIES, SqlInserter
from kesin.store.sql.statements import Statements

Taken = TypeVar("Taken", bound=tuple[Any, ...])


class Conflict(Exception):  # not an error for the caller: it is tried again
    """A unique index said no: somebody else took the slot or the key in between."""


class SqlStore(SqlInserter):
    """The common half of the SQLite and PostgreSQL stores."""

    schema: str

    # What a subclass brings

    @abstractmethod
    def _savepoint(self) -> AbstractContextManager[None]:
        """Undo everything inside on an exception; unique violations come out as Conflict."""

    @abstractmethod
    def _claim(self, statements: Statements, params: dict[str, Any]) -> list[Job]:
        """Take what is due, fairly between tenants; the jobs in the order they are due."""

    @abstractmethod
    def _judge(
        self,
        statements: Statements,
        moves: tuple[Move, ...],
        changes: Sequence[Change],
        params: dict[str, Any],
        made: dict[str, int],
    ) -> dict[str, Outcome]:
        """Run the apply statement; the outcome of each job, and in ``made`` which move it was."""

    def _sweeping(self) -> AbstractContextManager[Any]:
        """The transaction a sweep runs in; a store may steer its planner there."""
        return self.transaction()

    @abstractmethod
    def _known_declared(self, queue: str) -> dict[tuple[object, ...], tuple[object, ...]]:
        """(queue, move, from, to) → the rest of the row, as the database has it."""

    @abstractmethod
    def _write_declared(self, queue: str, rows: list[tuple[object, ...]], definition: str) -> None:
        """Store the queue's declared moves, adding to what is there."""

    # Queues

    def open(self, queue: str, lifecycle: Lifecycle) -> None:
        if not QUEUE_NAME.fullmatch(queue):
            raise StoreError(
                f"{queue!r} is no queue name: lower-case letters, digits, - and _, at most 63"
            )
        definition = canonical_json(
            {
                "lifecycle": lifecycle.name,
                "states": [state.name for state in lifecycle.states],
                "stamps": list(lifecycle.stamps),
                "flags": list(lifecycle.flags),
            }
        )
        rows = declared_rows(queue, lifecycle)
        known = self._known_declared(queue)
        for row in rows:
            only_added(row, known.get(row[:4]))
        if any(known.get(row[:4]) != row[4:] for row in rows):
            self._write_declared(queue, rows, definition)
        declared = known | {row[:4]: row[4:] for row in rows}
        kept = all(effects[-1] for edge, effects in declared.items() if edge[-1])
        every = (*known.values(), *(row[4:] for row in rows))
        bits = reduce(or_, (cast("int", effects[MASK_PLACE]) for effects in every))
        self._queues[queue] = Statements(
            queue, lifecycle, self.dialect, self.schema, keys_kept=kept, settable=bits
        )

    def pulse(self, queue: str) -> int:
        return self._pulses.read(queue)

    def wait(self, queue: str, since: int, timeout_s: float) -> None:
        self._pulses.wait(queue, since, timeout_s)

    def wake(self, queue: str) -> None:
        self._pulses.beat(queue)

    # Claims

    def claim(
        self,
        queue: str,
        *,
        worker: str,
        limit: int,
        lease_us: int,
        tenants: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        now: int | None = None,
    ) -> list[Job]:
        statements = self.statements(queue)
        params: dict[str, Any] = {
            "queue": queue,
            "worker": worker,
            "actor": worker,
            "limit": min(limit, MAX_BATCH),
            "lease_us": lease_us,
            "now": now,
        }
        if ids is not None:
            bounded(ids)
            params["ids"] = self._array([one for one in ids if is_id(one)])
        elif tenants is not None:
            params["tenants"] = self._array(tenants)
        take = partial(self._claim, statements)
        return self._pick(statements, statements.lifecycle.claims, take, params)

    def _pick(
        self,
        statements: Statements,
        moves: Sequence[Move],
        take: Callable[[dict[str, Any]], list[Taken]],
        params: dict[str, Any],
    ) -> list[Taken]:
        """Run a claim or a sweep; where it takes a slot or a key, somebody else may be first."""
        if not statements.contested(moves):
            return take(params)
        if statements.takes_slot(moves):
            params["limit"] = min(params["limit"], 1)
        for limit in (params["limit"], 1):
            try:
                with self._savepoint():
                    return take({**params, "limit": limit})
            except Conflict:
                continue
        return []

    def renew(
        self,
        queue: str,
        claims: Sequence[tuple[str, int]],
        *,
        lease_us: int,
        now: int | None = None,
    ) -> set[str]:
        statements = self.statements(queue)
        bounded(claims)
        changes = [Change(job_id, token) for job_id, token in sorted(claims) if is_id(job_id)]
        params: dict[str, Any] = {"queue": queue, "lease_us": lease_us, "now": now}
        params["items"] = statements.items(statements.renew, changes)
        return {row[0] for row in self._rows(statements.renew.sql, params)}

    # Moves

    def apply(
        self,
        queue: str,
        call: str,
        changes: Sequence[Change],
        *,
        role: Role,
        actor: str,
        options: frozenset[str] = frozenset(),
        tenants: Sequence[str] | None = None,
        now: int | None = None,
    ) -> list[Outcome]:
        statements = self.statements(queue)
        moves = _moves(statements, call, role)
        asked = askable(call, moves, changes)
        params: dict[str, Any] = {"queue": queue, "actor": actor, "now": now}
        params["tenants"] = self._array(tenants)
        params |= option_params(moves, options)
        if any(move.then for move in moves):
            with self.transaction():
                made: dict[str, int] = {}
                judged = self._judge_safely(statements, moves, asked, params, made)
                judged |= self._chain(statements, moves, made, params)
        else:
            judged = self._judge_safely(statements, moves, asked, params, {})
        if any(one.result == "moved" for one in judged.values()):
            self._pulses.beat(queue)
        self._name_rivals(statements, judged)
        return [judged.get(change.id) or Outcome("unknown", change.id) for change in changes]

    def foresee(
        self,
        queue: str,
        call: str,
        where: Filter,
        *,
        role: Role,
        ids: Sequence[str] | None = None,
        options: frozenset[str] = frozenset(),
        now: int | None = None,
    ) -> dict[tuple[str, str], int]:
        statements = self.statements(queue)
        moves = _moves(statements, call, role)
        params: dict[str, Any] = {"queue": queue, "now": now, **option_params(moves, options)}
        filters, wanted = self._filters(where, params)
        among = self._among(statements, where, ids)
        if among is not None:
            params["ids"] = self._array(among)
        sql = statements.foresee(moves, filters, wanted, among=among is not None)
        return {(row[0], row[1]): row[2] for row in self._read(sql, params)}

    def _name_rivals(self, statements: Statements, judged: dict[str, Outcome]) -> None:
        """Say who has the key, to those refused because of it."""
        lost = [Change(one.id) for one in judged.values() if one.reason == "duplicate"]
        if lost:
            items = statements.items(statements.rivals, lost)
            for job_id, holder in self._rows(statements.rivals.sql, {"items": items}):
                judged[job_id] = judged[job_id]._replace(holder=holder)

    def _judge_safely(
        self,
        statements: Statements,
        moves: tuple[Move, ...],
        changes: Sequence[Change],
        params: dict[str, Any],
        made: dict[str, int],
    ) -> dict[str, Outcome]:
        """Judge a batch; where a unique index objects, judge its halves, and a single job again."""
        if not changes:
            return {}
        if not statements.contested(moves):
            return self._judge(statements, moves, changes, params, made)
        for _ in range(CONFLICT_TRIES if len(changes) == 1 else 1):
            try:
                with self._savepoint():
                    return self._judge(statements, moves, changes, params, made)
            except Conflict:
                continue
        if len(changes) == 1:
            why = "busy" if statements.takes_slot(moves) else "duplicate"
            id_ = changes[0].id
            job = self.job(id_)
            return {id_: refusal(why, id_, job and job.state, job.seq if job else 0)}
        half = len(changes) // 2
        return self._judge_safely(
            statements, moves, changes[:half], params, made
        ) | self._judge_safely(statements, moves, changes[half:], params, made)

    def _said(
        self,
        statements: Statements,
        statement: Statement,
        changes: Sequence[Change],
        params: dict[str, Any],
    ) -> dict[str, Any]:
        """The parameters of a call about these jobs."""
        items = statements.items(statement, changes)
        return {**params, **statement.told(changes[0]), "items": items}

    def _chain(
        self,
        statements: Statements,
        moves: tuple[Move, ...],
        made: dict[str, int],
        params: dict[str, Any],
    ) -> dict[str, Outcome]:
        """Make the second link for the jobs that moved and whose guards let it."""
        answers: dict[str, Outcome] = {}
        for number, move in enumerate(moves):
            links = statements.lifecycle.chained(move)
            ready = [Change(id_) for id_, which in made.items() if which == number]
            if links and ready:
                linked = self._judge_safely(statements, links, ready, params, {})
                answers |= {id_: one for id_, one in linked.items() if one.result == "moved"}
        return answers

    def sweep(
        self,
        queue: str,
        move: Move,
        *,
        limit: int,
        now: int | None = None,
        min_age_us: int = 0,
        max_attempts: int | None = None,
    ) -> int:
        statements = self.statements(queue)
        bound = statements.born_before(move, wall_clock_us() if now is None else now)
        params: dict[str, Any] = {
            "queue": queue,
            "actor": "clock",
            "now": now,
            "limit": min(limit, MAX_BATCH),
            "min_age_us": min_age_us,
            "before": LAST_ID if bound is None else first_id_of(bound),
        }
        if max_attempts is not None:
            params["max_attempts"] = max_attempts
        sql = statements.sweep(move, capped=max_attempts is not None)
        with self._sweeping():
            moved = self._pick(statements, (move,), partial(self._rows, sql), params)
            if move.then:
                links = statements.lifecycle.chained(move)
                links = tuple(link for link in links if "clock" in link.by)
                changes = [Change(row[0]) for row in sorted(moved)]
                judged = {"queue": queue, "actor": "clock", "now": now, "tenants": None}
                self._judge_safely(statements, links, changes, judged, {})
        if moved:
            self._pulses.beat(queue)
        return len(moved)


def _moves(statements: Statements, call: str, role: Role) -> tuple[Move, ...]:
    moves = statements.moves(call, role)
    if not moves:
        raise StoreError(f"{call!r} is no call a {role} can make on the queue {statements.queue!r}")
    return moves


def as_moved(rows: Iterable[tuple[Any, ...]]) -> dict[str, Outcome]:
    """The outcomes of jobs that moved, from rows of id, state and seq."""
    return {id_: Outcome("moved", id_, state, seq) for id_, state, seq in rows}
