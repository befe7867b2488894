"""The caller's input about jobs, encoded as one JSON document that a statement reads as rows."""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

from kesin.foundation.text import storable
from kesin.lifecycle.model import NO_STAMPS, STAMP_COLUMNS
from kesin.store.sql.dialect import SHARED_PREFIX

_LARGEST_INT = 2**63 - 1


class InputRow(NamedTuple):
    """What a statement is given about a key that is looked up or a note that is added."""

    tenant: str
    id: str = ""  # of the job
    dedup_key: str | None = None
    note: str | None = None
    stamps: Mapping[str, int] = NO_STAMPS


class Statement(NamedTuple):
    """SQL, and the input columns that it reads; a value that all rows share is a parameter."""

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


@lru_cache(maxsize=1_024)
def row_reader(columns: tuple[str, ...], stamps: tuple[str, ...]) -> Callable[[Any], Any]:
    """What reads these columns of a record, as a row."""
    names = dict.fromkeys(STAMP_COLUMNS, "") | dict(zip(STAMP_COLUMNS, stamps, strict=False))
    if names.keys().isdisjoint(columns) and len(columns) > 1:
        return attrgetter(*columns)
    read = [partial(_stamp, names[c]) if c in names else attrgetter(c) for c in columns]
    return lambda record: [get(record) for get in read]


def _stamp(name: str, record: Any) -> object:
    return record.stamps.get(name)


def is_shared(values: set[Any]) -> bool:
    """Whether there is a single value that a database accepts as a parameter."""
    if len(values) > 1:
        return False
    (value,) = values
    return not isinstance(value, int) or abs(value) <= _LARGEST_INT
