"""Job ids: UUID version 7, made from the engine's clock, so that ids sort by creation time."""

import os
import random
import re
import threading
from collections.abc import Collection

from kesin.foundation.clock import Clock, wall_clock_us
from kesin.foundation.forks import ForkAware

ID_PATTERN = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"  # for API schemas
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ID_LENGTH = 36
_HYPHENS = (8, 13, 18, 23)
_RANDOM_BITS = 74
_COUNTER_STEP_BITS = 32  # successive ids of one millisecond differ by a random step below 2^32


class IdMaker(ForkAware):
    """Makes increasing ids, even if the clock jumps back; a seed repeats them, but in no fork."""

    def __init__(self, clock: Clock, seed: int | None = None) -> None:
        self._clock = clock
        self._random = random.Random(os.urandom(32) if seed is None else seed)
        self._lock = threading.Lock()
        self._millisecond = -1
        self._tail = 0
        self.watch_forks()

    def after_fork_in_child(self) -> None:
        """Go on with random numbers of its own."""
        self._lock = threading.Lock()
        self._random = random.Random(os.urandom(32))
        self._tail = self._random.getrandbits(_RANDOM_BITS - 1)

    def make(self, count: int) -> list[str]:
        now = self._clock.now()
        millisecond = (wall_clock_us() if now is None else now) // 1_000
        with self._lock:
            return [self._next(millisecond) for _ in range(count)]

    def _next(self, millisecond: int) -> str:
        if millisecond > self._millisecond:
            self._millisecond = millisecond
            self._tail = self._random.getrandbits(_RANDOM_BITS - 1)
        else:
            self._tail += 1 + self._random.getrandbits(_COUNTER_STEP_BITS)
        return _format_id(self._millisecond, self._tail)


def _format_id(millisecond: int, tail: int) -> str:
    high = millisecond << 16 | 0x7 << 12 | tail >> 62
    low = 0b10 << 62 | tail & (1 << 62) - 1
    digits = f"{high:016x}{low:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def first_id_at(at_us: int) -> str:
    """The smallest id of a job created at this time: a bound for scans by age."""
    return _format_id(max(at_us, 0) // 1_000, 0)


def salt_of(job_id: str) -> int:
    """31 random bits of an id, as the salt of its job."""
    return int(job_id[-8:], 16) & 0x7FFFFFFF


def is_id(text: object) -> bool:
    """Whether the value is an id in the canonical form that the stores use."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def all_ids(texts: Collection[str]) -> bool:
    """Whether every text is an id; checking all at once is cheaper than checking each."""
    if not set(map(type, texts)) <= {str} or not set(map(len, texts)) <= {_ID_LENGTH}:
        return False
    joined, hyphens = "".join(texts), "-" * len(texts)
    other = joined.encode("utf-8", "replace").translate(None, b"0123456789abcdef").decode()
    placed = all(joined[position::_ID_LENGTH] == hyphens for position in _HYPHENS)
    return placed and other == hyphens * len(_HYPHENS)
