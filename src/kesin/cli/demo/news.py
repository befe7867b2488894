"""What is worth telling, said by whichever thread sees it and shown by one."""

from __future__ import annotations

import threading
from collections import Counter


class News:
    """Sentences that wait to be shown, and how often what happened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._untold: list[str] = []
        self._times: Counter[str] = Counter()

    def tell(self, text: str) -> None:
        """Something happened."""
        with self._lock:
            self._untold.append(text)

    def count(self, what: str, times: int = 1) -> None:
        """So often more, for the summary."""
        with self._lock:
            self._times[what] += times

    def times(self, what: str) -> int:
        """How often it was."""
        with self._lock:
            return self._times[what]

    def heard(self) -> list[str]:
        """What was said since the last time, in order."""
        with self._lock:
            told, self._untold = self._untold, []
        return told
