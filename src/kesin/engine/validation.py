"""Validation of the values that enter a queue: types, sizes, encoding.

Each check returns the value as it is stored, or raises BadInput.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from kesin.foundation.text import NotJson, canonical_json, storable
from kesin.lifecycle.budget import MAX_DELAY_S, SECOND_US

MAX_ATTEMPTS = 1_000
LATEST_US = 253_402_300_800 * SECOND_US  # the year 10 000


class BadInput(ValueError):
    """A value that the queue does not accept; ``code`` and ``field`` say which and why."""

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


def require_positive_limit(limit: int) -> None:
    """Raise BadInput unless the limit of a claim is at least 1."""
    if limit < 1:
        raise BadInput("bad_limit", "limit", f"limit must be at least 1, got {limit}")


def delay_us(seconds: float) -> int:
    """A delay in microseconds."""
    if not 0 <= seconds <= MAX_DELAY_S:
        raise BadInput(
            "bad_delay_s", "delay_s", f"delay_s must lie in 0…{MAX_DELAY_S}, got {seconds!r}"
        )
    return round(seconds * SECOND_US)


def json_text(value: Any, field_name: str) -> str:
    """A value as canonical JSON."""
    try:
        return canonical_json(value)
    except NotJson as problem:
        raise BadInput("not_json", field_name, f"the {field_name} is {problem}") from None


def payload_text(payload: Any, max_bytes: int) -> str:
    """The payload as it is stored, at most ``max_bytes`` long."""
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


def checked_name(value: object, field_name: str, max_length: int) -> str:
    """A name as stored text, not empty and not too long."""
    if not isinstance(value, str):
        raise BadInput(
            f"bad_{field_name}",
            field_name,
            f"{field_name} must be text, got {type(value).__name__}",
        )
    text = storable(value)
    if not 1 <= len(text) <= max_length:
        raise BadInput(
            f"bad_{field_name}", field_name, f"{field_name} must have 1…{max_length} characters"
        )
    return text


def checked_time(value: object, field_name: str) -> int | None:
    """A time before the year 10 000, or None."""
    if value is None:
        return None
    if not _is_int(value) or not 0 <= value < LATEST_US:
        raise BadInput(
            f"bad_{field_name}",
            field_name,
            f"{field_name} must be microseconds since 1970, got {value!r}",
        )
    return value
