"""Numbers, ages and times as people read them, in their language."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from babel.dates import format_datetime, format_timedelta
from babel.numbers import format_decimal, format_percent

from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Job
from kesin.web.dashboard.frame.i18n import Language

_LOCALES: Final[dict[Language, str]] = {"en": "en_GB", "tr": "tr_TR"}


class Figures:
    """Filters of the templates; times are microseconds since 1970."""

    def __init__(self, language: Language) -> None:
        self.locale = _LOCALES[language]

    def number(self, value: float) -> str:
        """With the language's separators."""
        return format_decimal(value, locale=self.locale)

    def percent(self, share: float) -> str:
        """A share of one."""
        return format_percent(share, locale=self.locale)

    def lasted(self, micros: int | None) -> str:
        """How long something took or is ago: the largest unit, no more."""
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
        """For the machine behind the page."""
        return "" if at is None else datetime.fromtimestamp(at / SECOND_US, UTC).isoformat()


MOST_LETTERS: Final = 80


def name_of(job: Job) -> str:
    """Its name, or nothing where only its id tells it from others."""
    maker = NAMES.get(job.queue)
    return maker(job.data) if maker else ""


def order_name(data: Any) -> str:
    """A cutting order: its number, its revision and whose it is."""
    kept = data if isinstance(data, dict) else {}
    order = kept.get("order")
    order = order if isinstance(order, dict) else {}
    number, customer = order.get("order_id"), order.get("customer_snapshot_name")
    if not isinstance(number, str) or not number:
        return ""
    revision = kept.get("revision", 1)
    told = f"{number} r{revision}" if isinstance(revision, int) and revision > 1 else number
    named = f"{customer} · {told}" if isinstance(customer, str) and customer else told
    return named if len(named) <= MOST_LETTERS else f"{named[:MOST_LETTERS]}…"


NAMES: Final[dict[str, Callable[[Any], str]]] = {"optiplan": order_name}
