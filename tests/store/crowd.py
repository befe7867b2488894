"""Ten thousand jobs, or ten times as many, put into a store's tables behind the guard's back.

Each queue has the same few hundred jobs that something is about to happen to, and a bulk that
grows with the size: finished jobs, jobs at rest, jobs due now and jobs due later.
"""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from kesin.lifecycle.declare import Lifecycle
from kesin.store.postgres.store import PostgresStore
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads import lifecycles

NOW = 1_800_000_000_000_000
SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
SPAN = 60 * DAY  # from the first job to the last
TENANTS = 2
FEW = 60  # jobs in each small group: enough for a batch, whatever the size of the rest
# Batches, webhooks and adjustments ask nothing of the database that the others do not ask.
QUEUES: dict[str, Lifecycle] = {
    name: lifecycles()[name]()
    for name in sorted(lifecycles())
    if not name.startswith("pdf_") and name != "oci_adjustments"
}


@dataclass(frozen=True)
class Group:
    """Jobs in one state; ``columns`` are SQL expressions of the number ``i`` and of ``created``."""

    state: str
    phase: int
    share: float = 0  # of the queue's jobs; 0 means FEW
    columns: dict[str, str] = field(default_factory=dict)


def _claimed(lease_until: int, used: int = 1) -> dict[str, str]:
    return {
        "worker": "'worker-1'",
        "claimed_at": str(NOW - HOUR),
        "lease_until": str(lease_until),
        "seq": "2",
        "claim_seq": "2",
        "attempt_count": str(used),
    }


LIVE, LOST = _claimed(NOW + HOUR), _claimed(NOW - 1)
SPENT = {"attempt_count": "5", "seq": "11", "claim_seq": "10"}
DONE = {"attempt_count": "1", "seq": "3", "claim_seq": "2", "finished_at": "created + 1000000"}
LATER = {"run_at": f"{NOW + DAY} + i"}


def _error(code: str, category: str) -> dict[str, str]:
    words = {"error_code": code, "error_category": category, "error_message": "it did not work"}
    return {column: f"'{text}'" for column, text in words.items()}


FLAKY, WRONG = _error("UPLOAD_EXCEPTION", "TRANSIENT"), _error("VALIDATION_FAILED", "VALIDATION")
BLOCKED = _error("E_DROP_DIR_UNWRITABLE", "TRANSIENT")
OVERDUE = {"timer_at": f"{NOW - HOUR} + i"}
FRESH_CLICK = {"stamp_1": f"{NOW - 40 * DAY} + i"}
OLD_CLICK = {"stamp_1": f"{NOW - 95 * DAY} + i"}

