"""What is done to a queue in a simulation: acts, drawn from a seed before anything happens.

An act is plain data. Its dice are thrown when it happens, against whatever is there by then, so
what is left when acts are taken out of a history is a history again: failures shrink that way.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

Kind = Literal["enqueue", "work", "answer", "sweep", "press", "renew", "wait", "pause"]
Fate = Literal["dies before", "dies during", "dies after", "finds it away", "hears nothing"]

LIKELY: Final[dict[Kind, int]] = {
    "enqueue": 10,
    "work": 26,
    "answer": 12,  # an acknowledgement that is late, repeated or not one's own
    "sweep": 16,
    "press": 10,  # a person's button, or a producer's
    "renew": 4,
    "wait": 20,  # time passes, or jumps
    "pause": 2,
}
FATES: Final[tuple[Fate, ...]] = (
    "dies before",
    "dies during",
    "dies after",
    "finds it away",
    "hears nothing",
)
ILL_FATED: Final = 0.2
HELD_UP: Final = 0.35
DEEPEST: Final = 2  # someone acts while someone is held up while someone is held up
MOST_MEANWHILE: Final = 5
MOST_CALLS: Final = 6  # of one act to the store, that a fate is drawn for


class ScheduledStep(NamedTuple):
    """One thing somebody does; ``dice`` seeds every choice inside of it.

    Its calls to the store and its handlers are counted as moments. At the moment ``fate_at`` the
    process meets its ``fate``; at ``held_at`` it is held up and the others act ``meanwhile``.
    """

    kind: Kind
    dice: int
    fate: Fate | None = None
    fate_at: int = 0
    held_at: int = 0
    meanwhile: tuple[ScheduledStep, ...] = ()

    @property
    def size(self) -> int:
        """How many acts it is, with those inside."""
        return 1 + sum(one.size for one in self.meanwhile)


def acts(seed: str) -> Iterator[ScheduledStep]:
    """Act after act, without an end; the same seed gives the same acts."""
    chance = random.Random(seed)
    while True:
        yield _draw(chance, 0)


def _draw(chance: random.Random, depth: int) -> ScheduledStep:
    [kind] = chance.choices(list(LIKELY), list(LIKELY.values()))
    dice = chance.getrandbits(48)
    if kind in ("wait", "pause"):
        return ScheduledStep(kind, dice)
    fate: Fate | None = chance.choice(FATES) if chance.random() < ILL_FATED else None
    fate_at = min(chance.randrange(MOST_CALLS), chance.randrange(MOST_CALLS))
    if depth == DEEPEST or kind not in ("work", "sweep") or chance.random() > HELD_UP:
        return ScheduledStep(kind, dice, fate, fate_at)
    inside = [_draw(chance, depth + 1) for _ in range(chance.randint(1, MOST_MEANWHILE))]
    held_at = min(chance.randrange(MOST_CALLS), chance.randrange(MOST_CALLS))
    return ScheduledStep(kind, dice, fate, fate_at, held_at, tuple(inside))


def smaller(history: tuple[ScheduledStep, ...]) -> Iterator[tuple[ScheduledStep, ...]]:
    """The history with parts taken out: halves first, then less and less, then act by act."""
    size = len(history) // 2
    while size:
        for start in range(0, len(history), size):
            yield history[:start] + history[start + size :]
        size //= 2
    for place, act in enumerate(history):
        for plainer in _plainer(act):
            yield (*history[:place], plainer, *history[place + 1 :])


def _plainer(act: ScheduledStep) -> Iterator[ScheduledStep]:
    if act.meanwhile:
        yield act._replace(meanwhile=())
        yield from act.meanwhile
        for inside in smaller(act.meanwhile):
            if inside:
                yield act._replace(meanwhile=inside)
    if act.fate:
        yield act._replace(fate=None)
