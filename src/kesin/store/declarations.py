"""The declared moves of a queue as every store keeps them: one row per (move, from, to)."""

from __future__ import annotations

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import declared_edges
from kesin.lifecycle.vocabulary import FINISHED
from kesin.store.errors import StoreError

# The optional columns, in the order of their bits in ``declared.mask`` and ``event.mask``.
COLUMN_BITS = {
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
MASK_INDEX = 6  # index of the mask among the effects of a declared row


def column_mask(lifecycle: Lifecycle, move: Move) -> int:
    """The optional columns that the move may set, as bits."""
    bits = COLUMN_BITS["error"] * (move.error != "keep")
    bits |= COLUMN_BITS["run_at"] * (move.run_at != "keep")
    bits |= COLUMN_BITS["timer_at"] * (move.timer != "keep")
    bits |= COLUMN_BITS["result"] * (move.result == "record")
    bits |= COLUMN_BITS["flags"] * bool(move.flag)
    bits |= COLUMN_BITS["payload"] * (move.payload == "replace")
    for stamp in (*move.stamp, *move.stamp_input, *move.unstamp):
        bits |= COLUMN_BITS[lifecycle.stamp_column(stamp)]
    return bits


def declared_rows(queue: str, lifecycle: Lifecycle) -> list[tuple[object, ...]]:
    """The rows of the table ``declared``: one per (move, from, to), alternatives merged."""
    masks: dict[tuple[str, str, str], int] = {}
    effects: dict[tuple[str, str, str], tuple[tuple[object, ...], tuple[object, ...]]] = {}
    for move, source, target in declared_edges(lifecycle):
        key = (move.name, source, target)
        source_holds_key = bool(source) and lifecycle.state[source].holds_key
        holds_key = bool(target) and lifecycle.state[target].holds_key
        bits = column_mask(lifecycle, move)
        if source and holds_key != source_holds_key:
            bits |= TAKES_KEY if holds_key else FREES_KEY
        masks[key] = masks.get(key, 0) | bits
        exclusive = bool(target) and lifecycle.state[target].exclusive
        counters = (
            lifecycle.unowned_phase(target) if target else FINISHED,
            {"take": 1, "drop": 0, "keep": -1}[move.claim],
            int(move.attempt == "count"),
            {"return": 1, "renew": 2}.get(move.attempt, 0),
            int(move.attempt == "return" and move.guard("returns_left") is not None),
            int(move.retry == "count"),
        )
        effects[key] = (counters, (target if exclusive else None, holds_key))
    return [(queue, *key, *before, masks[key], *after) for key, (before, after) in effects.items()]


def check_compatible(row: tuple[object, ...], declared: tuple[object, ...] | None) -> None:
    """Refuse a row that changes a declared move: processes of the old version may still run."""
    if declared is None:
        return
    queue, move, source, target, *new_effects = row
    old_effects = list(declared)
    del new_effects[MASK_INDEX], old_effects[MASK_INDEX]
    if new_effects != old_effects:
        raise StoreError(
            f"queue {queue!r}: the move {move} ({source or 'birth'} → {target or 'prune'}) is"
            " already declared with other effects; give the changed move a new name"
        )
