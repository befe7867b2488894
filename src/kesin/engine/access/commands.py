"""The one command layer: everything people and machines ask of queues comes through here.

Each command says who asks. It checks what that actor may do and see, does it, and leaves a line in
the audit log: of every operator's move, let or refused. Routes, pages and the command line hold no
rights of their own. Rows of other sites do not exist for an actor: they are not listed, not
counted and not found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kesin.engine.access.accounts import Accounts
from kesin.engine.queue import Bulk, New, Queue
from kesin.engine.validation import BadInput
from kesin.foundation.permissions import Actor, Right
from kesin.foundation.problems import Clash, Invalid, Refused, Unknown
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.errors import StoreUnreachable
from kesin.store.records import Event, Filter, Note, Outcome, Page, Pause, QueueStats

_NOBODY: Final[frozenset[str]] = frozenset()
MOST_AT_ONCE: Final = 100_000  # jobs one bulk action moves; the next call goes on
SHOWN_OUTCOMES: Final = 1_000  # of a bulk action by filter; by ids every one is told


@dataclass(frozen=True, slots=True)
class Selection:
    """What a bulk action would do: nothing was changed."""

    foreseen: dict[tuple[str, str], int]  # (state, reason) → jobs; '' is the reason of a move

    @property
    def matched(self) -> int:
        """How many jobs it would meet."""
        return sum(self.foreseen.values())

    @property
    def would_move(self) -> int:
        """How many of them it would move."""
        return sum(self.moving.values())

    @property
    def moving(self) -> dict[str, int]:
        """From which states."""
        return {state: n for (state, reason), n in self.foreseen.items() if not reason}

    @property
    def staying(self) -> dict[tuple[str, str], int]:
        """(state, reason) → how many would not move."""
        return {why: n for why, n in self.foreseen.items() if why[1]}

    @property
    def by_state(self) -> dict[str, int]:
        """All of them."""
        sums: Counter[str] = Counter()
        for (state, _), n in self.foreseen.items():
            sums[state] += n
        return dict(sums)

    @property
    def by_reason(self) -> dict[str, int]:
        """Those that would not move; ``already`` is where they are to go."""
        sums: Counter[str] = Counter()
        for (_, reason), n in self.staying.items():
            sums[reason] += n
        return dict(sums)


@dataclass(frozen=True, slots=True)
class History:
    """A job with everything known of it, and what may be done with it next."""

    job: Job
    events: list[Event]
    notes: list[Note]
    actions: tuple[str, ...]


@dataclass(slots=True)
class Commands:
    """Queues, and who may do what with them."""

    queues: Mapping[str, Queue]
    accounts: Accounts
    unsited: frozenset[str] = field(default_factory=frozenset)  # queues whose tenants are no sites
    own_calls: Mapping[str, frozenset[str]] = field(default_factory=dict)  # of workloads' doors

    # What an actor sees

    def visible(self, actor: Actor, queue: str) -> frozenset[str] | None:
        """Whose rows; None is everybody's."""
        return actor.sites_in(queue, sited=queue not in self.unsited)

    def queue(self, actor: Actor, name: str, right: Right = "read", action: str = "read") -> Queue:
        """The queue, if the actor may use this right on it; unknown and hidden look the same."""
        self.accounts.require(actor, right, f"queue.{action}", queue=name)
        queue = self.queues.get(name)
        seen = self.visible(actor, name)
        if queue is None or seen == _NOBODY:
            if right != "read":
                self.accounts.note(actor, f"queue.{action}", allowed=False, queue=name)
            raise Unknown(f"there is no queue {name!r} for you")
        return queue

    def readable(self, actor: Actor) -> list[Queue]:
        """Every queue the actor may look at."""
        self.accounts.require(actor, "read", "queue.list")
        return [one for name, one in self.queues.items() if self.visible(actor, name) != _NOBODY]

    def stats(self, actor: Actor, name: str, *, site: str | None = None) -> QueueStats:
        """Counts of the rows the actor may see."""
        queue = self.queue(actor, name)
        return _of_sites(queue, queue.stats(), self._sites(actor, name, site))

    def seen(self, actor: Actor, stats: QueueStats) -> QueueStats:
        """These counts, as far as the actor may see them."""
        return _of_sites(self.queues[stats.queue], stats, self.visible(actor, stats.queue))

    def jobs(
        self,
        actor: Actor,
        name: str,
        where: Filter,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """A page of the rows the actor may see."""
        return self.queue(actor, name).jobs(
            self._narrowed(actor, name, where), limit=limit, cursor=cursor
        )

    def job(self, actor: Actor, job_id: str) -> History:
        """One job with its history; a foreign one is not found."""
        self.accounts.require(actor, "read", "job.read", target=job_id)
        away: StoreUnreachable | None = None
        for queue in self.queues.values():
            try:
                job = queue.job(job_id)
            except StoreUnreachable as problem:  # others may live elsewhere
                away = problem
                continue
            if job and actor.sees(queue.name, job.tenant, sited=queue.name not in self.unsited):
                return History(
                    job, queue.events(job_id), queue.notes(job_id), self._actions(queue, job)
                )
        if away is not None:
            raise away
        raise Unknown(f"there is no job {job_id!r}")

    def _actions(self, queue: Queue, job: Job) -> tuple[str, ...]:
        """The operator's calls that leave this job's state."""
        calls = queue.lifecycle.calls
        return tuple(
            call
            for call in self.offered(queue)
            if any(job.state in move.sources for move in calls[call])
        )

    def pauses(self, actor: Actor, name: str) -> list[Pause]:
        """What of this queue is paused."""
        queue = self.queue(actor, name)
        seen = self.visible(actor, name)
        return [
            one
            for one in queue.store.paused(name)
            if seen is None or one.tenant in seen or not one.tenant
        ]

    # What an operator does

    def offered(self, queue: Queue) -> tuple[str, ...]:
        """The operator's calls that need nothing but the jobs.

        A call that is only half of what its workload does with it is made through its own door.
        """
        own = self.own_calls.get(queue.name, _NOBODY)
        return tuple(call for call in queue.lifecycle.plain_calls_of("operator") if call not in own)

    def act(
        self,
        actor: Actor,
        name: str,
        call: str,
        *,
        ids: Sequence[str] | None = None,
        where: Filter | None = None,
        options: frozenset[str] = frozenset(),
        reason: str | None = None,
        code: str | None = None,
        category: Category | None = None,
        max_attempts: int | None = None,
        site: str | None = None,
        by_door: bool = False,
    ) -> Bulk:
        """An operator's move of chosen jobs, or of all that match a filter, maybe of one site only.

        Each batch of a thousand commits together with its line in the audit log.
        """
        queue = self.queue(actor, name, "operate", call)
        calls = queue.lifecycle.calls_of("operator")
        if call in calls and call not in queue.lifecycle.plain_calls_of("operator"):
            raise Invalid(
                f"{call!r} brings new data: use the door of the workload", code="needs_payload"
            )
        if call in self.own_calls.get(name, _NOBODY) and not by_door:
            raise Invalid(
                f"{call!r} is more than a move of {name!r}: use the door of the workload",
                code="needs_door",
            )
        seen = self._sites(actor, name, site, f"queue.{call}")
        if site is not None and where is not None:
            where = replace(where, tenants=(site,))
        told: dict[str, Any] = {"filter": _told(where)} if where is not None else {}
        told |= {"reason": reason} if reason else {}
        target = ids[0] if ids and len(ids) == 1 else None

        def witness(bulk: Bulk) -> None:
            details = {"moved": bulk.moved, "already": bulk.already, **told}
            details |= {"refused": bulk.refused} if bulk.refused else {}
            self.accounts.note(
                actor, f"queue.{call}", queue=name, site=site, target=target, details=details
            )

        try:
            bulk = queue.act(
                call,
                actor=actor.name,
                ids=ids,
                where=None if where is None else self._narrowed(actor, name, where, call),
                options=options,
                reason=reason,
                code=code,
                category=category,
                max_attempts=max_attempts,
                tenants=None if seen is None else sorted(seen),
                most=MOST_AT_ONCE,
                witness=witness,
            )
        except BadInput as problem:
            raise Invalid(
                str(problem), code=problem.code, details={"field": problem.field}
            ) from None
        if not bulk.outcomes:  # nothing matched: it was asked for all the same
            witness(bulk)
        return bulk

    def would(
        self,
        actor: Actor,
        name: str,
        call: str,
        *,
        ids: Sequence[str] | None = None,
        where: Filter | None = None,
        options: frozenset[str] = frozenset(),
        site: str | None = None,
    ) -> Selection:
        """What ``act`` would do with all of them now, exactly; the states in their order."""
        queue = self.queue(actor, name, "operate", call)
        if (ids is None) == (where is None):
            raise Invalid("name the jobs by ids or by a filter, not both", code="bad_selection")
        if not queue.lifecycle.allows(call, "operator"):
            raise Invalid(f"{call!r} is no operator call of {name}", code="unknown_call")
        asked = where or Filter()
        if site is not None:
            asked = replace(asked, tenants=(site,))
        narrowed = self._narrowed(actor, name, asked, call)
        found = queue.foresee(call, narrowed, ids, options)
        place = {state: n for n, state in enumerate(queue.lifecycle.state)}
        in_order = sorted(found, key=lambda one: (place.get(one[0], len(place)), one))
        return Selection({one: found[one] for one in in_order})

    def enqueue(self, actor: Actor, name: str, news: Sequence[New]) -> list[Outcome | BadInput]:
        """Births by hand, for admins: each workload has a door of its own for its producers."""
        queue = self.queue(actor, name, "admin", "enqueue")
        needed = queue.lifecycle.birth.stamp_input
        if any(set(needed) - set(new.stamps) for new in news):
            raise Clash(
                f"a job of {name!r} is born with {', '.join(needed)}: use the door of its workload",
                code="needs_stamps",
            )
        with queue.store.transaction():
            outcomes = queue.enqueue_many(news, actor=actor.name)
            born = sum(isinstance(one, Outcome) and one.result == "inserted" for one in outcomes)
            self.accounts.note(actor, "queue.enqueue", queue=name, details={"inserted": born})
        return outcomes

    def pause(
        self, actor: Actor, name: str, *, site: str | None = None, reason: str | None = None
    ) -> None:
        """Hand out no more jobs of the queue, or of one site."""
        queue = self._steered(actor, name, site, "pause")
        told = {"reason": reason} if reason else None
        with queue.store.transaction():
            queue.pause(actor=actor.name, tenant=site or "", reason=reason)
            self.accounts.note(actor, "queue.pause", queue=name, site=site, details=told)

    def resume(self, actor: Actor, name: str, *, site: str | None = None) -> bool:
        """Undo a pause; whether there was one."""
        queue = self._steered(actor, name, site, "resume")
        with queue.store.transaction():
            was = queue.resume(tenant=site or "")
            self.accounts.note(actor, "queue.resume", queue=name, site=site)
        return was

    def _steered(self, actor: Actor, name: str, site: str | None, action: str) -> Queue:
        queue = self.queue(actor, name, "operate", action)
        seen = self.visible(actor, name)
        if site is None and seen is not None:
            self.accounts.note(actor, f"queue.{action}", allowed=False, queue=name)
            raise Refused("only somebody with every site steers the whole queue: name a site")
        if site is not None:
            self._sites(actor, name, site, f"queue.{action}")
        return queue

    # Sites

    def _sites(
        self, actor: Actor, name: str, site: str | None, action: str = "queue.read"
    ) -> frozenset[str] | None:
        """The sites asked about; one that is not the actor's, existing or not, is refused."""
        seen = self.visible(actor, name)
        if site is None:
            return seen
        if seen is not None and site not in seen:
            self.accounts.note(actor, action, allowed=False, queue=name, site=site)
            raise Refused("this site is not yours")
        return frozenset({site})

    def _narrowed(self, actor: Actor, name: str, where: Filter, action: str = "read") -> Filter:
        seen = self.visible(actor, name)
        if seen is None:
            return where
        if where.tenants is None:
            return replace(where, tenants=tuple(sorted(seen)))
        for site in where.tenants:
            self._sites(actor, name, site, f"queue.{action}")
        return where


def _of_sites(queue: Queue, stats: QueueStats, sites: frozenset[str] | None) -> QueueStats:
    """The counts of these sites; what is overdue is only known of all together."""
    if sites is None:
        return stats
    tenants = {one: stats.tenants[one] for one in sorted(sites) if one in stats.tenants}
    states = {
        state.name: sum(counts.get(state.name, 0) for counts in tenants.values())
        for state in queue.lifecycle.states
    }
    moves = {one: stats.moves[one] for one in tenants if one in stats.moves}
    known = replace(stats, oldest_due_at=None, lease_over=0)
    return replace(known, states=states, tenants=tenants, moves=moves)


def _told(where: Filter) -> dict[str, Any]:
    """The filter as the audit log keeps it."""
    given = {name: getattr(where, name) for name in where.__dataclass_fields__}
    return {name: value for name, value in given.items() if value not in (None, ())}
