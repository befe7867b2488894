"""A runner that dies at the n-th thing it does that outlives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.workloads.optiplan.pipeline import delivery, program, solution, workbook
from kesin.workloads.optiplan.pipeline.progress import Dossiers

# Everything that leaves a trace in the database or on a disk: a crash falls before or after one.
EFFECTS = (
    (Queue, "apply"),
    (Dossiers, "write"),
    (workbook, "write_whole"),
    (program, "start"),
    (program, "end_earlier"),
    (solution, "move"),
    (delivery, "write_whole"),
    (delivery, "move"),
    (delivery, "remove"),
)


class SimulatedCrash(BaseException):
    """Nobody catches it, so nothing is tidied up."""


def simulated(where: str) -> None:
    raise SimulatedCrash(where)


class Crasher:
    """Counts effects, and dies at one of them if armed."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, die: Callable[[str], None] = simulated
    ) -> None:
        self._die = die
        self._left: int | None = None
        self.passed: list[str] = []
        for owner, name in EFFECTS:
            self._watch(monkeypatch, owner, name)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def watched(*args: Any, **how: Any) -> Any:
            self._tick(f"before {name}")
            made = original(*args, **how)
            self._tick(f"after {name}")
            return made

        monkeypatch.setattr(owner, name, watched)

    def _tick(self, where: str) -> None:
        if self._left is None:
            return
        self.passed.append(where)
        if self._left == 0:
            self._die(where)
        self._left -= 1

    @contextmanager
    def armed(self, effects: int) -> Iterator[None]:
        """In the block the runner dies at the effect after so many."""
        self._left = effects
        self.passed = []
        try:
            yield
        finally:
            self._left = None
