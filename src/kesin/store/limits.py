"""What a call to a store may hold: the bounds, and the checks that every store makes first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kesin.foundation.ids import all_ids, is_id
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change
from kesin.store.errors import StoreError

QUEUE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
MAX_BATCH = 10_000  # jobs in one call
MAX_PAGE = 1_000  # rows in one page
MAX_KEY = 512  # characters of a dedup key
MAX_TENANT = 128
MAX_MESSAGE = 1_000
MAX_CODE = 64
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def bounded(batch: Sequence[object]) -> None:
    """Refuse more than one call takes."""
    if len(batch) > MAX_BATCH:
        raise StoreError(f"one call takes at most {MAX_BATCH} jobs, got {len(batch)}")


def askable(call: str, moves: Iterable[Move], changes: Sequence[Change]) -> list[Change]:
    """The changes that a call asks a database for: one a job, the first, in the order of ids."""
    bounded(changes)
    replaces = any(move.payload == "replace" for move in moves)
    if replaces and any(change.payload is None for change in changes):
        raise StoreError(f"{call} replaces the payload: give one for every job")
    first = {change.id: change for change in reversed(changes)}
    known = first if all_ids(first) else [one for one in first if is_id(one)]
    return [first[one] for one in sorted(known)]


def check_aged(lifecycle: Lifecycle, queue: str, aged: tuple[str, int] | None) -> None:
    """Refuse to look for an age that no index tells."""
    if aged is not None and lifecycle.stamps[:1] != aged[:1]:
        raise StoreError(
            f"{aged[0]!r} is not the first stamp of the queue {queue!r}:"
            " jobs are found by the age of that one only"
        )


def option_params(moves: tuple[Move, ...], options: frozenset[str]) -> dict[str, bool]:
    """The options of these moves as parameters; an option that no guard asks for is refused."""
    known = {guard.names[0] for move in moves for guard in move.when if guard.kind == "option"}
    strange = sorted(options - known)
    if strange:
        choice = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
        raise StoreError(f"{moves[0].call} has no option {strange[0]!r}: {choice}")
    return {f"option_{name}": name in options for name in known}
