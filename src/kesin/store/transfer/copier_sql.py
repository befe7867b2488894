"""The copiers for SQLite and PostgreSQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from kesin.foundation.text import canonical_json, wire_json
from kesin.lifecycle.model import HOT_COLUMNS, Job
from kesin.store.declarations import check_compatible
from kesin.store.limits import check_batch_size
from kesin.store.records import Definition, Event, MoveCount, Note
from kesin.store.sql.columns import event_columns
from kesin.store.sql.store import SqlStore
from kesin.store.transfer.copier import DeclaredMoves, JobHistory, JobVersion

NOTE_COLUMNS = ("queue", "tenant", "job_id", "at", "kind", "actor", "details")
BODY_COLUMNS = ("id", "queue", "tenant", "dedup_key", "payload")
FLOW_COLUMNS = ("queue", "tenant", "move", "from_state", "to_state", "n", "at")
FIRST_ID = "00000000-0000-0000-0000-000000000000"


class SqlCopier(ABC):
    """The shared reading half; each database has its own way of writing many rows."""

    ids_among: str  # a condition with a gap for the column, on the parameter ``ids``

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._table = store.dialect.table
        self._text = "::text" if store.dialect.name == "postgres" else ""

    @abstractmethod
    def _fill(self, histories: Sequence[JobHistory]) -> None:
        """Insert these jobs, in a transaction that accepts copies."""

    @abstractmethod
    def _copying(self, queue: str) -> AbstractContextManager[None]:
        """Let the guard accept copies of this queue inside the block."""

    @abstractmethod
    def _lock_move_counts(self) -> None:
        """Block changes of the counters by others until the transaction ends."""

    @abstractmethod
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows in their order; one whose key is taken is left out."""

    def _read(self, sql: str, **params: Any) -> list[tuple[Any, ...]]:
        return self._store._read(sql, params)  # noqa: SLF001

    def rows(self, sql: str, table: str) -> list[tuple[Any, ...]]:
        """The rows of a query on one table; ``{}`` stands for the table."""
        return self._read(sql.format(self._table(table)))

    def _ids(self, column: str) -> str:
        return self.ids_among.format(column)

    # Reading

    def job_versions(
        self, queue: str, cursor: str | None, limit: int
    ) -> tuple[list[JobVersion], str | None]:
        """A page of job versions ordered by id, and the cursor of the next page."""
        param = self._store.dialect.param
        where = f"j.queue = {param('queue')} AND j.id > {param('cursor')}"
        after = cursor or FIRST_ID
        rows = self._job_versions(f"{where} ORDER BY j.id LIMIT {limit}", queue=queue, cursor=after)
        return rows, rows[-1].id if len(rows) == limit else None

    def versions_of(self, queue: str, ids: Sequence[str]) -> dict[str, JobVersion]:
        """Job id → version; unknown ids are absent."""
        check_batch_size(ids)
        where = f"j.queue = {self._store.dialect.param('queue')} AND {self._ids('j.id')}"
        versions = self._job_versions(where, queue=queue, ids=self._store._array(ids))  # noqa: SLF001
        return {version.id: version for version in versions}

    def _job_versions(self, where: str, **params: Any) -> list[JobVersion]:
        notes = f"(SELECT count(*) FROM {self._table('note')} n WHERE n.job_id = j.id)"
        sql = f"SELECT j.id{self._text}, j.seq, {notes} FROM {self._table('job')} j WHERE {where}"
        return [JobVersion._make(row) for row in self._read(sql, **params)]

    def histories(self, queue: str, ids: Sequence[str]) -> list[JobHistory]:
        """These jobs, each with the events up to its current row.

        Rows are read first: a job that moves meanwhile has too many events, never too few.
        """
        id_array = self._store._array(ids)  # noqa: SLF001
        jobs_by_id = self._store.find(queue, ids)
        dialect = self._store.dialect
        events: dict[str, list[Event]] = {}
        for row in self._read(
            f"SELECT {event_columns(dialect)} FROM {self._table('event')}"
            f" WHERE {self._ids('job_id')} ORDER BY job_id, seq",
            ids=id_array,
        ):
            events.setdefault(row[0], []).append(Event._make(row))
        notes: dict[str, list[Note]] = {}
        for row in self._read(
            f"SELECT job_id{self._text}, at, kind, actor, details FROM {self._table('note')}"
            f" WHERE {self._ids('job_id')} ORDER BY id",
            ids=id_array,
        ):
            notes.setdefault(row[0], []).append(Note._make(row))
        return [
            JobHistory(job, events.get(job.id, [])[: job.seq], notes.get(job.id, []))
            for job in jobs_by_id.values()
        ]

    def count_claimed(self, queue: str) -> int:
        """How many jobs are claimed."""
        sql = (
            f"SELECT count(*) FROM {self._table('job')}"
            f" WHERE queue = {self._store.dialect.param('queue')} AND phase = 1"
        )
        return int(self._read(sql, queue=queue)[0][0])

    # Writing

    def put(self, queue: str, histories: Sequence[JobHistory]) -> None:
        """Write these jobs in one transaction, replacing existing copies."""
        check_batch_size(histories)
        with self._store.transaction(), self._copying(queue):
            self._delete([history.job.id for history in histories])
            self._delete(self._rivals(queue, [history.job for history in histories]))
            self._fill(histories)

    def drop(self, queue: str, ids: Sequence[str]) -> None:
        """Delete these copies without a trace."""
        check_batch_size(ids)
        with self._store.transaction(), self._copying(queue):
            self._delete(ids)

    def _delete(self, ids: Iterable[str]) -> None:
        id_array = self._store._array(list(ids))  # noqa: SLF001
        sql = f"DELETE FROM {self._table('job')} WHERE {self._ids('id')}"
        self._store._rows(sql, {"ids": id_array})  # noqa: SLF001

    def _rivals(self, queue: str, jobs: Sequence[Job]) -> list[str]:
        """Ids of jobs that hold a key or slot of one of these: they are outdated copies."""
        declared = self.declared(queue)
        effects = {(edge[1], edge[3]): effects for edge, effects in declared.items()}
        rivals: list[str] = []
        keys: dict[str, list[str]] = {}
        slots: list[str] = []
        for job in jobs:
            *_, slot, holds = effects.get((job.move, job.state), (None, False))
            if holds and job.dedup_key is not None:
                keys.setdefault(job.tenant, []).append(job.dedup_key)
            if slot is not None:
                slots.append(slot)
        for tenant, tenant_keys in keys.items():
            rivals += self._store.ids_by_key(queue, tenant, tenant_keys).values()
        if slots:
            param = self._store.dialect.param("queue")
            among = self._store._is_in("slot", "slots")  # noqa: SLF001
            sql = (
                f"SELECT id{self._text} FROM {self._table('job')} WHERE queue = {param} AND {among}"
            )
            slot_array = self._store._array(slots)  # noqa: SLF001
            rivals += [row[0] for row in self._read(sql, queue=queue, slots=slot_array)]
        return rivals

    def replace_move_counts(
        self, queue: str, counts: Sequence[MoveCount], *, expected: list[MoveCount]
    ) -> bool:
        """Replace the counters if they equal ``expected``; return False otherwise."""
        where = f"queue = {self._store.dialect.param('queue')}"
        with self._store.transaction():
            self._lock_move_counts()
            if sorted(self._store.move_counts(queue)) != expected:
                return False
            self._store._rows(  # noqa: SLF001
                f"DELETE FROM {self._table('flow')} WHERE {where}", {"queue": queue}
            )
            self.insert("flow", FLOW_COLUMNS, [(queue, *count) for count in counts])
        return True

    def declared(self, queue: str) -> DeclaredMoves:
        """Every move that was ever declared for the queue."""
        return self._store._known_declared(queue)  # noqa: SLF001

    def declare(self, queue: str, rows: DeclaredMoves, definition: Definition) -> None:
        """Add moves that only the history contains."""
        declared = self.declared(queue)
        new = {edge: effects for edge, effects in rows.items() if declared.get(edge) != effects}
        for edge, effects in new.items():
            check_compatible((*edge, *effects), declared.get(edge))
        if new:
            declared_rows = [(*edge, *effects) for edge, effects in new.items()]
            self._store._write_declared(  # noqa: SLF001
                queue, declared_rows, canonical_json(definition._asdict())
            )


