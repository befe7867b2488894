"""The processes of a run, and a supervisor: whoever is gone is started again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from bench.chaos.settings import RESTART_S, WORKERS

TAIL = 200  # characters of what a process said last


class Crew:
    """Worker processes of one side, and its producer."""

    def __init__(self, side: str, where: str, folder: Path, seconds: float) -> None:
        self._side = side
        self._where = where
        self._folder = folder
        self._seconds = seconds
        self._working: list[subprocess.Popen[bytes]] = []
        self._due: list[float] = []  # when to start another
        self._all: list[subprocess.Popen[bytes]] = []
        self._files = ExitStack()
        self.journal = folder / "journal"
        self.gone = 0  # workers that ended by themselves
        self.producer: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._all:
            one.kill()
            one.wait()
        self._files.close()

    def start(self) -> None:
        self._working = [self._process("work", self._seconds) for _ in range(WORKERS)]

    def send(self, jobs: int) -> None:
        """Start the producer."""
        self.producer = self._process("produce", jobs)

    def tend(self) -> None:
        """Start those again who are gone, in time."""
        now = time.monotonic()
        for one in [one for one in self._working if one.poll() is not None]:
            self._working.remove(one)
            self._due.append(now + RESTART_S)
            self.gone += 1
            print(f"  a worker ended: {self._last_words(one)}", file=sys.stderr)
        for due in [due for due in self._due if due <= now]:
            self._due.remove(due)
            self._working.append(self._process("work", self._seconds))

    def kill(self, pid: int) -> None:
        """As the kernel does when memory is short; another is started as usual."""
        victim = self._one(pid)
        victim.kill()
        victim.wait()
        self._working.remove(victim)
        self._due.append(time.monotonic() + RESTART_S)

    def stop(self, pid: int) -> None:
        self._one(pid).send_signal(signal.SIGSTOP)

    def go_on(self, pid: int) -> None:
        self._one(pid).send_signal(signal.SIGCONT)

    @property
    def pids(self) -> list[int]:
        """Of the workers there are, the longest-serving first."""
        return [one.pid for one in self._working]

    @property
    def sending(self) -> bool:
        return self.producer is not None and self.producer.poll() is None

    def _one(self, pid: int) -> subprocess.Popen[bytes]:
        return next(one for one in self._working if one.pid == pid)

    def _process(self, part: str, number: float) -> subprocess.Popen[bytes]:
        said = self._files.enter_context((self._folder / f"{len(self._all)}.log").open("wb"))
        words = [part, self._side, self._where, str(self.journal), str(number)]
        self._all.append(
            subprocess.Popen(
                [sys.executable, "-m", "bench.chaos.process", *words],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        )
        return self._all[-1]

    def _last_words(self, one: subprocess.Popen[bytes]) -> str:
        said = (self._folder / f"{self._all.index(one)}.log").read_text("utf-8", "replace")
        return " ".join(said.strip().rpartition("\n")[2].split())[:TAIL]
