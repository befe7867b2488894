"""One queue's statements, compiled once: plans and the benchmark depend on their exact text."""

import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, Final, Literal

from kesin.foundation.ids import first_id_at
from kesin.foundation.text import wire_json
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import STAMP_COLUMNS, Change
from kesin.lifecycle.vocabulary import READY
from kesin.store.declarations import takes_key
from kesin.store.limits import LAST_ID
from kesin.store.records import NewJobRow
from kesin.store.sql.columns import ClaimRowDecoder, Statement, is_shared, job_columns, row_reader
from kesin.store.sql.compiler import Compiler
from kesin.store.sql.dialect import INPUT_TYPES, SHARED_PREFIX, Dialect, fill, literal, template
from kesin.store.sql.limited_claims import LimitedClaim

_INPUT_COLUMN = re.compile(r"\bi\.(\w+)")
_SHARED_COLUMN = re.compile(rf"\b{SHARED_PREFIX}(\w+)")
_AGE_INDEXES = {"stamp_1": "job_aged", "stamp_4": "job_ended"}
# Those that are built on first use, once for each choice of arguments.
_BUILT_ONCE: Final = (
    *("plain", "over_input", "claim", "peek", "turns", "due", "chosen", "reasons", "sweep"),
    *("_apply", "_apply_uniform", "_enqueue"),
)
PreviewWay = Literal["foresee", "foresee_among", "counters", "errors", "codes"]


