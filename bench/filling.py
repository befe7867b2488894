"""Filling a queue with finished jobs by the million: copies of one that the engine wrote.

One job goes the plain way through the engine. Its rows are then multiplied inside the database,
past the guard: the same columns with the same values, but for ids, times and the number in the
payload, which go on from job to job. So a change of the tables is a change of what is filled, and a
sample of the copies must replay like any job.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

import kesin
from kesin.engine.replay import differences
from kesin.foundation.ids import salt_of
from kesin.lifecycle.model import Job
from kesin.store.records import Filter
from kesin.store.search import terms_of

QUEUE = "grown"
SPAN_US = 60 * 86_400_000_000  # the copies were created over so long
CHUNK = 500_000  # copies in a transaction
FIRST = "A0000000"  # the order of the job that is copied; the copies count on from it
TIMES = ("at", "created_at", "moved_at", "run_at", "finished_at")
TABLES = {"job": "id", "job_body": "id", "event": "job_id", "search_term": "job_id"}
GENEROUS = 1.5  # times what the fill is expected to take must be free


def open_grown(address: str) -> kesin.Queue:
    """The queue that grows: the plain lifecycle, found by the order."""
    store = kesin.open_store(address)
    return kesin.Queue(QUEUE, kesin.task_lifecycle(), store, title="{order}", search=["order"])


def order(number: int) -> str:
    """The order of a copy."""
    return f"A{number:07}"


def fill(address: str, rows: int, folder: Path, a_job: float | None = None) -> None:
    """Fill an empty database with so many finished jobs; ``a_job`` bytes each must be free."""
    needed = GENEROUS * rows * (a_job or 0)
    if shutil.disk_usage(folder).free < needed:
        raise SystemExit(f"{rows:,} jobs need {needed / 1e9:.0f} GB in {folder}: free some first")
    with closing(open_grown(address).store) as store:
        queue = kesin.Queue(QUEUE, kesin.task_lifecycle(), store)
        queue.enqueue({"order": FIRST})
        kesin.Worker(queue, lambda _job: None, name="w").drain()
        [job] = queue.jobs().jobs
    if address.startswith("postgresql:"):
        _fill_postgres(address, job, rows)
    else:
        _fill_sqlite(address, job, rows)


def size_of(address: str) -> int:
    """The bytes of a database."""
    if not address.startswith("postgresql:"):
        return Path(address).stat().st_size
    with psycopg.connect(address) as connection:
        [(size,)] = connection.execute("SELECT pg_database_size(current_database())").fetchall()
        return int(size)


def _chunks(rows: int) -> Iterator[tuple[int, int]]:
    for first in range(1, rows + 1, CHUNK):
        yield first, min(first + CHUNK - 1, rows)


def _expressions(columns: list[str], key: str, words: dict[str, str]) -> str:
    """The value of each column of a copy."""
    given = {key: words["id"], "salt": words["salt"]}
    given |= {name: f"t.{name} - {SPAN_US} + {words['shift']}" for name in TIMES}
    given["payload"] = f"replace(t.payload, '{FIRST}', {words['order']})"
    given["term"] = f"replace(t.term, '{FIRST.lower()}', lower({words['order']}))"
    return ", ".join(given.get(name, f"t.{name}") for name in columns)


def _flows(job: Job, rows: int, schema: str) -> str:
    """The counters of the copies, from the history of the job that was copied."""
    return (
        f"SELECT '{job.queue}', '{job.tenant}', move, from_state, to_state, {rows}, at"
        f" FROM {schema}event WHERE job_id = '{job.id}'"
    )


def _fill_postgres(url: str, job: Job, rows: int) -> None:
    # As the engine makes it: 48 bits of milliseconds, the version, and what is random, here n.
    milliseconds = f"({job.created_at} - {SPAN_US} + n.shift) / 1000"
    words = {
        "id": f"(lpad(to_hex({milliseconds}), 12, '0') || '70008000' || lpad(to_hex(n.n), 12, '0'))::uuid",
        "salt": "(n.n & 2147483647)::integer",
        "shift": "n.shift",
        "order": "'A' || lpad(n.n::text, 7, '0')",
    }
    numbers = f"(SELECT n, n * {SPAN_US // rows} AS shift FROM generate_series(%s::bigint, %s::bigint) n) n"

    def copy(table: str, key: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")  # past the triggers
            connection.execute("SET synchronous_commit = off")
            connection.execute("SET maintenance_work_mem = '256MB'")
            connection.execute(f"CREATE TEMP TABLE one AS SELECT * FROM kesin.{table} WHERE {key} = '{job.id}'")
            columns = _columns_of(connection, "one")
            values = _expressions(columns, key, words)
            rebuild = _drop_indexes(connection, table)
            for first, last in _chunks(rows):
                connection.execute(
                    f"INSERT INTO kesin.{table} ({', '.join(columns)}) SELECT {values} FROM {numbers} CROSS JOIN one t",
                    (first, last),
                )
            for statement in rebuild:
                connection.execute(statement)
            connection.execute(f"VACUUM ANALYZE kesin.{table}")

    with psycopg.connect(url, autocommit=True) as connection:
        columns = "queue, tenant, move, from_state, to_state, n, at"
        connection.execute("SET session_replication_role = replica")
        connection.execute(f"INSERT INTO kesin.flow ({columns}) {_flows(job, rows, 'kesin.')}")
        with ThreadPoolExecutor(len(TABLES)) as pool:
            list(pool.map(copy, TABLES, TABLES.values()))
        connection.execute("CHECKPOINT")


def _drop_indexes(connection: psycopg.Connection[Any], table: str) -> list[str]:
    """Drop a table's indexes; what builds them again, at the end and many times as fast."""
    keys = connection.execute(
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'p'",
        (f"kesin.{table}",),
    ).fetchall()
    indexes = connection.execute(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'kesin' AND tablename = %s"
        " AND indexname <> ALL(%s)",
        (table, [name for name, _ in keys]),
    ).fetchall()
    for name, _ in indexes:
        connection.execute(f"DROP INDEX kesin.{name}")
    for name, _ in keys:
        connection.execute(f"ALTER TABLE kesin.{table} DROP CONSTRAINT {name}")
    return [
        *(f"ALTER TABLE kesin.{table} ADD CONSTRAINT {name} {how}" for name, how in keys),
        *(definition for _, definition in indexes),
    ]


