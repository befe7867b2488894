"""What stands beside a job: how far it is, the jobs that it comes after, and those after it.

Jobs of queues and sites that the actor may not see are counted, and nothing else is said of them.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kesin.engine.access.commands import Commands, JobDetails
from kesin.engine.queue import Queue
from kesin.foundation.permissions import Actor
from kesin.lifecycle.model import Job, marked
from kesin.lifecycle.vocabulary import FINISHED, OWNED, RESTING
from kesin.store.records import Progress

MAX_RELATIVES: Final = 100  # jobs that are listed before a job, and after it


class Relatives(NamedTuple):
    """Jobs before or after a job, masked."""

    jobs: tuple[Job, ...] = ()
    hidden: int = 0  # that the actor may not see
    more: bool = False  # there are more than these
    visible: int = 0  # that the actor may see, listed or not
    pending: int = 0  # of these, parents that have yet to succeed: the first of ``jobs``


class Companions(NamedTuple):
    """What an actor may see beside a job."""

    progress: Progress | None
    parents: Relatives
    children: Relatives


def companions_of(commands: Commands, actor: Actor, details: JobDetails) -> Companions:
    """What stands beside a job that the actor may see."""
    job = details.job
    queue = commands.queues[job.queue]
    return Companions(
        _progress(commands, queue, details),
        _parents(commands, actor, queue, job),
        _children(commands, actor, queue, job),
    )


def _progress(commands: Commands, queue: Queue, details: JobDetails) -> Progress | None:
    """How far the job is; what its handler said is masked like an error message."""
    job = details.job
    said = queue.progress([job.id]).get(job.id) if job.phase == OWNED else None
    if said is None or said.message is None or details.revealed:
        return said
    unmasked = queue.job(job.id) or job  # what is private is known from its payload
    heard = commands.masking(queue.name).job(unmasked._replace(error_message=said.message))
    return said._replace(message=heard.error_message)


def _parents(commands: Commands, actor: Actor, queue: Queue, job: Job) -> Relatives:
    if queue.lifecycle.enqueue_after_move is None:
        return Relatives()
    found = queue.parents(job.id)
    visible = _visible(commands, actor, found)
    pending = {parent.id for parent in visible if _is_pending(commands, parent)}
    visible.sort(key=lambda parent: parent.id not in pending)
    listed = _masked(commands, visible[:MAX_RELATIVES])
    hidden, more = len(found) - len(visible), len(visible) > MAX_RELATIVES
    return Relatives(listed, hidden, more, len(visible), len(pending))


def _is_pending(commands: Commands, parent: Job) -> bool:
    lifecycle = commands.queues[parent.queue].lifecycle
    if parent.state not in lifecycle.state:  # its rules have changed since
        return parent.phase not in (RESTING, FINISHED)
    return marked(lifecycle, parent) == "pending"


def _children(commands: Commands, actor: Actor, queue: Queue, job: Job) -> Relatives:
    found = queue.children(job.id, limit=MAX_RELATIVES + 1)
    listed = found[:MAX_RELATIVES]
    visible = _visible(commands, actor, listed)
    more = len(found) > MAX_RELATIVES
    hidden = len(listed) - len(visible)
    return Relatives(_masked(commands, visible), hidden, more, len(visible))


def _visible(commands: Commands, actor: Actor, jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if job.queue in commands.queues and commands.sees(actor, job)]


def _masked(commands: Commands, jobs: Sequence[Job]) -> tuple[Job, ...]:
    return tuple(commands.masking(job.queue).job(job) for job in jobs)
