"""Reading by counters and an index: ten million jobs cost no more than ten thousand."""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from kesin.foundation.clock import Time
from kesin.foundation.ids import first_id_at, is_id
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import OWNED
from kesin.store.contract import Store
from kesin.store.counters import Overdue, count_jobs
from kesin.store.errors import UnknownQueue
from kesin.store.limits import (
    FAILURE_PERIOD_US,
    FIRST_ID,
    LAST_ID,
    MAX_FAILURES_READ,
    check_age_stamp,
    check_batch_size,
    check_page,
    valid_ids,
)
from kesin.store.records import (
    AgedSince,
    Backlog,
    Definition,
    Event,
    FailureCount,
    Filter,
    JobCount,
    Listing,
    MoveCount,
    NewJobRow,
    Note,
    Page,
    Pause,
    QueueStats,
)
from kesin.store.search import AFTER_ALL, fold
from kesin.store.sql.columns import InputRow, event_columns, job_columns
from kesin.store.sql.conditions import failures_sql
from kesin.store.sql.dialect import Dialect, shared_statements
from kesin.store.sql.statements import Statements

MAX_FOUND = 1_000  # jobs that a search reads by its index; of more, it walks through the newest
MAX_CLOCK_SKEW_S = DAY_S  # between the clocks of the store and of the processes that create ids


RunStatement = Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]


