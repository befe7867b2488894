"""What callers say about jobs, as the one document that a statement reads as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from kesin.foundation.text import storable, wire_json
from kesin.lifecycle.declare import Lifecycle
from kesin.store.sql.columns import STAMP_COLUMNS
from kesin.store.sql.dialect import SAME, Dialect

_LARGEST_INT = 2**63 - 1


class Statement(NamedTuple):
    """SQL, and which of the caller's columns it reads: only those travel.

    What every row would say alike travels once, as a parameter.
    """

    sql: str
    columns: tuple[str, ...]
    same: tuple[str, ...] = ()

    def told(self, thing: object) -> dict[str, object]:
        """The parameters of what is the same, taken from any one of the things."""
        named = {name: getattr(thing, name, None) for name in self.same}
        return {
            SAME + name: storable(value) if isinstance(value, str) else value
            for name, value in named.items()
        }


class InputRows:
    """The rows that changes and new jobs of one queue become."""

    def __init__(self, lifecycle: Lifecycle, dialect: Dialect) -> None:
        self.lifecycle = lifecycle
        self.dialect = dialect

    def alike(self, statement: Statement, things: Sequence[Any]) -> frozenset[str]:
        """In which of the statement's columns these things say the same."""
        asked = {*statement.columns, *statement.same} - {"id"}
        stamps = asked.intersection(STAMP_COLUMNS)
        found = {one for one in asked - stamps if _is_same(set(map(attrgetter(one), things)))}
        if stamps and not any(one.stamps for one in things):
            found |= stamps
        return frozenset(found)

    def items(self, statement: Statement, things: Iterable[Any]) -> str:
        """What these changes or births say, as one document: binding each would cost ten times."""
        if statement.columns == ("id",):
            return wire_json([one.id for one in things])
        rows = self._rows_of(statement, things)
        if self.dialect.name == "sqlite":
            return wire_json(rows)
        names = ("ord", *statement.columns)
        return wire_json([dict(zip(names, (n, *row), strict=True)) for n, row in enumerate(rows)])

    def _rows_of(self, statement: Statement, things: Iterable[object]) -> list[tuple[object, ...]]:
        """The columns the statement reads."""
        plain = [name for name in statement.columns if not name.startswith("stamp_")]
        take = attrgetter(*plain, "stamps")
        if len(plain) == len(statement.columns):
            return [row[:-1] for row in map(take, things)]
        names = dict(zip(STAMP_COLUMNS, self.lifecycle.stamps, strict=False))
        stamps = [names.get(column) for column in statement.columns if column not in plain]
        order = [name for name in statement.columns if name not in plain]
        places = [(*plain, *order).index(column) for column in statement.columns]
        rows = []
        for row in map(take, things):
            given = row[-1]
            full = (*row[:-1], *(given.get(name) for name in stamps))
            rows.append(tuple(full[place] for place in places))
        return rows


def _is_same(values: set[Any]) -> bool:
    """Whether there is one value only, and a database takes it as a parameter."""
    if len(values) > 1:
        return False
    (value,) = values
    return not isinstance(value, int) or abs(value) <= _LARGEST_INT
