"""Files that were found sound a moment ago, so that a part of one does not cost a reading of all.

Who downloads in parts asks many times for the same file. What is remembered is that very file, by
the mark its storage gives it: one that was written, replaced or touched since is read again. So is
one that nobody has looked at for a minute, since a disk can forget bits without telling.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.pdf.storage import Stored

KNOWN_S: Final = 60
SETTLED_S: Final = 2  # a younger file may change once more within one tick of its clock
MOST_KNOWN: Final = 1_000  # the one found longest ago goes first: memory has a bound


class _Found(NamedTuple):
    mark: str
    sha256: str
    at_us: int


class KnownSound:
    """What one process knows; safe to share between threads."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._lock = threading.Lock()
        self._found: OrderedDict[str, _Found] = OrderedDict()  # by key

    def holds(self, file: Stored, sha256: str) -> bool:
        """Whether this very file was found to have this hash, and lately."""
        now_us = self._now_us()
        with self._lock:
            found = self._found.get(file.key)
        if found is None or (found.mark, found.sha256) != (file.mark, sha256):
            return False
        return 0 <= now_us - found.at_us < KNOWN_S * SECOND_US

    def add(self, file: Stored, sha256: str) -> None:
        """Remember it, if it can be told from what may come to lie in its place."""
        now_us = self._now_us()
        if not file.mark or now_us - file.changed_us < SETTLED_S * SECOND_US:
            return
        with self._lock:
            self._found.pop(file.key, None)
            self._found[file.key] = _Found(file.mark, sha256, now_us)
            while len(self._found) > MOST_KNOWN:
                self._found.popitem(last=False)
