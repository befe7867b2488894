"""Random lifecycles: drawn from a seed, kept only if they are proved to end.

The simulator runs them to test the prover: a lifecycle that it accepts must really end, on a real
store, under injected faults. ``kesin simulate`` takes one by its number, as
``tests.engine.simulation.random_lifecycle:invented_7``. A plan is a plain queue with random
features; then some of its moves are mutated at random. Most results are refused by the prover or
contradict themselves, and are drawn again.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

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
from tests.engine.simulation.lifecycle_plan import LifecyclePlan

MAX_DRAWS: Final = 1_000
MAX_MUTATIONS: Final = 3


def random_lifecycle(seed: int) -> Lifecycle:
    """A lifecycle that is proved to end; the same seed gives the same lifecycle."""
    rng = random.Random(f"invent {seed}")
    for _ in range(MAX_DRAWS):
        try:
            lifecycle = _mutate(LifecyclePlan(rng, f"invented_{seed}").build(), rng)
        except DeclarationError:
            continue
        if prove(lifecycle):
            return lifecycle
    raise LookupError(f"nothing that ends was drawn in {MAX_DRAWS} tries from seed {seed}")


def __getattr__(name: str) -> Lifecycle:
    made_up, _, number = name.partition("_")
    if made_up == "invented" and number.isdecimal():
        return random_lifecycle(int(number))
    raise AttributeError(name)


def _mutate(lifecycle: Lifecycle, rng: random.Random) -> Lifecycle:
    """The lifecycle with a few moves changed, whether that makes sense or not."""
    moves = list(lifecycle.moves)
    for _ in range(rng.randint(0, MAX_MUTATIONS)):
        position = rng.randrange(len(moves))
        mutate = rng.choice((_reductions, _additions, _retargetings))
        options = list(mutate(moves[position]))
        if options:
            moves[position] = rng.choice(options)
    return replace(lifecycle, moves=tuple(moves))


def _reductions(move: Move) -> Iterator[Move]:
    """The move without one of its guards or effects."""
    for guard in move.when:
        yield replace(move, when=tuple(other for other in move.when if other != guard))
    if move.claim == "drop":
        yield replace(move, claim="keep")
    if move.unstamp:
        yield replace(move, unstamp=())
    if move.sources[1:]:
        yield replace(move, sources=move.sources[:-1])


def _additions(move: Move) -> Iterator[Move]:
    """The move with another guard or effect."""
    for guard in (budget_left, unclaimed, flag_not_set("marked"), retries_left(2), timer_over):
        if guard not in move.when:
            yield replace(move, when=(*move.when, guard))
    yield replace(move, flag=("marked",))
    yield replace(move, retry="count")
    yield replace(move, timer=After(600))


def _retargetings(move: Move) -> Iterator[Move]:
    """The move to another state."""
    for to in ("ready", "failed", "done", STAY):
        if move.to not in (to, GONE) and move.sources:
            yield replace(move, to=to)
