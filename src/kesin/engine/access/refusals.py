"""Counts an actor's refusals: the first is a line at once, those of the next minute are one."""

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from kesin.foundation.clock import iso
from kesin.lifecycle.budget import SECOND_US

WINDOW_S: Final = 60
MAX_LISTED_ACTIONS: Final = 20  # callers choose parts of an action's name
OTHER_ACTIONS: Final = "…"


@dataclass(slots=True)
class CountedRefusals:
    """The refusals of an actor that follow the one in the audit log."""

    actor: str
    began_at: int
    address: str | None
    actions: Counter[str] = field(default_factory=Counter)

    @property
    def details(self) -> dict[str, Any]:
        return {
            "refused": self.actions.total(),
            "since": iso(self.began_at),
            "actions": dict(sorted(self.actions.items())),
        }

    def add(self, action: str) -> None:
        if action not in self.actions and len(self.actions) >= MAX_LISTED_ACTIONS:
            action = OTHER_ACTIONS
        self.actions[action] += 1


class RefusalCounter:
    """The refusals of each actor in its current minute; for all threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[str, CountedRefusals] = {}

    def count(
        self, actor: str, action: str, address: str | None, now: int
    ) -> tuple[bool, CountedRefusals | None]:
        """Whether it was counted (else it is a line), and what to write of the minute before."""
        with self._lock:
            window = self._windows.get(actor)
            if window is not None and not _is_over(window, now):
                window.add(action)
                return True, None
            self._windows[actor] = CountedRefusals(actor, now, address)
        return False, window if window is not None and window.actions else None

    def undo(
        self, actor: str, action: str, *, counted: bool, earlier: CountedRefusals | None
    ) -> None:
        """Forget a refusal whose transaction was undone: it is counted when its call runs again."""
        with self._lock:
            window = self._windows.get(actor)
            if window is None:  # it is written already
                return
            if counted:
                window.actions[action if action in window.actions else OTHER_ACTIONS] -= 1
                window.actions = +window.actions
            elif earlier is not None:
                earlier.actions += window.actions
                self._windows[actor] = earlier
            elif not window.actions:
                del self._windows[actor]

    def take(self, now: int | None = None) -> list[CountedRefusals]:
        """Remove and return what is to be written: of minutes that are over, or with None, all."""
        with self._lock:
            over = [w for w in self._windows.values() if now is None or _is_over(w, now)]
            for window in over:
                del self._windows[window.actor]
        return [window for window in over if window.actions]


def _is_over(window: CountedRefusals, now: int) -> bool:
    # Clocks may jump back: that ends a minute too.
    return not 0 <= now - window.began_at < WINDOW_S * SECOND_US
