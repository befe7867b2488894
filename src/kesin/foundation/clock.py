"""Time, injected: no other module reads a clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where the engine takes its time from."""

    def now(self) -> int | None:
        """Microseconds since 1970, or None to let the database say."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps, for waiting and measuring."""
        ...


class SystemClock:
    """The database's time for everything that is stored, the process's for waiting."""

    def now(self) -> int | None:
        """Leave it to the database."""
        return None

    monotonic = staticmethod(time.monotonic)  # asked for every job


class ManualClock:
    """A clock that stands still until it is told to move: for tests and the simulator."""

    def __init__(self, start_us: int = 1_700_000_000_000_000) -> None:
        self.time_us = start_us

    def now(self) -> int | None:
        """The time it was last told."""
        return self.time_us

    def monotonic(self) -> float:
        """The same, in seconds."""
        return self.time_us / 1_000_000

    def advance(self, seconds: float) -> None:
        """Let time pass; a negative number makes the clock jump back."""
        self.time_us += round(seconds * 1_000_000)


def wall_clock_us() -> int:
    """The machine's own time, for stores that have no clock of their own."""
    return time.time_ns() // 1_000


def iso(time_us: int | None) -> str | None:
    """Microseconds since 1970 as programs like it, in UTC."""
    if time_us is None:
        return None
    whole, rest = divmod(time_us, 1_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}Z"
