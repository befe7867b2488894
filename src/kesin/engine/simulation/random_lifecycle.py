"""Lifecycles nobody designed: drawn from a seed, kept only if they are proved to end.

The simulator runs them to hold the prover to its word: whatever it lets through must really end,
on a real store, under the adversary. A plan is a plain queue with random features; then some words
of it are changed at random. Most of what comes out is refused by the prover or contradicts itself,
and is drawn again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from kesin.engine.simulation.lifecycle_plan import LifecyclePlan
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.proof.rules import prove
from kesin.lifecycle.vocabulary import (
    GONE,
    STAY,
    After,
    DeclarationError,
    budget_left,
    flag_not_set,
    retries_left,
    timer_over,
    unclaimed,
)

MOST_DRAWS: Final = 1_000
CHANGES: Final = 3  # words changed at random, at the most


def invent(seed: int) -> Lifecycle:
    """A lifecycle that is proved to end; the same seed gives the same one."""
    chance = random.Random(f"invent {seed}")
    for _ in range(MOST_DRAWS):
        try:
            lifecycle = _changed(LifecyclePlan(chance, f"invented_{seed}").lifecycle(), chance)
        except DeclarationError:
            continue
        if prove(lifecycle):
            return lifecycle
    raise LookupError(f"nothing that ends was drawn in {MOST_DRAWS} tries from seed {seed}")


def _changed(lifecycle: Lifecycle, chance: random.Random) -> Lifecycle:
    """The same with a few words changed, whether that makes sense or not."""
    moves = list(lifecycle.moves)
    for _ in range(chance.randint(0, CHANGES)):
        place = chance.randrange(len(moves))
        change: Callable[[Move], Iterator[Move]] = chance.choice((_less, _more, _elsewhere))
        options = list(change(moves[place]))
        if options:
            moves[place] = chance.choice(options)
    return replace(lifecycle, moves=tuple(moves))


def _less(move: Move) -> Iterator[Move]:
    """Without one of its guards or effects."""
    for guard in move.when:
        yield replace(move, when=tuple(one for one in move.when if one != guard))
    if move.claim == "drop":
        yield replace(move, claim="keep")
    if move.unstamp:
        yield replace(move, unstamp=())
    if move.sources[1:]:
        yield replace(move, sources=move.sources[:-1])


def _more(move: Move) -> Iterator[Move]:
    """With a guard or an effect it did not have."""
    for guard in (budget_left, unclaimed, flag_not_set("marked"), retries_left(2), timer_over):
        if guard not in move.when:
            yield replace(move, when=(*move.when, guard))
    yield replace(move, flag=("marked",))
    yield replace(move, retry="count")
    yield replace(move, timer=After(600))


def _elsewhere(move: Move) -> Iterator[Move]:
    """To another state."""
    for to in ("ready", "failed", "done", STAY):
        if move.to not in (to, GONE) and move.sources:
            yield replace(move, to=to)
