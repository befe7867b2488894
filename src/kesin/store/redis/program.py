"""A declaration as data for the scripts in ``lua/``: encoded once as JSON, sent with each call."""

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import Any

from kesin.foundation.text import wire_json
from kesin.lifecycle import budget
from kesin.lifecycle.budget import SECOND_US, Backoff
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import CLOCK_WENT_BACK_S, JOB_COLUMNS, STAMP_COLUMNS, Job, meter_of
from kesin.lifecycle.vocabulary import READY, After, Fixed, Guard, Role
from kesin.store.declarations import COLUMN_BITS, takes_key
from kesin.store.limits import MAX_BATCH, option_params

PARTS = ("begin", "rows", "judge", "writing", "reading")
SEPARATOR = "\x1f"
NUMBERS = tuple(
    name for name, kind in zip(JOB_COLUMNS, Job.__annotations__.values(), strict=True) if "int" in str(kind)
)
SINGLE = ("run_at", "timer_at", "result", "finished_at", "priority", *STAMP_COLUMNS)
# Of a move.
SENT_AS_DECLARED = ("name", "to", "claim", "attempt", "retry", "result", "payload", "priority")


@cache
def script() -> str:
    """The text of the only script; its first argument names the operation."""
    jitter = {"multiplier": budget.JITTER_MULTIPLIER, "step": budget.JITTER_STEP}
    jitter["modulus"] = budget.JITTER_MODULUS
    constants = "\n".join(
        (
            f"local COLUMNS = {_lua_list(JOB_COLUMNS)}",
            f"local NUMBERS = {_lua_list(NUMBERS)}",
            f"local SINGLE = {_lua_list(SINGLE)}",
            f"local MASK = {_lua_table(COLUMN_BITS)}",
            f"local JITTER = {_lua_table(jitter)}",
        )
    )
    folder = files("kesin.store.redis") / "lua"
    return "\n".join((constants, *[(folder / f"{name}.lua").read_text("utf-8") for name in PARTS]))


def _lua_list(names: Iterable[str]) -> str:
    return "{" + ", ".join(f"'{name}'" for name in names) + "}"


def _lua_table(numbers: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{name} = {number}" for name, number in numbers.items()) + "}"


