"""The clock's moves made on demand, as the cron callers of the seeds ask for them."""

from __future__ import annotations

from kesin.engine.sweeper import BATCH, MOST_BATCHES
from kesin.lifecycle.budget import MINUTE_S, SECOND_US
from kesin.workloads.workload import House


def recover_processing(house: House, *, min_age_minutes: int = 0) -> int:
    """Take back rows whose claim ran out; a spent budget ends them instead. FAILED stays."""
    return _sweep(house, "recover", min_age_minutes, None)


def attempt_cap(house: House, *, max_attempts: int | None = None, min_age_minutes: int = 0) -> int:
    """Fail rows whose budget is spent; without a cap, by the one stamped on each row.

    A row in PROCESSING is left alone until its lease is over: its last attempt may yet succeed.
    """
    return _sweep(house, "attempt_cap", min_age_minutes, max_attempts)


def _sweep(house: House, name: str, min_age_minutes: int, max_attempts: int | None) -> int:
    queue = house.queue
    moved = 0
    for move in queue.lifecycle.clock_moves:
        if move.name != name:
            continue
        for _ in range(MOST_BATCHES):
            batch = queue.store.sweep(
                queue.name,
                move,
                limit=BATCH,
                now=queue.clock.now(),
                min_age_us=min_age_minutes * MINUTE_S * SECOND_US,
                max_attempts=max_attempts,
            )
            moved += batch
            if batch < BATCH:
                break
    return moved
