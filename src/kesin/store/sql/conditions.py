"""The conditions of a move as SQL: its source states, its guards, a free slot and key."""

from collections.abc import Collection, Iterable

from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.failures import ERROR_GUARDS, failure_states, ready_states, revivals
from kesin.lifecycle.vocabulary import OWNED, Guard
from kesin.store.declarations import takes_key
from kesin.store.sql.dialect import INPUT_TYPES, SHARED_PREFIX, Dialect, fill, literal, template


class MoveConditions:
    """The conditions of a queue's moves in SQL; ``uniform`` input is shared, and so parameters."""

    def __init__(self, lifecycle: Lifecycle, dialect: Dialect, *, uniform: bool = False) -> None:
        self.lifecycle = lifecycle
        self.dialect = dialect
        self._uniform = uniform
        self.now = dialect.now
        self.at = dialect.greater(self.now, "j.moved_at")

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

    def guard(self, guard: Guard) -> str:  # noqa: C901, PLR0911, PLR0912  # a table: one line a guard
        """The guard as a condition that is never NULL."""
        now = self.now
        match guard.kind:
            case "due":
                return f"coalesce(j.run_at <= {now}, FALSE)"
            case "unclaimed":
                return f"j.phase <> {OWNED}"
            case "holds_claim":
                token = self.input_value("token")
                return f"(j.phase = {OWNED} AND j.claim_seq = coalesce({token}, -1))"
            case "lease_over":
                return f"(j.phase = {OWNED} AND j.lease_until <= {now})"
            case "timer_over":
                return f"coalesce(j.timer_at <= {now}, FALSE)"
            case "timer_not_over":
                return f"coalesce(j.timer_at > {now}, TRUE)"
            case "budget_left":
                return "j.attempt_count - j.attempt_base < j.max_attempts"
            case "budget_spent":
                return "j.max_attempts <= j.attempt_count - j.attempt_base"
            case "retries_left":
                return f"j.retry_count < {guard.number}"
            case "code_in":
                return f"coalesce(j.error_code IN {self.name_list(guard.names)}, FALSE)"
            case "code_not_in":
                return f"coalesce(j.error_code NOT IN {self.name_list(guard.names)}, TRUE)"
            case "category_in":
                return f"coalesce(j.error_category IN {self.name_list(guard.names)}, FALSE)"
            case "returns_left":
                return f"j.return_count < {self.lifecycle.max_returns}"
            case "was_claimed":
                return "j.claim_seq > j.payload_seq"
            case "option":
                option = self.dialect.param("option_" + guard.names[0])
                return option if guard.number else f"NOT {option}"
            case "flag_set":
                return f"j.flags & {self.lifecycle.flag_bit(guard.names[0])} <> 0"
            case "flag_not_set":
                return f"j.flags & {self.lifecycle.flag_bit(guard.names[0])} = 0"
            case "age_over":
                column = self.lifecycle.stamp_column(guard.names[0])
                return f"coalesce(j.{column} <= {now} - {guard.number * SECOND_US}, FALSE)"
            case "slot_free":
                return self.slot_free(guard.names[0])
            case "rate":
                return "TRUE"  # the claim counts how many it may take
            case "parents_done":
                return f"NOT EXISTS ({self._undone_parents} AND NOT {self._rests('s.success')})"
            case "parents_failed":
                return f"EXISTS ({self._undone_parents} AND {self._rests('NOT s.success')})"

    @property
    def _undone_parents(self) -> str:
        """The parents that are not known to have succeeded, as they are now."""
        parent, job, state = map(self.dialect.table, ("parent", "job", "state"))
        return (
            f"SELECT 1 FROM {parent} p JOIN {job} k ON k.id = p.parent"
            f" LEFT JOIN {state} s ON s.queue = k.queue AND s.name = k.state"
            " WHERE p.child = j.id AND NOT p.done"
        )

    @staticmethod
    def _rests(how: str) -> str:
        """Never NULL: a queue that no process of this version has opened is not known."""
        return f"coalesce(k.phase IN (2, 3) AND NOT s.waits AND {how}, FALSE)"

    def no_child_waits(self) -> str:
        """Every job that comes after this one is over."""
        parent, job, state = map(self.dialect.table, ("parent", "job", "state"))
        return (
            f"NOT EXISTS (SELECT 1 FROM {parent} p JOIN {job} c ON c.id = p.child"
            f" LEFT JOIN {state} s ON s.queue = c.queue AND s.name = c.state"
            " WHERE p.parent = j.id AND (c.phase NOT IN (2, 3) OR s.waits))"
        )

    def slot_free(self, state: str) -> str:
        if not self.numbered(state):
            others = self.slot_rows(state, "j.queue", "j.tenant")
            return f"NOT EXISTS (SELECT 1 {others} AND s.id <> j.id)"
        return f"({self.slots_used(state, 'j.queue', 'j.tenant', 'j.id')} < {self.slots(state)})"

    def numbered(self, state: str) -> bool:
        return bool(self.lifecycle.state[state].slots)

    def slots(self, state: str, queue: str = "j.queue") -> str:
        """How many slots the state has: the newest rules say it, to processes of older ones too."""
        declared = self.dialect.table("declared")
        return (
            f"(SELECT max(d.slots) FROM {declared} d WHERE d.queue = {queue}"
            f" AND d.to_state = {self.literal(state)})"
        )

    def slots_used(self, state: str, queue: str, tenant: str, besides: str = "") -> str:
        """How many jobs are in the state; those of a number above a lowered limit count too."""
        other = f" AND s.id <> {besides}" if besides else ""
        return f"(SELECT count(*) {self.slot_rows(state, queue, tenant)}{other})"

    def slot_rows(self, state: str, queue: str, tenant: str) -> str:
        """The jobs that have a slot of the state, as ``s``."""
        job, name = self.dialect.table("job"), self.literal(state)
        if self.lifecycle.state[state].per_tenant:
            first, end = (f"{name} || '/' || {tenant} || '{last}'" for last in "/0")
            whose = f"s.tenant = {tenant}"  # a tenant's name may look like a number of another's
        else:
            first, end, whose = name, self.literal(f"{state}0"), f"s.state = {name}"
        return (
            f"FROM {job} s WHERE s.queue = {queue} AND s.slot >= {first} AND s.slot < {end}"
            f" AND {whose}"
        )

    def slot_spelled(self, state: str, tenant: str, number: str) -> str:
        """``slot_name`` in SQL."""
        name = self.literal(state)
        if self.lifecycle.state[state].per_tenant:
            return f"{name} || '/' || {tenant} || '/' || {number}"
        return f"CASE {number} WHEN 1 THEN {name} ELSE {name} || '//' || {number} END"

    def free_slots(self, state: str, queue: str, tenant: str, more: str = "") -> str:
        """A query of the free slots of the state, spelled as ``slot_name`` does, in order."""
        declared = self.lifecycle.state[state]
        spelled = self.slot_spelled(state, tenant, "n.n")
        numbers = f"(SELECT generate_series(1, {declared.capacity}) AS n)"
        if self.dialect.name == "sqlite":
            numbers = (
                "(WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers"
                f" WHERE n < {declared.capacity}) SELECT n FROM numbers)"
            )
        job = self.dialect.table("job")
        free = f"NOT EXISTS (SELECT 1 FROM {job} s WHERE s.queue = {queue} AND s.slot = {spelled})"
        if more:  # a claim reads every number: those taken are read once, not one by one
            free = f"{spelled} NOT IN (SELECT s.slot {self.slot_rows(state, queue, tenant)})"
        return (
            f"SELECT {spelled} AS slot{more} FROM {numbers} n"
            f" WHERE n.n <= {self.slots(state, queue)} AND {free} ORDER BY n.n"
        )

    def key_free(self) -> str:
        body = self.dialect.table("job_body")
        return (
            f"NOT EXISTS (SELECT 1 FROM {body} b JOIN {body} h ON h.queue = b.queue"
            " AND h.tenant = b.tenant AND h.held_key = b.dedup_key"
            " WHERE b.id = j.id AND h.id <> j.id)"
        )

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


_NEVER = "CAST(NULL AS bigint)"


def failures_sql(
    conditions: MoveConditions, filters: str, states: Collection[str] | None = None
) -> str:
    """Jobs with an error that are not over, counted; all of them, or those in these states."""
    dialect = conditions.dialect
    text, shared = template(dialect.name, "failures"), {"job": dialect.table("job")}
    shared["filters"] = filters
    parts = [fill(text, {**shared, **part}) for part in _parts(conditions, states)]
    return "\nUNION ALL\n".join(parts)


def _parts(conditions: MoveConditions, only: Collection[str] | None) -> list[dict[str, str]]:
    lifecycle = conditions.lifecycle
    ready, failing = (
        conditions.name_list(tuple(name for name in names if only is None or name in only))
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
