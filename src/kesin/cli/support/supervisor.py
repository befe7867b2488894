"""Several worker processes under one: started, restarted when they die, stopped together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from kesin.cli.support.errors import BAD_USAGE
from kesin.cli.support.signals import Stop
from kesin.foundation.logs import Logger

log = Logger("kesin.processes")

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 10.0  # who lived so long starts again with the first pause
KILL_AFTER_S: Final = 10.0  # beyond the grace period


def child_command(queues: Sequence[str], **options: object) -> list[str]:
    """`kesin worker` as a process of these: None and False are left out, a list is repeated."""
    words: list[str] = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif isinstance(value, list):
            words += [f"{option}={one}" for one in value]
        elif value is not None and value is not False:
            words.append(f"{option}={value}")
    return [sys.executable, "-m", "kesin.cli", "worker", "--child", *words, "--", *queues]


@dataclass(slots=True)
class _Place:
    """One of the places for a process."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    start_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    done: bool = False


@dataclass(slots=True)
class Processes:
    """So many processes of one command. Each gets a pipe as input that ends when this one does."""

    command: Sequence[str]
    count: int
    grace_s: float
    env: Mapping[str, str] | None = None
    stderr: int | None = None
    look_every_s: float | None = None  # where no signal tells of a child's death
    for_ever: bool = False  # who ends well, by somebody else's signal, is started again as well
    _places: list[_Place] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._places = [_Place(number) for number in range(self.count)]

    def run(self, stop: Stop) -> int:
        """Keep them running until asked to stop, or all have ended well; an exit code."""
        try:
            while not stop.asked:
                code = self.tend()
                if code is not None:
                    return code
                stop.wait(self._sooner(self._next_start()))
            log.info("processes_stopping", processes=len(self._running))
            return self._end(stop)
        finally:
            self.kill()

    @property
    def pids(self) -> list[int]:
        """Who is running."""
        return [process.pid for process in self._running]

    @property
    def _running(self) -> list[subprocess.Popen[bytes]]:
        # Read once each: others ask, too, while a process is being buried.
        return [process for place in self._places if (process := place.process) is not None]

    def tend(self) -> int | None:
        """Bury the dead, start what is due; an exit code when there is nothing left to do."""
        now = time.monotonic()
        for place in self._places:
            code = None if place.process is None else place.process.poll()
            if code is not None:
                self._bury(place, code, now)
                if code == BAD_USAGE:
                    return code
        if all(place.done for place in self._places):
            return 0
        for place in self._places:
            if place.process is None and not place.done and place.start_at <= now:
                self._start(place, now)
        return None

    def _start(self, place: _Place, now: float) -> None:
        place.started = now
        try:
            place.process = subprocess.Popen(  # noqa: S603  # our own command line again
                self.command,
                stdin=subprocess.PIPE,
                stderr=self.stderr,
                env=self.env,
                process_group=0,
            )
        except OSError as problem:  # no memory or no process to be had: not for ever
            log.warning("process_not_started", place=place.number, why=str(problem))
            self._pause(place, now)
            return
        log.info("process_started", place=place.number, pid=place.process.pid)

    def _bury(self, place: _Place, code: int, now: float) -> None:
        self._close(place)
        if code == 0 and not self.for_ever:
            place.done = True
            return
        if now - place.started >= STEADY_S:
            place.pause_s = FIRST_PAUSE_S
        log.warning(
            "process_died", place=place.number, code=code, again_in_s=round(place.pause_s, 1)
        )
        self._pause(place, now)

    def _pause(self, place: _Place, now: float) -> None:
        """Start it again, but more slowly each time."""
        place.start_at = now + place.pause_s
        place.pause_s = min(place.pause_s * 2, LONGEST_PAUSE_S)

    def _next_start(self) -> float | None:
        """Seconds until somebody is to be started; None waits for a signal."""
        due = [place.start_at for place in self._places if place.process is None and not place.done]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _sooner(self, wait_s: float | None) -> float | None:
        if self.look_every_s is None:
            return wait_s
        return self.look_every_s if wait_s is None else min(wait_s, self.look_every_s)

    def _end(self, stop: Stop) -> int:
        """Hand the stop on, once for each time it was asked, and wait."""
        told = 0
        until = time.monotonic() + self.grace_s + KILL_AFTER_S
        while self._running and time.monotonic() < until:
            while told < min(stop.times, 2):
                self._signal(signal.SIGTERM)
                told += 1
            stop.wait(self._sooner(max(0.0, until - time.monotonic())))
            for place in self._places:
                if place.process is not None and place.process.poll() is not None:
                    self._close(place)
        return 0

    def _close(self, place: _Place) -> None:
        process, place.process = place.process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()

    def _signal(self, number: int) -> None:
        for process in self._running:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def kill(self) -> None:
        """Nothing outlives this."""
        for place in self._places:
            if place.process is not None:
                log.warning("process_killed", pid=place.process.pid)
                place.process.kill()
                place.process.wait()
                self._close(place)


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
