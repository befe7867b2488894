"""A job to enqueue, and its validation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kesin.engine.validation import (
    BadInput,
    bad_field,
    checked_attempts,
    checked_name,
    checked_priority,
    checked_time,
    delay_us,
    json_text,
)
from kesin.foundation.clock import Duration, Time
from kesin.foundation.ids import is_id, salt_of
from kesin.lifecycle.model import NO_STAMPS
from kesin.store.errors import UnknownParents
from kesin.store.limits import MAX_KEY, MAX_PARENTS, MAX_TENANT
from kesin.store.records import NewJobRow

if TYPE_CHECKING:
    from kesin.engine.queue import Queue


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to enqueue, due now if ``run_at`` is omitted. Times are datetimes or µs since 1970."""

    payload: Any
    key: str | None = None
    tenant: str = "default"
    run_at: Time | None = None
    max_attempts: int | None = None
    stamps: Mapping[str, Time] = field(default_factory=dict)
    note: Any = None
    once: bool = False  # its key is held until it is pruned, not only until it is done
    delay_s: Duration = 0  # from now, instead of ``run_at``
    priority: int = 0  # -1 low, 1 high, 2 urgent: within its tenant
    after: Sequence[str] = ()  # ids of jobs: it runs once they have succeeded

    def row(self, queue: "Queue", job_id: str) -> NewJobRow:
        """The job in the form that a store expects; raises BadInput for an invalid value."""
        lifecycle = queue.lifecycle
        attempts = lifecycle.max_attempts if self.max_attempts is None else self.max_attempts
        for name in self.stamps:
            if name not in lifecycle.enqueue_move.stamp_input:
                takes = ", ".join(lifecycle.enqueue_move.stamp_input) or "none"
                why = "enqueue on %(queue)s does not accept the stamp %(stamp)s: it accepts %(takes)s"
                where = {"queue": repr(queue.name), "stamp": repr(name)}
                raise BadInput("unknown_stamp", "stamps", why, **where, takes=takes)
        if not isinstance(self.once, bool):
            raise bad_field("once", f"once must be True or False, got {self.once!r}")
        if self.once and (self.key is None or not lifecycle.initial.holds_key):
            raise bad_field("once", "once needs a key, and an initial state that holds it")
        return NewJobRow(
            id=job_id,
            payload=queue.payload_text(self.payload),
            max_attempts=checked_attempts(attempts),
            salt=salt_of(job_id),
            tenant=checked_name(self.tenant, "tenant", MAX_TENANT),
            dedup_key=None if self.key is None else checked_name(self.key, "key", MAX_KEY),
            run_at=None if self.run_at is None and self.delay_s == 0 else self._run_at(queue),
            note=None if self.note is None else json_text(self.note, "note"),
            stamps={name: checked_time(at, name) or 0 for name, at in self.stamps.items()}
            if self.stamps
            else NO_STAMPS,
            once=self.once,
            priority=checked_priority(self.priority),
            after=() if self.after == () else self._after(queue),
        )

    def _after(self, queue: "Queue") -> tuple[str, ...]:
        named = isinstance(self.after, list | tuple | set | frozenset)
        if not named or not all(isinstance(parent, str) for parent in self.after):
            raise bad_field("after", "after must be a list of job ids")
        parents = tuple(dict.fromkeys(self.after))
        if not parents:
            return ()
        if queue.lifecycle.enqueue_after_move is None:
            why = (
                "jobs in %(queue)s cannot depend on others: its lifecycle has no move"
                " enqueue_after (task_lifecycle(parents=True) has one)"
            )
            raise bad_field("after", why, queue=repr(queue.name))
        if len(parents) > MAX_PARENTS:
            raise bad_field("after", "after can name at most %(most)s jobs", most=MAX_PARENTS)
        if self.delay_s or self.run_at is not None:
            both = "with after, a job runs once the named jobs are done: omit delay_s and run_at"
            raise bad_field("after", both)
        unknown = {str(parent) for parent in parents if not is_id(parent)}
        if unknown:
            raise unknown_parent(UnknownParents(unknown))
        return parents

    def _run_at(self, queue: "Queue") -> int | None:
        if self.delay_s == 0:
            return checked_time(self.run_at, "run_at")
        if self.run_at is not None:
            raise bad_field("delay_s", "give delay_s or run_at, not both")
        return queue.now() + delay_us(self.delay_s)


def unknown_parent(problem: UnknownParents) -> BadInput:
    why = "after names a job that is not in this store: %(id)s"
    return BadInput("unknown_parent", "after", why, id=min(problem.ids))
