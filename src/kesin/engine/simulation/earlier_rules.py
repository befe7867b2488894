"""Rules from which a lifecycle can be an upgrade: the simulation begins under them now and then."""

from dataclasses import replace
from functools import lru_cache

from kesin.engine.proof_cache import proof_of
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.proof.upgrade import prove_upgrade
from kesin.lifecycle.vocabulary import DeclarationError


@lru_cache(maxsize=16)
def earlier_rules(lifecycle: Lifecycle) -> Lifecycle | None:
    """The lifecycle with a smaller cap and without one of the operator's actions, if that ends."""
    cap = max(lifecycle.max_attempts - 1, 1)
    removable = [
        action
        for action, moves in lifecycle.actions.items()
        if all(move.by == ("operator",) and not move.chained for move in moves)
    ]
    for action in removable:
        moves = tuple(move for move in lifecycle.moves if move.action != action)
        try:
            earlier = replace(lifecycle, moves=moves, max_attempts=cap)
        except DeclarationError:  # other moves need it
            continue
        if proof_of(earlier) and prove_upgrade(earlier, lifecycle):
            return earlier
    return None
