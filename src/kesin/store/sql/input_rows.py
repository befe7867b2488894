"""The caller's input about jobs, encoded as one JSON document that a statement reads as rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

from kesin.foundation.text import storable, wire_json
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import NO_STAMPS
from kesin.store.sql.columns import STAMP_COLUMNS
from kesin.store.sql.dialect import SHARED_PREFIX, Dialect

_LARGEST_INT = 2**63 - 1


class InputRow(NamedTuple):
    """What a statement is given about a key that is looked up or a note that is added."""

    tenant: str
    id: str = ""  # of the job
    dedup_key: str | None = None
    note: str | None = None
    stamps: Mapping[str, int] = NO_STAMPS


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
        rows = list(map(_row_reader(statement.columns, tuple(self.lifecycle.stamps)), records))
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


@lru_cache(maxsize=1_024)
def _row_reader(columns: tuple[str, ...], stamps: tuple[str, ...]) -> Callable[[Any], Any]:
    """What reads these columns of a record, as a row."""
    names = dict.fromkeys(STAMP_COLUMNS, "") | dict(zip(STAMP_COLUMNS, stamps, strict=False))
    if names.keys().isdisjoint(columns) and len(columns) > 1:
        return attrgetter(*columns)
    read = [partial(_stamp, names[c]) if c in names else attrgetter(c) for c in columns]
    return lambda record: [get(record) for get in read]


def _stamp(name: str, record: Any) -> object:
    return record.stamps.get(name)


def _is_shared(values: set[Any]) -> bool:
    """Whether there is a single value that a database accepts as a parameter."""
    if len(values) > 1:
        return False
    (value,) = values
    return not isinstance(value, int) or abs(value) <= _LARGEST_INT
