"""Numbers, durations and times in the user's language, and round ticks for axes of charts."""

import json
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import datetime, timedelta, tzinfo
from functools import cache, lru_cache
from itertools import chain, count
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from babel.dates import format_timedelta, get_month_names, get_timezone_location
from babel.numbers import format_decimal, format_percent
from babel.units import format_unit

from kesin.lifecycle.budget import DAY_S, HOUR_S, MINUTE_S, SECOND_US
from kesin.web.dashboard.frame.i18n import Language

UTC: Final = ZoneInfo("UTC")
# The filters of templates read it: imported macros do not know the context of their page.
shown_zone: Final[ContextVar[ZoneInfo]] = ContextVar("shown_zone", default=UTC)
MAX_JSON_CHARS: Final = 100_000  # of one shown value
_LOCALES: Final[dict[Language, str]] = {"en": "en_GB", "tr": "tr_TR"}
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
_TIME_STEPS_S: Final = (*(n * MINUTE_S for n in (1, 2, 5, 10, 15, 30)), *(n * HOUR_S for n in (1, 2, 3, 6, 12, 24)))


@lru_cache(maxsize=256)
def zone_named(name: str) -> ZoneInfo:
    """The zone with this IANA name; UTC if there is none."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return UTC


def pretty(value: Any) -> str:
    """Indented JSON, cut at a maximum length."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= MAX_JSON_CHARS else text[:MAX_JSON_CHARS] + "\n…"


# A page says hundreds of numbers and times, many of them twice: Babel takes long for each.
_decimal: Final = lru_cache(maxsize=4096)(format_decimal)
_timedelta: Final = lru_cache(maxsize=4096)(format_timedelta)
_unit: Final = lru_cache(maxsize=4096)(format_unit)
_months: Final = cache(get_month_names)
_city: Final = lru_cache(maxsize=512)(get_timezone_location)


class Formatter:
    """The filters of the templates; times are microseconds since 1970."""

    def __init__(self, language: Language, zone: ZoneInfo = UTC) -> None:
        self.locale = _LOCALES[language]
        self.zone = zone

    def number(self, value: float) -> str:
        return _decimal(value, locale=self.locale)

    def percent(self, share: float) -> str:
        return format_percent(share, locale=self.locale)

    def duration(self, micros: int | None) -> str:
        """A duration in its largest unit; below a second in ms, below ten with one decimal."""
        if micros is None:
            return "–"
        if 0 < micros < SECOND_US - MILLI_US // 2:
            return self._in_unit(max(round(micros / MILLI_US), 1), "millisecond")
        seconds = max(micros, 0) / SECOND_US
        if round(seconds, 1) < 10:  # noqa: PLR2004
            return self._in_unit(round(seconds, 1), "second")
        return _timedelta(timedelta(seconds=round(seconds)), format="short", threshold=1.5, locale=self.locale)

    def _in_unit(self, value: float, unit: str) -> str:
        if unit == "millisecond":  # the symbol is the same in every language
            return f"{self.number(value)} ms"
        return _unit(value, unit, "short", locale=self.locale)

    def when(self, at: int | None, now: int) -> str:
        """A point in time: relative to now within a day, else with its date."""
        if at is None:
            return "–"
        is_near = abs(now - at) < DAY_S * SECOND_US
        return self.relative(at, now) if is_near else self.stamp(at, now)

    def stamp(self, at: int, now: int) -> str:
        """A point in time to the minute: the time of day, before it the date if it is far."""
        if abs(now - at) < DAY_S * SECOND_US:
            return self.clock(at)
        when, today = self._local(at), self._local(now)
        year = "" if when.year == today.year else " %Y"
        return f"{self._day(when)}{when:{year} %H:%M}"

    def relative(self, at: int, now: int) -> str:
        """How long ago, or in how long: to the second."""
        distance = timedelta(seconds=int((at - now) / SECOND_US) or -1)
        how: dict[str, Any] = {"format": "short", "threshold": 1.5, "add_direction": True}
        return _timedelta(distance, locale=self.locale, **how)

    def moment(self, at: int | None) -> str:
        """A point in time, to the second."""
        return "–" if at is None else self._said(self._local(at))

    def utc(self, at: int) -> str:
        """The same in UTC, for the text that a pointer shows."""
        return f"{self._said(datetime.fromtimestamp(at / SECOND_US, UTC))} UTC"

    def _said(self, when: datetime) -> str:
        return f"{self._day(when)} {when:%Y %H:%M:%S}"

    def _day(self, when: datetime) -> str:
        return f"{when.day} {_months('abbreviated', locale=self.locale)[when.month]}"

    def _local(self, at: int) -> datetime:
        return datetime.fromtimestamp(at / SECOND_US, self.zone)

    def clock(self, at: int) -> str:
        return f"{self._local(at):%H:%M}"

    def iso(self, at: int | None) -> str:
        """ISO 8601 in UTC, for scripts."""
        return "" if at is None else datetime.fromtimestamp(at / SECOND_US, UTC).isoformat()

    def city(self, zone: ZoneInfo) -> str:
        return _city(zone, locale=self.locale, return_city=True)

    def unit(self, micros: int) -> str:
        """A round duration, exact in its largest unit."""
        return self._in_one_unit([micros])[0][1]

    def duration_axis(self, top_us: int) -> list[tuple[int, str]]:
        """Round durations up to at least this one."""
        return self._in_one_unit(duration_ticks(top_us))

    def _in_one_unit(self, spans: list[int]) -> list[tuple[int, str]]:
        unit = tick_unit(spans)
        scale = [(span, round(span / UNITS[unit], 1)) for span in spans]
        return [(span, self._in_unit(value, unit) if span else "0") for span, value in scale]

    def time_axis(self, begin: int, end: int) -> list[tuple[float, str]]:
        """Round times between two others: where each stands, in percent, and its name."""
        ticks = time_ticks(begin, end, self.zone)
        return [(100 * (tick - begin) / max(end - begin, 1), self.clock(tick)) for tick in ticks]


def count_ticks(top: int) -> list[int]:
    """From 0 in steps of 1, 2 or 5 times a power of ten to at least ``top``."""
    return _ticks(top, _decimal_steps(1))


def duration_ticks(top_us: int) -> list[int]:
    """From 0 in steps that a clock has to at least ``top_us`` microseconds."""
    millis = (n * MILLI_US for n in (1, 2, 5, 10, 20, 50, 100, 200, 500))
    return _ticks(top_us, chain(millis, _CLOCK_STEPS, _decimal_steps(UNITS["day"])))


def tick_unit(ticks: list[int]) -> str:
    """The largest unit in which each of these durations has at most one decimal."""
    fits = (name for name, us in UNITS.items() if ticks[-1] >= us and not any(t * 10 % us for t in ticks))
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
