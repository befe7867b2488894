"""Numbers, durations and times in the user's language."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from babel.dates import format_datetime, format_timedelta
from babel.numbers import format_decimal, format_percent

from kesin.lifecycle.budget import SECOND_US
from kesin.web.dashboard.frame.i18n import Language

MAX_JSON_CHARS: Final = 100_000  # of one shown value
_LOCALES: Final[dict[Language, str]] = {"en": "en_GB", "tr": "tr_TR"}


def pretty(value: Any) -> str:
    """Indented JSON, cut at a maximum length."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= MAX_JSON_CHARS else text[:MAX_JSON_CHARS] + "\n…"


class Formatter:
    """The filters of the templates; times are microseconds since 1970."""

    def __init__(self, language: Language) -> None:
        self.locale = _LOCALES[language]

    def number(self, value: float) -> str:
        """A number with the language's separators."""
        return format_decimal(value, locale=self.locale)

    def percent(self, share: float) -> str:
        """A share between 0 and 1 as a percentage."""
        return format_percent(share, locale=self.locale)

    def duration(self, micros: int | None) -> str:
        """A duration in its largest unit."""
        if micros is None:
            return "–"
        seconds = max(micros, 0) / SECOND_US
        return format_timedelta(
            timedelta(seconds=seconds), format="short", threshold=1.5, locale=self.locale
        )

    def moment(self, at: int | None) -> str:
        """A point in time, in UTC and to the second."""
        if at is None:
            return "–"
        when = datetime.fromtimestamp(at / SECOND_US, UTC)
        return format_datetime(when, "d MMM y HH:mm:ss", locale=self.locale) + " UTC"

    def clock(self, at: int) -> str:
        """The time of day, in UTC."""
        when = datetime.fromtimestamp(at / SECOND_US, UTC)
        return format_datetime(when, "HH:mm", locale=self.locale) + " UTC"

    def iso(self, at: int | None) -> str:
        """ISO 8601, for scripts."""
        return "" if at is None else datetime.fromtimestamp(at / SECOND_US, UTC).isoformat()
