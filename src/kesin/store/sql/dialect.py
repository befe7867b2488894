"""The differences between the two SQL dialects, quoting, and the columns of the caller's input."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_GAP = re.compile(r"\{(\w+)\}")
_PARAM = re.compile(r"(?<!:):([a-z_]+)")

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
    fragments: Mapping[str, str] = field(compare=False)  # of statements that both share, by name

    def write(self, text: str) -> str:
        """A shared statement in this dialect: ``:param``, ``{fragment}`` and ``{table}``."""
        text = _PARAM.sub(lambda gap: self.param(gap[1]), text)
        return _GAP.sub(lambda gap: self.fragments.get(gap[1], self.table(gap[1])), text)


def literal(text: str) -> str:
    """A quoted SQL string."""
    return "'" + text.replace("'", "''") + "'"