def _columns_of(connection: psycopg.Connection[Any], table: str) -> list[str]:
    cursor = connection.execute(f"SELECT * FROM {table} LIMIT 0")
    return [column.name for column in cursor.description or ()]


def _fill_sqlite(path: str, job: Job, rows: int) -> None:
    words = {
        "id": f"printf('%08x-%04x-7000-8000-%012x',"
        f" ({job.created_at} - {SPAN_US} + n.shift) / 65536000,"
        f" ({job.created_at} - {SPAN_US} + n.shift) / 1000 % 65536, n.n)",
        "salt": "n.n & 2147483647",
        "shift": "n.shift",
        "order": "printf('A%07d', n.n)",
    }
    numbers = (
        "WITH RECURSIVE s(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM s WHERE n < :last),"
        f" n AS (SELECT n, n * {SPAN_US // rows} AS shift FROM s)"
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for pragma in (
            "journal_mode = OFF",
            "synchronous = OFF",
            "cache_size = -100000",
            "ignore_check_constraints = ON",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for first, last in _chunks(rows):
            connection.execute("BEGIN")
            for table, key in TABLES.items():
                cursor = connection.execute(f"SELECT * FROM {table} LIMIT 0")
                columns = [column[0] for column in cursor.description]
                values = _expressions(columns, key, words)
                connection.execute(
                    f"{numbers} INSERT INTO {table} ({', '.join(columns)}) SELECT {values}"
                    f" FROM n CROSS JOIN {table} t WHERE t.{key} = '{job.id}'",
                    {"first": first, "last": last},
                )
            connection.execute("COMMIT")
        connection.execute("UPDATE flow SET n = n + ? WHERE queue = ?", (rows, QUEUE))
        for _, sql in triggers:
            connection.execute(sql)
        connection.execute("ANALYZE")
        connection.execute("PRAGMA journal_mode = WAL").fetchall()


def check(queue: kesin.Queue, rows: int, *, sample: int = 200) -> None:
    """Compare what was filled: by count, by replay of a sample, and by what enqueue would write."""
    states = queue.stats().states
    if states["done"] != rows + 1:
        raise RuntimeError(f"the counters say {states}, expected {rows + 1} jobs that are done")
    flows = {(flow.from_state, flow.to_state): flow.n for flow in queue.store.move_counts(QUEUE)}
    if set(flows.values()) != {rows + 1}:
        raise RuntimeError(f"the counters of the moves say {flows}")
    for number in range(1, rows + 1, max(rows // sample, 1)):
        [job] = queue.jobs(Filter(search=order(number))).jobs
        expected = {"order": order(number)}
        wrong: list[Any] = list(differences(job, queue.events(job.id)))
        wrong += [job.payload] if job.payload != expected else []
        wrong += [job.salt] if job.salt != salt_of(job.id) else []
        wrong += ["terms"] if terms_of(expected, ["order"]) != {order(number).lower()} else []
        if wrong:
            raise RuntimeError(f"job {number} is not as the engine writes it: {wrong[0]}")
