"""Finds contradictions in a declaration; ``proof`` proves that every job ends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from kesin.lifecycle.budget import DAY_S
from kesin.lifecycle.vocabulary import GONE, MAX_FLAGS, MAX_RATE, MAX_SLOTS, MAX_STAMPS, STAY, DeclarationError

if TYPE_CHECKING:
    from kesin.lifecycle.declare import Lifecycle, Move, State
    from kesin.lifecycle.vocabulary import Guard

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
CREATING = ("enqueue", "enqueue_after")


def check_consistency(lifecycle: Lifecycle) -> None:
    """Raise DeclarationError for the first contradiction."""
    _check_header(lifecycle)
    _check_states(lifecycle)
    for move in lifecycle.moves:
        where = f"{lifecycle.name}.{move.name}"
        _check_edges(where, lifecycle, move)
        _check_same_named_moves(where, lifecycle, move)
        _check_run_at(where, lifecycle, move)
        _check_stamps_and_flags(where, lifecycle, move)
        _check_claim(move)
        _check_priority(where, move)
        _check_scheduled(where, lifecycle, move)
        _check_chain(where, lifecycle, move)
    _check_enqueue_and_prune(lifecycle)
    for action, _ in lifecycle.default_errors:
        if not any(move.action == action and move.error == "record" for move in lifecycle.moves):
            _refuse(f"default_errors {action!r}", "no move of this action records an error")


def _refuse(where: str, why: str) -> NoReturn:
    raise DeclarationError(f"{where}: {why}")


def _check_header(lifecycle: Lifecycle) -> None:
    where = f"lifecycle {lifecycle.name!r}"
    if not NAME.fullmatch(lifecycle.name):
        _refuse(where, "a name must start with a letter and contain only letters, digits and _")
    for name, value, least in (
        ("max_attempts", lifecycle.max_attempts, 1),
        ("max_returns", lifecycle.max_returns, 0),
        ("lease_seconds", lifecycle.lease_seconds, 1),
        ("max_run_seconds", lifecycle.max_run_seconds, 1),
    ):
        if value < least:
            _refuse(where, f"{name} must be at least {least}, got {value}")
    if len(lifecycle.stamps) > MAX_STAMPS:
        _refuse(where, f"at most {MAX_STAMPS} named stamps are allowed, got {len(lifecycle.stamps)}")
    if len(lifecycle.flags) > MAX_FLAGS:
        _refuse(where, f"at most {MAX_FLAGS} named flags are allowed, got {len(lifecycle.flags)}")


def _check_states(lifecycle: Lifecycle) -> None:
    where = f"lifecycle {lifecycle.name!r}"
    names = [state.name for state in lifecycle.states]
    for name in names:
        if not NAME.fullmatch(name):
            _refuse(where, f"{name!r} is not a state name: use letters, digits and _")
        if names.count(name) > 1:
            _refuse(where, f"state {name} is declared twice")
    initial = [state.name for state in lifecycle.states if state.initial]
    if len(initial) != 1:
        _refuse(where, f"exactly one state must be initial, got {initial or 'none'}")
    for state in lifecycle.states:
        _check_slots(f"{lifecycle.name}.{state.name}", state)
    if any(state.initial and state.retiring for state in lifecycle.states):
        _refuse(where, f"{initial[0]} is both initial and retiring, but jobs are created in it")
    if not any(state.success for state in lifecycle.states):
        _refuse(where, "no state is marked success")


def _check_slots(where: str, state: State) -> None:
    slots = state.slots
    if slots is not None and not (_is_count(slots) and 0 < slots <= MAX_SLOTS):
        _refuse(where, f"slots must be in 1…{MAX_SLOTS}, got {slots!r}")
    if state.slots_per not in ("queue", "tenant"):
        _refuse(where, f"slots_per must be 'queue' or 'tenant', got {state.slots_per!r}")
    if state.exclusive and (slots or state.per_tenant):
        _refuse(where, "exclusive means one slot per queue: for another limit, set only slots=")
    if state.per_tenant and not slots:
        _refuse(where, "slots_per without slots= has no effect")
    if state.initial and state.capacity:
        _refuse(where, "an initial state cannot have slots: while they are taken, no job could be created")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_edges(where: str, lifecycle: Lifecycle, move: Move) -> None:
    if not NAME.fullmatch(move.name):
        _refuse(where, "a move's name must contain only letters, digits and _")
    if not move.by:
        _refuse(where, "no role may make it: set by=")
    for state in move.sources:
        if state not in lifecycle.state:
            _refuse(where, f"unknown state {state!r}")
    if move.to not in lifecycle.state and move.to not in (STAY, GONE):
        _refuse(where, f"unknown state {move.to!r}")
    if getattr(lifecycle.state.get(move.to), "retiring", False):
        _refuse(where, f"leads to {move.to}, which is retiring: no job may enter it")
    if len(set(move.sources)) != len(move.sources):
        _refuse(where, "a source is named twice")
    slot = move.guard("slot_free")
    if slot and not getattr(lifecycle.state.get(slot.names[0]), "capacity", 0):
        _refuse(where, f"slot_free names {slot.names[0]}, which has no slots")
    rate = move.guard("rate")
    if rate:
        _check_rate(where, lifecycle, move, rate)


def _check_rate(where: str, lifecycle: Lifecycle, move: Move, rate: Guard) -> None:
    counted = _is_count(rate.number) and _is_count(rate.per_s)
    if not counted or not 1 <= rate.number <= MAX_RATE or not 1 <= rate.per_s <= DAY_S:
        given = f"rate({rate.number!r}, {rate.per_s!r})"
        _refuse(where, f"a rate must be 1…{MAX_RATE} claims in 1…{DAY_S} seconds, got {given}")
    if not move.claims or len(lifecycle.claims) > 1:
        _refuse(where, "a rate needs a lifecycle with a single claim")


def _check_same_named_moves(where: str, lifecycle: Lifecycle, move: Move) -> None:
    """Moves of the same name, source and target must count alike: the stores see one move."""
    for twin in lifecycle.moves:
        if twin.name != move.name:
            continue
        for shared in sorted(set(twin.sources) & set(move.sources)):
            alike = twin.target(shared) == move.target(shared)
            if alike and _counter_effects(twin) != _counter_effects(move):
                _refuse(where, f"two moves {shared} → {move.target(shared)} have different effects on the counters")


def _check_run_at(where: str, lifecycle: Lifecycle, move: Move) -> None:
    """Every job in a working state must have ``run_at``: the stores rely on it."""
    to = lifecycle.state.get(move.to)
    from_rest = any(not lifecycle.state[source].working for source in move.sources)
    if move.run_at == "clear" and (to is None or to.working):
        _refuse(where, "only a move that ends the work may clear run_at")
    if to and to.working and move.run_at == "keep" and (from_rest or move.creates):
        _refuse(where, f"it moves jobs to the working state {to.name}, so it must set run_at")


def _counter_effects(move: Move) -> tuple[str, str, str, bool]:
    return (move.claim, move.attempt, move.retry, move.guard("returns_left") is not None)


def _check_stamps_and_flags(where: str, lifecycle: Lifecycle, move: Move) -> None:
    settable = {*lifecycle.stamps, "finished_at"}
    for stamp in (*move.stamp, *move.stamp_input, *move.unstamp):
        if stamp not in settable:
            _refuse(where, f"unknown stamp {stamp!r}: declare it in stamps=")
    for guard in move.when:
        if guard.kind == "age_over" and guard.names[0] not in settable | {"created_at", "moved_at"}:
            _refuse(where, f"age_over names the unknown stamp {guard.names[0]!r}")
        if guard.kind in ("flag_set", "flag_not_set") and guard.names[0] not in lifecycle.flags:
            _refuse(where, f"unknown flag {guard.names[0]!r}: declare it in flags=")
    for flag in move.flag:
        if flag not in lifecycle.flags:
            _refuse(where, f"unknown flag {flag!r}: declare it in flags=")
    to = lifecycle.state.get(move.to)
    from_rest = all(lifecycle.state[source].resting for source in move.sources)
    if to and not to.working and not from_rest and "finished_at" not in move.stamp:
        _refuse(where, f"it ends the work in {to.name}, so it must stamp finished_at")
    if move.timer_for and (move.error != "record" or isinstance(move.timer, str)):
        _refuse(where, "timer_for needs a timer and error='record'")


def _check_claim(move: Move) -> None:
    kinds = {guard.kind for guard in move.when}
    if move.claims:
        missing = {"due", "unclaimed"} - kinds
        if missing:
            _refuse(move.name, f"a claim needs the guards {', '.join(sorted(missing))}")
        if move.by != ("worker",):
            _refuse(move.name, "only a worker can claim")
    elif move.attempt == "count":
        _refuse(move.name, "only a claim can count an attempt")
    if move.attempt == "return" and move.claim != "drop":
        _refuse(move.name, "a move that returns an attempt must also drop the claim: set claim='drop'")
    if "holds_claim" in kinds and kinds & {"unclaimed", "lease_over"}:
        _refuse(move.name, "holds_claim contradicts unclaimed and lease_over")


def _check_priority(where: str, move: Move) -> None:
    sets = move.priority == "input"
    if sets and move.creates:
        _refuse(where, "producers set the priority of new jobs: remove priority=")
    if sets and not {"operator", "producer"}.issuperset(move.by):
        _refuse(where, "only an operator or a producer can change a job's priority")


def _check_scheduled(where: str, lifecycle: Lifecycle, move: Move) -> None:
    if ("clock" in move.by) and move.stage is None and not move.chained:
        _refuse(where, "a scheduled move needs a stage")
    if move.stage is not None and "clock" not in move.by:
        _refuse(where, "only a scheduled move can have a stage")
    if move.stage is None:
        return
    for kind in ("option", "holds_claim", "rate"):
        if any(guard.kind == kind for guard in move.when):
            _refuse(where, f"a scheduled move cannot have the guard {kind}")
    if move.error == "record" or move.result == "record":
        _refuse(where, "a scheduled move has no caller to record an error or result from: use Fixed")
    if _takes_input(move):
        _refuse(where, "a scheduled move cannot take input")
    kinds = {guard.kind for guard in move.when}
    at_work = any(lifecycle.state[source].working for source in move.sources)
    if at_work and not move.prunes and not kinds & {"unclaimed", "lease_over", "timer_over"}:
        _refuse(where, "it must not move a claimed job: add the guard unclaimed or lease_over")
    aged = move.guard("age_over")
    if aged and aged.names[0] in lifecycle.stamps[1 : MAX_STAMPS - 1]:
        why = "only the first named stamp and the fourth are indexed"
        _refuse(where, f"{why}: declare {aged.names[0]} first")


def _check_chain(where: str, lifecycle: Lifecycle, move: Move) -> None:
    if not move.then:
        return
    links = lifecycle.chained_moves(move)
    if not links or not all(link.chained for link in links):
        _refuse(where, f"then={move.then!r} does not name a chained move")
    if any(link.then for link in links):
        _refuse(where, "a chain can have only two moves: remove then= from the second")
    for link in links:
        if move.to not in link.sources:
            _refuse(where, f"{link.name} does not leave {move.to}")
        if link.claim == "take" or _takes_input(link):
            _refuse(where, f"{link.name} takes input, but a chained move has no caller")


def _takes_input(move: Move) -> bool:
    """Whether the move records something that only a caller can supply."""
    recorded = "record" in (move.error, move.result) or "input" in (move.run_at, move.priority)
    return recorded or move.payload == "replace" or bool(move.stamp_input)


def _check_enqueue_and_prune(lifecycle: Lifecycle) -> None:
    where = f"lifecycle {lifecycle.name!r}"
    creating = {move.name: move for move in lifecycle.moves if move.creates}
    count = sum(move.creates for move in lifecycle.moves)
    if "enqueue" not in creating or count != len(creating) or creating.keys() - CREATING:
        _refuse(where, "there must be one enqueue, at most one enqueue_after, and no other move without a source")
    if creating["enqueue"].to != lifecycle.initial.name:
        _refuse(where, f"enqueue must lead to {lifecycle.initial.name}")
    _check_parents(where, lifecycle, creating.get("enqueue_after"))
    if not lifecycle.claims:
        _refuse(where, "no move claims a job")
    for prune in (move for move in lifecycle.moves if move.prunes):
        for source in prune.sources:
            if lifecycle.state[source].working:
                _refuse(where, f"prune must not delete jobs in {source}, which is a working state")
        if prune.by != ("clock",) or not prune.guard("age_over"):
            _refuse(where, "a prune must be a scheduled move with the guard age_over")


def _check_parents(where: str, lifecycle: Lifecycle, enqueue_after: Move | None) -> None:
    """A job that comes after others is created where the clock moves it on."""
    waiting = lifecycle.waiting_states
    if enqueue_after is None:
        if waiting:
            _refuse(where, "parents_done needs a move enqueue_after, which creates such jobs")
        return
    if enqueue_after.to not in waiting:
        _refuse(where, f"enqueue_after leads to {enqueue_after.to}, but no move with parents_done leaves it")
    for move in lifecycle.moves:
        waits = move.guard("parents_done") or move.guard("parents_failed")
        if waits and move.action != "settle":
            why = "moves of jobs that wait for other jobs must share one action: set action='settle'"
            _refuse(f"{lifecycle.name}.{move.name}", why)
    for name in sorted(waiting):
        state = lifecycle.state[name]
        if not state.resting or state.success or state.capacity:
            _refuse(where, f"{name} must be a resting state without success or slots: its jobs wait for others")
