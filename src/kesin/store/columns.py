"""Which columns of a job and an event travel, and how a row becomes a job again."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from operator import add, itemgetter
from typing import Any

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import JOB_COLUMNS, Job
from kesin.lifecycle.words import OWNED
from kesin.store.compile import MASK, Dialect
from kesin.store.contract import Event

STAMP_COLUMNS = ("stamp_1", "stamp_2", "stamp_3", "stamp_4")
_ERROR_COLUMNS = ("error_code", "error_category", "error_message")


def job_columns(dialect: Dialect, names: Iterable[str] = JOB_COLUMNS) -> str:
    """The select list of these columns, from the hot row ``j`` and its body ``b``."""
    text = "::text" if dialect.name == "postgres" else ""
    spelled = {"id": f"j.id{text}", "dedup_key": "b.dedup_key", "payload": "b.payload"}
    return ", ".join(spelled.get(name, f"j.{name}") for name in names)


class ClaimRow:
    """How a claim's answer becomes jobs: what the claim itself set is not read, nor unused stamps.

    A claim returns hundreds of rows, and every column costs on both sides of the connection.
    ``settable`` are the columns that declared moves may set, by their bits. A process does not read
    a stamp that a newer version came to use after it began: it has no name for it.
    """

    def __init__(self, lifecycle: Lifecycle, settable: int) -> None:
        given: dict[str, object] = dict.fromkeys(("queue", "actor", "worker"))
        given |= {"phase": OWNED, "note": None, "new_payload": None}
        if len(lifecycle.claims) == 1 and lifecycle.claims[0].to in lifecycle.state:
            given |= {"state": lifecycle.claims[0].to, "move": lifecycle.claims[0].name}
        given |= {name: None for name in STAMP_COLUMNS if not settable & MASK[name]}
        same = {"claim_seq": "seq", "claimed_at": "moved_at"}
        self.columns = tuple(name for name in JOB_COLUMNS if name not in (*given, *same))
        have = (*self.columns, *given)
        self._in_order = itemgetter(*(have.index(same.get(name, name)) for name in JOB_COLUMNS))
        self._given = tuple(given.values())[3:]

    def jobs(self, rows: list[tuple[Any, ...]], queue: str, worker: str) -> list[Job]:
        """The rows with what is known without reading it."""
        whole = map(add, rows, repeat((queue, worker, worker, *self._given)))
        return list(map(Job._make, map(self._in_order, whole)))


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
