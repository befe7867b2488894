"""F0, the floor under everything: the migrated tables, the triggers dropped, two plain statements.

Claim and finish, each fenced, each writing its event by hand; same batches, same durability, same
connection (nothing prepared: neither floor nor store may need session state). What
the guard, the counters and the generated statements cost is the distance to this. The SQL is
hashed into the report, so a floor that was tuned later shows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import psycopg

from kesin.foundation.clock import wall_clock_us
from kesin.store.postgres.store import PostgresStore
from kesin.store.sqlite.store import SqliteStore

LEASE_US = 60_000_000
_EVENT = (
    "job_id, seq, at, move, from_state, to_state, phase, claim, actor, worker, attempt,"
    " attempt_base, return_count, max_attempts, retry_count, flags, mask"
)

PG_CLAIM = f"""
WITH pick AS MATERIALIZED (
  SELECT id FROM kesin.job
  WHERE queue = %(queue)s AND tenant = 'default' AND phase = 0 AND run_at <= %(now)s
  ORDER BY priority, run_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), moved AS (
  UPDATE kesin.job j SET state = 'running', phase = 1, move = 'claim', seq = seq + 1,
    claim_seq = seq + 1, attempt_count = attempt_count + 1, worker = %(worker)s,
    actor = %(worker)s, moved_at = %(now)s, claimed_at = %(now)s, lease_until = %(now)s + {LEASE_US}
  WHERE j.id = ANY(ARRAY(SELECT id FROM pick)) RETURNING j.*
), events AS (
  INSERT INTO kesin.event ({_EVENT})
  SELECT id, seq, moved_at, move, 'ready', state, phase, 1, actor, worker, attempt_count,
    attempt_base, return_count, max_attempts, retry_count, flags, 0 FROM moved
)
SELECT m.id::text, m.claim_seq, b.payload FROM moved m
CROSS JOIN LATERAL (SELECT payload FROM kesin.job_body b WHERE b.id = m.id OFFSET 0) b
"""

PG_FINISH = f"""
WITH input AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(%(items)s::jsonb) AS r(id uuid, token integer)
), moved AS (
  UPDATE kesin.job j SET state = 'done', phase = 3, move = 'complete', seq = seq + 1,
    worker = NULL, claimed_at = NULL, lease_until = NULL, actor = %(worker)s,
    moved_at = %(now)s, finished_at = %(now)s
  FROM input i
  WHERE j.id = i.id AND j.claim_seq = i.token AND j.phase = 1 RETURNING j.*
), events AS (
  INSERT INTO kesin.event ({_EVENT}, finished_at)
  SELECT id, seq, moved_at, move, 'running', state, phase, 0, actor, worker, attempt_count,
    attempt_base, return_count, max_attempts, retry_count, flags, 73, finished_at FROM moved
)
SELECT id::text FROM moved
"""

LITE_CLAIM = f"""
UPDATE job SET state = 'running', phase = 1, move = 'claim', seq = seq + 1, claim_seq = seq + 1,
  attempt_count = attempt_count + 1, worker = :worker, actor = :worker, moved_at = :now,
  claimed_at = :now, lease_until = :now + {LEASE_US}
WHERE id IN (
  SELECT id FROM job WHERE queue = :queue AND tenant = 'default' AND phase = 0 AND run_at <= :now
  ORDER BY priority, run_at, id LIMIT :limit)
RETURNING id, claim_seq, (SELECT b.payload FROM job_body b WHERE b.id = job.id)
"""

LITE_FINISH = """
WITH i AS MATERIALIZED (SELECT value ->> 0 AS id, value ->> 1 AS token FROM json_each(:items))
UPDATE job AS j SET state = 'done', phase = 3, move = 'complete', seq = seq + 1, worker = NULL,
  claimed_at = NULL, lease_until = NULL, actor = :worker, moved_at = :now, finished_at = :now
FROM i WHERE j.id = i.id AND j.claim_seq = i.token AND j.phase = 1
RETURNING id
"""

LITE_EVENTS = f"""
INSERT INTO event ({_EVENT}, finished_at)
SELECT id, seq, moved_at, move, :from_state, state, phase, :claim, actor, worker, attempt_count,
  attempt_base, return_count, max_attempts, retry_count, flags, :mask, finished_at
FROM job WHERE id IN (SELECT value ->> 0 FROM json_each(:items))
"""


def fingerprint() -> str:
    """A hash over the floor's SQL."""
    text = f"{PG_CLAIM}{PG_FINISH}{LITE_CLAIM}{LITE_FINISH}{LITE_EVENTS}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def drop_triggers(store: PostgresStore | SqliteStore) -> None:
    """Take the guard away from the store's tables. Only ever done to a bench's own database."""
    if isinstance(store, PostgresStore):
        for table in ("job", "job_body", "event"):
            store._rows(f"ALTER TABLE kesin.{table} DISABLE TRIGGER USER", {})
        return
    rows = store._rows("SELECT name FROM sqlite_master WHERE type = 'trigger'", {})
    for (name,) in rows:
        store._rows(f"DROP TRIGGER {name}", {})


def postgres_batches(url: str, queue: str, worker: str, batch: int) -> Iterator[int]:
    """Claim and finish until nothing is ready; how many, batch by batch."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        while True:
            now = wall_clock_us()
            params: dict[str, Any] = {"queue": queue, "now": now, "limit": batch, "worker": worker}
            rows = connection.execute(PG_CLAIM, params).fetchall()
            if not rows:
                return
            items = json.dumps([{"id": row[0], "token": row[1]} for row in sorted(rows)])
            params = {"items": items, "now": now, "worker": worker}
            yield len(connection.execute(PG_FINISH, params).fetchall())


def sqlite_batches(store: SqliteStore, queue: str, worker: str, batch: int) -> Iterator[int]:
    """The same on the store's own writer."""
    writer = store._writer
    while True:
        now = wall_clock_us()
        with store.transaction():
            params = {"queue": queue, "now": now, "limit": batch, "worker": worker}
            rows = writer.execute(LITE_CLAIM, params).fetchall()
            items = json.dumps([(row[0], row[1]) for row in rows])
            event = {"items": items, "from_state": "ready", "claim": 1, "mask": 0}
            writer.execute(LITE_EVENTS, event)
        if not rows:
            return
        with store.transaction():
            params = {"items": items, "now": now, "worker": worker}
            done = len(writer.execute(LITE_FINISH, params).fetchall())
            event = {"items": items, "from_state": "running", "claim": 0, "mask": 73}
            writer.execute(LITE_EVENTS, event)
        yield done
