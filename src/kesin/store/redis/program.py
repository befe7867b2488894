"""From declaration to Lua's tables: what a call may be, as the JSON the scripts in ``lua/`` read.

The scripts know every guard and effect by name; what differs between lifecycles travels as data,
spelled once and sent with each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from kesin.foundation.text import wire_json
from kesin.lifecycle.budget import (
    JITTER_MODULUS,
    JITTER_MULTIPLIER,
    JITTER_STEP,
    SECOND_US,
    Backoff,
)
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import JOB_COLUMNS
from kesin.lifecycle.vocabulary import READY, After, Fixed, Guard, Role
from kesin.store.declarations import MASK
from kesin.store.errors import StoreError
from kesin.store.limits import option_params

PARTS = ("begin", "rows", "judge", "writing", "reading")
SEPARATOR = "\x1f"
TEXTS = frozenset(
    {
        "id",
        "queue",
        "tenant",
        "state",
        "move",
        "actor",
        "worker",
        "error_code",
        "error_category",
        "error_message",
        "note",
        "result",
        "new_payload",
        "dedup_key",
        "payload",
    }
)
NUMBERS = tuple(name for name in JOB_COLUMNS if name not in TEXTS)
SINGLE = (
    "run_at",
    "timer_at",
    "result",
    "finished_at",
    "stamp_1",
    "stamp_2",
    "stamp_3",
    "stamp_4",
)


@cache
def script() -> str:
    """The one script there is: its first argument names the call."""
    constants = "\n".join(
        (
            f"local COLUMNS = {_lua_list(JOB_COLUMNS)}",
            f"local NUMBERS = {_lua_list(NUMBERS)}",
            f"local SINGLE = {_lua_list(SINGLE)}",
            f"local MASK = {_lua_table(MASK)}",
            "local JITTER = "
            + _lua_table(
                {
                    "multiplier": JITTER_MULTIPLIER,
                    "step": JITTER_STEP,
                    "modulus": JITTER_MODULUS,
                }
            ),
        )
    )
    folder = files("kesin.store.redis") / "lua"
    parts = [(folder / f"{name}.lua").read_text("utf-8") for name in PARTS]
    return "\n".join((constants, *parts))


def _lua_list(names: Iterable[str]) -> str:
    return "{" + ", ".join(f"'{name}'" for name in names) + "}"


def _lua_table(numbers: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{name} = {number}" for name, number in numbers.items()) + "}"


class Program:
    """One queue's lifecycle as the scripts want it. ``own_keys``: its keys tell their tenant."""

    def __init__(
        self, lifecycle: Lifecycle, masks: Mapping[str, int], *, own_keys: bool = False
    ) -> None:
        self.lifecycle = lifecycle
        self._built: dict[tuple[object, ...], str] = {}
        claims = lifecycle.claims
        self.claims_slot = any(self.takes_slot(move) for move in claims)
        contested = self.claims_slot or any(self._takes_key(move) for move in claims)
        names = [state.name for state in lifecycle.states]
        self.life = wire_json(
            {
                "initial": lifecycle.initial.name,
                "birth": lifecycle.birth.name,
                "phase": {name: lifecycle.unowned_phase(name) for name in names},
                "holds": _set(state.name for state in lifecycle.states if state.holds_key),
                "exclusive": _set(state.name for state in lifecycle.states if state.exclusive),
                "max_returns": lifecycle.max_returns,
                "max_run_us": lifecycle.max_run_seconds * SECOND_US,
                "claims_contested": contested,
                "own_keys": own_keys,
                "masks": dict(masks),
            }
        )

    @property
    def claims(self) -> str:
        """The moves that give a job away."""
        return self._once(("claims",), self.lifecycle.claims, None)

    def asked(self, call: str, role: Role, queue: str) -> tuple[Move, ...]:
        """What this call can be when this role makes it; raises StoreError where it is none."""
        found = self.lifecycle.calls.get(call, ())
        moves = tuple(move for move in found if role in move.by and not move.chained)
        if not moves:
            raise StoreError(f"{call!r} is no call a {role} can make on the queue {queue!r}")
        return moves

    def options(self, moves: tuple[Move, ...], options: frozenset[str]) -> dict[str, bool]:
        """The options that are set, as the guards look them up."""
        given = option_params(moves, options)
        return {name.removeprefix("option_"): True for name, is_set in given.items() if is_set}

    def call(self, moves: tuple[Move, ...]) -> str:
        """A call's alternatives, and what follows each."""
        return self._once(("call", moves), moves, None)

    def sweep(self, move: Move) -> str:
        """A clock's move; only the clock's own links follow it."""
        return self._once(("sweep", move), (move,), "clock")

    def ages(self) -> list[tuple[str, str]]:
        """(state, stamp) for every sorted set that some clock's move is found by."""
        return [
            (source, self._stamp(guard))
            for move in self.lifecycle.clock_moves
            for guard in move.when
            if guard.kind == "age_over" and self._stamp(guard) != "created_at"
            for source in move.sources
        ]

    def _stamp(self, guard: Guard) -> str:
        return self.lifecycle.stamp_column(guard.names[0])

    def _once(self, key: tuple[object, ...], moves: Iterable[Move], role: Role | None) -> str:
        if key not in self._built:
            self._built[key] = wire_json([self._move(move, role) for move in moves])
        return self._built[key]

    def _move(self, move: Move, role: Role | None) -> dict[str, Any]:
        column = self.lifecycle.stamp_column
        spelled: dict[str, Any] = {
            "name": move.name,
            "sources": _set(move.sources),
            "to": move.to,
            "when": [self._guard(guard) for guard in move.when],
            "fenced": move.guard("holds_claim") is not None,
            "takes_slot": self.takes_slot(move),
            "takes_key": self._takes_key(move),
            "claim": move.claim,
            "attempt": move.attempt,
            "returns": move.guard("returns_left") is not None,
            "retry": move.retry,
            "error": _error(move.error),
            "run_at": _wait(move.run_at),
            "timer": _wait(move.timer),
            "stamp": [column(one) for one in move.stamp],
            "unstamp": [column(one) for one in move.unstamp],
            "stamp_input": [column(one) for one in move.stamp_input],
            "result": move.result,
            "payload": move.payload,
            "flags": sum(self.lifecycle.flag_bit(flag) for flag in move.flag),
            "prunes": move.prunes,
            **self._way(move),
        }
        if move.timer_for:
            spelled["timer_for"] = _set(category.value for category in move.timer_for)
        links = [
            self._move(link, role)
            for link in self.lifecycle.chained(move)
            if role is None or role in link.by
        ]
        if links:
            spelled["links"] = links
        return spelled

    def _guard(self, guard: Guard) -> dict[str, Any]:
        spelled: dict[str, Any] = {"kind": guard.kind, "number": guard.number}
        match guard.kind:
            case "code_in" | "code_not_in" | "category_in":
                spelled["names"] = _set(guard.names)
            case "flag_set" | "flag_not_set":
                spelled["number"] = self.lifecycle.flag_bit(guard.names[0])
            case "age_over":
                spelled["name"] = self._stamp(guard)
                spelled["number"] = guard.number * SECOND_US
            case "option" | "slot_free":
                spelled["name"] = guard.names[0]
            case _:
                pass
        return spelled

    def _way(self, move: Move) -> dict[str, Any]:
        """By which sorted set the sweeper finds the jobs this move may concern."""
        ready = all(self.lifecycle.unowned_phase(source) == READY for source in move.sources)
        if move.guard("lease_over"):
            return {"way": "leases"}
        if move.guard("timer_over"):
            return {"way": "timers"}
        if move.guard("budget_spent") and ready:
            return {"way": "spent"}
        aged = move.guard("age_over")
        if aged is not None:
            return {
                "way": "age",
                "stamp_aged": self._stamp(aged),
                "aged_us": aged.number * SECOND_US,
            }
        return {"way": "states"}

    def takes_slot(self, move: Move) -> bool:
        to = self.lifecycle.state.get(move.to)
        return to is not None and to.exclusive

    def _takes_key(self, move: Move) -> bool:
        to = self.lifecycle.state.get(move.to)
        if to is None or not to.holds_key:
            return False
        return any(not self.lifecycle.state[source].holds_key for source in move.sources)


def _set(names: Iterable[str]) -> dict[str, bool]:
    """Names as Lua looks them up; an empty table would come back as a list, and hold none too."""
    return dict.fromkeys(names, True)


def _error(error: object) -> object:
    if isinstance(error, Fixed):
        return [error.code, error.category.value, error.message]
    return error


def _wait(wait: object) -> object:
    if isinstance(wait, After):
        return {"after_us": wait.seconds * SECOND_US}
    if isinstance(wait, Backoff):
        return {
            "delays_us": [delay * SECOND_US for delay in wait.delays_s],
            "jitter_us": wait.jitter_s * SECOND_US,
            "counts": wait.counts,
        }
    return wait
