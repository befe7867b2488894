"""The checks of what enters a queue: types, sizes, spelling.

Each check returns the value as it is stored, or raises BadInput.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from kesin.foundation.text import NotJson, canonical_json, storable
from kesin.lifecycle.budget import LONGEST_DELAY_S, SECOND_US

MAX_ATTEMPTS = 1_000
LATEST_US = 253_402_300_800 * SECOND_US  # the year 10 000


class BadInput(ValueError):
    """Something that may not enter the queue; ``code`` and ``field`` say what, in one word each."""

    def __init__(self, code: str, field_name: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.field = field_name


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def checked_attempts(value: object) -> int:
    """A job's budget of attempts."""
    if not _is_int(value) or not 1 <= value <= MAX_ATTEMPTS:
        raise BadInput(
            "bad_max_attempts",
            "max_attempts",
            f"max_attempts must be a whole number in 1…{MAX_ATTEMPTS}, got {value!r}",
        )
    return value


def check_limit(limit: int) -> None:
    """Raise BadInput for a claim of no jobs."""
    if limit < 1:
        raise BadInput("bad_limit", "limit", f"limit must be at least 1, got {limit}")


def delay_us(seconds: float) -> int:
    """A delay in microseconds."""
    if not 0 <= seconds <= LONGEST_DELAY_S:
        raise BadInput(
            "bad_delay_s", "delay_s", f"delay_s must lie in 0…{LONGEST_DELAY_S}, got {seconds!r}"
        )
    return round(seconds * SECOND_US)


def json_text(value: Any, what: str) -> str:
    """A value as canonical JSON."""
    try:
        return canonical_json(value)
    except NotJson as problem:
        raise BadInput("not_json", what, f"the {what} is {problem}") from None


def payload_text(payload: Any, max_bytes: int) -> str:
    """The payload as it is stored, of at most so many bytes."""
    text = json_text(payload, "payload")
    size = len(text.encode())
    if size > max_bytes:
        raise BadInput(
            "payload_too_large",
            "payload",
            f"the payload has {size} bytes; the limit is {max_bytes}: "
            "store the data elsewhere and enqueue a reference",
        )
    return text


def checked_name(value: object, what: str, longest: int) -> str:
    """A name as stored text, not empty and not too long."""
    if not isinstance(value, str):
        raise BadInput(f"bad_{what}", what, f"{what} must be text, got {type(value).__name__}")
    text = storable(value)
    if not 1 <= len(text) <= longest:
        raise BadInput(f"bad_{what}", what, f"{what} must have 1…{longest} characters")
    return text


def checked_time(value: object, what: str) -> int | None:
    """A time before the year 10 000, or None."""
    if value is None:
        return None
    if not _is_int(value) or not 0 <= value < LATEST_US:
        raise BadInput(
            f"bad_{what}", what, f"{what} must be microseconds since 1970, got {value!r}"
        )
    return value
