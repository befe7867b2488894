"""Processes of their own, forked from one that has imported what they need and opened nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 120.0
APART = multiprocessing.get_context("forkserver")
APART.set_forkserver_preload(  # there is one list a process, and who sets it last has his way
    [
        "kesin.web.service",
        "kesin.workloads.oci.uploader",
        "pytest",
        "tests.engine.processes",
        "tests.faults.cast",
        "tests.workloads.optiplan.processes",
        "tests.workloads.optiplan.stock.killed",
    ]
)


class Member:
    """One process and the pipe to it."""

    def __init__(self, part: Callable[..., None], address: object, *told: Any) -> None:
        self.pipe, theirs = APART.Pipe()
        self.process = APART.Process(target=part, args=(address, theirs, *told), daemon=True)
        self.process.start()
        theirs.close()

    def hear(self) -> Any:
        assert self.pipe.poll(PATIENCE_S), "the process says nothing"
        return self.pipe.recv()

    def last_words(self) -> list[Any]:
        """All it says until it is dead, by its own hand or another's."""
        said = list(self._rest())
        assert self.wait() == -signal.SIGKILL
        return said

    def _rest(self) -> Iterator[Any]:
        while True:
            try:
                yield self.hear()
            except (EOFError, ConnectionResetError):  # reset: it died before it read our words
                return

    def go(self) -> None:
        self.pipe.send("go")

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """As ``kill -9`` does: no handler runs, nothing is flushed."""
        self.process.kill()
        assert self.wait() == -signal.SIGKILL

    def wait(self) -> int | None:
        """Wait for its end; the exit code."""
        self.process.join(PATIENCE_S)
        return self.process.exitcode

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.wait()
        self.pipe.close()
        self.process.close()


Start = Callable[..., Member]


@contextmanager
def crew() -> Iterator[Start]:
    """Starts processes, none of which outlives the block."""
    started: list[Member] = []

    def start(part: Callable[..., None], address: object, *told: Any) -> Member:
        started.append(Member(part, address, *told))
        return started[-1]

    try:
        yield start
    finally:
        for member in started:
            member.end()
