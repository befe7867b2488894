"""What a claim, a page and the counts cost as the table grows: 10⁴ → 10⁶ rows (10⁷ with a flag).

The rows are loaded without the guard, which is switched on again before anything is measured.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import kesin
from bench.lanes import BATCH, open_queue
from kesin.engine.queue import apply_changes
from kesin.foundation.clock import wall_clock_us
from kesin.lifecycle.model import Change
from kesin.store.postgres.store import PostgresStore
from kesin.store.records import Filter
from kesin.store.sqlite.store import SqliteStore

Answer = TypeVar("Answer")
REPEATS = 15
READY = 20_000  # enough to claim from, however large the table is

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


@dataclass(frozen=True, slots=True)
class Costs:
    """Median milliseconds at one size."""

    rows: int
    claim_ms: float
    finish_ms: float
    stats_ms: float
    page_ms: float


def measure(address: Callable[[str], str], sizes: Sequence[int]) -> list[Costs]:
    """Load so many finished jobs beside the ready ones, then time each call, the sizes in turn."""
    queues = {rows: open_queue(address(f"grow_{rows}")) for rows in sizes}
    for rows, queue in queues.items():
        load(queue, rows)
        for first in range(0, READY, 1_000):
            queue.enqueue_many([kesin.NewJob({"n": first + n}) for n in range(1_000)])
    found: dict[int, list[tuple[float, ...]]] = {rows: [] for rows in sizes}
    for _ in range(REPEATS):
        for rows, queue in queues.items():
            found[rows].append(_once(queue))
    for queue in queues.values():
        queue.store.close()
    return [
        Costs(rows, *(1_000 * statistics.median(each) for each in zip(*times, strict=True)))
        for rows, times in found.items()
    ]


def _once(queue: kesin.Queue) -> tuple[float, ...]:
    jobs, claim = timed(lambda: queue.claim("w", limit=BATCH))
    changes = [Change(job.id, job.claim_seq) for job in jobs]
    finish = timed(partial(apply_changes, queue, "complete", changes, actor="w"))[1]
    stats = timed(queue.stats)[1]
    page = timed(lambda: queue.jobs(Filter(states=("ready",)), limit=100))[1]
    return claim, finish, stats, page


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
