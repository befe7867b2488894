"""Waiting for a job's end: woken by moves of this process, else by looking again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kesin.engine.validation import BadInput
from kesin.foundation.clock import SystemClock
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import FINISHED, RESTING

if TYPE_CHECKING:
    from kesin.engine.queue import Queue

FIRST_PAUSE_S, LAST_PAUSE_S = 0.01, 0.5  # between two looks


def wait_for(queue: Queue, job_id: str, timeout_s: float) -> Job:
    """The job once it is at rest or over; raises TimeoutError if that takes longer."""
    monotonic = SystemClock().monotonic
    ends_at, pause_s = monotonic() + timeout_s, FIRST_PAUSE_S
    while True:
        notified = queue.store.notification_count(queue.name)
        job = queue.job(job_id)
        if job is None:
            raise BadInput("unknown_job", "job_id", f"{queue.name} has no job {job_id}")
        if job.phase in (RESTING, FINISHED):
            return job
        left_s = ends_at - monotonic()
        if left_s <= 0:
            raise TimeoutError(f"job {job_id} is still {job.state} after {timeout_s:g} s")
        queue.store.wait(queue.name, notified, min(pause_s, left_s))
        pause_s = min(pause_s * 1.5, LAST_PAUSE_S)
