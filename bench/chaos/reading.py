"""The text of the page beside the table."""

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

There are {JOBS:,} jobs of {1_000 * JOB_S:.0f} ms each. {SENT_AHEAD} of them are enqueued in
advance, the others {BATCH} at a time while {WORKERS} processes work, each on {AT_ONCE} jobs at a
time. The producer and the handlers write lines to a file that is independent of the queue. A worker
process that ends for any reason is restarted after {RESTART_S:g} s, as systemd does.

- **kill -9**: a worker with claimed jobs is killed when {_KILLS} of the jobs have ended.
- **server**: PostgreSQL gets `pg_ctl stop -m immediate` when {OUTAGE_AT:.0%} of the jobs have
  ended, and starts {DOWN_S:g} s later. Redis, which flushes every command, gets a `kill -9`.
- **SIGSTOP**: there are {LONG_JOBS} jobs of {LONG_JOB_S:g} s. The worker with the most claimed jobs
  is stopped until another worker has begun one of them, or for
  {LEASE_S + 2 * (LOOK_S + LONG_JOB_S):g} s; then it continues and reports its result while the
  other worker is still busy.

## What is counted

- **lost**: the queue accepted the job, but the job is neither done nor in the queue.
- **doubled**: recorded as done more than once, or as done by a worker that had lost the job to
  another worker, which is still running it. The other worker's result is then dropped (PgQueuer) or
  becomes an error (Procrastinate).
- **stuck**: not at rest {PATIENCE_S:.0f} s after the last fault.
- **ran again**: the handler began more than once. All queues except Huey deliver at least once:
  handlers must be idempotent, with Kesin too.
- **s**: from the last fault (the last kill, the server's return, the stop) to the end of the last
  job that existed then.
- **workers lived**: no worker ended except those that were killed. Otherwise, the supervisor
  restarted them.

## How each queue was set up

The defaults are meant for long runs. The settings below suit a short run: a worker counts as
dead after {LEASE_S:g} s of silence, and recovery runs every {LOOK_S} s.

| queue | settings (default) |
|---|---|
| Kesin | `lease_seconds={LEASE_S:g}` (60), a sweeper in each process, \
`recover` every {LOOK_S} s (60) |
| Procrastinate | the periodic task of its manual, every {LOOK_S} s (10 min), \
`seconds_since_heartbeat={LEASE_S:g}` (30); `update_heartbeat_interval={BEAT_S:.1f}` (10), \
`stalled_worker_timeout={LEASE_S:g}` (30), `fetch_job_polling_interval={LOOK_S}` (5) |
| PgQueuer | `heartbeat_timeout={LEASE_S:g}` (30), `dequeue_timeout={LOOK_S}` (30), \
`shutdown_on_listener_failure` as its checklist requires, an asyncpg pool; batches of 10, no cap |
| Huey | `fsync=True`, `retries=3`, worker threads, `max_delay={LOOK_S}` (10); it has no lease |

Procrastinate's manual ("Retry stalled jobs") says that without this task, jobs of a killed worker
stay `doing` for ever; with it, they do not. PgQueuer's manual (ADR-0004) says that a job may run
more than once, that it has no fencing tokens, and that entrypoints must be idempotent; its
deployment page requires a supervisor. Huey's `retries` apply to handlers that raise an
exception: a task is deleted from the file when a worker takes it.

## How to read it

- **Kesin** loses, doubles and strands nothing. After a kill, it runs *more* jobs again than
  Procrastinate, because it claims short jobs in batches and writes their results together, within
  half a second. With `batch=1`, only the claimed jobs run again, but every job needs its own write.
- **A resumed worker** shows the main difference. Procrastinate and PgQueuer let any worker
  finish a job by its id; Kesin checks the claim and refuses the late result. If the handler is
  idempotent and its result is not used, this does no harm.
- **Procrastinate and PgQueuer lose and strand nothing** if they are set up as their manuals say and
  a supervisor restarts their processes, which end when the server restarts. Kesin's processes
  continue.
- **Huey** delivers at most once: the tasks of a killed worker are lost. The tasks of a stopped
  worker wait for it, because no other worker takes over.
- These are single runs on one machine: the times vary by a few seconds with the load and the
  moment of the fault. The zeros are measurements, not proofs.
"""