CROWD: dict[str, list[Group]] = {
    "task": [
        Group("done", 3, 0.5, DONE),
        Group("failed", 2, 0.1, DONE | WRONG),
        Group("ready", 0, 0.3),
        Group("ready", 0, 0.1, LATER),
        Group("ready", 0, columns=SPENT),
        Group("running", 1, columns=LIVE),
        Group("running", 1, columns=LOST),
        Group("running", 1, columns=_claimed(NOW - 1, used=5)),
    ],
    "oci": [
        Group("COMPLETED", 3, 0.4, DONE | FRESH_CLICK),
        Group("FAILED", 2, 0.1, DONE | WRONG | FRESH_CLICK),
        Group("FAILED", 2, 0.1, DONE | FLAKY | {"timer_at": f"{NOW + HOUR} + i"}),
        Group("QUEUED", 0, 0.3, FRESH_CLICK),
        Group("RETRY", 0, 0.1, LATER | FRESH_CLICK),
        Group("QUEUED", 0, columns=OLD_CLICK | LATER),
        Group("QUEUED", 0, columns=FRESH_CLICK | LATER | {"stamp_4": f"{NOW - DAY} + i"}),
        Group("RETRY", 0, columns=SPENT | LATER),
        Group("FAILED", 2, columns=DONE | FLAKY | OVERDUE),
        Group("PROCESSING", 1, columns=LIVE | FRESH_CLICK),
        Group("PROCESSING", 1, columns=LOST),
        Group("PROCESSING", 1, columns=_claimed(NOW - 1, used=5)),
    ],
    "pdf": [
        Group("expired", 3, 0.4, DONE),
        Group("succeeded", 2, 0.2, DONE),
        Group("failed", 2, 0.1, DONE | WRONG),
        Group("queued", 0, 0.2),
        Group("queued", 0, 0.1, LATER),
        Group("running", 1, columns=LIVE | {"stamp_1": "created"}),
        Group("running", 1, columns=LOST),
    ],
    "optiplan": [
        Group("DONE", 3, 0.5, DONE),
        Group("HOLD", 2, 0.05, DONE | _error("E_CRM_NO_MATCH", "VALIDATION")),
        Group("FAILED", 2, 0.05, DONE | _error("E_OSI_ACK_FAILED", "TRANSIENT")),
        Group("NEW", 0, 0.2),
        Group("OPTI_DONE", 0, 0.1, LATER),
        Group("XML_READY", 0, 0.1, LATER | {"timer_at": f"{NOW + HOUR} + i"}),
        Group("XML_READY", 0, columns=LATER | OVERDUE),
        Group("XML_READY", 0, columns=LATER | OVERDUE | BLOCKED),
        Group("NEW", 0, columns=SPENT | LATER),
        Group("DELIVERED", 4),
        Group("NEW", 1, columns=LIVE),
        Group("OPTI_IMPORTED", 1, columns=LIVE),
        Group("PREPARED", 1, columns=LOST),
        Group("XML_READY", 1, columns=LOST),
    ],
}


@dataclass(frozen=True)
class Written:
    """A group with its place: numbers from ``first`` to before ``end``."""

    queue: str
    group: Group
    first: int
    end: int
    total: int  # jobs of the queue
    tenants: int

    @property
    def holds_key(self) -> bool:
        return QUEUES[self.queue].state[self.group.state].holds_key

    def expressions(self, job_id: str) -> dict[str, str]:
        """Column → expression; the first groups of a queue are the oldest."""
        return {
            "id": job_id,
            "queue": f"'{self.queue}'",
            "tenant": f"'t' || (i % {self.tenants})",
            "state": f"'{self.group.state}'",
            "phase": str(self.group.phase),
            "move": "'enqueue'",
            "actor": "'producer'",
            "seq": "1",
            "max_attempts": "5",
            "salt": "i",
            "created_at": "created",
            "moved_at": "created",
            "run_at": "created",
            **self.group.columns,
        }

    def created(self) -> str:
        return f"{NOW - SPAN} + i * {SPAN // self.total}"


def written(jobs: int, tenants: int = TENANTS) -> Iterator[Written]:
    for queue, groups in CROWD.items():
        total = jobs // len(CROWD)
        bulk = total - FEW * sum(not group.share for group in groups)
        first = 0
        for group in groups:
            end = first + (round(bulk * group.share) if group.share else FEW)
            yield Written(queue, group, first, end, total, tenants)
            first = end


