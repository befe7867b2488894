"""The statements of one queue: templates from ``sql/`` filled with its lifecycle's fragments.

Each is compiled once, when first used, and is the same text every time: databases cache plans by
text, and the benchmark hashes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TypeVar, cast

from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change
from kesin.lifecycle.vocabulary import READY, Role
from kesin.store.sql.columns import ClaimRow, job_columns
from kesin.store.sql.compiler import Compiler
from kesin.store.sql.dialect import INPUT_TYPES, SAME, Dialect, literal
from kesin.store.sql.input_rows import InputRows, Statement
from kesin.store.sql.templates import fill, template

_INPUT_COLUMN = re.compile(r"\bi\.(\w+)")
_SAME_COLUMN = re.compile(rf"\b{SAME}(\w+)")
_Built = TypeVar("_Built", str, "Statement")


class Statements(InputRows):
    """Everything a store says to its database about one queue."""

    def __init__(
        self,
        queue: str,
        lifecycle: Lifecycle,
        dialect: Dialect,
        schema: str,
        *,
        keys_kept: bool = False,
        settable: int = -1,
    ) -> None:
        super().__init__(lifecycle, dialect)
        self.queue = queue
        self.keys_kept = keys_kept  # every state holds the key: no job ever lets go of it
        self._settable = settable  # the free columns that moves of the queue may set
        self.compiler = Compiler(lifecycle, dialect)
        self._same = Compiler(lifecycle, dialect, alike=True)
        self._shared = {"schema": schema}
        self._built: dict[tuple[object, ...], str | Statement] = {}
        for part in ("clock", "pairs"):
            if part != "clock" or dialect.name == "postgres":
                self._shared[part] = self._fill(part)

    def _fill(self, name: str, **fragments: str) -> str:
        return fill(template(self.dialect.name, name), {**self._shared, **fragments})

    def _with_input(
        self, name: str, *, alike: frozenset[str] = frozenset(), **fragments: str
    ) -> Statement:
        """A statement over input rows, which come as one document, and what they say alike."""
        filled = self._fill(name, input="{input}", **fragments)
        used = [one for one in dict.fromkeys(_INPUT_COLUMN.findall(filled)) if one in INPUT_TYPES]
        rows = [one for one in used if one not in alike]
        same = [one for one in used if one in alike]
        source = self._input(rows) if rows != ["id"] else template(self.dialect.name, "input_ids")
        once = "".join(f", {self._same.said(one)} AS {one}" for one in same)
        source = fill(source, {"same": once})
        return Statement(fill(filled, {"input": source}), tuple(rows), tuple(same))

    def _input(self, rows: list[str]) -> str:
        if self.dialect.name == "postgres":
            columns = "".join(f", {name} {INPUT_TYPES[name]}" for name in rows)
        else:
            columns = "".join(f", value ->> {place} AS {name}" for place, name in enumerate(rows))
        return fill(template(self.dialect.name, "input"), {"columns": columns, "same": "{same}"})

    def claim(self, *, named: bool = False, among: bool = False) -> str:
        """Claim from named tenants, among named jobs, or share between all that have due jobs."""
        return self._once(
            ("claim", named, among), lambda: self._build_claim(named=named, among=among)
        )

    def _build_claim(self, *, named: bool, among: bool) -> str:
        moves = self.lifecycle.claims
        which = self.compiler.chosen(moves, token=False)
        return self._fill(
            "claim",
            **self._due(named=named, among=among, lock="FOR UPDATE OF j SKIP LOCKED"),
            assignments=self.compiler.assignments(moves, which, silent=True),
            columns=self.claim_row.columns,
        )

    def _due(self, *, named: bool, among: bool = False, lock: str = "") -> dict[str, str]:
        """What PostgreSQL picks from; SQLite picks in steps, and locks nothing."""
        if self.dialect.name == "sqlite":
            return {}
        if among:
            return {"due": self._fill("due_among", condition=self._claimable, lock=lock)}
        tenants, condition = self._tenants(named=named), self._claimable
        return {"due": self._fill("due", tenants=tenants, condition=condition, lock=lock)}

    def peek(self, *, named: bool) -> str:
        """What a claim would take."""
        return self._once(("peek", named), lambda: self._build_peek(named=named))

    def _build_peek(self, *, named: bool) -> str:
        columns = job_columns(self.dialect)
        if self.dialect.name == "sqlite":
            tenants, condition = self._tenants(named=named), self._claimable
            return self._fill("peek", columns=columns, tenants=tenants, condition=condition)
        return self._fill("peek", columns=columns, **self._due(named=named))

    def claim_tenants(self, *, named: bool) -> str:
        """Whose jobs are due and not paused (SQLite asks this first)."""
        tenants = self._tenants(named=named)
        return self._once(("tenants", named), lambda: self._fill("claim_tenants", tenants=tenants))

    @cached_property
    def claim_alone(self) -> str:
        """The due jobs of the only tenant that has some, as the claim makes them, for SQLite."""
        columns = self.claim_row.columns
        return self._fill("claim_pick", columns=columns, condition=self._claimable)

    @cached_property
    def claim_pick(self) -> str:
        """The same of one tenant among several, with the time since when they are due."""
        columns = f"{self.claim_row.columns}, j.run_at"
        return self._fill("claim_pick", columns=columns, condition=self._claimable)

    @cached_property
    def claim_among(self) -> str:
        """Those of some jobs that are due, as the claim makes them, for SQLite."""
        columns = self.claim_row.columns
        return self._fill("claim_among", columns=columns, condition=self._claimable)

    @cached_property
    def ahead(self) -> str:
        """How many ready jobs are due before a certain one."""
        return self._fill("ahead")

    @cached_property
    def claim_row(self) -> ClaimRow:
        """How the answer to a claim becomes jobs; SQLite reads the very expressions it sets."""
        moves = self.lifecycle.claims
        sets = self.compiler.sets(moves, self.compiler.chosen(moves, token=False), silent=True)
        return ClaimRow(self.lifecycle, self.dialect, self._settable, sets)

    def _tenants(self, *, named: bool) -> str:
        return self._fill("tenants_named" if named else "tenants_ready")

    @cached_property
    def _claimable(self) -> str:
        return " OR ".join(
            f"({self.compiler.condition(move, token=False)}{self.compiler.room(move)})"
            for move in self.lifecycle.claims
        )

    def takes_slot(self, moves: Iterable[Move]) -> bool:
        """Whether any of these enters an exclusive state: then one job at a time."""
        return any(self.compiler.takes_slot(move) for move in moves)

    def contested(self, moves: Iterable[Move]) -> bool:
        """Whether any of these takes a slot or a key that another may take first."""
        compiler = self.compiler
        return any(compiler.takes_slot(move) or compiler.takes_key(move) for move in moves)

    def moves(self, call: str, role: Role) -> tuple[Move, ...]:
        """What this call can be when this role makes it."""
        found = self.lifecycle.calls.get(call, ())
        return tuple(move for move in found if role in move.by and not move.chained)

    def apply(self, moves: tuple[Move, ...], changes: Sequence[Change]) -> Statement:
        """Make one of these moves of the jobs asked for; PostgreSQL says why the others did not."""
        general = self._once(("apply", moves), lambda: self._build_apply(moves, frozenset()))
        alike = self.alike(general, changes)
        return self._once(("apply", moves, alike), lambda: self._build_apply(moves, alike))

    def _build_apply(self, moves: tuple[Move, ...], alike: frozenset[str]) -> Statement:
        compiler = self.compiler
        if self.dialect.name == "sqlite":
            which = compiler.chosen(moves, token=True)
            assignments = compiler.assignments(moves, which)
            return self._with_input("apply", alike=alike, which=which, assignments=assignments)
        numbers = [str(n) for n in range(len(moves))]
        return self._with_input(
            "apply",
            alike=alike,
            verdict=compiler.verdict(moves),
            chosen=compiler.one_of(numbers),
            assignments=compiler.assignments(moves, "i.verdict::integer"),
        )

    def apply_alike(self, moves: tuple[Move, ...], changes: Sequence[Change]) -> Statement | None:
        """The same for jobs of which nothing is said but their ids: nothing to join, or to judge.

        It answers with those that moved.
        """
        statement = self._once(("alike", moves), lambda: self._build_apply_alike(moves))
        alike = self.alike(statement, changes)
        return statement if alike.issuperset(statement.same) else None

    def _build_apply_alike(self, moves: tuple[Move, ...]) -> Statement:
        which = self._same.chosen(moves, token=True)
        assignments = self._same.assignments(moves, which)
        sql = self._fill("apply_alike", which=which, assignments=assignments)
        used = dict.fromkeys(_SAME_COLUMN.findall(sql))
        return Statement(sql, ("id",), tuple(one for one in used if one in INPUT_TYPES))

    def chosen(self, moves: tuple[Move, ...]) -> Statement:
        """Which alternative fits, for SQLite, where names alone do not tell."""
        return self._once(
            ("chosen", moves),
            lambda: self._with_input("chosen", which=self.compiler.chosen(moves, token=True)),
        )

    def reasons(self, moves: tuple[Move, ...]) -> Statement:
        """Why the others did not move (SQLite asks only when some did not)."""
        return self._once(
            ("reasons", moves),
            lambda: self._with_input("reasons", reason=self.compiler.reason(moves)),
        )

    def enqueue(self, name: str = "enqueue") -> Statement:
        """Births."""
        birth, initial = self.lifecycle.birth, self.lifecycle.initial
        return self._once(
            (name,),
            lambda: self._with_input(
                name,
                state=literal(initial.name),
                phase=str(self.lifecycle.unowned_phase(initial.name)),
                move=literal(birth.name),
                slot=literal(initial.name) if initial.exclusive else "NULL",
                held_key="i.dedup_key" if initial.holds_key else "NULL",
            ),
        )

    @cached_property
    def holders(self) -> Statement:
        """Who holds these keys."""
        return self._with_input("holders")

    @cached_property
    def find(self) -> str:
        """The jobs of these ids."""
        return self._fill("find", columns=job_columns(self.dialect))

    @cached_property
    def states(self) -> str:
        """Where the jobs of these ids are."""
        return self._fill("states")

    @cached_property
    def waiting(self) -> str:
        """What one tenant waits for."""
        return self._fill("waiting")

    @cached_property
    def rivals(self) -> Statement:
        """Who holds the keys of these jobs."""
        return self._with_input("rivals")

    @cached_property
    def remark(self) -> Statement:
        """Leave the same kind of note beside many jobs."""
        return self._with_input("remark")

    @cached_property
    def renew(self) -> Statement:
        """Extend leases."""
        longest = str(self.lifecycle.max_run_seconds * SECOND_US)
        return self._with_input("renew", max_run_us=longest)

    def sweep(self, move: Move, *, capped: bool = False) -> str:
        """One of the clock's moves. ``capped`` judges budgets by the caller's cap."""
        return self._once(("sweep", move, capped), lambda: self._build_sweep(move, capped=capped))

    def _build_sweep(self, move: Move, *, capped: bool) -> str:
        condition = self.compiler.condition(move, token=False) + self.compiler.room(move)
        if capped:
            cap = self.dialect.param("max_attempts")
            condition = condition.replace("j.max_attempts <=", f"{cap} <=")
        way = self._way_in(move)
        if capped and way and way[0] == "job_spent":
            way = None  # that index knows only the cap stamped on each job
        job = self.dialect.table("job")
        alias = "AS j" if self.dialect.name == "sqlite" else "j"
        if move.prunes:
            action = f"DELETE FROM {job} {alias}"
        else:
            assignments = self.compiler.assignments((move,), "0", silent=True)
            action = f"UPDATE {job} {alias}\n   SET {assignments}"
        if way:
            index, access, order = way
            return self._fill(
                "sweep",
                condition=condition,
                action=action,
                index=f" INDEXED BY {index}",
                access=access,
                order=order,
            )
        states = self.compiler.one_of(move.sources)
        return self._fill("sweep_states", condition=condition, action=action, states=states)

    def _way_in(self, move: Move) -> tuple[str, str, str] | None:
        """The partial index that holds the candidates: its name, its predicate, its order."""
        now = self.compiler.now
        ready = all(self.lifecycle.unowned_phase(source) == READY for source in move.sources)
        aged = move.guard("age_over")
        if move.guard("lease_over"):
            return "job_owned", "j.phase = 1", "j.id"
        if move.guard("timer_over"):
            timer = f"j.timer_at IS NOT NULL AND j.timer_at <= {now}"
            return "job_timer", timer, "j.timer_at, j.id"
        if move.guard("budget_spent") and ready:
            spent = "j.phase = 0 AND j.max_attempts <= j.attempt_count - j.attempt_base"
            return "job_spent", spent, "j.id"
        if aged and ready and self.lifecycle.stamp_column(aged.names[0]) == "stamp_1":
            old = f"j.stamp_1 <= {now} - {aged.number * SECOND_US}"
            access = f"j.phase = 0 AND j.stamp_1 IS NOT NULL AND {old}"
            return "job_aged", access, "j.stamp_1, j.id"
        return None

    def born_before(self, move: Move, now: int) -> int | None:
        """No job born after this can be old enough for the move; a day allows for clock skew."""
        aged = move.guard("age_over")
        if aged is None or aged.names[0] not in ("created_at", "moved_at", "finished_at"):
            return None
        return now - aged.number * SECOND_US + DAY_S * SECOND_US

    def jobs(self, filters: str, wanted: str, *, among: bool = False, coded: bool = False) -> str:
        """A page of jobs under these conditions: of all, among some that are known, or by code."""
        columns = job_columns(self.dialect)
        owned = wanted.replace("p.", "j.")
        if among or coded:
            name = "jobs_among" if among else "jobs_coded"
            return self._fill(name, columns=columns, filters=filters, wanted=owned)
        return self._fill("jobs", columns=columns, filters=filters, wanted=wanted, owned=owned)

    def foresee(
        self, moves: tuple[Move, ...], filters: str, wanted: str, *, among: bool = False
    ) -> str:
        """How many jobs under these conditions would make one of these moves, and why others not.

        A body is looked at only where a key decides.
        """
        compiler, body = self.compiler, self.dialect.table("job_body")
        keyed = any(compiler.takes_key(move) for move in moves)
        bodies = f" JOIN {body} b ON b.id = c.id" if keyed else ""
        return self._fill(
            "foresee_among" if among else "foresee",
            verdict=compiler.verdict(moves),
            filters=filters,
            wanted=wanted,
            owned=wanted.replace("p.", "j."),
            summed=self._fill("foresee_sums", reason=compiler.foreseen(moves), bodies=bodies),
        )

    @property
    def pairs(self) -> str:
        """Which (tenant, state) pairs hold jobs, from the counters."""
        return self._shared["pairs"]

    def _once(self, key: tuple[object, ...], build: Callable[[], _Built]) -> _Built:
        if key not in self._built:
            self._built[key] = build()
        return cast("_Built", self._built[key])
