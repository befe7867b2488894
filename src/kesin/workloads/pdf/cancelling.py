"""Cancel a job."""

from __future__ import annotations

from typing import Final

from kesin.foundation.access import Actor
from kesin.foundation.problems import Clash
from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Change
from kesin.lifecycle.words import Role
from kesin.workloads.pdf.jobs import PdfJob, PdfJobStatus, PdfJobStore
from kesin.workloads.workload import House

CANCEL: Final = "cancel"


def cancel_job(
    house: House, jobs: PdfJobStore, actor: Actor, job: PdfJob, reason: str | None
) -> PdfJob:
    """Cancel a waiting job and return it; raises Clash for a job that no longer waits.

    Its owner does it as its producer, an admin as an operator. The move and its line in the audit
    log are written together.
    """
    owns = job.owner == actor.name
    role: Role = "producer" if owns else "operator"
    told = {"reason": reason or ("its owner wants it no more" if owns else "cancelled by an admin")}
    change = Change(job.job_id, note=canonical_json(told))
    with jobs.queue.store.transaction():
        [outcome] = jobs.queue.apply(CANCEL, [change], role=role, actor=actor.name)
        if outcome.result == "moved":
            house.commands.accounts.note(
                actor, "pdf.cancel", queue="pdf", site=job.owner, target=job.job_id, details=told
            )
    now = jobs.get_job(job.job_id) or job
    if outcome.result != "moved" and not _was_cancelled(jobs, now):
        raise Clash(
            f"only a waiting job is cancelled, and this one is {now.status.value}",
            details={"status": now.status.value},
        )
    return now


def _was_cancelled(jobs: PdfJobStore, job: PdfJob) -> bool:
    if job.status is not PdfJobStatus.EXPIRED:
        return False
    return any(event.move == CANCEL for event in jobs.queue.events(job.job_id))
