"""Contradictions a declaration can hold, each refused with the move and the reason.

These are questions of spelling and shape, answered by reading. Whether jobs end is another
question and takes exploring: see ``prove``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from kesin.lifecycle.vocabulary import GONE, MAX_FLAGS, MAX_STAMPS, STAY, DeclarationError

if TYPE_CHECKING:
    from kesin.lifecycle.declare import Lifecycle, Move

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


def check(lifecycle: Lifecycle) -> None:
    """Raise DeclarationError for the first contradiction."""
    _check_header(lifecycle)
    _check_states(lifecycle)
    for move in lifecycle.moves:
        _check_edges(lifecycle, move)
        _check_twins(lifecycle, move)
        _check_run_at(lifecycle, move)
        _check_stamps_and_flags(lifecycle, move)
        _check_claim(move)
        _check_clock(lifecycle, move)
        _check_chain(lifecycle, move)
    _check_births(lifecycle)
    for call, _ in lifecycle.unsaid:
        if not any(move.call == call and move.error == "record" for move in lifecycle.moves):
            _refuse(f"unsaid {call!r}", "no move of this call records an error")


def _refuse(where: str, why: str) -> NoReturn:
    raise DeclarationError(f"{where}: {why}")


def _check_header(lifecycle: Lifecycle) -> None:
    here = f"lifecycle {lifecycle.name!r}"
    if not NAME.fullmatch(lifecycle.name):
        _refuse(here, "a name is letters, digits and _, starting with a letter")
    for what, value, least in (
        ("max_attempts", lifecycle.max_attempts, 1),
        ("max_returns", lifecycle.max_returns, 0),
        ("lease_seconds", lifecycle.lease_seconds, 1),
        ("max_run_seconds", lifecycle.max_run_seconds, 1),
    ):
        if value < least:
            _refuse(here, f"{what} must be at least {least}, got {value}")
    if len(lifecycle.stamps) > MAX_STAMPS:
        _refuse(here, f"at most {MAX_STAMPS} named stamps, got {len(lifecycle.stamps)}")
    if len(lifecycle.flags) > MAX_FLAGS:
        _refuse(here, f"at most {MAX_FLAGS} named flags, got {len(lifecycle.flags)}")


def _check_states(lifecycle: Lifecycle) -> None:
    here = f"lifecycle {lifecycle.name!r}"
    names = [state.name for state in lifecycle.states]
    for name in names:
        if not NAME.fullmatch(name):
            _refuse(here, f"{name!r} is no state name: letters, digits and _")
        if names.count(name) > 1:
            _refuse(here, f"state {name} is declared twice")
    initial = [state.name for state in lifecycle.states if state.initial]
    if len(initial) != 1:
        _refuse(here, f"exactly one state is initial, got {initial or 'none'}")
    if any(state.initial and state.exclusive for state in lifecycle.states):
        _refuse(here, f"{initial[0]} is initial and exclusive: no second job could be born")
    if not any(state.success for state in lifecycle.states):
        _refuse(here, "no state is marked success")


def _check_edges(lifecycle: Lifecycle, move: Move) -> None:
    here = f"{lifecycle.name}.{move.name}"
    if not NAME.fullmatch(move.name):
        _refuse(here, "a move's name is letters, digits and _")
    if not move.by:
        _refuse(here, "nobody may make it: say by=")
    for state in move.sources:
        if state not in lifecycle.state:
            _refuse(here, f"unknown state {state!r}")
    if move.to not in lifecycle.state and move.to not in (STAY, GONE):
        _refuse(here, f"unknown state {move.to!r}")
    if len(set(move.sources)) != len(move.sources):
        _refuse(here, "a source is named twice")
    slot = move.guard("slot_free")
    if slot and not getattr(lifecycle.state.get(slot.names[0]), "exclusive", False):
        _refuse(here, f"slot_free names {slot.names[0]}, which is not exclusive")


def _check_twins(lifecycle: Lifecycle, move: Move) -> None:
    """The database tells moves apart by name, source and target: those must count alike."""
    here = f"{lifecycle.name}.{move.name}"
    for twin in lifecycle.moves:
        if twin.name != move.name:
            continue
        for shared in sorted(set(twin.sources) & set(move.sources)):
            alike = twin.target(shared) == move.target(shared)
            if alike and _counting(twin) != _counting(move):
                _refuse(here, f"two moves {shared} → {move.target(shared)} count differently")


def _check_run_at(lifecycle: Lifecycle, move: Move) -> None:
    """A working job always has a time to run at: the stores rely on it."""
    here = f"{lifecycle.name}.{move.name}"
    to = lifecycle.state.get(move.to)
    rested = any(not lifecycle.state[one].working for one in move.sources)
    if move.run_at == "clear" and (to is None or to.working):
        _refuse(here, "only a move that ends the work may clear run_at")
    if to and to.working and move.run_at == "keep" and (rested or move.births):
        _refuse(here, f"it puts a job to work in {to.name} and must set run_at")


def _counting(move: Move) -> tuple[str, str, str, bool]:
    return (move.claim, move.attempt, move.retry, move.guard("returns_left") is not None)


def _check_stamps_and_flags(lifecycle: Lifecycle, move: Move) -> None:
    here = f"{lifecycle.name}.{move.name}"
    settable = {*lifecycle.stamps, "finished_at"}
    for stamp in (*move.stamp, *move.stamp_input, *move.unstamp):
        if stamp not in settable:
            _refuse(here, f"unknown stamp {stamp!r}: declare it in stamps=")
    for guard in move.when:
        readable = settable | {"created_at", "moved_at"}
        if guard.kind == "age_over" and guard.names[0] not in readable:
            _refuse(here, f"age_over of the unknown stamp {guard.names[0]!r}")
        if guard.kind in ("flag_set", "flag_not_set") and guard.names[0] not in lifecycle.flags:
            _refuse(here, f"unknown flag {guard.names[0]!r}: declare it in flags=")
    for flag in move.flag:
        if flag not in lifecycle.flags:
            _refuse(here, f"unknown flag {flag!r}: declare it in flags=")
    to = lifecycle.state.get(move.to)
    rested = all(lifecycle.state[source].resting for source in move.sources)
    if to and not to.working and not rested and "finished_at" not in move.stamp:
        _refuse(here, f"it ends the work in {to.name} and must stamp finished_at")
    if move.timer_for and (move.error != "record" or isinstance(move.timer, str)):
        _refuse(here, "timer_for needs a timer to arm and error='record'")


def _check_claim(move: Move) -> None:
    kinds = {guard.kind for guard in move.when}
    if move.claims:
        missing = {"due", "unclaimed"} - kinds
        if missing:
            _refuse(move.name, f"a claim needs the guards {', '.join(sorted(missing))}")
        if move.by != ("worker",):
            _refuse(move.name, "only a worker claims")
    elif move.attempt == "count":
        _refuse(move.name, "an attempt is counted by a claim and nowhere else")
    if move.attempt == "return" and move.claim != "drop":
        _refuse(move.name, "an attempt is returned with the claim: say claim='drop'")
    if "holds_claim" in kinds and kinds & {"unclaimed", "lease_over"}:
        _refuse(move.name, "holds_claim contradicts unclaimed and lease_over")


def _check_clock(lifecycle: Lifecycle, move: Move) -> None:
    here = f"{lifecycle.name}.{move.name}"
    if ("clock" in move.by) and move.stage is None and not move.chained:
        _refuse(here, "a clock move needs a stage")
    if move.stage is not None and "clock" not in move.by:
        _refuse(here, "only a clock move has a stage")
    if move.stage is None:
        return
    for kind in ("option", "holds_claim"):
        if any(guard.kind == kind for guard in move.when):
            _refuse(here, f"the clock cannot meet the guard {kind}")
    if move.error == "record" or move.result == "record":
        _refuse(here, "the clock records no error or result of its own: use Fixed")
    if _takes_input(move):
        _refuse(here, "the clock has no input to give")
    kinds = {guard.kind for guard in move.when}
    at_work = any(lifecycle.state[source].working for source in move.sources)
    if at_work and not move.prunes and not kinds & {"unclaimed", "lease_over", "timer_over"}:
        _refuse(here, "the clock takes no job from its worker: say unclaimed or lease_over")
    aged = move.guard("age_over")
    if aged and aged.names[0] in lifecycle.stamps[1:]:
        _refuse(here, f"only the first named stamp is indexed: declare {aged.names[0]} first")


def _check_chain(lifecycle: Lifecycle, move: Move) -> None:
    here = f"{lifecycle.name}.{move.name}"
    if not move.then:
        return
    links = lifecycle.chained(move)
    if not links or not all(link.chained for link in links):
        _refuse(here, f"then={move.then!r} names no chained move")
    if any(link.then for link in links):
        _refuse(here, "a chain has two links")
    for link in links:
        if move.to not in link.sources:
            _refuse(here, f"{link.name} does not leave {move.to}")
        if link.claim == "take" or _takes_input(link):
            _refuse(here, f"{link.name} has no caller to take input from")


def _takes_input(move: Move) -> bool:
    """Whether it writes down something that only a caller can say."""
    recorded = "record" in (move.error, move.result)
    return recorded or move.run_at == "input" or move.payload == "replace" or bool(move.stamp_input)


def _check_births(lifecycle: Lifecycle) -> None:
    here = f"lifecycle {lifecycle.name!r}"
    births = [move for move in lifecycle.moves if move.births]
    if len(births) != 1 or births[0].name != "enqueue":
        _refuse(here, "exactly one move has no source, and it is named enqueue")
    if births[0].to != lifecycle.initial.name:
        _refuse(here, f"enqueue must lead to {lifecycle.initial.name}")
    if not lifecycle.claims:
        _refuse(here, "no move claims a job")
    for prune in (move for move in lifecycle.moves if move.prunes):
        for source in prune.sources:
            if lifecycle.state[source].working:
                _refuse(here, f"prune may not take a job from {source}: it is still working")
        if prune.by != ("clock",) or not prune.guard("age_over"):
            _refuse(here, "a prune is the clock's move under age_over")