class SqlReader(Store):
    """The reading half of the SQL stores."""

    dialect: Dialect
    _queues: dict[str, Statements]

    @abstractmethod
    def _read(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run one query."""

    def statements(self, queue: str) -> Statements:
        """The queue's statements; public for query-plan tests and benchmarks."""
        try:
            return self._queues[queue]
        except KeyError:
            raise UnknownQueue(queue) from None

    def _lifecycle(self, queue: str) -> Lifecycle:
        return self.statements(queue).lifecycle

    def _rows_of_queue(self, table: str, columns: str, queue: str, ending: str = "") -> list[tuple[Any, ...]]:
        where = f"{self.dialect.table(table)} WHERE queue = {self.dialect.param('queue')}"
        return self._read(f"SELECT {columns} FROM {where}{ending}", {"queue": queue})

    def _beside(self, name: str) -> str:
        """The statement of this name about what stands beside the jobs."""
        return self.dialect.write(shared_statements("beside")[name])

    @cached_property
    def _whole_jobs(self) -> str:
        columns = job_columns(self.dialect)
        job, body = self.dialect.table("job"), self.dialect.table("job_body")
        return f"SELECT {columns} FROM {job} j JOIN {body} b ON b.id = j.id"

    def job(self, job_id: str) -> Job | None:
        if not is_id(job_id):
            return None
        sql = f"{self._whole_jobs} WHERE j.id = {self.dialect.param('id')}"
        rows = self._read(sql, {"id": job_id})
        return Job._make(rows[0]) if rows else None

    def find(self, queue: str, ids: Sequence[str]) -> dict[str, Job]:
        return {job.id: job for job in map(Job._make, self._read_ids("find", queue, ids))}

    def states(self, queue: str, ids: Sequence[str]) -> dict[str, str]:
        return dict(self._read_ids("states", queue, ids))

    def _read_ids(self, name: str, queue: str, ids: Sequence[str]) -> list[tuple[Any, ...]]:
        sql, requested = self.statements(queue).plain(name), valid_ids(ids)
        params = {"queue": queue, "ids": self.dialect.array(requested)}
        return self._read(sql, params) if requested else []

    def ids_by_key(self, queue: str, tenant: str, keys: Sequence[str]) -> dict[str, str]:
        statements = self.statements(queue)
        check_batch_size(keys)
        requested = list(dict.fromkeys(keys))
        if not requested:
            return {}
        keys_of_tenant = [InputRow(tenant, dedup_key=key) for key in requested]
        held = self._find_holders(self._read, statements, keys_of_tenant)
        return {requested[index]: job_id for index, job_id, *_ in held}

    def key_holders(self, queue: str, tenants: Sequence[str], key: str) -> list[str]:
        keys = [InputRow(tenant, dedup_key=key) for tenant in tenants]
        rows = self._find_holders(self._read, self.statements(queue), keys) if keys else []
        return [row[1] for row in rows]

    def _find_holders(
        self, run: RunStatement, statements: Statements, keys: Sequence[InputRow | NewJobRow]
    ) -> list[tuple[Any, ...]]:
        """The index of each key that is held, and the id, state and seq of its holder."""
        holders = statements.over_input("holders")
        params = {"queue": statements.queue, "items": statements.items(holders, keys)}
        return run(holders.sql, params)

    def jobs(self, queue: str, where: Filter, *, limit: int = 100, cursor: str | None = None) -> Page:
        statements = self.statements(queue)
        check_page(limit, cursor)
        params: dict[str, Any] = {"queue": queue, "limit": limit + 1}
        params["cursor"] = cursor or (FIRST_ID if where.oldest_first else LAST_ID)
        conditions = self._filters(where, params)
        among = self._among(statements, where)
        if among is not None:
            params["ids"] = self.dialect.array(among)
        name = "jobs" + _way_in(where) if among is None else "jobs_among"
        sql = statements.jobs(name, conditions, oldest_first=where.oldest_first)
        jobs = [Job._make(row) for row in self._read(sql, params)]
        return Page(jobs[:limit], jobs[limit - 1].id if len(jobs) > limit else None)

    def count_matching(
        self, queue: str, where: Filter, *, limit: int, above: str = FIRST_ID, below: str = LAST_ID
    ) -> JobCount:
        params: dict[str, Any] = {"queue": queue, "most": limit + 1}
        conditions = self._filters(where, params)
        params["above"] = max(above, params.get("first_id", above))
        params["below"] = min(below, params.get("last_id", below))
        sql = self.statements(queue).jobs("count" + _way_in(where), conditions)
        [(fitting, examined)] = self._read(sql, params)
        return JobCount(min(fitting, limit), examined <= limit)

    def _among(self, statements: Statements, where: Filter, ids: Sequence[str] | None = None) -> list[str] | None:
        """The ids that can match, if the ids or a dedup key limit them; otherwise None."""
        if ids is not None:
            return valid_ids(ids)
        if where.search and (found := self._found(statements, where)) is not None:
            return found
        if where.tenants is None or where.dedup_key is None or not statements.keeps_keys:
            return None
        keys = [InputRow(each, dedup_key=where.dedup_key) for each in dict.fromkeys(where.tenants)]
        return [row[1] for row in self._find_holders(self._read, statements, keys)]

    def _found(self, statements: Statements, where: Filter) -> list[str] | None:
        """The jobs that have the terms; None if these are too many."""
        params: dict[str, Any] = {"queue": statements.queue, "most": MAX_FOUND + 1}
        _, pair_conditions = self._filters(where, params)
        rows = self._read(statements.found(pair_conditions), params)
        return None if len(rows) > MAX_FOUND else list(dict.fromkeys(str(row[0]) for row in rows))

    def _filters(self, where: Filter, params: dict[str, Any]) -> tuple[str, str]:
        param, body = self.dialect.param, self.dialect.table("job_body")
        rows = [f"j.phase <> {OWNED}"] * where.unclaimed
        pair_conditions = ["TRUE"]
        for conditions, column, name, values in (
            (pair_conditions, "p.state", "states", where.states or None),
            (pair_conditions, "p.tenant", "tenants", where.tenants),
            (rows, "j.error_code", "codes", list(dict.fromkeys(where.codes)) or None),
            (rows, "j.error_category", "categories", where.categories or None),
        ):
            if values is not None:
                conditions.append(self.dialect.is_in(column, name))
                params[name] = self.dialect.array(values)
        find = "strpos" if self.dialect.name == "postgres" else "instr"
        in_body = f"EXISTS (SELECT 1 FROM {body} b WHERE b.id = j.id AND"
        text = f"%{escape_like(where.text.lower())}%" if where.text else None
        for name, value, condition in (
            ("created_from", where.created_from, "j.created_at >= {}"),
            ("created_before", where.created_before, "j.created_at < {}"),
            ("moved_before", where.moved_before, "j.moved_at < {}"),
            # Ids begin with the creation time, so these bounds end the index scan early.
            ("first_id", _id_at(where.created_from, -MAX_CLOCK_SKEW_S), "j.id >= {}"),
            ("last_id", _id_at(where.created_before, MAX_CLOCK_SKEW_S), "j.id < {}"),
            ("dedup_key", where.dedup_key, f"{in_body} b.dedup_key = {{}})"),
            ("text", text, "lower(j.error_message) LIKE {} ESCAPE '!'"),
            ("contains", where.contains or None, f"{in_body} {find}(b.payload, {{}}) > 0)"),
        ):
            if value is not None:
                rows.append(condition.format(param(name)))
                params[name] = value
        rows += [] if where.search is None else [self._has_term(where.search, params)]
        return "".join(f" AND {row}" for row in rows), " AND ".join(pair_conditions)

    def _has_term(self, search: str, params: dict[str, Any]) -> str:
        """Whether a job has a term that begins so; the parameters are those of ``found`` too."""
        param, terms = self.dialect.param, self.dialect.table("search_term")
        term = params["term"] = fold(search)
        params["after_term"] = term and term + AFTER_ALL
        # No EXISTS, which PostgreSQL may turn into a join with all terms.
        return (
            f"(SELECT 1 FROM {terms} st WHERE st.job_id = j.id AND st.term >= {param('term')}"
            f" AND st.term < {param('after_term')} LIMIT 1) IS NOT NULL"
        )

    def events(self, job_id: str) -> list[Event]:
        if not is_id(job_id):
            return []
        sql = (
            f"SELECT {event_columns(self.dialect)} FROM {self.dialect.table('event')}"
            f" WHERE job_id = {self.dialect.param('id')} ORDER BY seq"
        )
        return [Event._make(row) for row in self._read(sql, {"id": job_id})]

    def notes(self, *job_ids: str) -> list[Note]:
        ids = valid_ids(job_ids)
        rows = self._read(self._beside("notes"), {"ids": self.dialect.array(ids)}) if ids else []
        return [Note._make(row) for row in rows]

    def move_counts(self, queue: str) -> list[MoveCount]:
        columns = "tenant, move, from_state, to_state, CAST(sum(n) AS bigint), max(at)"
        grouped = " GROUP BY 1, 2, 3, 4"
        if self.dialect.name == "sqlite":  # its counters always have one row for each edge
            columns, grouped = "tenant, move, from_state, to_state, n, at", ""
        rows = self._rows_of_queue("flow", columns, queue, grouped + " ORDER BY 1, 2, 3, 4")
        return list(map(MoveCount._make, rows))

    def stats(self, queue: str, *, now: int | None = None) -> QueueStats:
        known = self.statements(queue).lifecycle.state
        return count_jobs(queue, self.move_counts(queue), known, self._overdue(queue, now))

    def totals(self, queue: str, *, now: int | None = None, oldest: bool = False) -> QueueStats:
        columns = "'', move, from_state, to_state, CAST(sum(n) AS bigint), max(at)"
        rows = self._rows_of_queue("flow", columns, queue, " GROUP BY 2, 3, 4 ORDER BY 2, 3, 4")
        known, counts = self.statements(queue).lifecycle.state, list(map(MoveCount._make, rows))
        overdue = self._overdue(queue, now, oldest=oldest)
        return replace(count_jobs(queue, counts, known, overdue), tenants={})

    def _failures(self, queue: str, where: Filter, recent_from: int) -> list[FailureCount]:
        params: dict[str, Any] = {"queue": queue, "most": MAX_FAILURES_READ}
        params |= {"recent_from": recent_from, "period": FAILURE_PERIOD_US}
        filters = ""
        if where.tenants is not None:
            filters = f"AND {self.dialect.is_in('j.tenant', 'tenants')}"
            params["tenants"] = self.dialect.array(where.tenants)
        sql = failures_sql(self.statements(queue).compiler, filters, where.states)
        return sorted(map(_failure_count, self._read(sql, params)))

    def backlog(self, queue: str, tenant: str, *, aged: AgedSince | None = None, now: int | None = None) -> Backlog:
        statements = self.statements(queue)
        lifecycle = statements.lifecycle
        check_age_stamp(lifecycle, queue, aged)
        working = self.dialect.array([state.name for state in lifecycle.states if state.working])
        params = {"queue": queue, "tenant": tenant, "now": now, "aged": aged and aged[1]}
        params["states"] = working
        values: dict[str, dict[str, Any]] = {}
        for kind, state, number in self._read(statements.plain("waiting"), params):
            values.setdefault(kind, {})[state] = number
        first = {state: at for state, at in values["first"].items() if at is not None}
        return Backlog(values["due"][""], first, values["over"][""], values["aging"][""])

    def aging(self, queue: str, aged: AgedSince) -> dict[str, int]:
        lifecycle = self.statements(queue).lifecycle
        is_end = aged[0] in lifecycle.stamps[3:]  # the fourth, which has an index too
        check_age_stamp(lifecycle, queue, None if is_end else aged)
        stamp, index = ("j.stamp_4", "job_ended") if is_end else ("j.stamp_1", "job_aged")
        jobs = f"{self.dialect.table('job')} j"
        jobs += f" INDEXED BY {index}" if self.dialect.name == "sqlite" else ""
        sql = (
            f"SELECT a.tenant, count(*) FROM (SELECT j.tenant FROM {jobs}"
            f" WHERE j.queue = {self.dialect.param('queue')} AND j.phase = 0"
            f" AND {stamp} IS NOT NULL AND {stamp} < {self.dialect.param('aged')}"
            f" ORDER BY {stamp} LIMIT 100000) a GROUP BY a.tenant"
        )
        return dict(self._read(sql, {"queue": queue, "aged": aged[1]}))

    def count_ahead(self, queue: str, job_id: str, *, limit: int) -> int | None:
        statements = self.statements(queue)
        if not is_id(job_id):
            return None
        rows = self._read(statements.plain("ahead"), {"queue": queue, "id": job_id, "most": limit})
        return rows[0][0] if rows else None

    def _overdue(self, queue: str, now: int | None, *, oldest: bool = True) -> Overdue:
        params = {"queue": queue, "now": now, "oldest": oldest}
        [(due_at, overdue, at)] = self._read(self.statements(queue).plain("overdue"), params)
        return due_at, overdue, at

    def ready_tenants(self, queue: str, limit: int) -> list[str]:
        sql = self.statements(queue).plain("ready_tenants")
        return [row[0] for row in self._read(sql, {"queue": queue, "limit": limit})]

    def paused(self, queue: str) -> list[Pause]:
        columns = "queue, tenant, at, actor, reason"
        rows = self._rows_of_queue("paused", columns, queue, " ORDER BY tenant")
        return [Pause._make(row) for row in rows]

    def ping(self) -> None:
        self._read(f"SELECT 1 FROM {self.dialect.table('schema_migration')} LIMIT 1", {})

    def definition(self, queue: str) -> Definition | None:
        rows = self._rows_of_queue("lifecycle", "definition", queue)
        return Definition.parse(rows[0][0]) if rows else None

    def listing(self, queue: str) -> Listing:
        rows = self._rows_of_queue("listing", "title, search", queue)
        return Listing(rows[0][0], tuple(json.loads(rows[0][1]))) if rows else Listing()

    def queues(self) -> list[str]:
        sql = f"SELECT queue FROM {self.dialect.table('lifecycle')} ORDER BY queue"
        return [row[0] for row in self._read(sql, {})]

    def _join_events(
        self, jobs: Iterator[tuple[Any, ...]], events: Iterator[tuple[Any, ...]]
    ) -> Iterator[tuple[Job, list[Event]]]:
        """Merge two streams ordered by job id; events of pruned jobs do not exist."""
        pending = next(events, None)
        for row in jobs:
            job = Job._make(row)
            history: list[Event] = []
            while pending is not None and pending[0] <= job.id:
                if pending[0] == job.id:
                    history.append(Event._make(pending))
                pending = next(events, None)
            yield job, history


def _failure_count(row: tuple[Any, ...]) -> FailureCount:
    parts = (part.split(":") for part in row[-1].split(",")) if row[-1] else ()
    trend = tuple(sorted((int(part), int(n)) for part, n in parts))
    return FailureCount._make((*row[:4], bool(row[4]), int(row[5]), *row[6:-1], trend))


def _id_at(at: Time | None, skew_s: int) -> str | None:
    return first_id_at(at + skew_s * SECOND_US) if isinstance(at, int) else None


def _way_in(where: Filter) -> str:
    """For one tenant, its own jobs are the shorter scan; for all tenants, jobs with the code."""
    return "_coded" if where.codes and where.tenants is None else ""


def escape_like(text: str) -> str:
    """Text for a LIKE pattern, with ``!`` before the special characters."""
    for sign in ("!", "%", "_"):
        text = text.replace(sign, "!" + sign)
    return text
