"""A runner that crashes at its n-th lasting effect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kesin.store.sql.store import SqlStore
from kesin.workloads.optiplan.pipeline import delivery, program, solution, workbook
from kesin.workloads.optiplan.pipeline.progress import ProgressStore
from kesin.workloads.optiplan.stock import plans
from kesin.workloads.optiplan.stock.rack import Rack

# Every effect on the database or a disk. A crash comes before an effect: whatever is only in memory
# between two effects is lost with it.
EFFECTS = (
    (SqlStore, "apply"),
    (ProgressStore, "write"),
    (Rack, "update"),
    (Rack, "keep_order"),
    (plans, "write_atomically"),
    (workbook, "write_atomically"),
    (program, "start"),
    (program, "end_current"),
    (solution, "move_file"),
    (delivery, "write_atomically"),
    (delivery, "move_file"),
    (delivery, "remove_file"),
)


class SimulatedCrash(BaseException):
    """A crash that no handler catches, so nothing is cleaned up."""


def simulated(where: str) -> None:
    raise SimulatedCrash(where)


class Crasher:
    """Counts effects, and crashes at one of them if armed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, die: Callable[[str], None] = simulated) -> None:
        self._die = die
        self._left: int | None = None
        self.step = 1  # from one crash to the next, for tests that crash everywhere
        self.passed: list[str] = []
        for owner, name in EFFECTS:
            self._watch(monkeypatch, owner, name)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self._tick(f"before {name}")
            return original(*args, **kwargs)

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
        """Crash in the block, after this many effects."""
        self._left = effects
        self.passed = []
        try:
            yield
        finally:
            self._left = None
