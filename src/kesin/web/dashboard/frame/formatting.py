"""Numbers, durations and times in the user's language."""

import json
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from babel.dates import format_timedelta, get_month_names, get_timezone_location
from babel.numbers import format_decimal, format_percent
from babel.units import format_unit

from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.web.dashboard.frame.axes import MILLI_US, UNITS, duration_ticks, tick_unit, time_ticks
from kesin.web.dashboard.frame.i18n import Language

UTC: Final = ZoneInfo("UTC")
# The filters of templates read it: imported macros do not know the context of their page.
shown_zone: Final[ContextVar[ZoneInfo]] = ContextVar("shown_zone", default=UTC)
MAX_JSON_CHARS: Final = 100_000  # of one shown value
_LOCALES: Final[dict[Language, str]] = {"en": "en_GB", "tr": "tr_TR"}


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
        return _timedelta(
            timedelta(seconds=round(seconds)), format="short", threshold=1.5, locale=self.locale
        )

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
        """A short name of a time zone: its city."""
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
