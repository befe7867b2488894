"""Rows of finished jobs past the guard, without their histories; and how long a call takes.

The guard is switched on again before anything is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import kesin
from kesin.foundation.clock import wall_clock_us
from kesin.store.postgres.store import PostgresStore
from kesin.store.sqlite.store import SqliteStore

Answer = TypeVar("Answer")

_PG_LOAD = """
INSERT INTO kesin.job (id, queue, tenant, state, phase, move, actor, seq, max_attempts, salt, keyed,
  created_at, moved_at, run_at, finished_at, attempt_count)
SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, %(queue)s, %(tenant)s,
  %(state)s, 3, 'load', 'load', 3, 5, n %% 1000, FALSE, %(now)s, %(now)s, %(now)s, %(now)s, 1
FROM generate_series(1, %(rows)s) n
"""
_PG_BODIES = """
INSERT INTO kesin.job_body (id, queue, tenant, payload)
SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, %(queue)s, %(tenant)s, '{}'
FROM generate_series(1, %(rows)s) n
"""
_LITE_LOAD = """
WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < :rows)
INSERT INTO job (id, queue, tenant, state, phase, move, actor, seq, max_attempts, salt, created_at,
  moved_at, run_at, finished_at, attempt_count)
SELECT printf('00000000-0000-7000-8000-%012x', n), :queue, :tenant, :state, 3, 'load', 'load',
  3, 5, n % 1000, :now, :now, :now, :now, 1
FROM s
"""
_LITE_BODIES = """
WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < :rows)
INSERT INTO job_body (id, queue, tenant, payload)
SELECT printf('00000000-0000-7000-8000-%012x', n), :queue, :tenant, '{}' FROM s
"""


def timed(call: Callable[[], Answer]) -> tuple[Answer, float]:
    started = time.perf_counter()
    answer = call()
    return answer, time.perf_counter() - started


def load(queue: kesin.Queue, rows: int, *, tenant: str = "default", state: str = "done") -> None:
    """So many finished jobs, past the guard."""
    store = queue.store
    counter = {"queue": queue.name, "tenant": tenant, "state": state, "rows": rows}
    params = {**counter, "now": wall_clock_us()}
    if isinstance(store, PostgresStore):
        for table in ("job", "job_body", "flow"):
            store._rows(f"ALTER TABLE kesin.{table} DISABLE TRIGGER USER", {})
        store._rows(_PG_LOAD, params)
        store._rows(_PG_BODIES, params)
        store._rows(
            "INSERT INTO kesin.flow (queue, tenant, move, from_state, to_state, n)"
            " VALUES (%(queue)s, %(tenant)s, 'load', '', %(state)s, %(rows)s)",
            counter,
        )
        for table in ("job", "job_body", "flow"):
            store._rows(f"ALTER TABLE kesin.{table} ENABLE TRIGGER USER", {})
        store._rows("VACUUM ANALYZE kesin.job", {})
        store._rows("VACUUM ANALYZE kesin.job_body", {})
        return
    assert isinstance(store, SqliteStore)
    triggers = store._rows(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        " AND tbl_name IN ('job', 'job_body', 'flow', 'counter')",
        {},
    )
    with store.transaction():
        for name, _ in triggers:
            store._rows(f"DROP TRIGGER {name}", {})
        store._rows(_LITE_LOAD, params)
        store._rows(_LITE_BODIES, params)
        store._rows(
            "INSERT INTO flow (queue, tenant, move, from_state, to_state, n)"
            " VALUES (:queue, :tenant, 'load', '', :state, :rows)",
            counter,
        )
        # A trigger of flow would do it; while it is there, a counter begins with one job.
        store._rows("INSERT INTO counter VALUES (:queue, :tenant, 'load', '', :state)", counter)
        for _, sql in triggers:
            store._rows(sql, {})
    store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
