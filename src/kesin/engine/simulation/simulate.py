"""The real engine under a virtual clock and faults, in eras that end when every job rests."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kesin.engine.proof_cache import proof_of
from kesin.engine.simulation.oracle_moves import BrokenPromise, break_promise
from kesin.engine.simulation.schedule import ScheduledStep, scheduled_steps, shorter_histories
from kesin.engine.simulation.world import MAX_JOBS, World
from kesin.foundation.logs import silence
from kesin.lifecycle.declare import Lifecycle
from kesin.store.contract import Store
from kesin.store.sqlite.store import SqliteStore

ERA_CALLS: Final = 500  # calls to the store in an era before it is brought to rest
MAX_SHRINK_ATTEMPTS: Final = 200  # shorter histories tried for a failure
SPARE_ROUNDS: Final = 50  # beyond the proven bound, for jobs that wait for a slot

MakeStore = Callable[[], Store]


@dataclass(frozen=True, slots=True)
class SimulationFailure:
    """A broken promise, and the shortest history found that breaks it."""

    rule: str
    why: str
    history: tuple[ScheduledStep, ...]
    trace: tuple[str, ...]
    at_step: int  # of the run that found the failure

    def __str__(self) -> str:
        return "\n".join([f"{self.rule}: {self.why}", *(f"  {line}" for line in self.trace)])


@dataclass(slots=True)
class SimulationResult:
    """The result of a run; truthy when every promise held."""

    lifecycle: str
    seed: int
    steps: int = 0  # calls to the store, each checked
    eras: int = 0
    jobs: int = 0
    moves: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    hash: str = ""
    failure: SimulationFailure | None = None

    def __bool__(self) -> bool:
        return self.failure is None


def simulate(
    lifecycle: Lifecycle,
    *,
    seed: int,
    steps: int,
    make_store: MakeStore = partial(SqliteStore, ":memory:"),  # noqa: B008
    shrink_attempts: int = MAX_SHRINK_ATTEMPTS,
    progress: Callable[[int], None] | None = None,
) -> SimulationResult:
    """Run until ``steps`` calls are checked, or a promise breaks: that history is shortened."""
    run = SimulationResult(lifecycle.name, seed)
    digest = hashlib.sha256()
    while run.steps < steps and run:
        max_calls = min(ERA_CALLS, steps - run.steps)
        era = _Era(lifecycle, f"{seed}:{run.eras}", make_store)
        era.run(scheduled_steps(era.seed), max_calls)
        checker = era.world.checker
        digest.update(checker.hash.encode())
        run.moves += checker.moves
        run.faults += era.world.faults
        run.jobs += len(checker.names)
        if era.violation:
            run.failure = _shrink(era, run.steps + checker.calls, shrink_attempts)
        run.steps += checker.calls
        run.eras += 1
        if progress:
            progress(checker.calls)
    run.hash = digest.hexdigest()
    return run


class _Era:
    """One history on an initially empty store, the world it left, and what it broke."""

    world: World

    def __init__(self, lifecycle: Lifecycle, seed: str, make_store: MakeStore) -> None:
        self.lifecycle = lifecycle
        self.seed = seed
        self.make_store = make_store
        self.history: list[ScheduledStep] = []
        self.violation: BrokenPromise | None = None
        self.why = ""

    def run(self, steps: Iterator[ScheduledStep], max_calls: int, *, traced: bool = False) -> None:
        """Run steps until ``max_calls`` calls were checked, then bring every job to rest."""
        bound = proof_of(self.lifecycle).bound
        seed = int.from_bytes(hashlib.sha256(self.seed.encode()).digest()[:6])
        with silence(), closing(self.make_store()) as store:
            world = self.world = World(self.lifecycle, store, seed, bound, traced=traced)
            try:
                for step in steps:
                    self.history.append(step)
                    world.run_step(step)
                    if world.checker.violation:
                        raise world.checker.violation
                    if world.checker.calls >= max_calls:
                        break
                self._end(world, bound)
            except BrokenPromise as problem:
                self.violation = problem
                self.why = world.checker.with_names(str(problem))

    def _end(self, world: World, bound: int | None) -> None:
        if not world.bring_to_rest((bound or 0) + MAX_JOBS + SPARE_ROUNDS):
            unfinished = world.checker.working_jobs()
            states = dict(Counter(job.state for job in unfinished))
            break_promise("rest", f"{len(unfinished)} jobs did not come to rest: {states}")
        world.checker.finish()


def _shrink(era: _Era, at_step: int, attempts: int) -> SimulationFailure:
    """Remove steps for as long as the same promise still breaks."""
    best = _replay(era, tuple(era.history)) if attempts else era
    rule = era.violation.rule if era.violation else ""
    histories = shorter_histories(tuple(best.history))
    for _ in range(attempts):
        if (history := next(histories, None)) is None:
            break
        again = _replay(era, history)
        if again.violation and again.violation.rule == rule:
            best, histories = again, shorter_histories(tuple(again.history))
    why, trace = best.why.removeprefix(f"{rule}: "), tuple(best.world.trace)
    return SimulationFailure(rule, why, tuple(best.history), trace, at_step)


def _replay(era: _Era, history: tuple[ScheduledStep, ...]) -> _Era:
    again = _Era(era.lifecycle, era.seed, era.make_store)
    again.run(iter(history), max_calls=1_000_000, traced=True)
    return again
