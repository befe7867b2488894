"""The declared moves of a queue, as every store keeps them: one row per (move, from, to)."""

from __future__ import annotations

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import edges
from kesin.lifecycle.vocabulary import OVER
from kesin.store.errors import StoreError

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
MASK_PLACE = 6  # of the mask, behind the key of a declared row


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


def only_added(row: tuple[object, ...], known: tuple[object, ...] | None) -> None:
    """Processes of the old version still run: what they rely on may not change under them."""
    if known is None:
        return
    queue, move, source, target, *now = row
    then = list(known)
    del now[MASK_PLACE], then[MASK_PLACE]
    if now != then:
        raise StoreError(
            f"queue {queue!r}: the move {move} ({source or 'birth'} → {target or 'prune'}) is"
            " already declared with other effects; give the changed move a new name"
        )
