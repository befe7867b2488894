"""Jobs as they are told: the order they carry, and what a person could do about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from kesin.foundation.clock import iso
from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.advice import describe
from kesin.workloads.optiplan.codes import OrderProblem
from kesin.workloads.optiplan.collect import are_there
from kesin.workloads.optiplan.folders import Entry, plain_files
from kesin.workloads.optiplan.lifecycle import APPROVED, TRIGGER
from kesin.workloads.optiplan.order import Order
from kesin.workloads.optiplan.order_desk import OrderDesk
from kesin.workloads.optiplan.payload import payload_json
from kesin.workloads.optiplan.schemas import OrderJob, State

RESTING: Final = frozenset({"DONE", "HOLD", "FAILED"})


def job_body(desk: OrderDesk, job: Job) -> OrderJob:
    """A job; one that came past our doors and carries no order is told without it."""
    order = _order(job)
    approved = job.flags & desk.queue.lifecycle.flag_bit(APPROVED)
    told = describe(job.error_code) if job.error_code else None
    return OrderJob.model_construct(  # our own values
        id=job.id,
        order_id=order.payload.order_id if order else None,
        state=cast("State", job.state),
        error_code=job.error_code,
        error_message=job.error_message,
        retry_count=job.retry_count,
        opti_mode=order.mode if order else None,
        revision=order.revision if order else 1,
        next_run_at=None if job.state in RESTING else iso(job.run_at),
        manual_trigger_approved=1 if approved else 0,
        created_at=iso(job.created_at) or "",
        updated_at=iso(job.moved_at) or "",
        payload=payload_json(order.payload) if order else None,
        ready_to_approve=is_ready(desk, job),
        advice={language: dict(text) for language, text in told.items()} if told else None,
    )


def is_ready(
    desk: OrderDesk, job: Job, listed: Callable[[], Sequence[Entry]] | None = None
) -> bool:
    """Whether a job waits for an operator who has done the work: its XML has appeared.

    The runner looks again after the approval, and takes its time: a file may still be growing.
    ``listed`` is the export folder as somebody has listed it already.
    """
    if job.state != "HOLD" or job.error_code != TRIGGER:
        return False
    stems = desk.dossier(job).stems
    if not stems:
        return False
    try:
        entries = listed() if listed else plain_files(desk.workshop.paths().export_folder)
        return are_there(entries, job.id, stems)
    except (OrderProblem, OSError):  # a list of jobs must not fail with a share
        return False


def _order(job: Job) -> Order | None:
    try:
        return Order.of(job)
    except OrderProblem:
        return None
