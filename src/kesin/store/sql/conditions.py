"""The conditions of a move as SQL: its source states, its guards, a free slot and key."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.failures import ERROR_GUARDS, failure_states, ready_states, revivals
from kesin.lifecycle.vocabulary import OWNED, Guard, GuardKind
from kesin.store.declarations import takes_key
from kesin.store.sql.dialect import INPUT_TYPES, SHARED_PREFIX, Dialect, fill, literal, shared_statements, template


class MoveConditions:
    """The conditions of a queue's moves in SQL; ``uniform`` input is shared, and so parameters."""

    def __init__(self, lifecycle: Lifecycle, dialect: Dialect, *, uniform: bool = False) -> None:
        self.lifecycle = lifecycle
        self.dialect = dialect
        self._uniform = uniform
        self.now = dialect.now
        self.at = dialect.greater(self.now, "j.moved_at")
        tables = ("declared", "event", "job", "job_body", "parent", "state")
        self._tables = {name: dialect.table(name) for name in tables}

    def part(self, name: str, **gaps: str) -> str:
        """The part of ``conditions.sql`` of this name, its gaps filled."""
        return fill(shared_statements("conditions")[name], self._tables | gaps)

    def input_value(self, column: str) -> str:
        if not self._uniform:
            return f"i.{column}"
        param = self.dialect.param(SHARED_PREFIX + column)
        return f"{param}::{INPUT_TYPES[column]}" if self.dialect.name == "postgres" else param

    def literal(self, text: str) -> str:
        """A quoted string, escaped for a statement with parameters."""
        return literal(text).replace("%", self.dialect.modulo)

    def name_list(self, names: Iterable[str]) -> str:
        return "(" + ", ".join(self.literal(name) for name in names) + ")"

    def guard(self, guard: Guard) -> str:
        """The guard as a condition that is never NULL."""
        return _GUARDS[guard.kind](self, guard)

    def has_parent(self, how: str) -> str:
        """Whether one of the parents that are not known to have succeeded rests like this now.

        Never NULL: a queue that no process of this version has opened is not known.
        """
        return self.part("has_parent", how=how)

    def no_child_waits(self) -> str:
        """Every job that comes after this one is over."""
        return self.part("no_child_waits")

    def slot_free(self, state: str) -> str:
        if not self.numbered(state):
            others = self.slot_rows(state, "j.queue", "j.tenant")
            return f"NOT EXISTS (SELECT 1 {others} AND s.id <> j.id)"
        return f"({self.slots_used(state, 'j.queue', 'j.tenant', 'j.id')} < {self.slots(state)})"

    def numbered(self, state: str) -> bool:
        return bool(self.lifecycle.state[state].slots)

    def slots(self, state: str, queue: str = "j.queue") -> str:
        """How many slots the state has: the newest rules say it, to processes of older ones too."""
        return self.part("slots", queue=queue, to=self.literal(state))

    def slots_used(self, state: str, queue: str, tenant: str, besides: str = "") -> str:
        """How many jobs are in the state; those of a number above a lowered limit count too."""
        other = f" AND s.id <> {besides}" if besides else ""
        return f"(SELECT count(*) {self.slot_rows(state, queue, tenant)}{other})"

    def slot_rows(self, state: str, queue: str, tenant: str) -> str:
        """The jobs that have a slot of the state, as ``s``."""
        name = self.literal(state)
        if self.lifecycle.state[state].per_tenant:
            first, end = (f"{name} || '/' || {tenant} || '{last}'" for last in "/0")
            whose = f"s.tenant = {tenant}"  # a tenant's name may look like a number of another's
        else:
            first, end, whose = name, self.literal(f"{state}0"), f"s.state = {name}"
        return self.part("slot_rows", queue=queue, first=first, end=end, whose=whose)

    def slot_spelled(self, state: str, tenant: str, number: str) -> str:
        """``slot_name`` in SQL."""
        name = self.literal(state)
        if self.lifecycle.state[state].per_tenant:
            return f"{name} || '/' || {tenant} || '/' || {number}"
        return f"CASE {number} WHEN 1 THEN {name} ELSE {name} || '//' || {number} END"

    def free_slots(self, state: str, queue: str, tenant: str, more: str = "") -> str:
        """A query of the free slots of the state, spelled as ``slot_name`` does, in order."""
        slot, most = self.slot_spelled(state, tenant, "n.n"), str(self.lifecycle.state[state].capacity)
        free = self.part("slot_unused", queue=queue, slot=slot)
        if more:  # a claim reads every number: those taken are read once, not one by one
            free = f"{slot} NOT IN (SELECT s.slot {self.slot_rows(state, queue, tenant)})"
        numbers, slots = self.part(f"numbers_{self.dialect.name}", most=most), self.slots(state, queue)
        return self.part("free_slots", slot=slot, more=more, numbers=numbers, slots=slots, free=free)

    def key_free(self) -> str:
        return self.part("key_free")

    def condition(self, move: Move, *, token: bool) -> str:
        """State and guards of one move; with ``token``, a given token must match the claim."""
        parts = [f"j.state IN {self.name_list(move.sources)}"]
        parts += [self.guard(guard) for guard in move.when]
        if token and not move.guard("holds_claim"):
            token_ = self.input_value("token")
            parts.append(f"({token_} IS NULL OR (j.phase = {OWNED} AND j.claim_seq = {token_}))")
        return " AND ".join(parts)

    def target_free(self, move: Move) -> str:
        """The implied guards: the slot and the key of the target state are free."""
        conditions = ""
        if self.lifecycle.capacity_of(move) and move is not self.lifecycle.limited_claim:
            conditions += f" AND {self.slot_free(move.to)}"
        if takes_key(self.lifecycle, move):
            conditions += f" AND {self.key_free()}"
        return conditions


