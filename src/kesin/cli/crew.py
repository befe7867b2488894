"""The processes that `kesin serve` keeps beside itself: work that must not be done in its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from kesin.cli.processes import KILL_AFTER_S, Processes, child_command
from kesin.cli.signals import Stop
from kesin.foundation.logs import Logger

log = Logger("kesin.crew")

LOOK_EVERY_S: Final = 0.5


class Crew:
    """So many `kesin worker` processes over some queues, looked after by a thread.

    They end when this process does, however it ends: their input is a pipe from it.
    """

    def __init__(
        self,
        queues: Sequence[str],
        count: int,
        grace_s: float,
        *,
        rq: bool = False,
        stderr: int | None = None,  # where they log; else where this process does
    ) -> None:
        self._processes = Processes(
            child_command(queues, grace=grace_s, rq=rq),
            count,
            grace_s,
            stderr=stderr,
            look_every_s=LOOK_EVERY_S,
            for_ever=True,
        )
        self._stop = Stop()
        self._thread = threading.Thread(target=self._run, name="kesin-crew", daemon=True)

    def start(self) -> None:
        """Start them, and start them again when they die."""
        self._thread.start()

    def stop(self) -> None:
        """Ask them to stop; asked again, they hurry."""
        self._stop.ask()

    def join(self, grace_s: float) -> None:
        """Wait for them so long, then end them."""
        if self._thread.ident is None:
            return
        self._processes.grace_s = min(self._processes.grace_s, grace_s)
        self._thread.join(grace_s + 2 * KILL_AFTER_S)

    @property
    def alive(self) -> bool:
        """Whether they are looked after and all run."""
        return self._thread.is_alive() and len(self.pids) == self._processes.count

    @property
    def pids(self) -> list[int]:
        """Who is running."""
        return self._processes.pids

    def _run(self) -> None:
        code = self._processes.run(self._stop)
        if code:
            log.warning("crew_gave_up", code=code)