class Program:
    """One queue's lifecycle for the scripts; ``keys_name_tenant``: unique keys across tenants."""

    def __init__(self, lifecycle: Lifecycle, masks: Mapping[str, int], *, keys_name_tenant: bool = False) -> None:
        self.lifecycle = lifecycle
        claims, limited = lifecycle.claims, lifecycle.limited_claim
        meter = meter_of(limited) if limited else None
        alone = any(map(lifecycle.capacity_of, claims)) and not limited
        self.max_claim = 1 if alone else MAX_BATCH
        contested = alone or any(takes_key(lifecycle, move) for move in claims)
        names, after = [state.name for state in lifecycle.states], lifecycle.enqueue_after_move
        self.slots = {state.name: state.capacity for state in lifecycle.states if state.capacity}
        back = {"back_us": CLOCK_WENT_BACK_S * SECOND_US}
        self.lifecycle_json = wire_json(
            {
                "initial": lifecycle.initial.name,
                "birth": lifecycle.enqueue_move.name,
                "after": {"birth": after.name, "initial": after.to} if after else False,
                "success": _as_set(state.name for state in lifecycle.states if state.success),
                "waits": _as_set(lifecycle.waiting_states),
                "phase": {name: lifecycle.unowned_phase(name) for name in names},
                "holds": _as_set(state.name for state in lifecycle.states if state.holds_key),
                "slots": self.slots,
                "per_tenant": _as_set(s.name for s in lifecycle.states if s.per_tenant),
                "limited": limited is not None,
                "meter": {**back, "move": claims[0].name, **meter._asdict()} if meter else False,
                "max_returns": lifecycle.max_returns,
                "max_run_us": lifecycle.max_run_seconds * SECOND_US,
                "claims_contested": contested,
                "own_keys": keys_name_tenant,
                "masks": dict(masks),
            }
        )

    @cached_property
    def claims(self) -> str:
        return self.alternatives(self.lifecycle.claims)

    def options(self, moves: tuple[Move, ...], options: frozenset[str]) -> dict[str, bool]:
        params = option_params(moves, options)
        return {name.removeprefix("option_"): True for name, is_set in params.items() if is_set}

    @lru_cache(maxsize=1_024)  # noqa: B019  # programs are few and live as long as their stores
    def alternatives(self, moves: tuple[Move, ...], role: Role | None = None) -> str:
        """The alternative moves of an action, each with the chained moves that the role makes."""
        return wire_json([self._move(move, role) for move in moves])

    def indexed_ages(self) -> list[tuple[str, str]]:
        """(state, stamp) for every sorted set in which the sweeper looks for old jobs."""
        return [
            (source, self._stamp(guard))
            for move in self.lifecycle.scheduled_moves
            for guard in move.when
            if guard.kind == "age_over" and self._stamp(guard) != "created_at"
            for source in move.sources
        ]

    def _stamp(self, guard: Guard) -> str:
        return self.lifecycle.stamp_column(guard.names[0])

    def _move(self, move: Move, role: Role | None) -> dict[str, Any]:
        column = self.lifecycle.stamp_column
        fields: dict[str, Any] = {
            **{name: getattr(move, name) for name in SENT_AS_DECLARED},
            "sources": _as_set(move.sources),
            "when": [self._guard(guard) for guard in move.when],
            "fenced": move.guard("holds_claim") is not None,
            "takes_slot": self.lifecycle.capacity_of(move) > 0,
            "takes_key": takes_key(self.lifecycle, move),
            "returns": move.guard("returns_left") is not None,
            "error": list(astuple(move.error)) if isinstance(move.error, Fixed) else move.error,
            "run_at": _encode_wait(move.run_at),
            "timer": _encode_wait(move.timer),
            "stamp": [column(stamp) for stamp in move.stamp],
            "unstamp": [column(stamp) for stamp in move.unstamp],
            "stamp_input": [column(stamp) for stamp in move.stamp_input],
            "flags": sum(self.lifecycle.flag_bit(flag) for flag in move.flag),
            "prunes": move.prunes,
            **self._sweep_source(move),
        }
        if move.timer_for:
            fields["timer_for"] = _as_set(category.value for category in move.timer_for)
        links = [
            self._move(link, role) for link in self.lifecycle.chained_moves(move) if role is None or role in link.by
        ]
        if links:
            fields["links"] = links
        return fields

    def _guard(self, guard: Guard) -> dict[str, Any]:
        fields: dict[str, Any] = {"kind": guard.kind, "number": guard.number}
        match guard.kind:
            case "code_in" | "code_not_in" | "category_in":
                fields["names"] = _as_set(guard.names)
            case "flag_set" | "flag_not_set":
                fields["number"] = self.lifecycle.flag_bit(guard.names[0])
            case "age_over":
                fields["name"] = self._stamp(guard)
                fields["number"] = guard.number * SECOND_US
            case "option" | "slot_free":
                fields["name"] = guard.names[0]
            case _:
                pass
        return fields

    def _sweep_source(self, move: Move) -> dict[str, Any]:
        """The sorted set in which the sweeper finds candidates for this move."""
        ready = all(self.lifecycle.unowned_phase(source) == READY for source in move.sources)
        if move.guard("lease_over"):
            return {"way": "leases"}
        if move.guard("timer_over"):
            return {"way": "timers"}
        if move.guard("budget_spent") and ready:
            return {"way": "spent"}
        age_guard = move.guard("age_over")
        if age_guard is not None:
            aged_us = age_guard.number * SECOND_US
            return {"way": "age", "stamp_aged": self._stamp(age_guard), "aged_us": aged_us}
        return {"way": "states"}


def _as_set(names: Iterable[str]) -> dict[str, bool]:
    """Names as a Lua table for lookups; an empty one decodes as a list, which works as well."""
    return dict.fromkeys(names, True)


def _encode_wait(wait: object) -> object:
    if isinstance(wait, After):
        return {"after_us": wait.seconds * SECOND_US}
    if isinstance(wait, Backoff):
        return {
            "delays_us": [delay * SECOND_US for delay in wait.delays_s],
            "jitter_us": wait.jitter_s * SECOND_US,
            "counts": wait.counts,
        }
    return wait
