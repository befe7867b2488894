"""The rules of a queue in both SQL stores: declare them, keep every version, retire states."""

from functools import reduce
from operator import or_
from typing import Any

from kesin.foundation.clock import wall_clock_us
from kesin.foundation.text import canonical_json
from kesin.lifecycle.codec import rules_fingerprint
from kesin.lifecycle.declare import Lifecycle
from kesin.store.declarations import (
    DECLARED_COLUMNS,
    EDGE_COLUMNS,
    DeclaredMoves,
    Edge,
    Effects,
    check_compatible,
    declared_moves,
)
from kesin.store.limits import check_queue_name
from kesin.store.records import Definition, RulesVersion
from kesin.store.rules import (
    is_stored,
    jobs_by_state,
    next_version,
    refuse_occupied,
    require_upgrade,
    state_rows,
    warn_of_two,
)
from kesin.store.sql.inserter import SqlInserter
from kesin.store.sql.statements import Statements


class SqlRules(SqlInserter):
    """The half of the SQL stores that declares; a subclass runs the statements."""

    schema: str

    # Locks

    def _lock_rules(self, queue: str) -> None:  # in SQLite a transaction is alone
        """Block other versions of the queue's rules until the transaction ends."""

    def _lock_jobs(self) -> None:  # as above
        """Block every move until the transaction ends; reading goes on."""

    # Versions and moves

    def open(self, queue: str, lifecycle: Lifecycle, *, virtual_time: bool = False) -> None:
        check_queue_name(queue)
        moves: DeclaredMoves = declared_moves(queue, lifecycle)
        declared_before = self.declared(queue)
        versions = self.rules(queue)
        stored = is_stored(versions, lifecycle, virtual_time=virtual_time)
        if stored and versions[-1].fingerprint != rules_fingerprint(lifecycle):
            moves = _as_newest(moves, declared_before)
        else:
            moves = {**_with_slots(declared_before, lifecycle), **moves}
        changed = {
            edge: effects for edge, effects in sorted(moves.items()) if _differs(effects, declared_before.get(edge))
        }
        if versions and not stored:  # it says more than that moves differ
            self._require_upgrade(queue, lifecycle, versions)
        check_compatible(moves, declared_before)
        if stored:
            self._declare_moves(queue, lifecycle, changed)
        else:
            self._declare_version(queue, lifecycle, versions, changed, virtual_time=virtual_time)
        if queue in self._queues:
            warn_of_two(queue, self._queues[queue].lifecycle, lifecycle)
        declared = (*declared_before.items(), *moves.items())
        self._queues[queue] = Statements(
            queue,
            lifecycle,
            self.dialect,
            self.schema,
            keeps_keys=all(effects.holds_key for edge, effects in declared if edge[-1]),
            settable=reduce(or_, (effects.mask for _, effects in declared)),
        )

    def _declare_moves(self, queue: str, lifecycle: Lifecycle, changed: DeclaredMoves) -> None:
        if changed:
            states = tuple(state.name for state in lifecycle.states)
            names = Definition(lifecycle.name, states, lifecycle.stamps, lifecycle.flags)
            self.write_declared(queue, changed, names)

    def write_declared(self, queue: str, moves: DeclaredMoves, names: Definition) -> None:
        params = {"queue": queue, "definition": canonical_json(names._asdict()), "now": None}
        with self.transaction():
            self._lock_rules(queue)
            rows = {edge: dict(zip(EDGE_COLUMNS, edge, strict=True)) for edge in moves}
            known = rows.keys() & self.declared(queue).keys()
            for name, edges in (("change_move", known), ("add_move", rows.keys() - known)):
                given = [rows[edge] | moves[edge]._asdict() for edge in sorted(edges)]
                self._run_each(self._beside(name), given)
            self._rows(self._beside("put_definition"), params)

    def write_rules(self, version: RulesVersion) -> None:
        """Store a version of the rules, and those of its states that are not there yet."""
        with self.transaction():
            self._rows(self._beside("add_rules"), version._asdict())
            states = [{"queue": version.queue, **state} for state in state_rows(version)]
            self._run_each(self._beside("add_state"), states)

    def _run_each(self, sql: str, rows: list[dict[str, Any]]) -> None:
        """Run a statement for each of these rows, in the transaction that is open."""
        for row in rows:
            self._rows(sql, row)

    def _declare_version(
        self,
        queue: str,
        lifecycle: Lifecycle,
        versions: list[RulesVersion],
        changed: DeclaredMoves,
        *,
        virtual_time: bool,
    ) -> None:
        """Store new rules if the stored jobs fit them; proved before others have to wait."""
        while True:
            newest = versions[-1] if versions else None
            retired = self._require_upgrade(queue, lifecycle, versions)
            with self.transaction():
                self._lock_rules(queue)
                versions = self.rules(queue)
                unchanged = (versions[-1] if versions else None) == newest
                if unchanged and self.retired_states(queue) == retired:
                    version = next_version(queue, lifecycle, newest, virtual_time=virtual_time)
                    self.write_rules(version)
                    self._declare_moves(queue, lifecycle, changed)
                    return
            if is_stored(versions, lifecycle, virtual_time=virtual_time):
                self._declare_moves(queue, lifecycle, changed)
                return

    def _require_upgrade(self, queue: str, lifecycle: Lifecycle, versions: list[RulesVersion]) -> frozenset[str]:
        """The states that are retired, if the rules can follow the stored ones."""
        retired = self.retired_states(queue)
        if versions:
            require_upgrade(queue, lifecycle, versions[-1], retired, self.move_counts(queue))
        return retired

    def declared(self, queue: str) -> dict[Edge, Effects]:
        found = self._rows_of_queue("declared", DECLARED_COLUMNS, queue)
        rows = ((row[:4], Effects(*row[4:])) for row in found)
        return {edge: stored._replace(holds_key=bool(stored.holds_key)) for edge, stored in rows}

    def rules(self, queue: str) -> list[RulesVersion]:
        columns = ", ".join(RulesVersion._fields)
        rows = self._rows_of_queue("rules", columns, queue, " ORDER BY version")
        versions = map(RulesVersion._make, rows)
        return [row._replace(virtual_time=bool(row.virtual_time)) for row in versions]

    def retired_states(self, queue: str) -> frozenset[str]:
        rows = self._rows_of_queue("state", "name", queue, " AND retired_at IS NOT NULL")
        return frozenset(row[0] for row in rows)

    def retire(self, queue: str, state: str, *, now: int | None = None) -> None:
        params = {"queue": queue, "state": state, "at": wall_clock_us() if now is None else now}
        with self.transaction():
            self._lock_rules(queue)
            self._lock_jobs()
            refuse_occupied(queue, state, jobs_by_state(self.move_counts(queue)).get(state, 0))
            for name in ("retire_state", "retire_moves"):
                self._rows(self._beside(name), params)


def _with_slots(stored: DeclaredMoves, lifecycle: Lifecycle) -> DeclaredMoves:
    """Moves of older versions into states that now have another number of slots."""
    capacity = {state.name: state.capacity for state in lifecycle.states if state.capacity}
    return {
        edge: effects._replace(slots=capacity[edge[-1]])
        for edge, effects in stored.items()
        if effects.slots and edge[-1] in capacity
    }


def _as_newest(moves: DeclaredMoves, stored: DeclaredMoves) -> DeclaredMoves:
    """The moves of an older version, which must not undo the ages and slots of the newest one."""
    return {
        edge: effects._replace(min_age_us=min(effects.min_age_us, stored[edge].min_age_us), slots=stored[edge].slots)
        if edge in stored
        else effects
        for edge, effects in moves.items()
    }


def _differs(effects: Effects, stored: Effects | None) -> bool:
    """Whether the store lacks a move, one of the columns it may set, its age or its slots."""
    return (
        stored is None
        or effects.mask | stored.mask != stored.mask
        or (effects.min_age_us, effects.slots) != (stored.min_age_us, stored.slots)
    )
