"""Clocks, which are injected: no other module reads the time."""

import time
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Final, Protocol

EARLIEST_US: Final = 100_000_000_000_000  # March 1973: less is a number of seconds, misread
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_US: Final = 253_402_300_800_000_000  # the year 10 000

Time = int | datetime  # microseconds since 1970, or a datetime with a zone
Duration = float | timedelta  # seconds, or a timedelta


monotonic = time.monotonic  # seconds, for waiting and measuring where no clock is injected


class Clock(Protocol):
    """The engine's source of time."""

    def now(self) -> int | None:
        """Microseconds since 1970, or None to use the database's time."""

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps, for waiting and measuring."""


class SystemClock:
    """The database's time for everything that is stored, the process's time for waiting."""

    def now(self) -> int | None:
        """None: the database sets the time."""
        return None

    monotonic = staticmethod(monotonic)  # read for every job, so it is no wrapper


class ManualClock:
    """A clock that moves only when ``advance`` is called, for tests and the simulator."""

    def __init__(self, start: Time = 1_700_000_000_000_000) -> None:
        self.time_us = time_us(start, "start")

    def now(self) -> int | None:
        """The current time of this clock."""
        return self.time_us

    def monotonic(self) -> float:
        """The current time of this clock in seconds."""
        return self.time_us / 1_000_000

    def advance(self, seconds: Duration) -> None:
        """Move the clock forward; a negative number moves it back."""
        self.time_us += round(in_seconds(seconds, "seconds") * 1_000_000)


def wall_clock_us() -> int:
    """The machine's time in microseconds since 1970, for stores without a clock of their own."""
    return time.time_ns() // 1_000


def time_us(value: object, name: str) -> int:
    """A time in microseconds since 1970, from such a number or from a datetime with a zone."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name} must have a time zone, as datetime.now(UTC) has; got {value}")
        return (value - _EPOCH) // timedelta(microseconds=1)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} must be a datetime or microseconds since 1970, got {value!r}")  # noqa: TRY004
    if not EARLIEST_US <= value < LATEST_US:
        raise ValueError(
            f"{name} must be a datetime or microseconds since 1970, got {value},"
            f" which would be in {1970 + value // 31_556_952_000_000}"
        )
    return value


def in_seconds(value: object, name: str) -> float:
    """A number of seconds, from such a number or from a timedelta."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        return value
    raise ValueError(f"{name} must be a timedelta or a number of seconds, got {value!r}")


def datetime_of(time_us: int) -> datetime:
    """Microseconds since 1970 as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=time_us)


def iso(time_us: int | None) -> str | None:
    """Microseconds since 1970 as an ISO 8601 time in UTC."""
    if time_us is None:
        return None
    return f"{datetime_of(time_us).isoformat(timespec='microseconds')[:26]}Z"
