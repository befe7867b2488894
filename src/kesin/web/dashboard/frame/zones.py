"""Time zones of pages: the user's own, UTC, or that of the site that a page is about."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

UTC: Final = ZoneInfo("UTC")
CLOCKS: Final = ("mine", "utc", "site")  # what the time switch offers; the first is the default
# The filters of templates read it: imported macros do not know the context of their page.
shown_zone: Final[ContextVar[ZoneInfo]] = ContextVar("shown_zone", default=UTC)


@lru_cache(maxsize=256)
def zone_named(name: str) -> ZoneInfo:
    """The zone with this IANA name; UTC if there is none."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return UTC


@contextmanager
def showing(zone: ZoneInfo) -> Iterator[None]:
    """Templates rendered inside show their times in this zone."""
    token = shown_zone.set(zone)
    try:
        yield
    finally:
        shown_zone.reset(token)
