"""The declared moves of a queue as every store keeps them: one row per (move, from, to)."""

from collections.abc import Mapping
from typing import NamedTuple, Self

from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import declared_edges
from kesin.lifecycle.vocabulary import FINISHED
from kesin.store.errors import StoreError

# The optional columns, in the order of their bits in ``declared.mask`` and ``event.mask``.
_OPTIONAL_COLUMNS = (
    *("error", "run_at", "timer_at", "result", "flags", "payload", "finished_at"),
    *("stamp_1", "stamp_2", "stamp_3", "stamp_4"),
)
COLUMN_BITS = {name: 1 << number for number, name in enumerate(_OPTIONAL_COLUMNS)}
TAKES_KEY, FREES_KEY = 2048, 4096
COLUMN_BITS["priority"] = 8192
ERROR_COLUMNS = ("error_code", "error_category", "error_message")
# The columns of an event that count only where the move sets them, each with its bit.
EVENT_COLUMN_BITS = {
    **{name: COLUMN_BITS[name] for name in COLUMN_BITS.keys() - {"error", "flags", "payload"}},
    **dict.fromkeys(ERROR_COLUMNS, COLUMN_BITS["error"]),
}


class Effects(NamedTuple):
    """What a declared move does to a row, in the order of the columns of ``declared``."""

    phase: int  # of an unclaimed job in the target
    claim: int  # 1 takes, 0 drops, -1 keeps the claim
    counts: int  # attempts it counts
    base: int  # attempt_base: 0 stays, 1 returns one, 2 renews
    returns: int
    retries: int
    mask: int  # the optional columns it may set
    slot: str | None  # the target, where that has slots
    holds_key: bool  # in the target
    slots: int = 0  # jobs that may be in the target at once; 0: any number
    slots_per: int = 0  # 0: of the queue, 1: of a tenant
    min_age_us: int = 0  # of a prune: how long ago the job must have finished

    @property
    def fixed(self) -> Self:
        """What a later version may not change under the same name."""
        return self._replace(mask=0, min_age_us=0, slots=int(self.slots > 0))


Edge = tuple[str, str, str, str]  # queue, move, from, to; '' for a birth and for a prune
DeclaredMoves = Mapping[Edge, Effects]
EDGE_COLUMNS = ("queue", "move", "from_state", "to_state")
DECLARED_COLUMNS = ", ".join((*EDGE_COLUMNS, *Effects._fields))


def column_mask(lifecycle: Lifecycle, move: Move) -> int:
    """The optional columns that the move may set, as bits."""
    bits = COLUMN_BITS["error"] * (move.error != "keep")
    bits |= COLUMN_BITS["run_at"] * (move.run_at != "keep")
    bits |= COLUMN_BITS["timer_at"] * (move.timer != "keep")
    bits |= COLUMN_BITS["result"] * (move.result == "record")
    bits |= COLUMN_BITS["flags"] * bool(move.flag)
    bits |= COLUMN_BITS["payload"] * (move.payload == "replace")
    bits |= COLUMN_BITS["priority"] * (move.priority == "input")
    for stamp in (*move.stamp, *move.stamp_input, *move.unstamp):
        bits |= COLUMN_BITS[lifecycle.stamp_column(stamp)]
    return bits


def declared_moves(queue: str, lifecycle: Lifecycle) -> dict[Edge, Effects]:
    """The rows of the table ``declared``, alternatives of one name merged."""
    moves: dict[Edge, Effects] = {}
    for move, source, target in declared_edges(lifecycle):
        # How long ago a job must have finished to be pruned, where its age counts from there on.
        age = move.guard("age_over") if move.prunes else None
        min_age_s = age.number if age and age.names[0] in ("finished_at", "moved_at") else 0
        edge = (queue, move.name, source, target)
        source_holds_key = bool(source) and lifecycle.state[source].holds_key
        holds_key = bool(target) and lifecycle.state[target].holds_key
        mask = moves[edge].mask if edge in moves else 0
        mask |= column_mask(lifecycle, move)
        if source and holds_key != source_holds_key:
            mask |= TAKES_KEY if holds_key else FREES_KEY
        slots = lifecycle.state[target].capacity if target else 0
        moves[edge] = Effects(
            phase=lifecycle.unowned_phase(target) if target else FINISHED,
            claim={"take": 1, "drop": 0, "keep": -1}[move.claim],
            counts=int(move.attempt == "count"),
            base={"return": 1, "renew": 2}.get(move.attempt, 0),
            returns=int(move.attempt == "return" and move.guard("returns_left") is not None),
            retries=int(move.retry == "count"),
            mask=mask,
            slot=target if slots else None,
            holds_key=holds_key,
            slots=slots,
            slots_per=int(bool(target) and lifecycle.state[target].per_tenant),
            min_age_us=min_age_s * SECOND_US,
        )
    return moves


def takes_key(lifecycle: Lifecycle, move: Move) -> bool:
    """Whether the move enters a key-holding state from a state that holds no key."""
    target = lifecycle.state.get(move.to)
    if target is None or not target.holds_key:
        return False
    return any(not lifecycle.state[source].holds_key for source in move.sources)


def check_compatible(moves: DeclaredMoves, declared: DeclaredMoves) -> None:
    """Refuse rows that change a declared move: processes of the old version may still run."""
    for edge, effects in moves.items():
        if edge in declared and effects.fixed != declared[edge].fixed:
            queue, move, source, target = edge
            raise StoreError(
                f"queue {queue!r}: the move {move} ({source or 'enqueue'} → {target or 'prune'}) is"
                " already declared with other effects; give the changed move a new name"
            )


def new_moves(moves: DeclaredMoves, declared: DeclaredMoves) -> DeclaredMoves:
    """The moves that are not declared like this yet; raises StoreError if two contradict."""
    check_compatible(moves, declared)
    return {edge: effects for edge, effects in moves.items() if declared.get(edge) != effects}
