"""Corrected copies in place of failed jobs, where no move replaces the data of a job."""

from collections.abc import Mapping
from typing import Any, Final

from kesin.engine.access.commands import Commands
from kesin.engine.access.masking import find_masked, masked_input
from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.validation import BadInput
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import RequestConflict
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.lifecycle.moves import DISMISSED
from kesin.store.records import Outcome

DISMISS: Final = "dismiss"


def is_correctable(queue: Queue, state: str) -> bool:
    """Whether a job that failed in this state can be dismissed for a corrected copy."""
    moves = queue.lifecycle.actions.get(DISMISS, ())
    dismissible = any(state in move.sources and move.error == DISMISSED for move in moves)
    return dismissible and not queue.lifecycle.enqueue_move.stamp_input


def failed_by_data(queue: Queue, job: Job) -> bool:
    """Whether a retry of the job fails again until its data is corrected."""
    return job.error_category == Category.VALIDATION and is_correctable(queue, job.state)


def enqueue_corrected(
    commands: Commands, actor: Actor, name: str, payloads: Mapping[str, Any], reason: str | None = None
) -> dict[str, str | BadInput]:
    """Enqueue copies, dismiss the originals: original's id → copy's id, or why there is none."""
    queue = commands.queue(actor, name, "operate", "correct")
    commands.require_unrestricted(name, DISMISS)
    for job_id, payload in payloads.items():
        if path := find_masked(payload, "payload"):
            raise masked_input(f"{job_id}.{path}")
    why = {"reason": reason} if reason else {}
    found = [job for job in queue.find(list(payloads)).values() if commands.sees(actor, job)]
    jobs = [job for job in found if failed_by_data(queue, job)]
    copies = [
        NewJob(
            payloads[job.id],
            key=job.dedup_key,
            tenant=job.tenant,
            max_attempts=job.max_attempts,
            note={"corrects": job.id, **why},
            priority=job.priority,
        )
        for job in jobs
    ]
    with queue.store.transaction():
        outcomes = zip(jobs, queue.enqueue_many(copies, actor=actor.name), strict=True)
        results = {job.id: _copy_of(outcome) for job, outcome in outcomes}
        enqueued = {one: copy for one, copy in results.items() if isinstance(copy, str)}
        for job_id, copy_id in enqueued.items():
            text = " · ".join(filter(None, (f"→ {copy_id}", reason)))
            if not queue.act(DISMISS, actor=actor.name, ids=[job_id], reason=text).moved:
                raise RequestConflict("%(job)s has changed in the meantime: reload it", job=job_id)
        details = {"enqueued": len(enqueued), **why}
        commands.accounts.note(actor, "queue.correct", queue=name, details=details)
    return results


def _copy_of(outcome: Outcome | BadInput) -> str | BadInput:
    if isinstance(outcome, BadInput):
        return outcome
    if outcome.result == "inserted":
        return outcome.id
    return BadInput("duplicate", "key", "another job has its key now")
