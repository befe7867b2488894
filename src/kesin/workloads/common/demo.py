"""A workload's part of `kesin demo`, which knows no workload itself, and what the parts share."""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from kesin.engine.access.accounts import Accounts
from kesin.engine.workload import Workload
from kesin.foundation.logs import Logger
from kesin.foundation.permissions import Actor, system_actor
from kesin.foundation.problems import Problem

DEMO_ACTOR: Final[Actor] = system_actor("demo")
LOG_FILE: Final = "kesin.log"
TRY_AGAIN: Final = f"start it again with --keep and read {LOG_FILE}"
MAX_STREAM_S: Final = 7_200  # a forgotten demonstration must not fill the disk
JOIN_S: Final = 5.0
_log = Logger("kesin.demo")


class Background:
    """Threads that repeat an action every few seconds, until the demonstration ends."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def every(self, seconds: float | None, action: Callable[[], object]) -> None:
        """Repeat an action at this interval in seconds; never for None."""
        if seconds is not None:
            self.run(lambda _: self._repeat(seconds, action))

    def run(self, loop: Callable[[threading.Event], object]) -> None:
        """Run a loop of its own that ends by this event."""
        thread = threading.Thread(target=loop, args=(self._stop,), name="kesin-demo", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _repeat(self, seconds: float, action: Callable[[], object]) -> None:
        until = time.monotonic() + MAX_STREAM_S
        while not self._stop.wait(seconds) and time.monotonic() < until:
            try:
                action()
            except Problem as problem:  # the visitor revoked a key or removed a site
                _log.warning("the demonstration was refused", reason=problem.message)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(JOIN_S)


@dataclass(frozen=True, slots=True)
class DemoContext:
    """What a part is given to work with."""

    address: str  # of the service
    accounts: Accounts
    goes_on: bool  # a person watches, and new work keeps coming in; else it soon ends
    background: Background
    chance: random.Random  # the same in every run
    shop_key: str  # an API key with the scopes that the parts asked for
    wait: Callable[[float], bool]  # for some seconds; returns whether to stop


class TourStop(NamedTuple):
    """A page that the visitor should open."""

    title: str
    page: str
    text: str


class DemoPart(ABC):
    """What a workload shows in the demonstration. A part overrides what it has something for."""

    title: ClassVar[str]  # what the screen calls its jobs
    slow_start: ClassVar[bool] = False  # its work waits for other processes: it begins last
    scopes: ClassVar[tuple[str, ...]] = ()  # that the shop's API key needs for it
    # Environment variables that describe this machine; every other setting is left out.
    machine_settings: ClassVar[frozenset[str]] = frozenset()

    def check_machine(self) -> str:
        """What the visitor should know; raises Unavailable if this machine lacks what it needs."""
        return ""

    def adapt(self, workload: Workload, *, goes_on: bool) -> Workload:  # noqa: ARG002
        """The workload as the demonstration serves it."""
        return workload

    def set_up(self, context: DemoContext) -> None:  # noqa: B027
        """Create sites, keys and the like, before the visitor can sign in."""

    @abstractmethod
    def begin(self, context: DemoContext) -> None:
        """Bring the first work, say what came in, and start what keeps coming."""

    def tour(self, pages: str) -> Iterable[TourStop]:  # noqa: ARG002
        """The stops of the tour, once work has begun; ``pages`` is the dashboard's address."""
        return ()

    def kept_files(self, folder: Path) -> Iterable[tuple[str, Path]]:  # noqa: ARG002
        """Files worth a look in a data folder that is kept: what they are, and where."""
        return ()

    def clean_up(self) -> None:  # noqa: B027
        """End what would outlive the service, before its folder is deleted."""
