"""The differences between the two SQL dialects, quoting, and the columns of the caller's input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# The columns of the caller's input about a job, with their PostgreSQL types.
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
    "once": "boolean",
    "priority": "smallint",
}

SHARED_PREFIX = "same_"  # of a parameter whose value all jobs of a statement share


@dataclass(frozen=True, slots=True)
class Dialect:
    """The expressions that PostgreSQL and SQLite write differently."""

    name: str
    greater: Callable[[str, str], str]  # the larger of two expressions that are not NULL
    now: str  # the time of the statement, as an expression
    modulo: str
    param: Callable[[str], str]
    table: Callable[[str], str]
    given_slot: str  # the slot that a claim chose for a job


def literal(text: str) -> str:
    """A quoted SQL string."""
    return "'" + text.replace("'", "''") + "'"
