"""Checks of the values that enter a queue: each returns what is stored, or raises BadInput."""

from typing import Any, TypeGuard

from kesin.foundation.clock import in_seconds, time_us
from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid
from kesin.foundation.text import NotJson, canonical_json, storable
from kesin.lifecycle.budget import MAX_DELAY_S, SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.vocabulary import PRIORITIES

MAX_ATTEMPTS = 1_000
_TOO_LARGE = {
    "payload": "the payload is %(n)s bytes; the limit is %(most)s: store the data elsewhere and enqueue a reference",
    "result": "the result is %(n)s bytes; the limit is %(most)s: store the data elsewhere and return a reference",
}


class BadInput(ValueError):
    """A value that the queue does not accept; ``field`` and ``code`` say which and why.

    ``values`` fill the placeholders of its message.
    """

    def __init__(self, code: str, field_name: str, message: str, **values: object) -> None:
        super().__init__(Message(message, **values) if values else message)
        self.code = code
        self.field = field_name


def invalid_field(field_name: str, message: str, /, **values: Any) -> Invalid:
    """The refusal of a request for the value of this field; ``values`` are those of `Invalid`."""
    return Invalid(message, details={"field": field_name}, **values)


def bad_field(field_name: str, message: str, /, **values: object) -> BadInput:
    """The refusal of a value for this field, with the field's code."""
    return BadInput(f"bad_{field_name}", field_name, message, **values)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def checked_attempts(value: object) -> int:
    if not _is_int(value) or not 1 <= value <= MAX_ATTEMPTS:
        why = "max_attempts must be a whole number in 1…%(most)s, got %(given)s"
        raise bad_field("max_attempts", why, most=MAX_ATTEMPTS, given=repr(value))
    return value


def checked_priority(value: object) -> int:
    if not _is_int(value) or value not in PRIORITIES:
        why = "priority must be -1, 0, 1 or 2, got %(given)s"
        raise bad_field("priority", why, given=repr(value))
    return value


def require_positive_limit(limit: int) -> None:
    """Raise BadInput unless the limit of a claim is at least 1."""
    if limit < 1:
        raise bad_field("limit", "limit must be at least 1, got %(n)s", n=limit)


def delay_us(delay: object, field_name: str = "delay_s") -> int:
    """A delay in microseconds, from seconds or a timedelta."""
    try:
        seconds = in_seconds(delay, field_name)
    except ValueError as problem:
        raise bad_field(field_name, str(problem)) from None
    if not 0 <= seconds <= MAX_DELAY_S:
        why = "%(field)s must be in 0…%(most)s, got %(n)s"
        raise bad_field(field_name, why, field=field_name, most=MAX_DELAY_S, n=repr(delay))
    return round(seconds * SECOND_US)


def lease_us(lease: object) -> int:
    """The length of a lease in microseconds, from seconds or a timedelta."""
    length_us = delay_us(lease, "lease_seconds")
    if not length_us:
        raise bad_field("lease_seconds", "lease_seconds must be positive")
    return length_us


def json_text(value: Any, field_name: str) -> str:
    try:
        return canonical_json(value)
    except NotJson as problem:
        raise BadInput("not_json", field_name, f"the {field_name} is {problem}") from None


def bounded_json(value: Any, field_name: str, max_bytes: int) -> str:
    text = json_text(value, field_name)
    require_fits(text, field_name, max_bytes)
    return text


def require_fits(text: str, field_name: str, max_bytes: int, why: str | None = None) -> None:
    """Raise BadInput for a text that is too long; ``why`` has places for its size and the limit."""
    if len(text) * 4 > max_bytes:  # a character has at most four bytes
        size = len(text.encode())
        if size > max_bytes:
            why = why or _TOO_LARGE[field_name]
            raise BadInput(f"{field_name}_too_large", field_name, why, n=size, most=max_bytes)


def checked_name(value: object, field_name: str, max_length: int) -> str:
    """A name as stored text, not empty and not too long."""
    if not isinstance(value, str):
        why, given = "%(field)s must be text, got %(given)s", type(value).__name__
        raise bad_field(field_name, why, field=field_name, given=given)
    text = storable(value)
    if not 1 <= len(text) <= max_length:
        why = "%(field)s must have 1…%(most)s characters"
        raise bad_field(field_name, why, field=field_name, most=max_length)
    return text


def checked_time(value: object, field_name: str) -> int | None:
    """A time in microseconds since 1970, from such a number or a datetime; or None."""
    if value is None:
        return None
    try:
        return time_us(value, field_name)
    except ValueError as problem:
        raise bad_field(field_name, str(problem)) from None


def checked_category(value: str) -> Category:
    try:
        return Category(value)
    except ValueError as problem:
        raise bad_field("category", str(problem)) from None