_RESTS = "coalesce(k.phase IN (2, 3) AND NOT s.waits AND {}, FALSE)"
_GUARDS: Final[Mapping[GuardKind, Callable[[MoveConditions, Guard], str]]] = {
    "due": lambda sql, _: f"coalesce(j.run_at <= {sql.now}, FALSE)",
    "unclaimed": lambda *_: f"j.phase <> {OWNED}",
    "holds_claim": lambda sql, _: f"(j.phase = {OWNED} AND j.claim_seq = coalesce({sql.input_value('token')}, -1))",
    "lease_over": lambda sql, _: f"(j.phase = {OWNED} AND j.lease_until <= {sql.now})",
    "timer_over": lambda sql, _: f"coalesce(j.timer_at <= {sql.now}, FALSE)",
    "timer_not_over": lambda sql, _: f"coalesce(j.timer_at > {sql.now}, TRUE)",
    "budget_left": lambda *_: "j.attempt_count - j.attempt_base < j.max_attempts",
    "budget_spent": lambda *_: "j.max_attempts <= j.attempt_count - j.attempt_base",
    "retries_left": lambda _, g: f"j.retry_count < {g.number}",
    "code_in": lambda sql, g: f"coalesce(j.error_code IN {sql.name_list(g.names)}, FALSE)",
    "code_not_in": lambda sql, g: f"coalesce(j.error_code NOT IN {sql.name_list(g.names)}, TRUE)",
    "category_in": lambda sql, g: f"coalesce(j.error_category IN {sql.name_list(g.names)}, FALSE)",
    "returns_left": lambda sql, _: f"j.return_count < {sql.lifecycle.max_returns}",
    "was_claimed": lambda *_: "j.claim_seq > j.payload_seq",
    "option": lambda sql, g: f"{'' if g.number else 'NOT '}{sql.dialect.param(f'option_{g.names[0]}')}",
    "flag_set": lambda sql, g: f"j.flags & {sql.lifecycle.flag_bit(g.names[0])} <> 0",
    "flag_not_set": lambda sql, g: f"j.flags & {sql.lifecycle.flag_bit(g.names[0])} = 0",
    "age_over": lambda sql, g: (
        f"coalesce(j.{sql.lifecycle.stamp_column(g.names[0])} <= {sql.now} - {g.number * SECOND_US}, FALSE)"
    ),
    "slot_free": lambda sql, g: sql.slot_free(g.names[0]),
    "rate": lambda *_: "TRUE",  # the claim counts how many it may take
    "parents_done": lambda sql, _: f"NOT {sql.has_parent('NOT ' + _RESTS.format('s.success'))}",
    "parents_failed": lambda sql, _: sql.has_parent(_RESTS.format("NOT s.success")),
}
_NEVER = "CAST(NULL AS bigint)"


def failures_sql(conditions: MoveConditions, filters: str, states: Collection[str]) -> str:
    """Jobs in these states with an error that are not over, counted."""
    dialect = conditions.dialect
    text, shared = template(dialect.name, "failures"), {"job": dialect.table("job")}
    shared["filters"] = filters
    parts = [fill(text, {**shared, **part}) for part in _parts(conditions, states)]
    return "\nUNION ALL\n".join(parts)


def _parts(conditions: MoveConditions, only: Collection[str]) -> list[dict[str, str]]:
    lifecycle = conditions.lifecycle
    ready, failing = (
        conditions.name_list(tuple(name for name in names if name in only))
        for names in (ready_states(lifecycle), failure_states(lifecycle))
    )
    moves = revivals(lifecycle)
    by_error = " OR ".join(_both(conditions, move, by_error=True) for move in moves)
    by_job = " OR ".join(_both(conditions, move) for move in moves)
    parts = [
        {"states": ready, "wanted": "j.phase = 0", "retries": "TRUE", "next_at": "j.run_at"},
        {"states": failing, "retries": "FALSE", "next_at": _NEVER}
        | {"wanted": f"NOT ({by_error})" if moves else "TRUE"},
    ]
    if moves:
        parts.append(
            {"states": failing, "wanted": f"({by_error})", "retries": f"({by_job})"}
            | {"next_at": f"CASE WHEN {by_job} THEN j.timer_at END"}
        )
    return [part for part in parts if part["states"] != "()"]


def _both(conditions: MoveConditions, move: Move, *, by_error: bool = False) -> str:
    """The move's state and guards once its time has come; ``by_error``: what the error decides."""
    timed = {"timer_over": "j.timer_at IS NOT NULL", "due": "j.run_at IS NOT NULL"}
    guards = [guard for guard in move.when if not by_error or guard.kind in ERROR_GUARDS]
    tests = [f"j.state IN {conditions.name_list(move.sources)}"]
    tests += [timed.get(guard.kind) or conditions.guard(guard) for guard in guards]
    return f"({' AND '.join(tests)})"
