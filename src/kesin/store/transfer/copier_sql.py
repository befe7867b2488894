"""The copiers for SQLite and PostgreSQL, whose rows `engine/transfer/queue_copy.py` verifies."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from operator import attrgetter
from typing import Any

from kesin.foundation.text import wire_json
from kesin.lifecycle.model import HOT_COLUMNS, Job, slot_name
from kesin.store.declarations import DeclaredMoves, new_moves
from kesin.store.limits import FIRST_ID, check_batch_size
from kesin.store.records import Definition, Event, JobHistory, JobVersion, MoveCount, Note, RulesVersion
from kesin.store.sql.columns import event_columns
from kesin.store.sql.dialect import shared_statements
from kesin.store.sql.store import SqlStore

NOTE_COLUMNS = ("queue", "tenant", "job_id", "at", "kind", "actor", "details")
BODY_COLUMNS = ("id", "queue", "tenant", "dedup_key", "payload", "once", "held_key")
FLOW_COLUMNS = ("queue", "tenant", "move", "from_state", "to_state", "n", "at")
Rows = Sequence[Sequence[Any]]
Held = list[tuple[str | None, str | None]]  # the slot and the key of each job
_body_values = attrgetter("id", "queue", "tenant", "dedup_key", "payload_json")
_hot_values = attrgetter(*("result_json" if name == "result" else name for name in HOT_COLUMNS))
_SKIP = " ON CONFLICT DO NOTHING"


class SqlCopier(ABC):
    """The shared reading half; each database has its own way of writing many rows."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._table = store.dialect.table

    @abstractmethod
    def _copying(self, queue: str) -> AbstractContextManager[None]:
        """Let the guard accept copies of this queue inside the block."""

    @abstractmethod
    def insert(self, table: str, columns: Sequence[str], rows: Rows, *, skip: bool = False) -> None:
        """Insert rows in their order; ``skip`` leaves out those whose key is taken."""

    def _read(self, sql: str, **params: Any) -> list[tuple[Any, ...]]:
        return self._store._read(sql, params)  # noqa: SLF001

    def rows(self, sql: str, table: str) -> list[tuple[Any, ...]]:
        """The rows of a query on one table; ``{}`` stands for the table."""
        return self._read(sql.format(self._table(table)))

    def _select(self, name: str, **params: Any) -> list[tuple[Any, ...]]:
        return self._read(self._store.dialect.write(shared_statements("copying")[name]), **params)

    def _drop(self, name: str, **params: Any) -> None:
        sql = self._store.dialect.write(shared_statements("copying")[name])
        self._store._rows(sql, params)  # noqa: SLF001

    # Reading

    def job_versions(self, queue: str, cursor: str | None, limit: int) -> tuple[list[JobVersion], str | None]:
        """A page of versions and the next cursor; a job that moves meanwhile may be missed."""
        rows = self._select("job_versions", queue=queue, cursor=cursor or FIRST_ID, limit=limit)
        versions = list(map(JobVersion._make, rows))
        return versions, versions[-1].id if len(versions) == limit else None

    def versions_of(self, queue: str, ids: Sequence[str]) -> dict[str, JobVersion]:
        """Job id → version; unknown ids are absent."""
        check_batch_size(ids)
        rows = self._select("versions_of", queue=queue, ids=self._store.dialect.array(ids))
        return {version.id: version for version in map(JobVersion._make, rows)}

    def histories(self, queue: str, ids: Sequence[str]) -> list[JobHistory]:
        """These jobs, each with the events up to its current row."""
        # Rows are read first: a job that moves meanwhile has too many events, never too few.
        jobs, text = self._store.find(queue, ids).values(), "{as_text}"
        events = self._by_job("event", "job_id", event_columns(self._store.dialect), "seq", ids)
        notes = self._by_job("note", "job_id", f"job_id{text}, at, kind, actor, details", "id", ids)
        slots = self._by_job("job", "id", f"id{text}, slot", "id", ids)
        parents = self._by_job("parent", "child", f"child{text}, parent{text}", "parent", ids)
        return [
            JobHistory(
                job,
                [Event._make(row) for row in events.get(job.id, ())][: job.seq],
                [Note._make(row) for row in notes.get(job.id, ())],
                next((slot for _, slot in slots.get(job.id, ())), None),
                sorted(parent for _, parent in parents.get(job.id, ())),
            )
            for job in jobs
        ]

    def _by_job(
        self, table: str, key: str, columns: str, order: str, ids: Sequence[str]
    ) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of these jobs, by the job's id, which is their first column."""
        rows: dict[str, list[tuple[Any, ...]]] = {}
        where = f"{key} {{among_ids}} ORDER BY {key}, {order}"
        sql = self._store.dialect.write(f"SELECT {columns} FROM {{{table}}} WHERE {where}")
        for row in self._read(sql, ids=self._store.dialect.array(ids)):
            rows.setdefault(row[0], []).append(row)
        return rows

    def count_waiting(self, queue: str) -> int:
        """How many jobs wait for others: those of the queue, and others for jobs of it."""
        return int(self._select("count_waiting", queue=queue)[0][0])

    def count_claimed(self, queue: str) -> int:
        return int(self._select("count_claimed", queue=queue)[0][0])

    # Writing

    def put(self, queue: str, histories: Sequence[JobHistory]) -> None:
        """Write jobs in one transaction; copies with their id, key or slot are deleted."""
        check_batch_size(histories)
        jobs = [history.job for history in histories]
        with self._store.transaction(), self._copying(queue):
            held = self._held(queue, histories)
            self._drop("drop_jobs", ids=self._store.dialect.array([job.id for job in jobs]))
            self._drop("drop_jobs", ids=self._store.dialect.array(self._rivals(queue, jobs, held)))
            rows = [
                (*_hot_values(job), job.dedup_key is not None, slot) for job, (slot, _) in zip(jobs, held, strict=True)
            ]
            self.insert("job", (*HOT_COLUMNS, "keyed", "slot"), rows)
            bodies = [(*_body_values(job), bool(job.once), key) for job, (_, key) in zip(jobs, held, strict=True)]
            self.insert("job_body", BODY_COLUMNS, bodies)
            self.insert("event", Event._fields, [row for copy in histories for row in copy.events])
            notes = [
                (copy.job.queue, copy.job.tenant, copy.job.id, *note[1:]) for copy in histories for note in copy.notes
            ]
            self.insert("note", NOTE_COLUMNS, notes)
            pairs = [(copy.job.id, parent, queue, True) for copy in histories for parent in copy.parents]
            self.insert("parent", ("child", "parent", "queue", "done"), pairs)

    def drop(self, queue: str, ids: Sequence[str]) -> None:
        """Delete these copies without a trace."""
        check_batch_size(ids)
        with self._store.transaction(), self._copying(queue):
            self._drop("drop_jobs", ids=self._store.dialect.array(ids))

    def _held(self, queue: str, histories: Sequence[JobHistory]) -> Held:
        """The slot and the key that each of these jobs holds in its state."""
        effects = {(edge[1], edge[3]): row for edge, row in self._store.declared(queue).items()}
        taken = self._slots_taken(queue, histories)
        held: Held = []
        for history in histories:
            job = history.job
            made = effects.get((job.move, job.state))
            holds_key = job.once or (made is not None and made.holds_key)
            slot = history.slot if made and made.slot else None
            if made and made.slot and slot is None:  # Redis counts its slots and names none
                whose = job.tenant if made.slots_per else ""
                names = (slot_name(made.slot, number, whose) for number in count(1))
                slot = next(name for name in names if name not in taken)
                taken.add(slot)
            held.append((slot, job.dedup_key if holds_key else None))
        return held

    def _slots_taken(self, queue: str, histories: Sequence[JobHistory]) -> set[str]:
        """The slots that other jobs have, or copies that come with one."""
        coming, rows = {each.job.id for each in histories}, self._select("slots_taken", queue=queue)
        taken = {slot for job_id, slot in rows if job_id not in coming}
        return taken | {history.slot for history in histories if history.slot}

    def _rivals(self, queue: str, jobs: Sequence[Job], held: Held) -> list[str]:
        """Ids of jobs that hold a key or slot of one of these: they are outdated copies."""
        rivals: list[str] = []
        keys: dict[str, list[str]] = {}
        for job, (_, key) in zip(jobs, held, strict=True):
            if key is not None:
                keys.setdefault(job.tenant, []).append(key)
        for tenant, tenant_keys in keys.items():
            rivals += self._store.ids_by_key(queue, tenant, tenant_keys).values()
        slots = [slot for slot, _ in held if slot is not None]
        if slots:
            rows = self._select("slot_holders", queue=queue, names=self._store.dialect.array(slots))
            rivals += [row[0] for row in rows]
        return rivals

    def replace_move_counts(self, queue: str, counts: Sequence[MoveCount], *, expected: list[MoveCount]) -> bool:
        """Replace the counters if they equal ``expected``; return False otherwise."""
        with self._store.transaction(), self._copying(queue):
            if self._store.dialect.name == "postgres":  # SQLite has only one writer
                sql = f"LOCK TABLE {self._table('flow')} IN SHARE ROW EXCLUSIVE MODE"
                self._store._rows(sql, {})  # noqa: SLF001
            if sorted(self._store.move_counts(queue)) != expected:
                return False
            self._drop("drop_counts", queue=queue)
            self.insert("flow", FLOW_COLUMNS, [(queue, *count) for count in counts])
        return True

    def put_rules(self, queue: str, versions: Sequence[RulesVersion]) -> None:
        """Store these versions of the rules, unless the queue has some already."""
        with self._store.transaction():
            self._store._lock_rules(queue)  # noqa: SLF001
            if not self._store.rules(queue):
                for version in versions:
                    self._store.write_rules(version)

    def declare(self, queue: str, rows: DeclaredMoves, definition: Definition) -> None:
        """Add moves: a history may contain moves that the lifecycle no longer has."""
        new = new_moves(rows, self._store.declared(queue))
        if new:
            self._store.write_declared(queue, new, definition)


