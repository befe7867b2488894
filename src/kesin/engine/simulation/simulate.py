"""The real engine under a virtual clock and an adversary, as a pure function of a seed.

A run is a row of eras. Each begins with an empty store and ends with time passing until every job
rests; the witness looks after every call in between. What breaks is made as short as it can be.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from kesin.engine.proof_cache import proof_of
from kesin.engine.simulation.oracle import BrokenPromise, broken
from kesin.engine.simulation.schedule import ScheduledStep, acts, smaller
from kesin.engine.simulation.world import MOST_JOBS, World
from kesin.foundation.logs import silence
from kesin.lifecycle.declare import Lifecycle
from kesin.store.contract import Store
from kesin.store.sqlite.store import SqliteStore

ERA: Final = 500  # calls to the store that one era has before it is brought to rest
MOST_TRIES: Final = 200  # shorter histories tried for one failure
SPARE_ROUNDS: Final = 50  # beyond what the proof says, for slots that are waited for

MakeStore = Callable[[], Store]


@dataclass(frozen=True, slots=True)
class Failure:
    """A promise that broke, and the shortest way there that was found."""

    rule: str
    why: str
    acts: tuple[ScheduledStep, ...]
    trace: tuple[str, ...]
    at_step: int  # of the run that found it
    era: int

    def __str__(self) -> str:
        return "\n".join([f"{self.rule}: {self.why}", *(f"  {line}" for line in self.trace)])


@dataclass(slots=True)
class Simulated:
    """What a run did; truthy when every promise held."""

    lifecycle: str
    seed: int
    steps: int = 0  # calls to the store, each looked at
    eras: int = 0
    jobs: int = 0
    moves: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    hash: str = ""
    failure: Failure | None = None

    def __bool__(self) -> bool:
        return self.failure is None


def in_memory() -> Store:
    """A fresh store that is gone at the end."""
    return SqliteStore(":memory:")


def simulate(
    lifecycle: Lifecycle,
    *,
    seed: int,
    steps: int,
    make_store: MakeStore = in_memory,
    tries: int = MOST_TRIES,
    progress: Callable[[int], None] | None = None,
) -> Simulated:
    """Run until ``steps`` calls have been looked at, or a promise breaks.

    A history that breaks one is shortened in at most so many ``tries``.
    """
    run = Simulated(lifecycle.name, seed)
    digest = hashlib.sha256()
    while run.steps < steps and run:
        most = min(ERA, steps - run.steps)
        era = _Era(lifecycle, f"{seed}:{run.eras}", make_store)
        era.run(acts(era.seed), most)
        digest.update(era.hash.encode())
        run.moves += era.moves
        run.fates += era.fates
        run.jobs += era.jobs
        if era.broken:
            run.failure = _shortest(era, run.steps + era.steps, run.eras, tries)
        run.steps += era.steps
        run.eras += 1
        if progress:
            progress(era.steps)
    run.hash = digest.hexdigest()
    return run


class _Era:
    """One empty store, one history, and what came of it."""

    def __init__(self, lifecycle: Lifecycle, seed: str, make_store: MakeStore) -> None:
        self.lifecycle = lifecycle
        self.seed = seed
        self.make_store = make_store
        self.done: list[ScheduledStep] = []
        self.steps = self.jobs = 0
        self.hash = ""
        self.moves: Counter[str] = Counter()
        self.fates: Counter[str] = Counter()
        self.trace: list[str] = []
        self.broken: BrokenPromise | None = None
        self.why = ""

    def run(self, history: Iterator[ScheduledStep], most: int, *, tells: bool = False) -> None:
        """Let acts happen until ``most`` calls were looked at, then bring everything to rest."""
        bound = proof_of(self.lifecycle).bound
        number = int.from_bytes(hashlib.sha256(self.seed.encode()).digest()[:6])
        with silence(), closing(self.make_store()) as store:
            world = World(self.lifecycle, store, number, bound, tells=tells)
            try:
                for act in history:
                    self.done.append(act)
                    world.happen(act)
                    if world.witness.broken:
                        raise world.witness.broken
                    if world.witness.calls >= most:
                        break
                self._end(world, bound)
            except BrokenPromise as problem:
                self.broken = problem
                self.why = world.witness.by_name(str(problem))
            self.steps, self.jobs = world.witness.calls, len(world.witness.names)
            self.hash, self.moves = world.witness.hash, world.witness.moves
            self.fates, self.trace = world.fates, world.trace

    def _end(self, world: World, bound: int | None) -> None:
        rounds = (bound or 0) + MOST_JOBS + SPARE_ROUNDS
        if not world.bring_to_rest(rounds):
            left = world.witness.at_work()
            states = dict(Counter(job.state for job in left))
            broken("rest", f"{len(left)} jobs did not come to rest: {states}")
        world.witness.close()


def _shortest(era: _Era, at_step: int, number: int, tries: int) -> Failure:
    """Take acts out for as long as the same promise still breaks."""
    best = _told(era, tuple(era.done))
    rule = era.broken.rule if era.broken else ""
    left = iter(range(tries))
    while shorter := _shorter(era, best, rule, left):
        best = shorter
    return Failure(
        rule,
        best.why.removeprefix(f"{rule}: "),
        tuple(best.done),
        tuple(best.trace),
        at_step,
        number,
    )


def _shorter(era: _Era, best: _Era, rule: str, left: Iterator[int]) -> _Era | None:
    for _, fewer in zip(left, smaller(tuple(best.done)), strict=False):
        again = _told(era, fewer)
        if again.broken and again.broken.rule == rule:
            return again
    return None


def _told(era: _Era, history: tuple[ScheduledStep, ...]) -> _Era:
    again = _Era(era.lifecycle, era.seed, era.make_store)
    again.run(iter(history), most=1_000_000, tells=True)
    return again
