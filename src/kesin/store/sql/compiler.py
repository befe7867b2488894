"""Compiles a declaration to SQL: the guards and effects of a move as fragments of statements.

What is quoted into SQL comes from a checked declaration; input of callers is always a parameter.
In every fragment ``j`` is the job's row before the move; the caller's input is in an input row
``i`` or, where all jobs share it, in parameters. The time of a move, ``at``, is the later of now
and the job's last move: it never runs backwards, and every time that a move sets comes from it.
"""

from collections.abc import Iterable
from dataclasses import astuple

from kesin.lifecycle import budget
from kesin.lifecycle.budget import SECOND_US, Backoff
from kesin.lifecycle.declare import Move
from kesin.lifecycle.vocabulary import OWNED, STAY, After, Fixed
from kesin.store.declarations import ERROR_COLUMNS, takes_key
from kesin.store.sql.conditions import MoveConditions


class Compiler(MoveConditions):
    """Fragments for one queue's lifecycle in one dialect."""

    def effects(self, move: Move) -> dict[str, str]:
        """Column → expression for everything the move sets, besides what every move sets."""
        sets = {
            "state": "j.state" if move.to == STAY else self.literal(move.to),
            "move": self.literal(move.name),
            "phase": self._phase(move),
        }
        if any(state.capacity for state in self.lifecycle.states):
            sets["slot"] = self._slot(move)
        sets |= self._claim_effects(move)
        sets |= self._counter_effects(move)
        sets |= self._error_effects(move)
        sets |= self._time_effects(move)
        if move.result == "record":
            sets["result"] = self.input_value("result")
        if move.payload == "replace":
            sets["new_payload"] = self.input_value("payload")
            sets["payload_seq"] = "j.seq + 1"
        if move.priority == "input":
            sets["priority"] = self.input_value("priority")
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
        if move.to == STAY:
            return "j.slot"
        if not self.lifecycle.capacity_of(move):
            return "NULL"
        if move is self.lifecycle.limited_claim:
            return self.dialect.given_slot
        if not self.numbered(move.to):
            return self.literal(move.to)
        # Of several jobs of one statement the index refuses those there is no slot for.
        taken = self.slot_spelled(move.to, "j.tenant", "1")
        free = f"coalesce(({self.free_slots(move.to, 'j.queue', 'j.tenant')} LIMIT 1), {taken})"
        if move.to in move.sources:
            return f"CASE j.state WHEN {self.literal(move.to)} THEN j.slot ELSE {free} END"
        return free

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
            if not (move.stage or move.chained):  # these have no caller who could give a limit
                sets["max_attempts"] = f"coalesce({self.input_value('max_attempts')}, j.max_attempts)"
        if move.retry == "count":
            sets["retry_count"] = "j.retry_count + 1"
        return sets

    def _error_effects(self, move: Move) -> dict[str, str]:
        if isinstance(move.error, Fixed):
            return dict(zip(ERROR_COLUMNS, map(self.literal, astuple(move.error)), strict=True))
        if move.error == "record":
            return {column: self.input_value(column) for column in ERROR_COLUMNS}
        return dict.fromkeys(ERROR_COLUMNS, "NULL") if move.error == "clear" else {}

    def _time_effects(self, move: Move) -> dict[str, str]:
        sets: dict[str, str] = {}
        if isinstance(move.run_at, Backoff):
            sets["run_at"] = f"{self.at} + {self.backoff(move.run_at)}"
        elif move.run_at != "keep":
            sets["run_at"] = {
                "now": self.at,
                "input": f"coalesce({self.input_value('run_at')}, {self.at})",
                "clear": "NULL",
            }[move.run_at]
        if isinstance(move.timer, After | Backoff):
            wait = str(move.timer.seconds * SECOND_US) if isinstance(move.timer, After) else self.backoff(move.timer)
            deadline = f"{self.at} + {wait}"
            if move.timer_for:
                names = self.name_list(category.value for category in move.timer_for)
                deadline = f"CASE WHEN {self.input_value('error_category')} IN {names} THEN {deadline} END"
            sets["timer_at"] = deadline
        elif move.timer == "clear":
            sets["timer_at"] = "NULL"
        column = self.lifecycle.stamp_column
        sets |= {column(stamp): self.at for stamp in move.stamp}
        sets |= {column(stamp): "NULL" for stamp in move.unstamp}
        sets |= {column(stamp): self.input_value(column(stamp)) for stamp in move.stamp_input}
        return sets

    def backoff(self, backoff: Backoff) -> str:
        """The delay in microseconds: a lookup, plus jitter derived from the job's salt."""
        attempts = "j.retry_count" if backoff.counts == "retries" else "(j.attempt_count - j.attempt_base - 1)"
        delays = [delay * SECOND_US for delay in backoff.delays_s]
        whens = " ".join(f"WHEN {n} THEN {delay}" for n, delay in enumerate(delays[:-1]))
        wait = f"CASE {attempts} WHEN -1 THEN {delays[0]} {whens} ELSE {delays[-1]} END"
        if not backoff.jitter_s:
            return f"({wait})"
        modulo = self.dialect.modulo
        positive = self.dialect.greater(attempts, "0")
        mixed = (
            f"(CAST(j.salt AS bigint) * {budget.JITTER_MULTIPLIER}"
            f" + {positive} * {budget.JITTER_STEP}) {modulo} {budget.JITTER_MODULUS}"
        )
        return f"({wait} + ({mixed}) {modulo} {backoff.jitter_s * SECOND_US + 1})"

    def sets(self, moves: tuple[Move, ...], which: str, *, silent: bool = False) -> dict[str, str]:
        """What moves set; ``which`` yields a move's index, ``silent`` has no input of a caller."""
        effects = [self.effects(move) for move in moves]
        columns = list(dict.fromkeys(column for sets in effects for column in sets))
        assigned = {"seq": "j.seq + 1", "moved_at": self.at, "actor": self.dialect.param("actor")}
        defaults = {"note": "NULL" if silent else self.input_value("note"), "new_payload": "NULL"}
        columns += [column for column in defaults if column not in columns]
        for column in columns:
            keep = defaults.get(column, f"j.{column}")
            choices = [sets.get(column, keep) for sets in effects]
            if len(set(choices)) == 1:
                assigned[column] = choices[0]
                continue
            whens = " ".join(f"WHEN {n} THEN {choice}" for n, choice in enumerate(choices))
            assigned[column] = f"CASE {which} {whens} END"
        return assigned

    def assignments(self, moves: tuple[Move, ...], which: str, *, silent: bool = False) -> str:
        sets = self.sets(moves, which, silent=silent)
        return ",\n       ".join(f"{column} = {expression}" for column, expression in sets.items())

    # Verdicts

    def chosen(self, moves: tuple[Move, ...], *, token: bool, otherwise: str = "NULL") -> str:
        """The index of the move that matches the row; ``otherwise`` if none does."""
        quote = "" if otherwise == "NULL" else "'"
        whens = " ".join(
            f"WHEN {self.condition(move, token=token)}{self.target_free(move)} THEN {quote}{n}{quote}"
            for n, move in enumerate(moves)
        )
        return f"CASE {whens} ELSE {otherwise} END"

    def verdict(self, moves: tuple[Move, ...]) -> str:
        """The index of the matching move, as text, or the reason why none matches."""
        return self.chosen(moves, token=True, otherwise=self.reason(moves))

    def preview_reason(self, moves: tuple[Move, ...]) -> str:
        """Why a judged row ``c`` with body ``b`` would not move; '' if it would."""
        chosen_moves = self.name_list(str(n) for n in range(len(moves)))
        whens = [f"WHEN c.verdict NOT IN {chosen_moves} THEN c.verdict"]
        for state in dict.fromkeys(move.to for move in moves if self.lifecycle.capacity_of(move)):
            enters = f"c.verdict IN {self._verdicts(move.to == state for move in moves)}"
            whose = ", b.tenant" if self.lifecycle.state[state].per_tenant else ""
            # Of the rows that need the same free slot, or key below, the oldest takes it.
            turn = f"row_number() OVER (PARTITION BY {enters}{whose} ORDER BY c.id)"
            queue, free = self.dialect.param("queue"), "1"
            if self.numbered(state):
                used = self.slots_used(state, queue, "b.tenant")
                free = f"{self.slots(state, queue)} - {used}"
            whens.append(f"WHEN {enters} AND {turn} > {free} THEN 'busy'")
        take_keys = [takes_key(self.lifecycle, move) for move in moves]
        if any(take_keys):
            enters = f"c.verdict IN {self._verdicts(take_keys)}"
            turn = f"row_number() OVER (PARTITION BY {enters}, b.tenant, b.dedup_key ORDER BY c.id)"
            keyed = "b.dedup_key IS NOT NULL"
            whens.append(f"WHEN {enters} AND {keyed} AND {turn} > 1 THEN 'duplicate'")
        return "CASE " + " ".join(whens) + " ELSE '' END"

    def _verdicts(self, which: Iterable[bool]) -> str:
        return self.name_list(str(n) for n, chosen in enumerate(which) if chosen)

    def reason(self, moves: tuple[Move, ...]) -> str:
        """Why no move matches: 'unknown', 'already', 'stale', 'busy', 'duplicate' or a guard."""
        sources = list(dict.fromkeys(state for move in moves for state in move.sources))
        targets = [move.to for move in moves if move.to in self.lifecycle.state]
        fenced = any(move.guard("holds_claim") for move in moves)
        whens = ["WHEN j.id IS NULL THEN 'unknown'"]
        whens.append(f"WHEN i.token IS NOT NULL AND {self.finished_already(moves)} THEN 'already'")
        if not fenced and targets:
            whens.append(
                f"WHEN i.token IS NULL AND j.state IN {self.name_list(targets)}"
                f" AND j.state NOT IN {self.name_list(sources)} THEN 'already'"
            )
        claim_lost = f"j.phase <> {OWNED} OR j.claim_seq <> coalesce(i.token, -1)"
        token_given = "TRUE" if fenced else "i.token IS NOT NULL"
        whens.append(f"WHEN {token_given} AND ({claim_lost}) THEN 'stale'")
        whens.append(f"WHEN j.state NOT IN {self.name_list(sources)} THEN 'state'")
        for move in moves:
            in_source = f"j.state IN {self.name_list(move.sources)}"
            whens += [
                f"WHEN {in_source} AND NOT ({self.guard(guard)}) THEN {self.literal(guard.kind)}" for guard in move.when
            ]
            if self.lifecycle.capacity_of(move):
                whens.append(f"WHEN {in_source} THEN 'busy'")
            if takes_key(self.lifecycle, move):
                whens.append(f"WHEN {in_source} THEN 'duplicate'")
        return "CASE " + " ".join(whens) + " ELSE 'state' END"

    def immovable_reason(self, moves: tuple[Move, ...]) -> str:
        """The same for jobs, without a claim's token, in a state ``p`` that no move starts from."""
        if any(move.guard("holds_claim") for move in moves):
            return "'stale'"
        targets = self.name_list(move.to for move in moves)
        return f"CASE WHEN p.state IN {targets} THEN 'already' ELSE 'state' END"

    def finished_already(self, moves: tuple[Move, ...]) -> str:
        """Whether the same claim already made one of these moves: only its response was lost."""
        names = self.name_list(dict.fromkeys(move.name for move in moves))
        return self.part("finished_already", names=names)
