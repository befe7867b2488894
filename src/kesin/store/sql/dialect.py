"""What a fragment of SQL is written with: the dialect, quoting, and the columns a caller fills."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# What a caller can say about a job, and the type it has for PostgreSQL.
INPUT_TYPES = {
    "id": "uuid",
    "token": "integer",
    "error_code": "text",
    "error_category": "text",
    "error_message": "text",
    "result": "text",
    "run_at": "bigint",
    "payload": "text",
    "max_attempts": "integer",
    "note": "text",
    "stamp_1": "bigint",
    "stamp_2": "bigint",
    "stamp_3": "bigint",
    "stamp_4": "bigint",
    "tenant": "text",
    "dedup_key": "text",
    "salt": "integer",
}

SAME = "same_"  # of a parameter that says something about every job of a call


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where PostgreSQL and SQLite spell the same thing differently."""

    name: str
    greater: Callable[[str, str], str]  # of two expressions that are not NULL
    now: str  # the time of the call, as an expression
    modulo: str
    param: Callable[[str], str]
    table: Callable[[str], str]


def literal(text: str) -> str:
    """A quoted SQL string."""
    return "'" + text.replace("'", "''") + "'"
