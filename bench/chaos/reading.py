"""What stands on the page beside the table."""

from __future__ import annotations

from bench.chaos.settings import (
    AT_ONCE,
    BATCH,
    BEAT_S,
    DOWN_S,
    JOB_S,
    JOBS,
    KILLS_AT,
    LEASE_S,
    LONG_JOB_S,
    LONG_JOBS,
    LOOK_S,
    OUTAGE_AT,
    PATIENCE_S,
    RESTART_S,
    SENT_AHEAD,
    WORKERS,
)

_KILLS = ", ".join(f"{part:.0%}" for part in KILLS_AT)

READING = f"""
## What is done

{JOBS:,} jobs of {1_000 * JOB_S:.0f} ms each: {SENT_AHEAD} are there before, the others come
{BATCH} at a time while {WORKERS} processes work, each on {AT_ONCE} at a time. Whoever sends and
whoever handles writes a line to one file, which the queue has no part in. A worker process that is
gone, for whatever reason, is started again after {RESTART_S:g} s, as systemd does.

- **kill -9**: a worker that has jobs in hand, when {_KILLS} of the jobs have ended.
- **server**: `pg_ctl stop -m immediate` when {OUTAGE_AT:.0%} have ended, and a start {DOWN_S:g} s
  later. Redis, which flushes every command, gets a kill -9.
- **SIGSTOP**: {LONG_JOBS} jobs of {LONG_JOB_S:g} s. The worker with most jobs in hand stands still
  until another has begun one of them, or for {LEASE_S + 2 * (LOOK_S + LONG_JOB_S):g} s; then it
  goes on, and brings its answer while the other is in the middle.

## What is counted

- **lost**: the queue said that it has the job; it is neither done nor does the queue know it.
- **doubled**: recorded as done more than once, or as done by a worker that had lost it to another
  which was still in the middle of it. The answer of that other one, who has the job, is then
  dropped (PgQueuer) or an error (Procrastinate).
- **stuck**: not at rest {PATIENCE_S:.0f} s after the last fault.
- **ran again**: the handler began more than once. All of these but Huey deliver at least once: a
  handler must bear it, Kesin's too.
- **s**: from the last fault (the last kill, the server's being back, the stop) to the end of the
  last job that was there at it.
- **workers lived**: none ended that was not killed. Where it says no, the supervisor did the rest.

## What each was told

The defaults are made for a minute, these for a short run: {LEASE_S:g} s of silence and a worker is
taken for dead, and somebody looks every {LOOK_S} s.

| queue | settings (default) |
|---|---|
| Kesin | `lease_seconds={LEASE_S:g}` (60), a sweeper in each process, \
`recover` every {LOOK_S} s (60) |
| Procrastinate | the periodic task of its manual, every {LOOK_S} s (10 min), \
`seconds_since_heartbeat={LEASE_S:g}` (30); `update_heartbeat_interval={BEAT_S:.1f}` (10), \
`stalled_worker_timeout={LEASE_S:g}` (30), `fetch_job_polling_interval={LOOK_S}` (5) |
| PgQueuer | `heartbeat_timeout={LEASE_S:g}` (30), `dequeue_timeout={LOOK_S}` (30), \
`shutdown_on_listener_failure` as its checklist asks, an asyncpg pool; batches of 10, no cap |
| Huey | `fsync=True`, `retries=3`, worker threads, `max_delay={LOOK_S}` (10); it has no lease |

Procrastinate's manual ("Retry stalled jobs") says that without this task the jobs of a killed
worker stay `doing` for ever; with it, they do not. PgQueuer's (ADR-0004) says that a job may run
more than once, that it has no fencing tokens, and that entrypoints must be idempotent; its
deployment page asks for a supervisor. Huey's `retries` are for handlers that raise: a task is
deleted from the file when a worker takes it.

## How to read it

- **Kesin** loses, doubles and leaves nothing. It runs *more* jobs again than Procrastinate after a
  kill: it claims short jobs in batches and writes their results together, within half a second.
  With `batch=1` a kill costs what was in hand, and every job a write of its own.
- **A worker that comes back** is where they differ. Procrastinate and PgQueuer finish a job by its
  id, whoever asks; Kesin by the claim, and the late answer is refused. For a handler that is
  idempotent and whose result nobody reads, this is no harm.
- **Procrastinate and PgQueuer lose nothing** and leave nothing lying, if they are set up as their
  manuals say and something starts their processes again: at a server's restart these end. Kesin's
  go on by themselves.
- **Huey** delivers at most once: what its workers had in hand when they were killed is gone. A
  stopped worker's jobs wait for it, since nobody takes over.
- One machine, one run: seconds vary by a few with the load, and with when in a look the fault
  falls. The zeros are what was run here and no proof; for those see the tests.
"""
