"""Waiting for a job's end: woken by moves of this process, else by reading the job again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kesin.engine.validation import BadInput
from kesin.foundation.clock import Duration, SystemClock, in_seconds
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import FINISHED, RESTING

if TYPE_CHECKING:
    from kesin.engine.queue_reader import QueueReader

FIRST_PAUSE_S = 0.02  # between two looks
LAST_PAUSE_S = 0.5
_monotonic = SystemClock().monotonic


class Looks:
    """The looks at one job until it is at rest or over, with growing pauses, within a timeout."""

    def __init__(self, queue: QueueReader, job_id: str, timeout: Duration) -> None:
        self._what = f"job {job_id}"
        self._nowhere = f"{queue.name} has no job {job_id}"
        self._waiting = queue.lifecycle.waiting_states  # these end by themselves
        self._timeout_s = in_seconds(timeout, "timeout")
        self._ends_at = _monotonic() + self._timeout_s
        self._pause_s = FIRST_PAUSE_S

    def ended(self, job: Job | None) -> Job | None:
        """The job, if it is at rest or over; raises TimeoutError after the timeout."""
        if job is None:
            raise BadInput("unknown_job", "job_id", self._nowhere)
        if job.phase in (RESTING, FINISHED) and job.state not in self._waiting:
            return job
        if _monotonic() >= self._ends_at:
            raise TimeoutError(f"{self._what} is still {job.state} after {self._timeout_s:g} s")
        return None

    def pause_s(self) -> float:
        """How long to wait before the next look."""
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 1.5, LAST_PAUSE_S)
        return max(0.0, min(pause_s, self._ends_at - _monotonic()))
