"""A simulated process's own way to the store, on which it is held up, cut off or killed.

It stands where a ``Store`` is expected. Calls that change something pass through one by one: the
adversary may stop the process before, during or after each, and the witness looks after each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kesin.engine.simulation.oracle import broken
from kesin.engine.simulation.schedule import ScheduledStep
from kesin.store.errors import StoreUnreachable

if TYPE_CHECKING:
    from kesin.engine.simulation.world import World

WATCHED: Final = frozenset({"enqueue", "claim", "renew", "apply", "sweep", "pause", "resume"})


class Died(BaseException):
    """A process was killed here; nothing of it runs any more."""


class Way:
    """One process's way to the store."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._acts: list[tuple[ScheduledStep, Iterator[int]]] = []
        self._inside: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] | None = None
        self.dead = False

    def home(self, _queue: str) -> Way:
        return self

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._world.store, name)
        return partial(self._call, name, real) if name in WATCHED else real

    @contextmanager
    def doing(self, act: ScheduledStep) -> Iterator[None]:
        """Everything inside is part of this act."""
        self._acts.append((act, iter(range(1_000_000))))
        try:
            yield
        finally:
            self._acts.pop()

    def moment(self) -> ScheduledStep | None:
        """Something is about to be done: the others may act first; the fate, if it comes now."""
        if self.dead:
            raise Died
        if not self._acts:
            return None
        act, counter = self._acts[-1]
        number = next(counter)
        if number == act.held_at:
            self._world.meanwhile(act)
        if self.dead:
            raise Died
        return act if act.fate and number == act.fate_at else None

    def die(self, when: str) -> None:
        """From here on nothing of this process reaches the store."""
        self.dead = True
        self._world.fates["died"] += 1
        self._world.say(f"{self._name} is killed {when}")
        raise Died

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """What is done inside is seen when it is committed, or not at all."""
        self._inside, world = [], self._world
        try:
            with world.store.transaction() as connection:
                yield connection
        except BaseException:
            self._inside = None
            world.witness.look_for_nothing()
            raise
        done, self._inside = self._inside, None
        for call in done:
            world.saw(self._name, *call)
        fated = self.moment()
        if fated and fated.fate and fated.fate.startswith("dies"):
            self.die("after the commit")

    def _call(self, name: str, real: Callable[..., Any], *args: Any, **told: Any) -> Any:
        act = self.moment()
        world, fate = self._world, act.fate if act else None
        if fate == "dies before":
            self.die(f"before {name}")
        if fate == "finds it away":
            world.fates[fate] += 1
            world.say(f"{self._name} does not reach the store for {name}")
            raise StoreUnreachable("the store is away")
        if fate == "dies during":
            with suppress(Died), world.store.transaction():
                self._ask(name, real, args, told)
                raise Died
            if self._inside is None:
                world.witness.look_for_nothing()
            self.die(f"inside {name}")
        answer = self._ask(name, real, args, told)
        if self._inside is None:
            world.saw(self._name, name, args, told, answer)
        else:
            self._inside.append((name, args, told, answer))
        if fate == "dies after":
            self.die(f"after {name}")
        if fate == "hears nothing":
            world.fates[fate] += 1
            world.say(f"{self._name} gets no answer to {name}")
            raise StoreUnreachable("the answer was lost")
        return answer

    @staticmethod
    def _ask(name: str, real: Callable[..., Any], args: tuple[Any, ...], told: Any) -> Any:
        """The store itself has no reason to fail here."""
        try:
            return real(*args, **told)
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is a finding
            broken("error", f"{name}: {type(problem).__name__}: {problem}")
