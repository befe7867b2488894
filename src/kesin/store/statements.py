"""The statements of one queue: templates from ``sql/`` filled with its lifecycle's fragments.

Each is compiled once, when first used, and is the same text every time: databases cache plans by
text, and the benchmark hashes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from importlib.resources import files
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeVar, cast

from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import JOB_COLUMNS, Job
from kesin.lifecycle.words import OWNED, READY, Role
from kesin.store.compile import MASK, Compiler, Dialect, literal
from kesin.store.contract import Event

_GAP = re.compile(r"\{(\w+)\}")
_INPUT_COLUMN = re.compile(r"\bi\.(\w+)")
_ERROR_COLUMNS = ("error_code", "error_category", "error_message")
_STAMP_COLUMNS = ("stamp_1", "stamp_2", "stamp_3", "stamp_4")

# What a caller can say about a job, and the type it has for PostgreSQL.
INPUT_TYPES = {
    "id": "uuid",
    "token": "integer",
    "error_code": "text",
    "error_category": "text",
    "error_message": "text",
    "result": "text",
    "run_at": "bigint",
    "payload": "text",
    "max_attempts": "integer",
    "note": "text",
    "stamp_1": "bigint",
    "stamp_2": "bigint",
    "stamp_3": "bigint",
    "stamp_4": "bigint",
    "tenant": "text",
    "dedup_key": "text",
    "salt": "integer",
}


_Built = TypeVar("_Built", str, "Statement")


class Statement(NamedTuple):
    """SQL, and which of the caller's columns it reads: only those travel."""

    sql: str
    columns: tuple[str, ...]


@cache
def template(dialect: str, name: str) -> str:
    """The text of ``sql/<dialect>/<name>.sql``."""
    return (files("kesin.store") / "sql" / dialect / f"{name}.sql").read_text("utf-8").strip()


def fill(text: str, fragments: dict[str, str]) -> str:
    """The template with every gap filled; a gap without a fragment is a KeyError."""
    return _GAP.sub(lambda gap: fragments[gap.group(1)], text)


def job_columns(dialect: Dialect, names: Iterable[str] = JOB_COLUMNS) -> str:
    """The select list of these columns, from the hot row ``j`` and its body ``b``."""
    text = "::text" if dialect.name == "postgres" else ""
    spelled = {"id": f"j.id{text}", "dedup_key": "b.dedup_key", "payload": "b.payload"}
    return ", ".join(spelled.get(name, f"j.{name}") for name in names)


class ClaimRow:
    """How a claim's answer becomes jobs: what the claim itself set is not read back.

    A claim returns hundreds of rows, and every column costs on both sides of the connection.
    """

    def __init__(self, lifecycle: Lifecycle) -> None:
        given = ["queue", "actor", "worker", "phase", "note", "new_payload"]
        self._target: tuple[str, ...] = ()
        if len(lifecycle.claims) == 1 and lifecycle.claims[0].to in lifecycle.state:
            self._target = (lifecycle.claims[0].to, lifecycle.claims[0].name)
            given += ["state", "move"]
        same = {"claim_seq": "seq", "claimed_at": "moved_at"}
        self.columns = tuple(name for name in JOB_COLUMNS if name not in (*given, *same))
        have = (*self.columns, *given)
        self._in_order = itemgetter(*(have.index(same.get(name, name)) for name in JOB_COLUMNS))

    def jobs(self, rows: list[tuple[Any, ...]], queue: str, worker: str) -> list[Job]:
        """The rows with what the claim gave them."""
        given = (queue, worker, worker, OWNED, None, None, *self._target)
        return [Job._make(self._in_order(row + given)) for row in rows]


def event_columns(dialect: Dialect) -> str:
    """The select list that makes an Event.

    SQLite's events hold every column as it was after the move, because telling apart what the
    move itself set costs a temporary table a row; so that is done when they are read.
    """
    if dialect.name == "postgres":
        return ", ".join(["job_id::text", *Event._fields[1:]])
    bits = {**MASK, **dict.fromkeys(_ERROR_COLUMNS, MASK["error"])}
    del bits["flags"], bits["payload"]
    return ", ".join(
        f"iif(mask & {bits[name]}, {name}, NULL)" if name in bits else name
        for name in Event._fields
    )


