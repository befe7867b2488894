"""From declaration to SQL: the guards and effects of a move as fragments of a statement.

The statements themselves stand in ``sql/``; what is generated here fills their gaps. Both SQL
stores share these fragments, and differ only in the few words of their ``Dialect``. Everything
quoted into SQL comes from a checked declaration; what callers send travels as parameters.

In every fragment ``j`` is the job's row before the move; what a caller says about it stands in an
input row ``i``, or, where every job of a call is told the same, in parameters. The time of a move,
``at``, is the later of the call's time and the job's last move: it never runs backwards for a job,
and every time a move sets is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kesin.lifecycle.budget import (
    JITTER_MODULUS,
    JITTER_MULTIPLIER,
    JITTER_STEP,
    SECOND_US,
    Backoff,
)
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import edges
from kesin.lifecycle.words import OVER, OWNED, STAY, After, Fixed, Guard


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where PostgreSQL and SQLite spell the same thing differently."""

    name: str
    greater: Callable[[str, str], str]  # of two expressions that are not NULL
    now: str  # the time of the call, as an expression
    modulo: str
    param: Callable[[str], str]
    table: Callable[[str], str]


def literal(text: str) -> str:
    """A quoted SQL string."""
    return "'" + text.replace("'", "''") + "'"


# The free columns, in the order of their bits in ``declared.mask`` and ``event.mask``.
MASK = {
    "error": 1,
    "run_at": 2,
    "timer_at": 4,
    "result": 8,
    "flags": 16,
    "payload": 32,
    "finished_at": 64,
    "stamp_1": 128,
    "stamp_2": 256,
    "stamp_3": 512,
    "stamp_4": 1024,
}
TAKES_KEY, FREES_KEY = 2048, 4096

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

SAME = "same_"  # of a parameter that says something about every job of a call


def mask(lifecycle: Lifecycle, move: Move) -> int:
    """Which free columns the move may set."""
    bits = MASK["error"] * (move.error != "keep")
    bits |= MASK["run_at"] * (move.run_at != "keep")
    bits |= MASK["timer_at"] * (move.timer != "keep")
    bits |= MASK["result"] * (move.result == "record")
    bits |= MASK["flags"] * bool(move.flag)
    bits |= MASK["payload"] * (move.payload == "replace")
    for stamp in (*move.stamp, *move.stamp_input, *move.unstamp):
        bits |= MASK[lifecycle.stamp_column(stamp)]
    return bits


def declared_rows(queue: str, lifecycle: Lifecycle) -> list[tuple[object, ...]]:
    """The rows of the table ``declared``: one per (move, from, to), alternatives merged."""
    masks: dict[tuple[str, str, str], int] = {}
    rest: dict[tuple[str, str, str], tuple[tuple[object, ...], tuple[object, ...]]] = {}
    for move, source, target in edges(lifecycle):
        key = (move.name, source, target)
        held = bool(source) and lifecycle.state[source].holds_key
        holds = bool(target) and lifecycle.state[target].holds_key
        bits = mask(lifecycle, move)
        if source and holds != held:
            bits |= TAKES_KEY if holds else FREES_KEY
        masks[key] = masks.get(key, 0) | bits
        exclusive = bool(target) and lifecycle.state[target].exclusive
        counting = (
            lifecycle.unowned_phase(target) if target else OVER,
            {"take": 1, "drop": 0, "keep": -1}[move.claim],
            int(move.attempt == "count"),
            {"return": 1, "renew": 2}.get(move.attempt, 0),
            int(move.attempt == "return" and move.guard("returns_left") is not None),
            int(move.retry == "count"),
        )
        rest[key] = (counting, (target if exclusive else None, holds))
    return [(queue, *key, *before, masks[key], *after) for key, (before, after) in rest.items()]