def job_row(job: Job) -> dict[str, Any]:
    """The columns of the hot row."""
    return {name: getattr(job, name) for name in HOT_COLUMNS}


def body_row(job: Job) -> dict[str, Any]:
    """The columns of the body that do not depend on the job's state."""
    return {name: getattr(job, name) for name in BODY_COLUMNS}


def note_rows(histories: Sequence[JobHistory]) -> list[tuple[Any, ...]]:
    """The rows of all notes, in order."""
    return [
        (history.job.queue, history.job.tenant, history.job.id, *note[1:])
        for history in histories
        for note in history.notes
    ]


class PostgresCopier(SqlCopier):
    """Inserts all rows of a table with one statement, from one JSON document."""

    ids_among = "{} = ANY(%(ids)s::uuid[])"

    @contextmanager
    def _copying(self, queue: str) -> Iterator[None]:
        sql = (
            "SELECT set_config('kesin.copying', txid_current()::text, true),"
            " set_config('kesin.copied_queue', %(queue)s, true)"
        )
        self._store._rows(sql, {"queue": queue})  # noqa: SLF001
        yield
        self._store._rows("SELECT set_config('kesin.copying', '', true)", {})  # noqa: SLF001

    def _fill(self, histories: Sequence[JobHistory]) -> None:
        jobs = [history.job for history in histories]
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
        self.insert(
            "event", Event._fields, [row for history in histories for row in history.events]
        )
        self.insert("note", NOTE_COLUMNS, note_rows(histories))

    def _lock_move_counts(self) -> None:
        """Lock the table: others could add or merge rows between the check and the write."""
        sql = f"LOCK TABLE {self._table('flow')} IN SHARE ROW EXCLUSIVE MODE"
        self._store._rows(sql, {})  # noqa: SLF001

    def _of(self, row: str, column: str) -> str:
        """A subquery for a column of the declared move that led to the job's state."""
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
        tail: str = "",
        **derived: str,
    ) -> None:
        """Insert rows in order; ``derived`` columns are computed from others."""
        if not rows:
            return
        names = ", ".join((*columns, *derived))
        values = ", ".join((*(f"i.{name}" for name in columns), *derived.values()))
        kind = self._table(table)
        self._store._rows(  # noqa: SLF001
            f"INSERT INTO {kind} ({names}) SELECT {values}"
            f" FROM json_populate_recordset(NULL::{kind}, %(rows)s::json) i{tail}",
            {"rows": wire_json(rows)},
        )