class Statements:
    """Everything a store says to its database about one queue."""

    def __init__(
        self,
        queue: str,
        lifecycle: Lifecycle,
        dialect: Dialect,
        schema: str,
        *,
        keys_kept: bool = False,
    ) -> None:
        self.queue = queue
        self.keys_kept = keys_kept  # every state holds the key: no job ever lets go of it
        self.lifecycle = lifecycle
        self.dialect = dialect
        self.compiler = Compiler(lifecycle, dialect)
        self._shared = {"schema": schema}
        self._built: dict[tuple[object, ...], str | Statement] = {}
        for part in ("clock", "pairs"):
            if part != "clock" or dialect.name == "postgres":
                self._shared[part] = self._fill(part)

    def _fill(self, name: str, **fragments: str) -> str:
        return fill(template(self.dialect.name, name), {**self._shared, **fragments})

    def _with_input(self, name: str, **fragments: str) -> Statement:
        """A statement over input rows, which come as one JSON document."""
        filled = self._fill(name, input="{input}", **fragments)
        used = [one for one in dict.fromkeys(_INPUT_COLUMN.findall(filled)) if one in INPUT_TYPES]
        if self.dialect.name == "postgres":
            columns = "".join(f", {name} {INPUT_TYPES[name]}" for name in used)
        else:
            columns = "".join(f", value ->> {place} AS {name}" for place, name in enumerate(used))
        source = fill(template(self.dialect.name, "input"), {"columns": columns})
        return Statement(fill(filled, {"input": source}), tuple(used))

    def input_rows(
        self, statement: Statement, things: Iterable[object]
    ) -> list[tuple[object, ...]]:
        """What these changes or births say, as the columns the statement reads."""
        plain = [name for name in statement.columns if not name.startswith("stamp_")]
        take = attrgetter(*plain, "stamps")
        if len(plain) == len(statement.columns):
            return [row[:-1] for row in map(take, things)]
        names = dict(zip(_STAMP_COLUMNS, self.lifecycle.stamps, strict=False))
        stamps = [names.get(column) for column in statement.columns if column not in plain]
        order = [name for name in statement.columns if name not in plain]
        places = [(*plain, *order).index(column) for column in statement.columns]
        rows = []
        for row in map(take, things):
            given = row[-1]
            full = (*row[:-1], *(given.get(name) for name in stamps))
            rows.append(tuple(full[place] for place in places))
        return rows

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
            assignments=self.compiler.assignments(moves, which, note="NULL"),
            columns=job_columns(self.dialect, self.claim_row.columns),
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
    def claim_pick(self) -> str:
        """One tenant's due jobs, for SQLite."""
        return self._fill("claim_pick", condition=self._claimable)

    @cached_property
    def claim_among(self) -> str:
        """Those of some jobs that are due, for SQLite."""
        return self._fill("claim_among", condition=self._claimable)

    @cached_property
    def ahead(self) -> str:
        """How many ready jobs are due before a certain one."""
        return self._fill("ahead")

    @cached_property
    def claimed(self) -> str:
        """The jobs just claimed, for SQLite: cheaper than returning them from the update."""
        return self._fill("claimed", columns=job_columns(self.dialect, self.claim_row.columns))

    @cached_property
    def claim_row(self) -> ClaimRow:
        """How the answer to a claim becomes jobs."""
        return ClaimRow(self.lifecycle)

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

    def apply(self, moves: tuple[Move, ...]) -> Statement:
        """Make one of these moves of the jobs asked for."""
        return self._once(("apply", moves), lambda: self._build_apply(moves))

    def _build_apply(self, moves: tuple[Move, ...]) -> Statement:
        compiler = self.compiler
        if self.dialect.name == "sqlite":
            which = compiler.chosen(moves, token=True)
            return self._with_input(
                "apply",
                which=which,
                assignments=compiler.assignments(moves, which, note="i.note"),
            )
        numbers = [str(n) for n in range(len(moves))]
        return self._with_input(
            "apply",
            verdict=compiler.verdict(moves),
            chosen=compiler.one_of(numbers),
            assignments=compiler.assignments(moves, "i.verdict::integer", note="i.note"),
        )

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
            assignments = self.compiler.assignments((move,), "0", note="NULL")
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
