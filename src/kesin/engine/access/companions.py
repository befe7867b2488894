"""What is shown beside a job: a short history, its progress, its parents and children."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from kesin.engine.access.commands import Commands, JobDetails
from kesin.engine.queue import Queue
from kesin.foundation.permissions import Actor
from kesin.lifecycle.model import Job, marked
from kesin.lifecycle.vocabulary import FINISHED, OWNED, RESTING
from kesin.store.records import Event, Progress

LONGEST_CYCLE: Final = 3  # moves: claim, fail, requeue


@dataclass(frozen=True, slots=True)
class FoldedEvents:
    """An event of a history, or several that repeat it, with the moves between them."""

    events: Sequence[Event]  # newest first
    count: int = 1

    @property
    def event(self) -> Event:
        """The newest of them."""
        return self.events[0]

    @property
    def since(self) -> int:
        return self.events[-1].at


def fold_events(events: Sequence[Event], *, messages: bool = True) -> list[FoldedEvents]:
    """Fold runs of a cycle (a wait or failure and the moves back), but nothing a person did."""
    events = events[::-1]
    keys = [_cycle_key(event, messages=messages) for event in events]
    folded: list[FoldedEvents] = []
    at = 0
    while at < len(events):
        count, end = 1, at
        for length in range(1, LONGEST_CYCLE + 1) if events[at].worker is None else ():
            cycle = keys[at : at + length]
            while (
                None not in cycle
                and keys[end : end + length] == cycle
                and keys[end + length : end + length + 1] == cycle[:1]
            ):
                count, end = count + 1, end + length
            if count > 1:
                break
        folded.append(FoldedEvents(events[at : end + 1], count))
        at = end + 1
    return folded[::-1]


def _cycle_key(event: Event, *, messages: bool) -> tuple[object, ...] | None:
    """What two events of a repeated cycle share; None for one that stands alone."""
    if event.actor.startswith("user:") or event.old_payload is not None:
        return None
    message = event.error_message if messages else None
    return (event.move, event.from_state, event.to_state, event.error_code, event.flags, message)


MAX_RELATIVES: Final = 100  # jobs that are listed before a job, and after it


class Relatives(NamedTuple):
    """Jobs before or after a job, masked."""

    jobs: tuple[Job, ...] = ()
    hidden: int = 0  # of the first ones, those that the actor may not see
    more: bool = False  # there are more than these
    pending: int = 0  # of ``jobs``, those that have yet to succeed; of parents, they come first


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
        _relatives(commands, actor, queue.children(job.id, limit=MAX_RELATIVES + 1)),
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
    read = partial(queue.store.parents, queue.name, job.id, limit=MAX_RELATIVES + 1)
    found = {parent.id: parent for parent in (*read(undone=True), *read())}.values()
    in_order = sorted(found, key=lambda parent: not _is_pending(commands, parent))
    return _relatives(commands, actor, in_order)


def _is_pending(commands: Commands, job: Job) -> bool:
    queue = commands.queues.get(job.queue)
    if queue is None or job.state not in queue.lifecycle.state:  # its rules have changed since
        return job.phase not in (RESTING, FINISHED)
    return marked(queue.lifecycle, job) == "pending"


def _relatives(commands: Commands, actor: Actor, found: Sequence[Job]) -> Relatives:
    """What the actor may see of the first ones."""
    listed = found[:MAX_RELATIVES]
    visible = [job for job in listed if job.queue in commands.queues and commands.sees(actor, job)]
    return Relatives(
        tuple(commands.masking(job.queue).job(job) for job in visible),
        hidden=len(listed) - len(visible),
        more=len(found) > MAX_RELATIVES,
        pending=sum(_is_pending(commands, job) for job in visible),
    )