def _statements(jobs: int, tenants: int, schema: str, series: Callable[[int, int], str], job_id: str) -> Iterator[str]:
    for number, part in enumerate(written(jobs, tenants)):
        rows = f"(SELECT i, {part.created()} AS created FROM {series(part.first, part.end)}) r"
        this_id = job_id.replace("QUEUE", str(list(QUEUES).index(part.queue)))
        columns = part.expressions(this_id) | {"keyed": "i % 2 = 0"}
        names, values = ", ".join(columns), ", ".join(columns.values())
        yield f"INSERT INTO {schema}job ({names}) SELECT {values} FROM {rows}"
        key = "CASE WHEN i % 2 = 0 THEN 'key-' || i END"
        held = key if part.holds_key else "NULL"
        yield (
            f"INSERT INTO {schema}job_body (id, queue, tenant, dedup_key, held_key, payload)"
            f" SELECT {this_id}, '{part.queue}', {columns['tenant']}, {key}, {held},"
            f" '{{\"n\":' || i || '}}' FROM {rows}"
        )
        yield (
            f"INSERT INTO {schema}search_term (job_id, term, queue, tenant)"
            f" SELECT {this_id}, 'n' || i, '{part.queue}', {columns['tenant']} FROM {rows}"
        )
        some = "" if part.group.share == 0 else " WHERE i % 5 = 0"
        yield (
            f"INSERT INTO {schema}event (job_id, at, seq, attempt, attempt_base, return_count,"
            " max_attempts, retry_count, flags, mask, phase, claim, move, from_state, to_state,"
            f" actor) SELECT {this_id}, created, 1, 0, 0, 0, 5, 0, 0, 2, 0, -1, 'enqueue', '',"
            f" '{part.group.state}', 'producer' FROM {rows}{some}"
        )
        yield (
            f"INSERT INTO {schema}flow (queue, tenant, move, from_state, to_state, n)"
            f" SELECT '{part.queue}', {columns['tenant']}, 'enqueue{number}', '',"
            f" '{part.group.state}', count(*) FROM {rows} GROUP BY 2"
        )


def crowd_postgres(url: str, schema: str, jobs: int) -> None:
    """Fill a schema; no statistics are taken, and nothing takes them later unasked."""
    store = PostgresStore(url, schema=schema, pool_size=1, listen=False, migrate=True)
    for queue, lifecycle in QUEUES.items():
        store.open(queue, lifecycle, virtual_time=True)
    store.close()
    hexed = "lpad(to_hex(created / 1000), 12, '0')"
    job_id = (
        f"(substr({hexed}, 1, 8) || '-' || substr({hexed}, 9) || '-7000-8QUEUE00-' || lpad(to_hex(i), 12, '0'))::uuid"
    )
    series = lambda first, end: f"generate_series({first}::bigint, {end - 1}) i"  # noqa: E731
    with psycopg.connect(url, autocommit=True) as connection:
        indexes = connection.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = %s"
            " AND tablename IN ('job', 'job_body', 'event') AND indexname NOT LIKE '%%pkey'",
            (schema,),
        ).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {schema}.{name}")
        for table in ("job", "job_body", "event", "flow"):
            connection.execute(f"ALTER TABLE {schema}.{table} SET UNLOGGED")
            connection.execute(f"ALTER TABLE {schema}.{table} SET (autovacuum_enabled = off)")
            connection.execute(f"ALTER TABLE {schema}.{table} DISABLE TRIGGER USER")
        for statement in _statements(jobs, TENANTS, f"{schema}.", series, job_id):
            connection.execute(statement)
        for _, definition in indexes:
            connection.execute(definition)
        for table in ("job", "job_body", "event"):
            connection.execute(f"ALTER TABLE {schema}.{table} ENABLE TRIGGER USER")


def crowd_sqlite(path: Path, jobs: int, tenants: int = TENANTS) -> None:
    """Fill a file; the guard is dropped for it and put back."""
    store = SqliteStore(path)
    for queue, lifecycle in QUEUES.items():
        store.open(queue, lifecycle, virtual_time=True)
    store.close()
    job_id = "printf('%08x-%04x-7000-8QUEUE00-%012x', created/1000 >> 16, created/1000 & 65535, i)"
    series = lambda first, end: (  # noqa: E731
        f"(WITH RECURSIVE s(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM s WHERE i < {end - 1}) SELECT i FROM s)"
    )
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -500000")
    put_back = connection.execute(
        "SELECT type, name, sql FROM sqlite_master"
        " WHERE type = 'trigger' OR (type = 'index' AND sql IS NOT NULL) ORDER BY type"
    ).fetchall()
    connection.execute("BEGIN")
    for kind, name, _ in put_back:
        connection.execute(f"DROP {kind} {name}")
    for statement in _statements(jobs, tenants, "", series, job_id):
        connection.execute(statement)
    for _, _, definition in put_back:
        connection.execute(definition)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
