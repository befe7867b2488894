"""Clocks, which are injected: no other module reads the time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The source of time of the engine."""

    def now(self) -> int | None:
        """Microseconds since 1970, or None to use the database's time."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps, for waiting and measuring."""
        ...


class SystemClock:
    """The database's time for everything that is stored, the process's time for waiting."""

    def now(self) -> int | None:
        """None: the database sets the time."""
        return None

    monotonic = staticmethod(time.monotonic)  # read for every job, so it is no wrapper


class ManualClock:
    """A clock that moves only by ``advance``: for tests and the simulator."""

    def __init__(self, start_us: int = 1_700_000_000_000_000) -> None:
        self.time_us = start_us

    def now(self) -> int | None:
        """The current time of this clock."""
        return self.time_us

    def monotonic(self) -> float:
        """The current time of this clock in seconds."""
        return self.time_us / 1_000_000

    def advance(self, seconds: float) -> None:
        """Move the clock forward, or back by a negative number."""
        self.time_us += round(seconds * 1_000_000)


def wall_clock_us() -> int:
    """The machine's time in microseconds since 1970, for stores without a clock of their own."""
    return time.time_ns() // 1_000


def iso(time_us: int | None) -> str | None:
    """Microseconds since 1970 as an ISO 8601 time in UTC."""
    if time_us is None:
        return None
    seconds, micros = divmod(time_us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"