class PostgresCopier(SqlCopier):
    """Inserts all rows of a table with one statement, from one JSON document."""

    @contextmanager
    def _copying(self, queue: str) -> Iterator[None]:
        sql = (
            "SELECT set_config('kesin.copying', txid_current()::text, true),"
            " set_config('kesin.copied_queue', %(queue)s, true)"
        )
        self._store._rows(sql, {"queue": queue})  # noqa: SLF001
        yield
        self._store._rows("SELECT set_config('kesin.copying', '', true)", {})  # noqa: SLF001

    def insert(self, table: str, columns: Sequence[str], rows: Rows, *, skip: bool = False) -> None:
        if rows:
            names, kind = ", ".join(columns), self._table(table)
            self._store._rows(  # noqa: SLF001
                f"INSERT INTO {kind} ({names}) SELECT {names}"
                f" FROM json_populate_recordset(NULL::{kind}, %(rows)s::json)"
                f"{_SKIP if skip else ''}",
                {"rows": wire_json([dict(zip(columns, row, strict=True)) for row in rows])},
            )


class SqliteCopier(SqlCopier):
    """Inserts row by row: in SQLite a statement costs a microsecond, not a round trip."""

    @contextmanager
    def _copying(self, queue: str) -> Iterator[None]:
        self._run("INSERT INTO copying (queue) VALUES (?)", [(queue,)])
        yield
        self._run("DELETE FROM copying WHERE queue = ?", [(queue,)])

    def insert(self, table: str, columns: Sequence[str], rows: Rows, *, skip: bool = False) -> None:
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        self._run(f"{sql}{_SKIP if skip else ''}", rows)

    def _run(self, sql: str, rows: Sequence[Any]) -> None:
        with self._store.transaction() as connection:
            connection.executemany(sql, rows)