class Statements:
    """All statements that a store runs for one queue."""

    def __init__(
        self,
        queue: str,
        lifecycle: Lifecycle,
        dialect: Dialect,
        schema: str,
        *,
        keeps_keys: bool = False,
        settable: int = -1,
    ) -> None:
        self.lifecycle = lifecycle
        self.dialect = dialect
        self.queue = queue
        self.keeps_keys = keeps_keys  # every state holds the key: no job ever releases it
        self._settable = settable  # the optional columns that moves of the queue may set
        self.compiler = Compiler(lifecycle, dialect)
        self._uniform_compiler = Compiler(lifecycle, dialect, uniform=True)
        self._shared = {"schema": schema}
        for name in _BUILT_ONCE:
            setattr(self, name, cache(getattr(self, name)))
        for part in ("clock", "pairs", "tenants"):
            if part != "clock" or dialect.name == "postgres":
                self._shared[part] = self._fill(part)

    # Input

    def shared_columns(self, statement: Statement, records: Sequence[Any]) -> frozenset[str]:
        """The statement's columns in which all these records have the same value."""
        columns = {*statement.columns, *statement.shared} - {"id"}
        stamps = columns.intersection(STAMP_COLUMNS)
        shared = {column for column in columns - stamps if is_shared(set(map(attrgetter(column), records)))}
        if stamps and not any(record.stamps for record in records):
            shared |= stamps
        return frozenset(shared)

    def items(self, statement: Statement, records: Iterable[Any]) -> str:
        """These changes or new jobs as one document: binding each value would cost ten times."""
        if statement.columns == ("id",):
            return wire_json([record.id for record in records])
        rows = list(map(row_reader(statement.columns, tuple(self.lifecycle.stamps)), records))
        if self.dialect.name == "sqlite":
            return wire_json(rows)
        names = ("ord", *statement.columns)
        return wire_json([dict(zip(names, (n, *row), strict=True)) for n, row in enumerate(rows)])

    def params_for(self, statement: Statement, records: Sequence[Any], params: dict[str, Any]) -> dict[str, Any]:
        items = self.items(statement, records)
        return {**params, **statement.shared_params(records[0]), "items": items}

    # Texts

    def _fill(self, name: str, **fragments: str) -> str:
        return fill(template(self.dialect.name, name), {**self._shared, **fragments})

    def _with_input(self, name: str, *, shared_columns: frozenset[str] = frozenset(), **fragments: str) -> Statement:
        """A statement over input rows, which come as one document, and over shared values."""
        filled = self._fill(name, input="{input}", **fragments)
        found = dict.fromkeys(_INPUT_COLUMN.findall(filled))
        used = [column for column in found if column in INPUT_TYPES]
        rows = [column for column in used if column not in shared_columns]
        shared = [column for column in used if column in shared_columns]
        if self.dialect.name == "postgres":
            columns = "".join(f", {name} {INPUT_TYPES[name]}" for name in rows)
        else:
            columns = "".join(f", value ->> {place} AS {name}" for place, name in enumerate(rows))
        source = template(self.dialect.name, "input_ids" if rows == ["id"] else "input")
        constants = "".join(f", {self._uniform_compiler.input_value(column)} AS {column}" for column in shared)
        source = fill(source, {"same": constants, "columns": columns})
        return Statement(fill(filled, {"input": source}), tuple(rows), tuple(shared))

    def plain(self, name: str) -> str:
        """The template of this name, which needs nothing of the lifecycle."""
        return self._fill(name, columns=job_columns(self.dialect))

    def over_input(self, name: str) -> Statement:
        """Such a template that reads input rows."""
        return self._with_input(name)

    def claim(self, *, named: bool = False, among: bool = False) -> str:
        """Claim from named tenants, among named jobs, or from all tenants with due jobs."""
        moves = self.lifecycle.claims
        which = self.compiler.chosen(moves, token=False)
        return self._fill(
            "claim",
            **self._due(named=named, among=among, lock="FOR UPDATE OF j SKIP LOCKED"),
            assignments=self.compiler.assignments(moves, which, silent=True),
            columns=self.claim_decoder.columns,
            due_at=fill(self.claim_decoder.due_at, self._shared),
        )

    def _due(self, *, named: bool, among: bool = False, lock: str = "") -> dict[str, str]:
        """The due jobs for PostgreSQL; SQLite picks them in several steps and needs no locks."""
        condition, limited = self._claimable, self.lifecycle.limited_claim
        if self.dialect.name == "sqlite":
            if limited and self.lifecycle.capacity_of(limited):
                return {"chosen": "FROM json_each(:slots) g WHERE j.id = g.key"}
            return {"chosen": f"WHERE j.id {self.dialect.fragments['among_ids']}"}
        if among and not limited:
            return {"due": self._fill("due_among", condition=condition, lock=lock)}
        parts = {"turns": self._fill("turns_among") if among else self.turns(named=named)}
        parts |= {"condition": condition, "lock": lock}
        if not limited:
            return {"due": self._fill("due", **parts)}
        limits = LimitedClaim(self.compiler, limited).fragments(lock=lock, among=among)
        limits = {name: fill(text, self._shared) for name, text in limits.items()}
        return {"due": self._fill("due_limited", **parts, **limits)}

    def peek(self, *, named: bool) -> str:
        """The jobs that a claim would take, for PostgreSQL."""
        return self._fill("peek", columns=job_columns(self.dialect), **self._due(named=named))

    def turns(self, *, named: bool) -> str:
        """The tenants in the order of their turns: by name, after the one served last."""
        return self._fill("turns_named" if named else "turns_ready")

    def due(self, name: str) -> str:
        """Due jobs of a tenant (``claim_pick``) or of ids (``claim_among``), for SQLite."""
        return self._fill(name, columns=self.claim_decoder.columns, condition=self._claimable)

    @cached_property
    def claim_decoder(self) -> ClaimRowDecoder:
        """The decoder of claimed rows; SQLite reads the same expressions that the claim sets."""
        moves = self.lifecycle.claims
        sets = self.compiler.sets(moves, self.compiler.chosen(moves, token=False), silent=True)
        return ClaimRowDecoder(self.lifecycle, self.dialect, self._settable, sets)

    @cached_property
    def _claimable(self) -> str:
        return " OR ".join(
            f"({self.compiler.condition(move, token=False)}{self.compiler.target_free(move)})"
            for move in self.lifecycle.claims
        )

    def takes_slot(self, moves: Iterable[Move]) -> bool:
        return any(map(self.lifecycle.capacity_of, moves))

    def contested(self, moves: Iterable[Move]) -> bool:
        """Whether any of these takes a slot, a rate or a key that another may take first."""
        lifecycle = self.lifecycle
        return any(lifecycle.capacity_of(move) or takes_key(lifecycle, move) or move.guard("rate") for move in moves)

    def apply(self, moves: tuple[Move, ...], changes: Sequence[Change]) -> Statement:
        """Make one of these moves for each job; PostgreSQL also returns why others did not move."""
        general = self._apply(moves, frozenset())
        return self._apply(moves, self.shared_columns(general, changes))

    def _apply(self, moves: tuple[Move, ...], shared_columns: frozenset[str]) -> Statement:
        compiler = self.compiler
        if self.dialect.name == "sqlite":
            which = compiler.chosen(moves, token=True)
            assignments = compiler.assignments(moves, which)
            return self._with_input("apply", shared_columns=shared_columns, which=which, assignments=assignments)
        return self._with_input(
            "apply",
            shared_columns=shared_columns,
            verdict=compiler.verdict(moves),
            chosen=compiler.name_list([str(n) for n in range(len(moves))]),
            assignments=compiler.assignments(moves, "i.verdict::integer"),
        )

    def apply_uniform(
        self, moves: tuple[Move, ...], changes: Sequence[Change], name: str = "apply_alike"
    ) -> Statement | None:
        """``apply`` without a join, or None if input differs; ``apply_fenced`` returns no jobs."""
        statement = self._apply_uniform(moves, name)
        shared_columns = self.shared_columns(statement, changes)
        return statement if shared_columns.issuperset(statement.shared) else None

    def _apply_uniform(self, moves: tuple[Move, ...], name: str) -> Statement:
        which = self._uniform_compiler.chosen(moves, token=True)
        assignments = self._uniform_compiler.assignments(moves, which)
        sql = self._fill(name, which=which, assignments=assignments)
        used = dict.fromkeys(_SHARED_COLUMN.findall(sql))
        return Statement(sql, ("id",), tuple(column for column in used if column in INPUT_TYPES))

    def chosen(self, moves: tuple[Move, ...]) -> Statement:
        """Which alternative each job will make, for SQLite, where names alone do not show it."""
        return self._with_input("chosen", which=self.compiler.chosen(moves, token=True))

    def reasons(self, moves: tuple[Move, ...]) -> Statement:
        """Why jobs did not move (SQLite runs it only when some did not)."""
        return self._with_input("reasons", reason=self.compiler.reason(moves))

    def enqueue(self, jobs: Sequence[NewJobRow], name: str = "enqueue") -> Statement:
        """Insert these new jobs; what hardly ever differs between them is sent once."""
        shared = frozenset(name for name in ("once", "priority") if len({getattr(job, name) for job in jobs}) == 1)
        return self._enqueue(name, shared, self.creates(jobs[0]))

    def _enqueue(self, name: str, shared: frozenset[str], move: Move) -> Statement:
        state = self.lifecycle.state[move.to]
        return self._with_input(
            name,
            shared_columns=shared,
            state=literal(state.name),
            phase=str(self.lifecycle.unowned_phase(state.name)),
            move=literal(move.name),
            held_key="i.dedup_key" if state.holds_key else "NULL",
        )

    def creates(self, job: NewJobRow) -> Move:
        after = self.lifecycle.enqueue_after_move if job.after else None
        return after or self.lifecycle.enqueue_move

    def holds_key(self, job: NewJobRow) -> bool:
        return self.lifecycle.state[self.creates(job).to].holds_key

    @cached_property
    def renew(self) -> Statement:
        return self._with_input("renew", max_run_us=str(self.lifecycle.max_run_seconds * SECOND_US))

    def sweep(self, move: Move, *, capped: bool = False) -> str:
        """One of the clock's moves. ``capped`` judges budgets by the caller's cap."""
        condition = self.compiler.condition(move, token=False) + self.compiler.target_free(move)
        if move.prunes:
            condition += f" AND {self.compiler.no_child_waits()}"
        if capped:
            cap = self.dialect.param("max_attempts")
            condition = condition.replace("j.max_attempts <=", f"{cap} <=")
        access_path = self._sweep_index(move)
        if capped and access_path and access_path[0] == "job_spent":
            access_path = None  # that index knows only the cap stored with each job
        job = self.dialect.table("job")
        alias = "AS j" if self.dialect.name == "sqlite" else "j"
        if move.prunes:
            action = f"DELETE FROM {job} {alias}"
        else:
            assignments = self.compiler.assignments((move,), "0", silent=True)
            action = f"UPDATE {job} {alias}\n   SET {assignments}"
        parts = {"condition": condition, "action": action}
        if access_path:
            index, access, order = access_path
            parts |= {"index": f" INDEXED BY {index}", "access": access, "order": order}
            return self._fill("sweep", **parts)
        return self._fill("sweep_states", **parts, states=self.compiler.name_list(move.sources))

    def _sweep_index(self, move: Move) -> tuple[str, str, str] | None:
        """The partial index that contains the candidates: its name, its predicate, its order."""
        now = self.compiler.now
        ready = all(self.lifecycle.unowned_phase(source) == READY for source in move.sources)
        age_guard = move.guard("age_over")
        if move.guard("lease_over"):
            return "job_owned", "j.phase = 1", "j.id"
        if move.guard("timer_over"):
            timer = f"j.timer_at IS NOT NULL AND j.timer_at <= {now}"
            return "job_timer", timer, "j.timer_at, j.id"
        if move.guard("budget_spent") and ready:
            spent = "j.phase = 0 AND j.max_attempts <= j.attempt_count - j.attempt_base"
            return "job_spent", spent, "j.id"
        stamp = self.lifecycle.stamp_column(age_guard.names[0]) if age_guard else ""
        if age_guard and ready and stamp in _AGE_INDEXES:
            old = f"j.{stamp} <= {now} - {age_guard.number * SECOND_US}"
            access = f"j.phase = 0 AND j.{stamp} IS NOT NULL AND {old}"
            return _AGE_INDEXES[stamp], access, f"j.{stamp}, j.id"
        return None

    def sweep_before(self, move: Move, now: int) -> str:
        """No job of this id or a later one is old enough."""
        age_guard = move.guard("age_over")
        if age_guard is None or age_guard.names[0] not in ("created_at", "moved_at", "finished_at"):
            return LAST_ID
        # The clock of ids may be a day ahead; a prune is later then, or it would read a day's jobs.
        return first_id_at(now - (age_guard.number - (1 if move.prunes else DAY_S)) * SECOND_US)

    def jobs(self, name: str, where: tuple[str, str], *, oldest_first: bool = False) -> str:
        """A page of jobs or their count, by the template of this name."""
        filters, pair_conditions = where
        job_conditions = pair_conditions.replace("p.", "j.")
        return self._fill(
            name,
            columns=job_columns(self.dialect),
            filters=filters,
            wanted=pair_conditions if name in {"jobs", "count"} else job_conditions,
            owned=job_conditions,
            order="ASC" if oldest_first else "DESC",
            beyond=">" if oldest_first else "<",
        )

    def found(self, pair_conditions: str) -> str:
        """The jobs with terms that begin like the one that is searched."""
        return self._fill("found", wanted=pair_conditions)

    def preview(self, moves: tuple[Move, ...], filters: str, pair_conditions: str, way: PreviewWay) -> str:
        """How many matching jobs would make these moves, and why the others would not."""
        compiler, body = self.compiler, self.dialect.table("job_body")
        bodies = f" LEFT JOIN {body} b ON b.id = c.id" if self._needs_bodies(moves) else ""
        immovable = ""  # jobs in states that no move starts from are counted, not read
        if way == "foresee" and not filters:
            sources = compiler.name_list(dict.fromkeys(s for move in moves for s in move.sources))
            immovable = (
                f"UNION ALL SELECT NULL, p.state, p.n, {compiler.immovable_reason(moves)}"
                f" FROM pairs p WHERE {pair_conditions} AND p.state NOT IN {sources}"
            )
            pair_conditions += f" AND p.state IN {sources}"
        conditions = {"filters": filters, "wanted": pair_conditions, "immovable": immovable}
        conditions["owned"] = pair_conditions.replace("p.", "j.")
        counted = way in {"counters", "errors", "codes"}
        return self._fill(
            "foresee_counted" if counted else way,
            verdict=compiler.verdict(moves),
            counted=self._fill(f"counted_{way}", **conditions) if counted else "",
            summed=self._fill("foresee_sums", reason=compiler.preview_reason(moves), bodies=bodies),
            **conditions,
        )

    def judged_by_state(self, moves: tuple[Move, ...], *others: str) -> bool:
        """Whether a job's state decides if a move fits it, alone or with guards of other kinds."""
        return not self._needs_bodies(moves) and not any(
            self.lifecycle.capacity_of(move) or {g.kind for g in move.when} - {"option", *others} for move in moves
        )

    def _needs_bodies(self, moves: tuple[Move, ...]) -> bool:
        return any(
            takes_key(self.lifecycle, move) or (self.lifecycle.capacity_of(move) and self.compiler.numbered(move.to))
            for move in moves
        )
