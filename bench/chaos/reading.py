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

_FIRST, _LAST = KILLS_AT[:-1], KILLS_AT[-1]
_KILLS = f"{', '.join(f'{part:.0%}' for part in _FIRST)} and {_LAST:.0%}"

READING = f"""
## What is done

The load is {JOBS:,} jobs of {1_000 * JOB_S:.0f} ms each. {SENT_AHEAD} of them are enqueued up
front; the rest are enqueued {BATCH} at a time while {WORKERS} worker processes run, each working on
{AT_ONCE} jobs at a time. The producer and the handlers write to a log file that is independent of
the queue. Any worker process that exits, for whatever reason, is restarted after {RESTART_S:g} s,
just as systemd would do.

- **kill -9**: a worker that holds claims is killed after {_KILLS} of the jobs have finished.
- **server**: PostgreSQL is stopped with `pg_ctl stop -m immediate` once {OUTAGE_AT:.0%} of the jobs
  have finished and is restarted {DOWN_S:g} s later. Redis, which flushes every command to disk, is
  stopped with `kill -9` instead.
- **SIGSTOP**: the load is {LONG_JOBS} jobs of {LONG_JOB_S:g} s each. The worker with the most
  claimed jobs is suspended until another worker has started one of its jobs, or for at most
  {LEASE_S + 2 * (LOOK_S + LONG_JOB_S):g} s. The suspended worker then resumes and reports its
  result while the other worker is still running the job.

## What is counted

- **lost**: the queue accepted the job, but the job is neither done nor still in the queue.
- **doubled**: the job was recorded as done more than once, or a worker that had already lost it to
  another worker recorded it as done while that other worker was still running it. The other
  worker's result is then dropped (PgQueuer) or raises an error (Procrastinate).
- **stuck**: the job was still waiting or running {PATIENCE_S:.0f} s after the last fault.
- **ran again**: the handler started more than once. Every queue except Huey delivers at least once,
  Kesin included, so handlers must be idempotent.
- **s**: the seconds from the last fault (the last kill, the server restart, or the SIGSTOP) until
  every job that existed at that moment had finished.
- **workers survived**: whether the only workers that exited were the ones the test killed. The
  supervisor restarted any others.

## How each queue was set up

The default settings are designed for long-running deployments. The settings below suit a short
test: a worker is presumed dead after {LEASE_S:g} s of silence, and recovery runs every {LOOK_S} s.

| queue | settings (default) |
|---|---|
| Kesin | `lease_seconds={LEASE_S:g}` (60), a sweeper in each process, \
`recover` every {LOOK_S} s (60) |
| Procrastinate | the periodic task from its manual, every {LOOK_S} s (10 min), \
`seconds_since_heartbeat={LEASE_S:g}` (30); `update_heartbeat_interval={BEAT_S:.1f}` (10), \
`stalled_worker_timeout={LEASE_S:g}` (30), `fetch_job_polling_interval={LOOK_S}` (5) |
| PgQueuer | `heartbeat_timeout={LEASE_S:g}` (30), `dequeue_timeout={LOOK_S}` (30), \
`shutdown_on_listener_failure` as its checklist requires, an asyncpg pool; batches of 10, no cap |
| Huey | `fsync=True`, `retries=3`, worker threads, `max_delay={LOOK_S}` (10); it has no lease |

Procrastinate's manual ("Retry stalled jobs") explains that without this periodic task, a killed
worker's jobs stay `doing` indefinitely. With the task, those jobs are retried. PgQueuer's manual
(ADR-0004) says that a job may run more than once, that PgQueuer has no fencing tokens, and that
entrypoints must be idempotent; its deployment page calls for a supervisor. Huey's `retries` apply
only when a handler raises an exception, because Huey deletes a task from the file as soon as a
worker takes it.

## How to read it

- With **Kesin**, no job is lost, doubled or stuck. After a kill, Kesin reruns *more* jobs than
  Procrastinate, because it claims short jobs in batches and writes their results together, within
  half a second. With `batch=1`, only the jobs that the killed worker had claimed run again, but
  every job needs its own write.
- The main difference is what happens **when a suspended worker resumes**. Procrastinate and
  PgQueuer let any worker finish a job by its id; Kesin checks the claim and rejects the late
  result. If the handler is idempotent and nothing uses its result, accepting a late result is
  harmless.
- **With Procrastinate and PgQueuer, no job is lost or stuck** as long as they are set up as their
  manuals say and a supervisor restarts their processes, which exit when the server restarts.
  Kesin's processes keep running.
- **Huey** delivers at most once: a killed worker's tasks are lost. A suspended worker's tasks wait
  until it resumes, because no other worker takes them over.
- Each figure comes from a single run on one machine, so the times vary by a few seconds depending
  on the load and on when the fault hits. The zeros are measurements, not proofs.
"""
