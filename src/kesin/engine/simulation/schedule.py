"""Steps drawn from a seed, as data: any of them may be left out, which shortens a history."""

import random
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, get_args

StepKind = Literal["enqueue", "work", "late_result", "sweep", "action", "renew", "wait", "pause", "upgrade", "tick"]
Fault = Literal["dies before", "dies during", "dies after", "store unreachable", "no response"]

KIND_WEIGHTS: Final[dict[StepKind, int]] = {
    "enqueue": 10,
    "work": 26,
    "late_result": 12,  # a result that is late, repeated or from another worker
    "sweep": 16,
    "action": 10,  # an operator's or a producer's action
    "renew": 4,
    "wait": 20,  # time passes, or jumps
    "pause": 2,
    "tick": 2,
    "upgrade": 1,  # processes that start from now on have the newest rules
}
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
FAULT_PROBABILITY: Final = 0.2
DELAY_PROBABILITY: Final = 0.35
MAX_DEPTH: Final = 2  # nested delays
MAX_MEANWHILE: Final = 5
MAX_STORE_CALLS: Final = 6  # of a step, among which the place of a fault is drawn


class ScheduledStep(NamedTuple):
    """A step, its choices seeded by ``dice``; ``fault_at`` and ``delay_at`` count its calls."""

    kind: StepKind
    dice: int
    fault: Fault | None = None
    fault_at: int = 0
    delay_at: int = 0
    meanwhile: tuple["ScheduledStep", ...] = ()


def scheduled_steps(seed: str) -> Iterator[ScheduledStep]:
    """An endless iterator of steps; the same seed gives the same steps."""
    rng = random.Random(seed)
    while True:
        yield _draw_step(rng, 0)


def _draw_step(rng: random.Random, depth: int) -> ScheduledStep:
    [kind] = rng.choices(list(KIND_WEIGHTS), list(KIND_WEIGHTS.values()))
    dice = rng.getrandbits(48)
    if kind in ("wait", "pause", "upgrade"):
        return ScheduledStep(kind, dice)
    fault: Fault | None = rng.choice(FAULTS) if rng.random() < FAULT_PROBABILITY else None
    fault_at = min(rng.randrange(MAX_STORE_CALLS), rng.randrange(MAX_STORE_CALLS))
    if depth == MAX_DEPTH or kind not in ("work", "sweep") or rng.random() > DELAY_PROBABILITY:
        return ScheduledStep(kind, dice, fault, fault_at)
    inside = [_draw_step(rng, depth + 1) for _ in range(rng.randint(1, MAX_MEANWHILE))]
    delay_at = min(rng.randrange(MAX_STORE_CALLS), rng.randrange(MAX_STORE_CALLS))
    return ScheduledStep(kind, dice, fault, fault_at, delay_at, tuple(inside))


def shorter_histories(history: tuple[ScheduledStep, ...]) -> Iterator[tuple[ScheduledStep, ...]]:
    """The history with parts removed: halves first, then smaller parts, then step by step."""
    size = len(history) // 2
    while size:
        for start in range(0, len(history), size):
            yield history[:start] + history[start + size :]
        size //= 2
    for position, step in enumerate(history):
        for simpler in _simpler_steps(step):
            yield (*history[:position], simpler, *history[position + 1 :])


def _simpler_steps(step: ScheduledStep) -> Iterator[ScheduledStep]:
    if step.meanwhile:
        yield step._replace(meanwhile=())
        yield from step.meanwhile
        for inside in shorter_histories(step.meanwhile):
            if inside:
                yield step._replace(meanwhile=inside)
    if step.fault:
        yield step._replace(fault=None)
