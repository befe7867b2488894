"""Worker processes: started, restarted when they die, stopped together."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from kesin.cli.support.errors import BAD_USAGE
from kesin.cli.support.signals import Stop
from kesin.foundation.child_environment import worker_environment
from kesin.foundation.logs import Logger

log = Logger("kesin.processes")

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 10.0  # a process that lived longer starts again after the first pause
POLL_EVERY_S: Final = 0.2  # in a thread, no signal tells of an exited child
KILL_AFTER_S: Final = 10.0  # beyond the grace period


def worker_command(queues: Sequence[str], **options: object) -> list[str]:
    """The command line of a worker process: None and False are left out, a list is repeated."""
    words: list[str] = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif isinstance(value, list):
            words += [f"{option}={item}" for item in value]
        elif value is not None and value is not False:
            words.append(f"{option}={value}")
    return [sys.executable, "-m", "kesin.cli", "worker", "--child", *words, "--", *queues]


@dataclass(slots=True)
class _Slot:
    number: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    start_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    done: bool = False


@dataclass(slots=True)
class WorkerProcesses:
    """So many processes of one command. The input of each is a pipe that ends with this process."""

    command: Sequence[str]
    count: int
    grace_s: float
    opens_secrets: bool = True  # their work reads sealed secrets
    stderr: int | None = None  # where they log; else where this process does
    restart_always: bool = False  # also what ended well, by a signal from elsewhere
    command_of_others: Sequence[str] | None = None  # of all but the first, if it differs
    _slots: list[_Slot] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._slots = [_Slot(number) for number in range(self.count)]

    def run(self, stop: Stop) -> int:
        """Keep them running until a stop is requested, or all have ended well; an exit code."""
        try:
            while not stop.requested:
                code = self.reap_and_start()
                if code is not None:
                    return code
                stop.wait(POLL_EVERY_S)
            log.info("processes_stopping", processes=len(self._running))
            self._stop_all(stop)
            return 0
        finally:
            self.kill()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._running]

    @property
    def _running(self) -> list[subprocess.Popen[bytes]]:
        # Each is read once: other threads ask while a process is being reaped.
        return [process for slot in self._slots if (process := slot.process) is not None]

    def reap_and_start(self) -> int | None:
        """Reap exited processes, start those that are due; an exit code when nothing is left."""
        now = time.monotonic()
        for slot in self._slots:
            code = None if slot.process is None else slot.process.poll()
            if code is not None:
                self._reap(slot, code, now)
                if code == BAD_USAGE:
                    return code
        if all(slot.done for slot in self._slots):
            return 0
        for slot in self._slots:
            if slot.process is None and not slot.done and slot.start_at <= now:
                self._start(slot, now)
        return None

    def _start(self, slot: _Slot, now: float) -> None:
        slot.started = now
        others = self.command_of_others
        try:
            slot.process = subprocess.Popen(  # noqa: S603  # our own command line again
                self.command if slot.number == 0 or others is None else others,
                stdin=subprocess.PIPE,
                stderr=self.stderr,
                env=worker_environment(opens_secrets=self.opens_secrets),
                process_group=0,
            )
        except OSError as problem:  # no memory or no free process id: this may pass
            log.warning("process_not_started", slot=slot.number, why=str(problem))
            self._pause(slot, now)
            return
        log.info("process_started", slot=slot.number, pid=slot.process.pid)

    def _reap(self, slot: _Slot, code: int, now: float) -> None:
        self._close(slot)
        if code == 0 and not self.restart_always:
            slot.done = True
            return
        if now - slot.started >= STEADY_S:
            slot.pause_s = FIRST_PAUSE_S
        log.warning("process_died", slot=slot.number, code=code, again_in_s=round(slot.pause_s, 1))
        self._pause(slot, now)

    def _pause(self, slot: _Slot, now: float) -> None:
        """Start it again, but more slowly each time."""
        slot.start_at = now + slot.pause_s
        slot.pause_s = min(slot.pause_s * 2, LONGEST_PAUSE_S)

    def _stop_all(self, stop: Stop) -> None:
        """Pass the stop on, once for each request, and wait."""
        signalled = 0
        until = time.monotonic() + self.grace_s + KILL_AFTER_S
        while self._running and time.monotonic() < until:
            while signalled < min(stop.times, 2):
                for process in self._running:
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGTERM)
                signalled += 1
            stop.wait(POLL_EVERY_S)
            for slot in self._slots:
                if slot.process is not None and slot.process.poll() is not None:
                    self._close(slot)

    def _close(self, slot: _Slot) -> None:
        process, slot.process = slot.process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()

    def kill(self) -> None:
        for slot in self._slots:
            if slot.process is not None:
                log.warning("process_killed", pid=slot.process.pid)
                slot.process.kill()
                slot.process.wait()
                self._close(slot)


class WorkerSupervisor(WorkerProcesses):
    """Worker processes that are kept running from a thread."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._stop = Stop()
        self._thread = threading.Thread(target=self._run, name="kesin-supervisor", daemon=True)

    def start(self) -> None:
        """Start the processes, and restart those that die."""
        self._thread.start()

    def stop(self) -> None:
        """Request a stop; a second request stops them at once."""
        self._stop.request()

    def join(self, grace_s: float) -> None:
        """Wait for them up to this long, then kill them."""
        if self._thread.ident is None:
            return
        self.grace_s = min(self.grace_s, grace_s)
        self._thread.join(grace_s + 2 * KILL_AFTER_S)

    @property
    def alive(self) -> bool:
        """Whether the thread and all processes run."""
        return self._thread.is_alive() and len(self.pids) == self.count

    def _run(self) -> None:
        if code := self.run(self._stop):
            log.warning("supervisor_gave_up", code=code)
