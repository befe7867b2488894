"""Which columns of a job and an event travel, and how a row becomes a job again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import repeat
from operator import add, itemgetter
from types import MappingProxyType
from typing import Any

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import JOB_COLUMNS, Job
from kesin.lifecycle.vocabulary import OWNED
from kesin.store.declarations import MASK
from kesin.store.records import Event
from kesin.store.sql.dialect import Dialect

STAMP_COLUMNS = ("stamp_1", "stamp_2", "stamp_3", "stamp_4")
_NOTHING: Mapping[str, str] = MappingProxyType({})
_ERROR_COLUMNS = ("error_code", "error_category", "error_message")
# What every job is born with, whatever its lifecycle: the guard lets none in otherwise, and one
# that was copied was born so elsewhere.
AT_BIRTH: dict[str, object] = {
    "payload_seq": 1,
    **dict.fromkeys(("attempt_count", "attempt_base", "return_count", "retry_count", "flags"), 0),
    **dict.fromkeys((*_ERROR_COLUMNS, "result", "timer_at", "finished_at")),
}


def job_columns(
    dialect: Dialect, names: Iterable[str] = JOB_COLUMNS, sets: Mapping[str, str] = _NOTHING
) -> str:
    """The select list of these columns, from the hot row ``j`` and its body ``b``.

    With ``sets``, as a statement that sets these makes them.
    """
    text = "::text" if dialect.name == "postgres" else ""
    spelled = {"id": f"j.id{text}", "dedup_key": "b.dedup_key", "payload": "b.payload", **sets}
    return ", ".join(spelled.get(name, f"j.{name}") for name in names)


class ClaimRow:
    """How a claim's answer becomes jobs.

    A claim returns hundreds of rows, and every column costs on both sides of the connection. So
    what every claim sets alike is not read, nor are unused stamps; and what a job has been through
    comes as one column, ``past``, which is NULL for a job that was born and claimed and no more.

    ``settable`` are the columns that declared moves may set, by their bits. A process does not read
    a stamp that a newer version came to use after it began: it has no name for it. ``sets`` is what
    the claim sets: SQLite reads these expressions before it, PostgreSQL the columns after it. The
    time of a claim is known beforehand on SQLite, so it is part of the past where it is another,
    for a clock may lie behind a job's last move; on PostgreSQL it is part of every answer.
    """

    def __init__(
        self, lifecycle: Lifecycle, dialect: Dialect, settable: int, sets: Mapping[str, str]
    ) -> None:
        given: dict[str, object] = dict.fromkeys(("queue", "actor", "worker"))
        given |= {"phase": OWNED, "note": None, "new_payload": None}
        if len(lifecycle.claims) == 1 and lifecycle.claims[0].to in lifecycle.state:
            given |= {"state": lifecycle.claims[0].to, "move": lifecycle.claims[0].name}
        given |= {name: None for name in STAMP_COLUMNS if not settable & MASK[name]}
        first = {name: value for name, value in AT_BIRTH.items() if name not in sets} | {"seq": 2}
        counted = {int(move.attempt == "count") for move in lifecycle.claims}
        if len(counted) == 1:
            first["attempt_count"] = counted.pop()
        self._time_known = dialect.name == "sqlite"
        past = (*first, *(("moved_at", "lease_until") if self._time_known else ()))
        same = {"claim_seq": "seq", "claimed_at": "moved_at"}
        own = [name for name in JOB_COLUMNS if name not in {*past, *given, *same}]
        have = (*own, "past", *past, *given)
        self._in_order = itemgetter(*(have.index(same.get(name, name)) for name in JOB_COLUMNS))
        self._first = tuple(first.values())
        self._given = tuple(given.values())[3:]
        self.columns = self._select(dialect, own, past, sets)

    def _select(
        self, dialect: Dialect, own: list[str], past: tuple[str, ...], sets: Mapping[str, str]
    ) -> str:
        """The select list: on SQLite before the claim, on PostgreSQL after it."""
        if self._time_known:
            first = f"j.seq = 1 AND j.moved_at <= {dialect.now}"
            cell = f"iif({first}, NULL, json_array({job_columns(dialect, past, sets)}))"
            return f"{job_columns(dialect, own, sets)}, {cell} AS past"
        cell = f"CASE WHEN j.seq <> 2 THEN json_build_array({job_columns(dialect, past)})::text END"
        return f"{job_columns(dialect, own)}, {cell} AS past"

    def jobs(self, rows: list[tuple[Any, ...]], params: Mapping[str, Any]) -> list[Job]:
        """The rows with what is known without reading it."""
        worker, now = params["worker"], params["now"]
        given = (params["queue"], worker, worker, *self._given)
        times = (now, now + params["lease_us"]) if self._time_known else ()
        first = (*self._first, *times, *given)
        rest: Iterable[tuple[Any, ...]] = repeat(first)
        if any(map(itemgetter(-1), rows)):
            pasts = json.loads(f"[{','.join([row[-1] or 'null' for row in rows])}]")
            rest = [(*past, *given) if past else first for past in pasts]
        return list(map(Job._make, map(self._in_order, map(add, rows, rest))))


def event_columns(dialect: Dialect) -> str:
    """The select list that makes an Event.

    SQLite's events hold every column as it was after the move, because telling apart what the
    move itself set costs a temporary table a row; so that is done when they are read.
    """
    if dialect.name == "postgres":
        return ", ".join(["job_id::text", *Event._fields[1:]])
    bits = {**MASK, **dict.fromkeys(_ERROR_COLUMNS, MASK["error"])}
    del bits["flags"], bits["payload"]
    return ", ".join(
        f"iif(mask & {bits[name]}, {name}, NULL)" if name in bits else name
        for name in Event._fields
    )
