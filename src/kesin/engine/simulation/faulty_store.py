"""A ``Store`` as a simulated process sees it: faults before, in and after calls, then checks."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kesin.engine.simulation.checker import StoreCall
from kesin.engine.simulation.oracle_moves import break_promise
from kesin.engine.simulation.schedule import ScheduledStep
from kesin.store.errors import StoreUnreachable

if TYPE_CHECKING:
    from kesin.engine.simulation.world import World

CHECKED_METHODS: Final = frozenset(
    {"enqueue", "claim", "renew", "apply", "sweep", "settle", "pause", "resume", "add_note"}
)


Begin = Callable[[], AbstractContextManager[Any]]


class ProcessKilled(BaseException):
    """The process was killed here; none of its code runs any more."""


class FaultyStore:
    """The store of one simulated process."""

    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self._name = name
        self._steps: list[tuple[ScheduledStep, Iterator[int]]] = []
        self._uncommitted: list[StoreCall] | None = None
        self.dead = False

    def store_for(self, _queue: str) -> "FaultyStore":
        return self

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._world.store, name)
        return partial(self._call, name, real) if name in CHECKED_METHODS else real

    @contextmanager
    def running(self, step: ScheduledStep) -> Iterator[None]:
        self._steps.append((step, iter(range(1_000_000))))
        try:
            yield
        finally:
            self._steps.pop()

    def next_call(self) -> ScheduledStep | None:
        """Count a call: others may act first. Returns the step if its fault happens now."""
        if self.dead:
            raise ProcessKilled
        if not self._steps:
            return None
        step, counter = self._steps[-1]
        number = next(counter)
        if number == step.delay_at and self._uncommitted is None:  # they would be part of it
            for other in step.meanwhile:  # of other processes
                self._world.run_step(other)
        if self.dead:
            raise ProcessKilled
        return step if step.fault and number == step.fault_at else None

    def kill(self, when: str) -> None:
        """Kill the process: from here on none of its calls reach the store."""
        self.dead = True
        self._world.faults["died"] += 1
        self._world.record(f"{self._name} is killed {when}")
        raise ProcessKilled

    @contextmanager
    def transaction(self, begin: Begin | None = None) -> Iterator[Any]:
        """Check the calls after the commit, or that nothing changed; ``begin`` is a caller's."""
        world = self._world
        if self._uncommitted is not None:  # one inside another: the outer one commits
            with world.store.transaction() as connection:
                yield connection
            return
        self._uncommitted = []
        try:
            with (begin or world.store.transaction)() as connection:
                yield connection
        except BaseException:
            undone, self._uncommitted = self._uncommitted, None
            world.checker.check_unchanged(*undone)
            raise
        committed, self._uncommitted = self._uncommitted, None
        world.record_calls(self._name, *committed)
        self._fail_after("the commit", self.next_call())

    def _call(self, name: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        step = self.next_call()
        world, fault = self._world, step.fault if step else None
        if fault == "dies before":
            self.kill(f"before {name}")
        if fault == "store unreachable":
            world.faults[fault] += 1
            world.record(f"{self._name} does not reach the store for {name}")
            raise StoreUnreachable("the store is unreachable")
        if fault == "dies during":
            with suppress(ProcessKilled), world.store.transaction():
                self._invoke(name, real, args, kwargs)
                raise ProcessKilled
            if self._uncommitted is None:
                world.checker.check_unchanged()
            self.kill(f"inside {name}")
        result = self._invoke(name, real, args, kwargs)
        if self._uncommitted is None:
            world.record_calls(self._name, (name, args, kwargs, result))
        else:
            self._uncommitted.append((name, args, kwargs, result))
        self._fail_after(name, step)
        return result

    def _fail_after(self, what: str, step: ScheduledStep | None) -> None:
        fault = (step.fault if step else None) or ""
        if fault.startswith("dies"):
            self.kill(f"after {what}")
        if fault == "no response":
            self._world.faults[fault] += 1
            self._world.record(f"{self._name} gets no response to {what}")
            raise StoreUnreachable("the response was lost")

    @staticmethod
    def _invoke(name: str, real: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        """Call the store, which has no reason to fail here."""
        try:
            return real(*args, **kwargs)
        except Exception as problem:  # noqa: BLE001  # any exception is a finding
            break_promise("error", f"{name}: {type(problem).__name__}: {problem}")
