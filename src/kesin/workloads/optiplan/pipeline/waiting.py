"""Waiting orders: what each one waits for, and the pause before the next look."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from kesin.engine.queue import Queue
from kesin.foundation.logs import Logger
from kesin.foundation.messages import Message, recorded_message
from kesin.foundation.problems import Unavailable
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Job
from kesin.store.directory import Directory, MetadataEntry
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.workloads.optiplan.errors import OptiCode
from kesin.workloads.optiplan.lifecycle import BLOCKED_CODES
from kesin.workloads.optiplan.pipeline.program import StillRunning

FIRST_POLL_S: Final = 1.0
MAX_POLL_S: Final = 30.0
POLL_SHARE: Final = 0.25  # of the time waited so far: long waits are polled less often
WAITING_STATES: Final = ("OPTI_RUNNING", "XML_READY")

log = Logger("kesin.optiplan")

Awaited = Literal["runner", "slot", "program", "xml", "machine", "folder", "settings", "operator"]
_NORMAL: Final[dict[str, tuple[Awaited, Message]]] = {
    **dict.fromkeys(("NEW", "OPTI_DONE"), ("runner", Message("a worker to claim it"))),
    "OPTI_IMPORTED": ("slot", Message("the optimiser, which processes one order at a time")),
    "OPTI_RUNNING": ("program", Message("the optimiser to finish")),
    "XML_READY": ("machine", Message("the saw to take its files")),
    "HOLD": ("operator", Message("an operator to approve it")),
}
_XML: Final[tuple[Awaited, Message]] = ("xml", Message("its XML in the export folder"))
_BLOCKED: Final[dict[str, Awaited]] = {OptiCode.CONFIG_UNAVAILABLE: "settings", OptiCode.OPTI_RUNNER_FAILED: "program"}


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """What an order is waiting for; if ``blocked``, the order's error_code gives the reason."""

    what: Awaited
    message: str
    blocked: Annotated[bool, Field(description="whether `what` is currently unavailable")]


def waiting_for(job: Job) -> WaitingFor | None:
    """What the order is waiting for; None if a runner has it, or if it has finished or failed."""
    if job.worker is not None or job.state not in _NORMAL:
        return None
    if job.state in WAITING_STATES and job.error_code:
        what = _BLOCKED.get(job.error_code, "folder")
        return WaitingFor(what, recorded_message(job.error_message, job.note), blocked=True)
    by_hand = isinstance(job.payload, dict) and job.payload.get("mode") == "C"
    awaited = _XML if job.state == "OPTI_RUNNING" and by_hand else _NORMAL[job.state]
    return WaitingFor(*awaited, blocked=False)


def blocked_orders(queue: Queue) -> list[Job]:
    """Return the newest orders that wait for what cannot be used now."""
    return queue.jobs(Filter(states=WAITING_STATES, codes=BLOCKED_CODES)).jobs


def log_unblocked(before: Job) -> None:
    """Log that an order is blocked no more, if it was before."""
    if before.error_code and before.state in WAITING_STATES:
        log.info("order_unblocked", job=before.id, code=before.error_code)


def log_timeouts(queue: Queue) -> None:
    """Log that an order is blocked no more because its time was over; each order once."""
    failed = queue.jobs(Filter(states=("FAILED",), codes=BLOCKED_CODES), limit=MAX_PAGE).jobs
    newest = max((job.moved_at for job in failed), default=0)
    directory, place = Directory(queue.store), (queue.name, "", "timeouts_logged")
    logged = directory.metadata_entry(*place)
    if logged is not None and logged.changed_at >= newest:
        return
    with directory.transaction():  # another process may be about to log the same
        since = directory.lock_metadata(*place, newest).changed_at
        directory.put_metadata(MetadataEntry(*place, "null", newest))
    for job in failed:
        if job.moved_at > since and queue.events(job.id)[-1].move == "blocked_timeout":
            log.info("order_unblocked", job=job.id, code=job.error_code, state=job.state)


def unavailable_code(problem: Unavailable, machine_folder: Path) -> OptiCode:
    """Return the code of what is unavailable; that of a folder depends on whose it is."""
    if isinstance(problem, StillRunning):
        return OptiCode.OPTI_RUNNER_FAILED
    at_machine = Path(problem.details.get("place", "")).is_relative_to(machine_folder)
    return OptiCode.DROP_DIR_UNWRITABLE if at_machine else OptiCode.EXPORT_DIR_UNWRITABLE


def pause_s(queue: Queue, job: Job) -> float:
    """Return the pause before the next poll; it grows with the time spent in the job's state."""
    newest_first = reversed(queue.events(job.id))
    moves = (event.at for event in newest_first if event.from_state != event.to_state)
    waited_s = max(queue.now() - next(moves, job.created_at), 0) / SECOND_US
    return min(max(FIRST_POLL_S, waited_s * POLL_SHARE), MAX_POLL_S)
