"""The input of statements as rows, and the columns that they select for jobs and events."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from itertools import repeat
from operator import add, attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from kesin.foundation.text import storable
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import JOB_COLUMNS, NO_STAMPS, STAMP_COLUMNS, Job
from kesin.lifecycle.vocabulary import OWNED
from kesin.store.declarations import COLUMN_BITS, ERROR_COLUMNS, EVENT_COLUMN_BITS
from kesin.store.records import Event
from kesin.store.sql.dialect import SHARED_PREFIX, Dialect

_LARGEST_INT = 2**63 - 1
_job = partial(tuple.__new__, Job)  # Job._make without a Python frame for each row


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
            SHARED_PREFIX + name: storable(value) if isinstance(value, str) else value for name, value in values.items()
        }


@lru_cache(maxsize=1_024)
def row_reader(columns: tuple[str, ...], stamps: tuple[str, ...]) -> Callable[[Any], Any]:
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


_NO_SETS: Mapping[str, str] = MappingProxyType({})
# The values of every new job, whatever its lifecycle: the guard rejects any other, and a copied
# job started with them in another store.
INITIAL_VALUES: dict[str, object] = {
    "payload_seq": 1,
    **dict.fromkeys(("attempt_count", "attempt_base", "return_count", "retry_count", "flags"), 0),
    **dict.fromkeys((*ERROR_COLUMNS, "result", "timer_at", "finished_at")),
}


def job_columns(dialect: Dialect, names: Iterable[str] = JOB_COLUMNS, sets: Mapping[str, str] = _NO_SETS) -> str:
    """A select list from the hot row ``j`` and its body ``b``, with what ``sets`` replaces."""
    text, number = ("::text", "::int") if dialect.name == "postgres" else ("", "")
    body = {"dedup_key": "b.dedup_key", "payload": "b.payload", "once": f"b.once{number}"}
    expressions = {"id": f"j.id{text}", **body, **sets}
    return ", ".join(expressions.get(name, f"j.{name}") for name in names)


class ClaimRowDecoder:
    """Selects the columns of a claim and decodes its rows as jobs.

    A claim returns hundreds of rows, and every column costs on both sides of the connection. So
    values that every claim sets alike are not read, nor are unused stamps. What depends on a job's
    history is one column, ``past``: NULL for a job's first claim right after its creation.

    ``settable`` are the columns that declared moves may set, by their bits; for a stamp that only
    a newer version uses, this process has no name. ``sets`` is what the claim sets: SQLite reads
    these expressions before the claim, PostgreSQL the columns after it. SQLite knows the time of a
    claim beforehand: it is part of ``past`` only where the clock lies behind a job's last move.
    """

    def __init__(self, lifecycle: Lifecycle, dialect: Dialect, settable: int, sets: Mapping[str, str]) -> None:
        constants: dict[str, object] = dict.fromkeys(("queue", "actor", "worker"))
        constants |= {"phase": OWNED, "note": None, "new_payload": None}
        if len(lifecycle.claims) == 1 and lifecycle.claims[0].to in lifecycle.state:
            constants |= {"state": lifecycle.claims[0].to, "move": lifecycle.claims[0].name}
        constants |= {name: None for name in STAMP_COLUMNS if not settable & COLUMN_BITS[name]}
        first_claim = {name: value for name, value in INITIAL_VALUES.items() if name not in sets} | {"seq": 2}
        attempt_counts = {int(move.attempt == "count") for move in lifecycle.claims}
        if len(attempt_counts) == 1:
            first_claim["attempt_count"] = attempt_counts.pop()
        self._time_known = dialect.name == "sqlite"
        history = (*first_claim, *(("moved_at", "lease_until") if self._time_known else ()))
        aliases = {"claim_seq": "seq", "claimed_at": "moved_at"}
        own_columns = [name for name in JOB_COLUMNS if name not in {*history, *constants, *aliases}]
        due_at, self.due_at = "run_at", "j.run_at"
        if due_at in sets:  # the rows are sorted by it, as it was
            self.due_at = "(SELECT o.run_at FROM {schema}.job o WHERE o.id = j.id)"
            if self._time_known:
                due_at, sets = "due_at", {**sets, "due_at": "j.run_at"}
                own_columns.append(due_at)
        available = (*own_columns, "past", *history, *constants)
        self._in_job_order = itemgetter(*(available.index(aliases.get(name, name)) for name in JOB_COLUMNS))
        self.tenant = itemgetter(available.index("tenant"))
        self._due = itemgetter(*map(available.index, ("priority", due_at, "id")))
        self._first_claim = tuple(first_claim.values())
        self._constants = tuple(constants.values())[3:]
        if self._time_known:  # they are read before the claim
            past = f"json_array({job_columns(dialect, history, sets)})"
            cell = f"iif(j.seq = 1 AND j.moved_at <= {dialect.now}, NULL, {past})"
        else:
            past = f"json_build_array({job_columns(dialect, history)})::text"
            cell, sets = f"CASE WHEN j.seq <> 2 THEN {past} END", {}
        self.columns = f"{job_columns(dialect, own_columns, sets)}, {cell} AS past"

    def due_order(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a claim sorts the rows of several tenants by."""
        priority, due_at, job_id = self._due(row)
        return -priority, due_at, job_id

    def jobs(self, rows: list[tuple[Any, ...]], params: Mapping[str, Any]) -> list[Job]:
        """Decode the rows, adding the values that are known without reading them."""
        worker, now = params["worker"], params["now"]
        constants = (params["queue"], worker, worker, *self._constants)
        times = (now, now + params["lease_us"]) if self._time_known else ()
        first_claim = (*self._first_claim, *times, *constants)
        suffixes: Iterable[tuple[Any, ...]] = repeat(first_claim)
        if any(map(itemgetter(-1), rows)):
            histories = json.loads(f"[{','.join([row[-1] or 'null' for row in rows])}]")
            suffixes = [(*history, *constants) if history else first_claim for history in histories]
        return list(map(_job, map(self._in_job_order, map(add, rows, suffixes))))


def event_columns(dialect: Dialect) -> str:
    # SQLite's events hold all columns: to find those a move set would cost a temporary table each.
    priority = f"CASE WHEN mask & {COLUMN_BITS['priority']} <> 0 THEN priority ELSE 0 END"
    if dialect.name == "postgres":
        return ", ".join(["job_id::text", *Event._fields[1:-1], priority])
    bits = EVENT_COLUMN_BITS
    masked = [f"iif(mask & {bits[c]}, {c}, NULL)" if c in bits else c for c in Event._fields[:-1]]
    return ", ".join((*masked, priority))
