"""What copies from and to SQLite and PostgreSQL have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from kesin.foundation.text import canonical_json, wire_json
from kesin.lifecycle.model import HOT_COLUMNS, Job
from kesin.store.declarations import only_added
from kesin.store.limits import bounded
from kesin.store.records import Definition, Event, Flow, Note
from kesin.store.sql.columns import event_columns
from kesin.store.sql.store import SqlStore
from kesin.store.transfer.copier import Declared, Head, History

NOTE_COLUMNS = ("queue", "tenant", "job_id", "at", "kind", "actor", "details")
BODY_COLUMNS = ("id", "queue", "tenant", "dedup_key", "payload")
FLOW_COLUMNS = ("queue", "tenant", "move", "from_state", "to_state", "n", "at")
FIRST_ID = "00000000-0000-0000-0000-000000000000"


class SqlCopier(ABC):
    """Reading is the same for both; each has its own way of writing many rows."""

    ids_among: str  # a condition that names a column and the parameter ``ids``

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._table = store.dialect.table
        self._text = "::text" if store.dialect.name == "postgres" else ""

    @abstractmethod
    def _fill(self, histories: Sequence[History]) -> None:
        """Insert these, in a transaction that is open for copies."""

    @abstractmethod
    def _opened(self, queue: str) -> AbstractContextManager[None]:
        """Let copies of this queue into the transaction, as long as the block lasts."""

    @abstractmethod
    def _hold_flows(self) -> None:
        """Keep everybody else from counting until the transaction ends."""

    @abstractmethod
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows in their order; one whose key is taken is left out."""

    def _read(self, sql: str, **params: Any) -> list[tuple[Any, ...]]:
        return self._store._read(sql, params)  # noqa: SLF001

    def rows(self, sql: str, table: str) -> list[tuple[Any, ...]]:
        """What a query of one table finds; ``{}`` stands for the table."""
        return self._read(sql.format(self._table(table)))

    def _ids(self, column: str) -> str:
        return self.ids_among.format(column)

    # Reading

    def heads(self, queue: str, cursor: str | None, limit: int) -> tuple[list[Head], str | None]:
        """Some jobs of the queue in the order of their ids, and where the next ones are."""
        param = self._store.dialect.param
        where = f"j.queue = {param('queue')} AND j.id > {param('cursor')}"
        after = cursor or FIRST_ID
        rows = self._heads(f"{where} ORDER BY j.id LIMIT {limit}", queue=queue, cursor=after)
        return rows, rows[-1].id if len(rows) == limit else None

    def heads_of(self, queue: str, ids: Sequence[str]) -> dict[str, Head]:
        """Those of these jobs."""
        bounded(ids)
        where = f"j.queue = {self._store.dialect.param('queue')} AND {self._ids('j.id')}"
        found = self._heads(where, queue=queue, ids=self._store._array(ids))  # noqa: SLF001
        return {one.id: one for one in found}

    def _heads(self, where: str, **params: Any) -> list[Head]:
        notes = f"(SELECT count(*) FROM {self._table('note')} n WHERE n.job_id = j.id)"
        sql = f"SELECT j.id{self._text}, j.seq, {notes} FROM {self._table('job')} j WHERE {where}"
        return [Head._make(row) for row in self._read(sql, **params)]

    def histories(self, queue: str, ids: Sequence[str]) -> list[History]:
        """Rows first: a job that moves while its events are read has too many, never too few."""
        asked = self._store._array(ids)  # noqa: SLF001
        found = self._store.find(queue, ids)
        dialect = self._store.dialect
        events: dict[str, list[Event]] = {}
        for row in self._read(
            f"SELECT {event_columns(dialect)} FROM {self._table('event')}"
            f" WHERE {self._ids('job_id')} ORDER BY job_id, seq",
            ids=asked,
        ):
            events.setdefault(row[0], []).append(Event._make(row))
        notes: dict[str, list[Note]] = {}
        for row in self._read(
            f"SELECT job_id{self._text}, at, kind, actor, details FROM {self._table('note')}"
            f" WHERE {self._ids('job_id')} ORDER BY id",
            ids=asked,
        ):
            notes.setdefault(row[0], []).append(Note._make(row))
        return [
            History(job, events.get(job.id, [])[: job.seq], notes.get(job.id, []))
            for job in found.values()
        ]

    def claimed(self, queue: str) -> int:
        """How many jobs a worker has in hand."""
        sql = (
            f"SELECT count(*) FROM {self._table('job')}"
            f" WHERE queue = {self._store.dialect.param('queue')} AND phase = 1"
        )
        return int(self._read(sql, queue=queue)[0][0])

    # Writing

    def put(self, queue: str, histories: Sequence[History]) -> None:
        """Write these, all or none, in place of what is there of them."""
        bounded(histories)
        with self._store.transaction(), self._opened(queue):
            self._delete([one.job.id for one in histories])
            self._delete(self._rivals(queue, [one.job for one in histories]))
            self._fill(histories)

    def drop(self, queue: str, ids: Sequence[str]) -> None:
        """Remove these copies, as if they had never come."""
        bounded(ids)
        with self._store.transaction(), self._opened(queue):
            self._delete(ids)

    def _delete(self, ids: Iterable[str]) -> None:
        asked = self._store._array(list(ids))  # noqa: SLF001
        sql = f"DELETE FROM {self._table('job')} WHERE {self._ids('id')}"
        self._store._rows(sql, {"ids": asked})  # noqa: SLF001

    def _rivals(self, queue: str, jobs: Sequence[Job]) -> list[str]:
        """Who has a key or a slot that one of these is to have: outdated, for they cannot both."""
        declared = self.declared(queue)
        effects = {(edge[1], edge[3]): rest for edge, rest in declared.items()}
        rivals: list[str] = []
        keys: dict[str, list[str]] = {}
        slots: list[str] = []
        for job in jobs:
            *_, slot, holds = effects.get((job.move, job.state), (None, False))
            if holds and job.dedup_key is not None:
                keys.setdefault(job.tenant, []).append(job.dedup_key)
            if slot is not None:
                slots.append(slot)
        for tenant, wanted in keys.items():
            rivals += self._store.holders(queue, tenant, wanted).values()
        if slots:
            param = self._store.dialect.param("queue")
            among = self._store._is_in("slot", "slots")  # noqa: SLF001
            sql = (
                f"SELECT id{self._text} FROM {self._table('job')} WHERE queue = {param} AND {among}"
            )
            given = self._store._array(slots)  # noqa: SLF001
            rivals += [row[0] for row in self._read(sql, queue=queue, slots=given)]
        return rivals

    def put_flows(self, queue: str, flows: Sequence[Flow], *, instead_of: list[Flow]) -> bool:
        """Write the counters in place of these; False where others are there, which stay."""
        where = f"queue = {self._store.dialect.param('queue')}"
        with self._store.transaction():
            self._hold_flows()
            if sorted(self._store.flows(queue)) != instead_of:
                return False
            self._store._rows(  # noqa: SLF001
                f"DELETE FROM {self._table('flow')} WHERE {where}", {"queue": queue}
            )
            self.insert("flow", FLOW_COLUMNS, [(queue, *flow) for flow in flows])
        return True

    def declared(self, queue: str) -> Declared:
        """Every move that the queue was ever declared with."""
        return self._store._known_declared(queue)  # noqa: SLF001

    def declare(self, queue: str, rows: Declared, definition: Definition) -> None:
        """Add moves that only the history knows."""
        known = self.declared(queue)
        new = {edge: rest for edge, rest in rows.items() if known.get(edge) != rest}
        for edge, rest in new.items():
            only_added((*edge, *rest), known.get(edge))
        if new:
            spelled = [(*edge, *rest) for edge, rest in new.items()]
            self._store._write_declared(  # noqa: SLF001
                queue, spelled, canonical_json(definition._asdict())
            )