class Compiler:
    """Fragments for one queue's lifecycle in one dialect."""

    def __init__(self, lifecycle: Lifecycle, dialect: Dialect, *, alike: bool = False) -> None:
        self.lifecycle = lifecycle
        self.dialect = dialect
        self._alike = alike
        self.now = dialect.now
        self.at = dialect.greater(self.now, "j.moved_at")

    def said(self, column: str) -> str:
        """What the caller says about the job."""
        if not self._alike:
            return f"i.{column}"
        told = self.dialect.param(SAME + column)
        return f"{told}::{INPUT_TYPES[column]}" if self.dialect.name == "postgres" else told

    def literal(self, text: str) -> str:
        """A quoted string, in a statement where parameters stand too."""
        return literal(text).replace("%", self.dialect.modulo)

    def one_of(self, names: Iterable[str]) -> str:
        """A parenthesised list of quoted names."""
        return "(" + ", ".join(self.literal(name) for name in names) + ")"

    # Guards

    def guard(self, guard: Guard) -> str:  # noqa: C901, PLR0911, PLR0912  # a table: one line a guard
        """The guard as a condition that is never NULL."""
        now = self.now
        match guard.kind:
            case "due":
                return f"coalesce(j.run_at <= {now}, FALSE)"
            case "unclaimed":
                return f"j.phase <> {OWNED}"
            case "holds_claim":
                return f"(j.phase = {OWNED} AND j.claim_seq = coalesce({self.said('token')}, -1))"
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
                return f"coalesce(j.error_code IN {self.one_of(guard.names)}, FALSE)"
            case "code_not_in":
                return f"coalesce(j.error_code NOT IN {self.one_of(guard.names)}, TRUE)"
            case "category_in":
                return f"coalesce(j.error_category IN {self.one_of(guard.names)}, FALSE)"
            case "returns_left":
                return f"j.return_count < {self.lifecycle.max_returns}"
            case "was_claimed":
                return "j.claim_seq > j.payload_seq"
            case "option":
                given = self.dialect.param("option_" + guard.names[0])
                return given if guard.number else f"NOT {given}"
            case "flag_set":
                return f"j.flags & {self.lifecycle.flag_bit(guard.names[0])} <> 0"
            case "flag_not_set":
                return f"j.flags & {self.lifecycle.flag_bit(guard.names[0])} = 0"
            case "age_over":
                column = self.lifecycle.stamp_column(guard.names[0])
                return f"coalesce(j.{column} <= {now} - {guard.number * SECOND_US}, FALSE)"
            case "slot_free":
                return self.slot_free(guard.names[0])

    def slot_free(self, state: str) -> str:
        """No other job of the queue is in the exclusive state."""
        job = self.dialect.table("job")
        return (
            f"NOT EXISTS (SELECT 1 FROM {job} s WHERE s.queue = j.queue"
            f" AND s.slot = {self.literal(state)} AND s.id <> j.id)"
        )

    def key_free(self) -> str:
        """No other job holds this job's dedup key."""
        body = self.dialect.table("job_body")
        return (
            f"NOT EXISTS (SELECT 1 FROM {body} b JOIN {body} h ON h.queue = b.queue"
            " AND h.tenant = b.tenant AND h.held_key = b.dedup_key"
            " WHERE b.id = j.id AND h.id <> j.id)"
        )

    def condition(self, move: Move, *, token: bool) -> str:
        """State and guards of one move; with ``token``, a token that is given must fit."""
        parts = [f"j.state IN {self.one_of(move.sources)}"]
        parts += [self.guard(guard) for guard in move.when]
        if token and not move.guard("holds_claim"):
            token_ = self.said("token")
            parts.append(f"({token_} IS NULL OR (j.phase = {OWNED} AND j.claim_seq = {token_}))")
        return " AND ".join(parts)

    def takes_slot(self, move: Move) -> bool:
        """Whether it enters an exclusive state from elsewhere."""
        to = self.lifecycle.state.get(move.to)
        return to is not None and to.exclusive

    def takes_key(self, move: Move) -> bool:
        """Whether it enters a key-holding state from one that does not hold the key."""
        to = self.lifecycle.state.get(move.to)
        if to is None or not to.holds_key:
            return False
        return any(not self.lifecycle.state[source].holds_key for source in move.sources)

    # Effects

    def effects(self, move: Move) -> dict[str, str]:
        """Column → expression for everything the move sets, beyond what every move sets."""
        sets = {
            "state": "j.state" if move.to == STAY else self.literal(move.to),
            "move": self.literal(move.name),
            "phase": self._phase(move),
        }
        if any(state.exclusive for state in self.lifecycle.states):
            sets["slot"] = self._slot(move)
        sets |= self._claim_effects(move)
        sets |= self._counter_effects(move)
        sets |= self._error_effects(move)
        sets |= self._time_effects(move)
        if move.result == "record":
            sets["result"] = self.said("result")
        if move.payload == "replace":
            sets["new_payload"] = self.said("payload")
            sets["payload_seq"] = "j.seq + 1"
        if move.flag:
            bits = sum(self.lifecycle.flag_bit(flag) for flag in move.flag)
            sets["flags"] = f"j.flags | {bits}"
        return sets

    def _phase(self, move: Move) -> str:
        if move.claims:
            return str(OWNED)
        phases = {s: self.lifecycle.unowned_phase(move.target(s)) for s in move.sources}
        if len(set(phases.values())) == 1:
            unowned = str(next(iter(phases.values())))
        else:
            whens = " ".join(f"WHEN {self.literal(s)} THEN {p}" for s, p in phases.items())
            unowned = f"CASE j.state {whens} END"
        if move.claim == "drop" or move.guard("unclaimed"):
            return unowned
        return f"CASE j.phase WHEN {OWNED} THEN {OWNED} ELSE {unowned} END"

    def _slot(self, move: Move) -> str:
        if move.to != STAY:
            return self.literal(move.to) if self.takes_slot(move) else "NULL"
        return "j.slot"

    def _claim_effects(self, move: Move) -> dict[str, str]:
        param = self.dialect.param
        if move.claim == "take":
            return {
                "worker": param("worker"),
                "claimed_at": self.at,
                "lease_until": f"{self.at} + {param('lease_us')}",
                "claim_seq": "j.seq + 1",
            }
        if move.claim == "drop":
            return {"worker": "NULL", "claimed_at": "NULL", "lease_until": "NULL"}
        return {}

    def _counter_effects(self, move: Move) -> dict[str, str]:
        sets: dict[str, str] = {}
        if move.attempt == "count":
            sets["attempt_count"] = "j.attempt_count + 1"
        elif move.attempt == "return":
            sets["attempt_base"] = "j.attempt_base + 1"
            if move.guard("returns_left"):
                sets["return_count"] = "j.return_count + 1"
        elif move.attempt == "renew":
            sets["attempt_base"] = "j.attempt_count"
            sets["return_count"] = "0"
            if not (move.stage or move.chained):  # these have no caller to name a cap
                sets["max_attempts"] = f"coalesce({self.said('max_attempts')}, j.max_attempts)"
        if move.retry == "count":
            sets["retry_count"] = "j.retry_count + 1"
        return sets

    def _error_effects(self, move: Move) -> dict[str, str]:
        columns = ("error_code", "error_category", "error_message")
        if isinstance(move.error, Fixed):
            fixed = (move.error.code, move.error.category.value, move.error.message)
            return dict(zip(columns, map(self.literal, fixed), strict=True))
        if move.error == "record":
            return {column: self.said(column) for column in columns}
        return dict.fromkeys(columns, "NULL") if move.error == "clear" else {}

    def _time_effects(self, move: Move) -> dict[str, str]:
        sets: dict[str, str] = {}
        if isinstance(move.run_at, Backoff):
            sets["run_at"] = f"{self.at} + {self.backoff(move.run_at)}"
        elif move.run_at != "keep":
            sets["run_at"] = {
                "now": self.at,
                "input": f"coalesce({self.said('run_at')}, {self.at})",
                "clear": "NULL",
            }[move.run_at]
        if isinstance(move.timer, After | Backoff):
            wait = (
                str(move.timer.seconds * SECOND_US)
                if isinstance(move.timer, After)
                else self.backoff(move.timer)
            )
            armed = f"{self.at} + {wait}"
            if move.timer_for:
                names = self.one_of(category.value for category in move.timer_for)
                armed = f"CASE WHEN {self.said('error_category')} IN {names} THEN {armed} END"
            sets["timer_at"] = armed
        elif move.timer == "clear":
            sets["timer_at"] = "NULL"
        column = self.lifecycle.stamp_column
        sets |= {column(stamp): self.at for stamp in move.stamp}
        sets |= {column(stamp): "NULL" for stamp in move.unstamp}
        sets |= {column(stamp): self.said(column(stamp)) for stamp in move.stamp_input}
        return sets

    def backoff(self, backoff: Backoff) -> str:
        """The delay in microseconds: a look-up, then the jitter that the job's salt decides."""
        tries = (
            "j.retry_count"
            if backoff.counts == "retries"
            else "(j.attempt_count - j.attempt_base - 1)"
        )
        delays = [delay * SECOND_US for delay in backoff.delays_s]
        whens = " ".join(f"WHEN {n} THEN {delay}" for n, delay in enumerate(delays[:-1]))
        wait = f"CASE {tries} WHEN -1 THEN {delays[0]} {whens} ELSE {delays[-1]} END"
        if not backoff.jitter_s:
            return f"({wait})"
        percent = self.dialect.modulo
        positive = self.dialect.greater(tries, "0")
        mixed = (
            f"(CAST(j.salt AS bigint) * {JITTER_MULTIPLIER} + {positive} * {JITTER_STEP})"
            f" {percent} {JITTER_MODULUS}"
        )
        return f"({wait} + ({mixed}) {percent} {backoff.jitter_s * SECOND_US + 1})"

    def sets(self, moves: tuple[Move, ...], which: str, *, silent: bool = False) -> dict[str, str]:
        """What a call sets: per column the move's own expression.

        ``which`` is an expression that yields the index of the move that fits; ``silent`` is a call
        in which nobody says anything about a job.
        """
        effects = [self.effects(move) for move in moves]
        columns = list(dict.fromkeys(column for sets in effects for column in sets))
        every = {
            "seq": "j.seq + 1",
            "moved_at": self.at,
            "actor": self.dialect.param("actor"),
        }
        given = {"note": "NULL" if silent else self.said("note"), "new_payload": "NULL"}
        columns += [column for column in given if column not in columns]
        for column in columns:
            keep = given.get(column, f"j.{column}")
            choices = [sets.get(column, keep) for sets in effects]
            if len(set(choices)) == 1:
                every[column] = choices[0]
                continue
            whens = " ".join(f"WHEN {n} THEN {one}" for n, one in enumerate(choices))
            every[column] = f"CASE {which} {whens} END"
        return every

    def assignments(self, moves: tuple[Move, ...], which: str, *, silent: bool = False) -> str:
        """The ``SET`` list of a call."""
        sets = self.sets(moves, which, silent=silent)
        return ",\n       ".join(f"{column} = {said}" for column, said in sets.items())

    # Verdicts

    def chosen(self, moves: tuple[Move, ...], *, token: bool) -> str:
        """Which of the call's moves fits the row, by index; NULL when none does."""
        whens = " ".join(
            f"WHEN {self.condition(move, token=token)}{self.room(move)} THEN {n}"
            for n, move in enumerate(moves)
        )
        return f"CASE {whens} END"

    def verdict(self, moves: tuple[Move, ...]) -> str:
        """The index of the move that fits, as text, or why none does."""
        picks = " ".join(
            f"WHEN {self.condition(move, token=True)}{self.room(move)} THEN '{n}'"
            for n, move in enumerate(moves)
        )
        return f"CASE {picks} ELSE {self.reason(moves)} END"

    def foreseen(self, moves: tuple[Move, ...]) -> str:
        """What becomes of a judged row ``c`` with body ``b`` if all are asked at once; '' moves.

        The verdict knows slots and keys that are taken now; the oldest takes those that are free.
        """
        made = self.one_of(str(n) for n in range(len(moves)))
        whens = [f"WHEN c.verdict NOT IN {made} THEN c.verdict"]
        for state in dict.fromkeys(move.to for move in moves if self.takes_slot(move)):
            enters = f"c.verdict IN {self._verdicts([one.to == state for one in moves])}"
            turn = f"row_number() OVER (PARTITION BY {enters} ORDER BY c.id)"
            whens.append(f"WHEN {enters} AND {turn} > 1 THEN 'busy'")
        if any(self.takes_key(move) for move in moves):
            enters = f"c.verdict IN {self._verdicts(map(self.takes_key, moves))}"
            turn = f"row_number() OVER (PARTITION BY {enters}, b.tenant, b.dedup_key ORDER BY c.id)"
            keyed = "b.dedup_key IS NOT NULL"
            whens.append(f"WHEN {enters} AND {keyed} AND {turn} > 1 THEN 'duplicate'")
        return "CASE " + " ".join(whens) + " ELSE '' END"

    def _verdicts(self, which: Iterable[bool]) -> str:
        return self.one_of(str(n) for n, chosen in enumerate(which) if chosen)

    def room(self, move: Move) -> str:
        """Slot and key of the target are guards by implication."""
        room = ""
        if self.takes_slot(move):
            room += f" AND {self.slot_free(move.to)}"
        if self.takes_key(move):
            room += f" AND {self.key_free()}"
        return room

    def reason(self, moves: tuple[Move, ...]) -> str:
        """Why none fits: 'unknown', 'already', 'stale', 'busy', 'duplicate' or a guard."""
        sources = list(dict.fromkeys(state for move in moves for state in move.sources))
        targets = [move.to for move in moves if move.to in self.lifecycle.state]
        fenced = any(move.guard("holds_claim") for move in moves)
        whens = ["WHEN j.id IS NULL THEN 'unknown'"]
        whens.append(f"WHEN i.token IS NOT NULL AND {self.finished_already(moves)} THEN 'already'")
        if not fenced and targets:
            whens.append(
                f"WHEN i.token IS NULL AND j.state IN {self.one_of(targets)}"
                f" AND j.state NOT IN {self.one_of(sources)} THEN 'already'"
            )
        lost = f"j.phase <> {OWNED} OR j.claim_seq <> coalesce(i.token, -1)"
        given = "TRUE" if fenced else "i.token IS NOT NULL"
        whens.append(f"WHEN {given} AND ({lost}) THEN 'stale'")
        whens.append(f"WHEN j.state NOT IN {self.one_of(sources)} THEN 'state'")
        for move in moves:
            here = f"j.state IN {self.one_of(move.sources)}"
            whens += [
                f"WHEN {here} AND NOT ({self.guard(guard)}) THEN {self.literal(guard.kind)}"
                for guard in move.when
            ]
            if self.takes_slot(move):
                whens.append(f"WHEN {here} THEN 'busy'")
            if self.takes_key(move):
                whens.append(f"WHEN {here} THEN 'duplicate'")
        return "CASE " + " ".join(whens) + " ELSE 'state' END"

    def finished_already(self, moves: tuple[Move, ...]) -> str:
        """The same claim made one of these moves before: its answer got lost, not its work."""
        event = self.dialect.table("event")
        names = self.one_of(dict.fromkeys(move.name for move in moves))
        return (
            f"EXISTS (SELECT 1 FROM {event} e WHERE e.job_id = j.id AND e.seq > i.token"
            f" AND e.move IN {names} AND NOT EXISTS (SELECT 1 FROM {event} c"
            " WHERE c.job_id = j.id AND c.seq > i.token AND c.seq < e.seq AND c.claim = 1))"
        )
