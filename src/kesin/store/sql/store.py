"""Claims, moves and sweeps for both SQL stores; a subclass connects and runs the statements."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

from kesin.foundation.clock import wall_clock_us
from kesin.foundation.ids import is_id
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.declare import Move
from kesin.lifecycle.failures import failure_states
from kesin.lifecycle.model import CLOCK_WENT_BACK_S, Change, Job
from kesin.store.contract import Moves
from kesin.store.limits import MAX_BATCH, check_batch_size, moves_for, option_params
from kesin.store.ownership import Ownership
from kesin.store.records import Filter, HeldClaim, Outcome, ScheduleRow, refusal
from kesin.store.sql.columns import InputRow
from kesin.store.sql.inserter import MAX_CONFLICT_ATTEMPTS
from kesin.store.sql.rules import SqlRules
from kesin.store.sql.statements import PreviewWay, Statements

ClaimedRow = TypeVar("ClaimedRow", bound=tuple[Any, ...])


class Conflict(Exception):  # not an error for the caller: it is tried again
    """A unique index rejected the change: another transaction took the slot or the key first."""


class ActionCall(NamedTuple):
    """An action that is asked for many jobs, as the alternative moves it stands for."""

    statements: Statements
    moves: tuple[Move, ...]
    params: dict[str, Any]
    chosen: dict[str, int]  # by job: the index of the move that it made, where a chain needs it


class SqlStore(SqlRules):
    """The shared half of the SQLite and PostgreSQL stores."""

    schema: str
    _ownership: Ownership[Any]

    # Implemented by the subclasses

    @abstractmethod
    def _join(self, connection: Any) -> AbstractContextManager[None]:
        """Own the transaction of a caller's connection; refuse one that has none of ours."""

    @abstractmethod
    def _savepoint(self, *, single: bool = False) -> AbstractContextManager[None]:
        """Roll back the block, or ``single`` statement, on an exception; a Conflict if unique."""

    @abstractmethod
    def _claim(self, statements: Statements, params: dict[str, Any]) -> list[Job]:
        """Claim due jobs, fairly between tenants; return them in the order they are due."""

    @abstractmethod
    def _peek(self, statements: Statements, params: dict[str, Any]) -> list[Job]:
        """The jobs that a claim with these parameters would take."""

    @abstractmethod
    def _judge(self, call: ActionCall, changes: Sequence[Change]) -> dict[str, Outcome]:
        """Run the apply statement; return each outcome, and fill ``call.chosen``."""

    def _sweeping(self) -> AbstractContextManager[Any]:
        """The transaction of a sweep; a store may set planner options in it."""
        return self.transaction()

    @contextmanager
    def joining(self, connection: Any) -> Iterator[None]:
        own = connection is self._ownership.joined()  # that of our own transaction
        with nullcontext() if own else self._join(connection):
            yield

    # Claims

    def _due_jobs(self, queue: str, what: Literal["claim", "peek"], params: dict[str, Any]) -> list[Job]:
        statements = self.statements(queue)
        claims = statements.lifecycle.claims
        for name in ("ids", "tenants"):
            if name in params:
                params[name] = self.dialect.array(params[name])
        if what == "claim":
            take = partial(self._claim, statements)
            return self._take_contested(statements, claims, take, params)
        if statements.takes_slot(claims) and not statements.lifecycle.limited_claim:
            params["limit"] = min(params["limit"], 1)
        jobs = self._peek(statements, params)
        keys = [(job.tenant, job.dedup_key) for job in jobs if job.dedup_key is not None]
        if statements.contested(claims) and len(set(keys)) < len(keys):
            return self._peek(statements, {**params, "limit": 1})  # such a claim takes one job
        return jobs

    def _take_contested(
        self,
        statements: Statements,
        moves: Sequence[Move],
        take: Callable[[dict[str, Any]], list[ClaimedRow]],
        params: dict[str, Any],
        *,
        one_by_one: int = 1,
    ) -> list[ClaimedRow]:
        """Run a claim or a sweep; after a conflict over a slot or key, take the jobs one by one."""
        if not statements.contested(moves):
            return take(params)
        if statements.lifecycle.limited_claim in moves:
            with suppress(Conflict), self._savepoint(single=True):
                return take(params)
        elif statements.takes_slot(moves):
            params["limit"] = one_by_one = min(params["limit"], 1)
        with suppress(Conflict), self._savepoint(single=True):
            return take(params)
        taken: list[ClaimedRow] = []
        with suppress(Conflict):
            while len(taken) < one_by_one:
                with self._savepoint(single=True):
                    rows = take({**params, "limit": 1})
                if not rows:
                    break
                taken += rows
        return taken

    def renew(self, queue: str, claims: Sequence[HeldClaim], *, lease_us: int, now: int | None = None) -> set[str]:
        statements = self.statements(queue)
        check_batch_size(claims)
        changes = [Change(job_id, token) for job_id, token in sorted(claims) if is_id(job_id)]
        params: dict[str, Any] = {"queue": queue, "lease_us": lease_us, "now": now}
        params["items"] = statements.items(statements.renew, changes)
        return {row[0] for row in self._rows(statements.renew.sql, params)}

    # Moves

    def _apply(self, queue: str, moves: Moves, changes: list[Change], params: dict[str, Any]) -> dict[str, Outcome]:
        statements = self.statements(queue)
        params |= option_params(moves, params.pop("options"))
        params["tenants"] = self.dialect.array(params["tenants"])
        outcomes = self._make(ActionCall(statements, moves, params, {}), changes)
        self._name_rivals(statements, outcomes)
        return outcomes

    def _make(self, call: ActionCall, changes: Sequence[Change]) -> dict[str, Outcome]:
        if any(move.then for move in call.moves):
            with self.transaction():
                outcomes = self._judge_safely(call, changes)
                outcomes |= self._chain(call)
        else:
            outcomes = self._judge_safely(call, changes)
        if any(outcome.result == "moved" for outcome in outcomes.values()):
            self._notifier.notify(call.statements.queue)
        return outcomes

    def settle(self, queue: str, *, limit: int, now: int | None = None) -> int:
        statements = self.statements(queue)
        if not statements.lifecycle.waiting_states:
            return 0
        moves = moves_for(statements.lifecycle, "settle", "clock", queue)
        freeing = tuple(move for move in moves if move.guard("parents_done"))
        params = {"queue": queue, "actor": "clock", "now": now, "tenants": None}
        moved = 0
        while moved < limit:  # one that fails is news for those that come after it
            # Committed before anything is moved: what takes jobs first and then their parents would
            # wait for it. If this process dies now, the sweeper's next walk finds them.
            news = {"queue": queue, "limit": min(limit - moved, MAX_BATCH)}
            heard = sorted({child for (child,) in self._rows(self._beside("hear"), news)})
            if not heard:
                break
            undone = dict(self._read(self._beside("undone"), {"ids": self.dialect.array(heard)}))
            rested = [job_id for job_id in heard if undone.get(job_id)]  # one did not succeed
            freed = [job_id for job_id in heard if job_id not in undone]
            for possible, ids in ((freeing, freed), (moves, rested)):
                call = ActionCall(statements, possible, params, {})
                outcomes = self._make(call, list(map(Change, ids)))
                moved += sum(outcome.result == "moved" for outcome in outcomes.values())
        return moved

    def _preview(
        self, queue: str, moves: Moves, where: Filter, ids: Sequence[str] | None, params: dict[str, Any]
    ) -> dict[tuple[str, str], int]:
        statements = self.statements(queue)
        params |= option_params(moves, params.pop("options"))
        filters, pair_conditions = self._filters(where, params)
        among = self._among(statements, where, ids)
        if among is not None:
            params["ids"] = self.dialect.array(among)
        way = _preview_way(statements, moves, where) if among is None else "foresee_among"
        sql = statements.preview(moves, filters, pair_conditions, way)
        return {(row[0], row[1]): row[2] for row in self._read(sql, params)}

    def _name_rivals(self, statements: Statements, outcomes: dict[str, Outcome]) -> None:
        """Add the holder's id to the outcomes that were refused because of a key."""
        lost = [Change(job_id) for job_id, o in outcomes.items() if o.reason == "duplicate"]
        if lost:
            rivals = statements.over_input("rivals")
            for job_id, holder in self._rows(rivals.sql, {"items": statements.items(rivals, lost)}):
                outcomes[job_id] = outcomes[job_id]._replace(holder=holder)

    def _judge_safely(self, call: ActionCall, changes: Sequence[Change]) -> dict[str, Outcome]:
        """Judge a batch; after a conflict judge its halves, and a single job again."""
        if not changes:
            return {}
        if not call.statements.contested(call.moves):
            return self._judge(call, changes)
        for _ in range(MAX_CONFLICT_ATTEMPTS if len(changes) == 1 else 1):
            try:
                with self._savepoint():
                    return self._judge(call, changes)
            except Conflict:
                continue
        if len(changes) == 1:
            reason = "busy" if call.statements.takes_slot(call.moves) else "duplicate"
            job_id = changes[0].id
            job = self.job(job_id)
            return {job_id: refusal(reason, job_id, job and job.state, job.seq if job else 0)}
        half = len(changes) // 2
        first = self._judge_safely(call, changes[:half])
        return first | self._judge_safely(call, changes[half:])

    def _note_stale(self, call: ActionCall, tenants: dict[str, str]) -> None:
        """Note on these jobs, with their tenants, that a caller had lost its claim."""
        action, params = call.moves[0].action, call.params
        notes = [InputRow(tenant, job_id, note=action) for job_id, tenant in tenants.items()]
        self._add_notes(call.statements, "stale", notes, params["actor"], params["now"])

    def _refusals(
        self, changes: Sequence[Change], rows: Iterable[tuple[Any, ...]]
    ) -> tuple[dict[str, Outcome], dict[str, str]]:
        """The outcomes of jobs that did not move, and the tenants of those whose claim was lost."""
        outcomes, lost = dict[str, Outcome](), dict[str, str]()
        for position, reason, state, seq, tenant in rows:
            job_id = changes[position].id
            outcomes[job_id] = refusal(reason, job_id, state, seq or 0)
            if reason == "stale":
                lost[job_id] = tenant
        return outcomes, lost

    def _chain(self, call: ActionCall) -> dict[str, Outcome]:
        """Make the chained moves for the jobs that moved and whose guards allow it."""
        outcomes: dict[str, Outcome] = {}
        for number, move in enumerate(call.moves):
            links = call.statements.lifecycle.chained_moves(move)
            ready = [Change(job_id) for job_id, which in call.chosen.items() if which == number]
            if links and ready:
                linked = self._judge_safely(call._replace(moves=links, chosen={}), ready)
                outcomes |= {job_id: outcome for job_id, outcome in linked.items() if outcome.result == "moved"}
        return outcomes

    def _sweep(self, queue: str, move: Move, params: dict[str, Any]) -> int:
        statements, now = self.statements(queue), params["now"]
        params["before"] = statements.sweep_before(move, wall_clock_us() if now is None else now)
        sql = statements.sweep(move, capped=params["max_attempts"] is not None)
        with self._sweeping():
            moved = self._take_contested(
                statements, (move,), partial(self._rows, sql), params, one_by_one=params["limit"]
            )
            if move.then:
                links = statements.lifecycle.chained_moves(move)
                links = tuple(link for link in links if "clock" in link.by)
                changes = [Change(row[0]) for row in sorted(moved)]
                link_params = {"queue": queue, "actor": "clock", "now": now, "tenants": None}
                self._judge_safely(ActionCall(statements, links, link_params, {}), changes)
            if move.prunes and statements.lifecycle.limited_claim:
                back = {"back_us": CLOCK_WENT_BACK_S * SECOND_US, "limit": MAX_BATCH}
                self._rows(self._beside("drop_meters"), {"queue": queue, "now": now, **back})
        if moved:
            self._notifier.notify(queue)
        return len(moved)

    # Notes and pauses

    def _write(self, queue: str, what: str, row: dict[str, Any]) -> bool:
        return bool(self._rows(self._beside(what), {"queue": queue, **row}))

    def schedules(self, queue: str, *, lock: Sequence[str] = ()) -> list[ScheduleRow]:
        params = {"queue": queue, "names": self.dialect.array(lock)}
        if lock:
            rows = self._rows(self._beside("hold_schedules"), params)
        else:
            rows = self._read(self._beside("schedules"), params)
        return [ScheduleRow(*row) for row in rows]

    def write_schedules(self, queue: str, rows: Sequence[ScheduleRow], *, gone: Sequence[str] = ()) -> None:
        with self.transaction():
            for row in rows:
                self._rows(self._beside("put_schedule"), {"queue": queue, **row._asdict()})
            if gone:
                params = {"queue": queue, "names": self.dialect.array(gone)}
                self._rows(self._beside("drop_schedules"), params)


def moved_outcomes(rows: Iterable[tuple[Any, ...]]) -> dict[str, Outcome]:
    """The outcomes of jobs that moved, from rows of id, state and seq."""
    return {job_id: Outcome("moved", job_id, state, seq) for job_id, state, seq in rows}


def _preview_way(statements: Statements, moves: tuple[Move, ...], where: Filter) -> PreviewWay:
    """Counts tell what an action would do, if states and codes decide; else each job is judged."""
    plain = Filter(where.states, where.tenants, where.codes, where.categories)
    by_code = statements.judged_by_state(moves, "code_in", "code_not_in")
    if where != plain or not by_code or (where.categories and not where.codes):
        return "foresee"
    if not where.codes and statements.judged_by_state(moves):
        return "counters"
    if where.states and set(failure_states(statements.lifecycle)).issuperset(where.states):
        return "errors" if where.codes else "codes"
    return "foresee"