_OF_STATE = (
    "(SELECT d.{} FROM declared d WHERE d.queue = :queue AND d.move = :move"
    " AND d.to_state = :state LIMIT 1)"
)


def _insert(table: str, columns: Sequence[str], **derived: str) -> str:
    """An INSERT of named parameters; ``derived`` columns are computed from them."""
    names = ", ".join((*columns, *derived))
    values = ", ".join((*(f":{name}" for name in columns), *derived.values()))
    return f"INSERT INTO {table} ({names}) VALUES ({values})"


_JOB = _insert("job", HOT_COLUMNS, keyed=":dedup_key IS NOT NULL", slot=_OF_STATE.format("slot"))
_BODY = _insert(
    "job_body",
    BODY_COLUMNS,
    held_key=f"iif({_OF_STATE.format('holds_key')}, :dedup_key, NULL)",
)


class SqliteCopier(SqlCopier):
    """Inserts row by row: in SQLite a statement costs a microsecond, not a round trip."""

    ids_among = "{} IN (SELECT value FROM json_each(:ids))"

    @contextmanager
    def _copying(self, queue: str) -> Iterator[None]:
        self._run("INSERT INTO copying (queue) VALUES (?)", [(queue,)])
        yield
        self._run("DELETE FROM copying WHERE queue = ?", [(queue,)])

    def _fill(self, histories: Sequence[JobHistory]) -> None:
        jobs = [history.job for history in histories]
        rows = [{**job_row(job), **body_row(job)} for job in jobs]
        self._run(_JOB, rows)
        self._run(_BODY, rows)
        self.insert(
            "event", Event._fields, [row for history in histories for row in history.events]
        )
        self.insert("note", NOTE_COLUMNS, note_rows(histories))

    def _lock_move_counts(self) -> None:
        """Nothing to lock: a SQLite transaction already excludes other writers."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows in their order; one whose key is taken is left out."""
        marks = ", ".join("?" * len(columns))
        names = ", ".join(columns)
        self._run(f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING", rows)

    def _run(self, sql: str, rows: Sequence[Any]) -> None:
        with self._store.transaction() as connection:
            connection.executemany(sql, rows)
