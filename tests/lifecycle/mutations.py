"""Ways to break a declaration in one place, for ``broken.py``."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.errors import Taxonomy
from kesin.lifecycle.vocabulary import STAY, rate


@dataclass(frozen=True)
class Mutant:
    of: str
    change: Callable[[Lifecycle], Lifecycle]
    rules: set[str]
    shows: tuple[str, ...] = ()  # in this order in the counter-example of the first rule
    says: str = ""  # in the reason
    meets: str = ""  # the adversary's word for it


def edit(
    name: str, *, where: Callable[[Move], bool] = lambda _: True, without: tuple[str, ...] = (), **changes: Any
) -> Callable[[Lifecycle], Lifecycle]:
    """Change every move of that name: take guards of these kinds away, replace these fields."""

    def changed(move: Move) -> Move:
        when = tuple(guard for guard in move.when if guard.kind not in without)
        return replace(move, **{"when": when, **changes})

    def apply(lifecycle: Lifecycle) -> Lifecycle:
        meant = [move for move in lifecycle.moves if move.name == name and where(move)]
        assert meant, f"{lifecycle.name} has no such move {name}"
        moves = tuple(changed(move) if move in meant else move for move in lifecycle.moves)
        return replace(lifecycle, moves=moves)

    return apply


def remove(name: str, *, where: Callable[[Move], bool] = lambda _: True):
    """Take every move of that name away."""

    def apply(lifecycle: Lifecycle) -> Lifecycle:
        kept = tuple(move for move in lifecycle.moves if not (move.name == name and where(move)))
        assert len(kept) < len(lifecycle.moves)
        return replace(lifecycle, moves=kept)

    return apply


def rated(lifecycle: Lifecycle) -> Lifecycle:
    """The lifecycle with a rate of its claims."""
    return replace(
        lifecycle,
        moves=tuple(
            replace(move, when=(*move.when, rate(100, 60))) if move.name == "claim" else move
            for move in lifecycle.moves
        ),
    )


def add(*moves: Move) -> Callable[[Lifecycle], Lifecycle]:
    return lambda lifecycle: replace(lifecycle, moves=(*lifecycle.moves, *moves))


def mark(name: str, **marks: Any) -> Callable[[Lifecycle], Lifecycle]:
    """Put marks on a state."""

    def apply(lifecycle: Lifecycle) -> Lifecycle:
        states = tuple(replace(s, **marks) if s.name == name else s for s in lifecycle.states)
        assert states != lifecycle.states
        return replace(lifecycle, states=states)

    return apply


def errors(change: Callable[[Taxonomy], dict[str, Any]]) -> Callable[[Lifecycle], Lifecycle]:
    return lambda lifecycle: replace(lifecycle, errors=replace(lifecycle.errors, **change(lifecycle.errors)))


def stays(move: Move) -> bool:
    return move.to == STAY


def returns(move: Move) -> bool:
    return move.attempt == "return"


def cut_by_timer(move: Move) -> bool:
    return move.guard("timer_not_over") is not None
