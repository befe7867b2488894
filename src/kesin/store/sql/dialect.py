"""The two SQL dialects: their differences, the templates in ``queries/``, and quoting."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

_GAP = re.compile(r"\{(\w+)\}")
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_PARAM = re.compile(r"(?<!:):([a-z_]+)")

# The columns of the caller's input about a job, with their PostgreSQL types.
INPUT_TYPES = {
    "id": "uuid",
    **dict.fromkeys(("error_code", "error_category", "error_message", "result", "payload"), "text"),
    **dict.fromkeys(("note", "tenant", "dedup_key"), "text"),
    **dict.fromkeys(("token", "max_attempts", "salt"), "integer"),
    **dict.fromkeys(("run_at", "stamp_1", "stamp_2", "stamp_3", "stamp_4"), "bigint"),
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
    array: Callable[[Sequence[str] | None], Any]  # strings as a parameter
    is_in: Callable[[str, str], str]  # whether a column is in the array parameter of this name
    given_slot: str  # the slot that a claim chose for a job
    fragments: Mapping[str, str] = field(compare=False)  # of statements that both share, by name

    @lru_cache(maxsize=1_024)  # noqa: B019  # dialects are few and live as long as their stores
    def write(self, text: str) -> str:
        """A shared statement in this dialect: ``:param``, ``{fragment}`` and ``{table}``."""
        text = _PARAM.sub(lambda gap: self.param(gap[1]), text)
        return _GAP.sub(lambda gap: self.fragments.get(gap[1], self.table(gap[1])), text)


@cache
def template(dialect: str, name: str) -> str:
    file = files("kesin.store.sql") / "queries" / dialect / f"{name}.sql"
    return file.read_text("utf-8").strip()


def fill(text: str, fragments: dict[str, str]) -> str:
    """The template with every placeholder filled; a missing fragment is a KeyError."""
    return _GAP.sub(lambda gap: fragments[gap.group(1)], text)


@cache
def shared_statements(file: str) -> dict[str, str]:
    """The statements of ``queries/<file>.sql`` by name, which every dialect writes its own way."""
    text = (files("kesin.store.sql") / "queries" / f"{file}.sql").read_text("utf-8")
    parts = _NAME.split(text)[1:]
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