def job_row(job: Job) -> dict[str, Any]:
    """The columns of the hot row."""
    return {name: getattr(job, name) for name in HOT_COLUMNS}


def body_row(job: Job) -> dict[str, Any]:
    """The columns of the body that do not follow from the job's state."""
    return {name: getattr(job, name) for name in BODY_COLUMNS}


def note_rows(histories: Sequence[History]) -> list[tuple[Any, ...]]:
    """The remarks, in their order."""
    return [
        (one.job.queue, one.job.tenant, one.job.id, *note[1:])
        for one in histories
        for note in one.notes
    ]


class PostgresCopier(SqlCopier):
    """A table's rows travel as one JSON document, and are one statement."""

    ids_among = "{} = ANY(%(ids)s::uuid[])"

    @contextmanager
    def _opened(self, queue: str) -> Iterator[None]:
        said = (
            "SELECT set_config('kesin.copying', txid_current()::text, true),"
            " set_config('kesin.copied_queue', %(queue)s, true)"
        )
        self._store._rows(said, {"queue": queue})  # noqa: SLF001
        yield
        self._store._rows("SELECT set_config('kesin.copying', '', true)", {})  # noqa: SLF001

    def _fill(self, histories: Sequence[History]) -> None:
        jobs = [one.job for one in histories]
        rows = [{**job_row(job), "keyed": job.dedup_key is not None} for job in jobs]
        self._insert("job", (*HOT_COLUMNS, "keyed"), rows, slot=self._of("i", "slot"))
        held = f"CASE WHEN {self._of('j', 'holds_key')} THEN i.dedup_key END"
        self._insert(
            "job_body",
            BODY_COLUMNS,
            [body_row(job) for job in jobs],
            f" JOIN {self._table('job')} j ON j.id = i.id",
            held_key=held,
        )
        self.insert("event", Event._fields, [row for one in histories for row in one.events])
        self.insert("note", NOTE_COLUMNS, note_rows(histories))

    def _hold_flows(self) -> None:
        """Others would add rows, or sum them up, between the look and the writing."""
        sql = f"LOCK TABLE {self._table('flow')} IN SHARE ROW EXCLUSIVE MODE"
        self._store._rows(sql, {})  # noqa: SLF001

    def _of(self, row: str, column: str) -> str:
        """What the last move of the job says of the state it is in."""
        return (
            f"(SELECT d.{column} FROM {self._table('declared')} d WHERE d.queue = {row}.queue"
            f" AND d.move = {row}.move AND d.to_state = {row}.state LIMIT 1)"
        )

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows in their order; one whose key is taken is left out."""
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        self._insert(table, columns, named, " ON CONFLICT DO NOTHING")

    def _insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[dict[str, Any]],
        rest: str = "",
        **more: str,
    ) -> None:
        """Rows in their order; ``more`` are columns that follow from others."""
        if not rows:
            return
        names = ", ".join((*columns, *more))
        values = ", ".join((*(f"i.{name}" for name in columns), *more.values()))
        kind = self._table(table)
        self._store._rows(  # noqa: SLF001
            f"INSERT INTO {kind} ({names}) SELECT {values}"
            f" FROM json_populate_recordset(NULL::{kind}, %(rows)s::json) i{rest}",
            {"rows": wire_json(rows)},
        )


_OF_STATE = (
    "(SELECT d.{} FROM declared d WHERE d.queue = :queue AND d.move = :move"
    " AND d.to_state = :state LIMIT 1)"
)


def _insert(table: str, columns: Sequence[str], **more: str) -> str:
    """An INSERT of named parameters; ``more`` are columns that follow from them."""
    names = ", ".join((*columns, *more))
    values = ", ".join((*(f":{name}" for name in columns), *more.values()))
    return f"INSERT INTO {table} ({names}) VALUES ({values})"


_JOB = _insert("job", HOT_COLUMNS, keyed=":dedup_key IS NOT NULL", slot=_OF_STATE.format("slot"))
_BODY = _insert(
    "job_body",
    BODY_COLUMNS,
    held_key=f"iif({_OF_STATE.format('holds_key')}, :dedup_key, NULL)",
)


class SqliteCopier(SqlCopier):
    """Rows one after the other: here a statement costs a microsecond, not a round trip."""

    ids_among = "{} IN (SELECT value FROM json_each(:ids))"

    @contextmanager
    def _opened(self, queue: str) -> Iterator[None]:
        self._run("INSERT INTO copying (queue) VALUES (?)", [(queue,)])
        yield
        self._run("DELETE FROM copying WHERE queue = ?", [(queue,)])

    def _fill(self, histories: Sequence[History]) -> None:
        jobs = [one.job for one in histories]
        whole = [{**job_row(job), **body_row(job)} for job in jobs]
        self._run(_JOB, whole)
        self._run(_BODY, whole)
        self.insert("event", Event._fields, [row for one in histories for row in one.events])
        self.insert("note", NOTE_COLUMNS, note_rows(histories))

    def _hold_flows(self) -> None:
        """A transaction keeps everybody else out anyway."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows in their order; one whose key is taken is left out."""
        marks = ", ".join("?" * len(columns))
        names = ", ".join(columns)
        self._run(f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING", rows)

    def _run(self, sql: str, rows: Sequence[Any]) -> None:
        with self._store.transaction() as connection:
            connection.executemany(sql, rows)
