"""Round ticks for the axes of charts."""

from collections.abc import Iterable
from datetime import datetime, tzinfo
from itertools import chain, count
from typing import Final

from kesin.lifecycle.budget import DAY_S, HOUR_S, MINUTE_S, SECOND_US

MAX_STEPS: Final = 3  # between the ticks of a vertical axis: at most 4 ticks, the zero included
MAX_SPANS: Final = 4  # between the ticks of a time axis
MILLI_US: Final = 1_000
UNITS: Final = {
    "day": DAY_S * SECOND_US,
    "hour": HOUR_S * SECOND_US,
    "minute": MINUTE_S * SECOND_US,
    "second": SECOND_US,
    "millisecond": MILLI_US,
}
_CLOCK_STEPS: Final = (
    *(n * SECOND_US for n in (1, 2, 5, 10, 20, 30)),
    *(n * MINUTE_S * SECOND_US for n in (1, 2, 5, 10, 20, 30)),
    *(n * HOUR_S * SECOND_US for n in (1, 2, 3, 6, 12)),
)
_TIME_STEPS_S: Final = (
    *(n * MINUTE_S for n in (1, 2, 5, 10, 15, 30)),
    *(n * HOUR_S for n in (1, 2, 3, 6, 12, 24)),
)


def count_ticks(top: int) -> list[int]:
    """From 0 in steps of 1, 2 or 5 times a power of ten to at least ``top``."""
    return _ticks(top, _decimal_steps(1))


def duration_ticks(top_us: int) -> list[int]:
    """From 0 in steps that a clock has to at least ``top_us`` microseconds."""
    millis = (n * MILLI_US for n in (1, 2, 5, 10, 20, 50, 100, 200, 500))
    return _ticks(top_us, chain(millis, _CLOCK_STEPS, _decimal_steps(UNITS["day"])))


def tick_unit(ticks: list[int]) -> str:
    """The largest unit in which each of these durations has at most one decimal."""
    fits = (
        name
        for name, us in UNITS.items()
        if ticks[-1] >= us and not any(t * 10 % us for t in ticks)
    )
    return next(fits, "millisecond")


def time_ticks(begin: int, end: int, zone: tzinfo) -> list[int]:
    """Round times of day in the zone between two points in time, a day apart at most."""
    fits = (step for step in _TIME_STEPS_S if end - begin <= step * SECOND_US * MAX_SPANS)
    step_us = next(fits, _TIME_STEPS_S[-1]) * SECOND_US
    offset = datetime.fromtimestamp(begin / SECOND_US, zone).utcoffset()
    ahead_us = round(offset.total_seconds() * SECOND_US) if offset else 0
    return list(range(-(-(begin + ahead_us) // step_us) * step_us - ahead_us, end + 1, step_us))


def _decimal_steps(unit: int) -> Iterable[int]:
    return (n * 10**power * unit for power in count() for n in (1, 2, 5))


def _ticks(top: int, steps: Iterable[int]) -> list[int]:
    step = next(step for step in steps if step * MAX_STEPS >= top)
    return list(range(0, max(-(-top // step), 1) * step + 1, step))
