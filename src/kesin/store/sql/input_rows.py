"""The caller's input about jobs, encoded as one JSON document that a statement reads as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from kesin.foundation.text import storable, wire_json
from kesin.lifecycle.declare import Lifecycle
from kesin.store.sql.columns import STAMP_COLUMNS
from kesin.store.sql.dialect import SHARED_PREFIX, Dialect

_LARGEST_INT = 2**63 - 1


class Statement(NamedTuple):
    """SQL, and the input columns that it reads: only those are sent.

    A value that all rows share is sent once, as a parameter.
    """

    sql: str
    columns: tuple[str, ...]
    shared: tuple[str, ...] = ()

    def shared_params(self, record: object) -> dict[str, object]:
        """The parameters of the shared columns, taken from any one of the records."""
        values = {name: getattr(record, name, None) for name in self.shared}
        return {
            SHARED_PREFIX + name: storable(value) if isinstance(value, str) else value
            for name, value in values.items()
        }


class InputRows:
    """Encodes the changes and new jobs of one queue as input rows."""

    def __init__(self, lifecycle: Lifecycle, dialect: Dialect) -> None:
        self.lifecycle = lifecycle
        self.dialect = dialect

    def shared_columns(self, statement: Statement, records: Sequence[Any]) -> frozenset[str]:
        """The statement's columns in which all these records have the same value."""
        columns = {*statement.columns, *statement.shared} - {"id"}
        stamps = columns.intersection(STAMP_COLUMNS)
        shared = {
            column
            for column in columns - stamps
            if _is_shared(set(map(attrgetter(column), records)))
        }
        if stamps and not any(record.stamps for record in records):
            shared |= stamps
        return frozenset(shared)

    def items(self, statement: Statement, records: Iterable[Any]) -> str:
        """These changes or new jobs as one document: binding each value would cost ten times."""
        if statement.columns == ("id",):
            return wire_json([record.id for record in records])
        rows = self._rows_of(statement, records)
        if self.dialect.name == "sqlite":
            return wire_json(rows)
        names = ("ord", *statement.columns)
        return wire_json([dict(zip(names, (n, *row), strict=True)) for n, row in enumerate(rows)])

    def params_for(
        self, statement: Statement, records: Sequence[Any], params: dict[str, Any]
    ) -> dict[str, Any]:
        """The parameters of a statement about these changes or new jobs."""
        items = self.items(statement, records)
        return {**params, **statement.shared_params(records[0]), "items": items}

    def _rows_of(self, statement: Statement, records: Iterable[object]) -> list[tuple[object, ...]]:
        """The records as rows of the columns that the statement reads."""
        plain_columns = [name for name in statement.columns if not name.startswith("stamp_")]
        get_values = attrgetter(*plain_columns, "stamps")
        if len(plain_columns) == len(statement.columns):
            return [row[:-1] for row in map(get_values, records)]
        names = dict(zip(STAMP_COLUMNS, self.lifecycle.stamps, strict=False))
        stamps = [names.get(column) for column in statement.columns if column not in plain_columns]
        stamp_columns = [name for name in statement.columns if name not in plain_columns]
        positions = [(*plain_columns, *stamp_columns).index(column) for column in statement.columns]
        rows = []
        for row in map(get_values, records):
            stamps_of_row = row[-1]
            full = (*row[:-1], *(stamps_of_row.get(name) for name in stamps))
            rows.append(tuple(full[position] for position in positions))
        return rows


def _is_shared(values: set[Any]) -> bool:
    """Whether there is a single value that a database accepts as a parameter."""
    if len(values) > 1:
        return False
    (value,) = values
    return not isinstance(value, int) or abs(value) <= _LARGEST_INT
