"""The command layer: every request of users and programs to queues passes through it.

Routes, pages and the command line check no permissions themselves. Every operator's action has a
line in the audit log, allowed or refused. Jobs of other sites do not exist for an actor: they are
not listed, not counted and not found. Personal data is masked here: it is in clear only for a
caller that asks for that and has the permission ``reveal``, and each time is a line as well.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.masking import (
    ListReveal,
    Masking,
    RecentLooks,
    find_masked,
    masked_input,
    masked_page,
    masking_of,
    reveal_in_list,
)
from kesin.engine.bulk import ActionPreview, BulkResult
from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.validation import BadInput, invalid_field
from kesin.engine.workload import Workload
from kesin.foundation.permissions import Actor, Permission
from kesin.foundation.problems import Forbidden, Invalid, NotFound, RequestConflict
from kesin.lifecycle.model import Job
from kesin.lifecycle.task import task_lifecycle
from kesin.store.counters import count_jobs
from kesin.store.errors import StoreUnreachable
from kesin.store.records import Event, Filter, JobCount, Note, Outcome, Page, Pause, QueueStats

_NONE: Final[frozenset[str]] = frozenset()
_UNDECLARED: Final = Workload("", task_lifecycle)
MAX_BULK_JOBS: Final = 100_000  # in one bulk action; repeat it for the remainder
MAX_LISTED_OUTCOMES: Final = 1_000  # of a bulk action by filter; by ids, all are listed


@dataclass(frozen=True, slots=True)
class JobDetails:
    """A job with its history and an operator's actions; ``revealed`` is in the audit log."""

    job: Job
    events: list[Event]
    notes: list[Note]
    actions: tuple[str, ...]
    masked: bool = False
    revealed: bool = False


@dataclass(slots=True)
class Commands:
    """The queues, with permission checks and the audit log."""

    queues: Mapping[str, Queue]
    accounts: Accounts
    workloads: Mapping[str, Workload] = field(default_factory=dict)  # by the name of their queue
    open_new_queues: Callable[[], None] = lambda: None  # those an app has made since the start
    _looks: RecentLooks = field(default_factory=RecentLooks, repr=False)

    def workload(self, queue: str) -> Workload:
        """The workload of a queue; for a queue of an application, one that declares nothing."""
        return self.workloads.get(queue, _UNDECLARED)

    # Reading

    def visible_sites(self, actor: Actor, queue: str) -> frozenset[str] | None:
        """The sites whose jobs the actor may see; None means all."""
        return actor.sites_in(queue, sited=self.workload(queue).has_sites)

    def sees(self, actor: Actor, job: Job) -> bool:
        return actor.sees(job.queue, job.tenant, sited=self.workload(job.queue).has_sites)

    def queue(self, actor: Actor, name: str, permission: Permission = "read", action: str = "read") -> Queue:
        """The queue, if the actor has this permission on it; unknown and hidden look the same."""
        self.accounts.require(actor, permission, f"queue.{action}", queue=name)
        if name not in self.queues:
            self.open_new_queues()
        queue = self.queues.get(name)
        if queue is None or self.visible_sites(actor, name) == _NONE:
            if permission != "read":
                self.accounts.note(actor, f"queue.{action}", allowed=False, queue=name)
            why = "there is no queue %(queue)s, or you have no access to it"
            raise NotFound(why, queue=repr(name))
        return queue

    def readable_queues(self, actor: Actor) -> list[Queue]:
        self.accounts.require(actor, "read", "queue.list")
        queues = list(self.queues.values())  # the service may open one meanwhile
        return [queue for queue in queues if self.visible_sites(actor, queue.name) != _NONE]

    def stats(self, actor: Actor, name: str, *, site: str | None = None) -> QueueStats:
        """Counts of the jobs the actor may see."""
        return self.visible_stats(actor, self.queue(actor, name).stats(), site=site)

    def visible_stats(self, actor: Actor, stats: QueueStats, *, site: str | None = None) -> QueueStats:
        """The part of these counts that the actor may see, or that of one site."""
        sites = self._selected_sites(actor, stats.queue, site)
        return stats_of_sites(self.queues[stats.queue], stats, sites)

    def jobs(
        self,
        actor: Actor,
        name: str,
        where: Filter,
        *,
        limit: int = 100,
        cursor: str | None = None,
        reveal: ListReveal = "nothing",
        same_look: bool = False,
    ) -> Page:
        """A page of jobs, as the actor may see them; ``same_look``: no new look for ten minutes."""
        queue, narrowed = self.queue(actor, name), self.narrow(actor, name, where)
        read = partial(queue.jobs, narrowed, limit=limit)
        page = read(cursor=cursor)
        if not actor.has("reveal"):
            fields = queue.store.listing(name).search if where.search else ()
            return masked_page(read, self.masking(name), where, limit, page, fields=fields)
        jobs = self.shown_list(actor, name, page.jobs, reveal, same_look=same_look)
        return Page(jobs, page.cursor)

    def count(self, actor: Actor, name: str, where: Filter, *, limit: int, **between: str) -> JobCount:
        """How many jobs match; no search in masked fields is counted, as that would reveal them."""
        queue, narrowed = self.queue(actor, name), self.narrow(actor, name, where)
        searched = where.text or where.contains or where.dedup_key or where.search
        if searched and not actor.has("reveal"):
            return JobCount(0, exact=False)
        return queue.store.count_matching(name, narrowed, limit=limit, **between)

    def find(
        self, actor: Actor, name: str, ids: Sequence[str], *, reveal: ListReveal = "nothing", same_look: bool = False
    ) -> list[Job]:
        """Those of these jobs that the actor may see, masked like those of a page."""
        jobs = self.queue(actor, name).find(ids).values()
        visible = [job for job in jobs if self.sees(actor, job)]
        return self.shown_list(actor, name, visible, reveal, same_look=same_look)

    def shown_list(
        self, actor: Actor, name: str, jobs: Sequence[Job], reveal: ListReveal, *, same_look: bool = False
    ) -> list[Job]:
        """Jobs that the actor may see, as the actor may see them."""
        masked = list(map(self.masking(name).job, jobs))
        if not actor.has("reveal"):
            return masked
        shown = list(map(partial(reveal_in_list, reveal), jobs, masked))
        seen = [job.id for job, hidden in zip(shown, masked, strict=True) if job != hidden]
        if same_look:
            seen = self._looks.new(actor.name, seen, self.accounts.now())
        if seen:
            self.accounts.note(actor, "queue.reveal", queue=name, details={"jobs": len(seen)})
        return shown

    def masking(self, name: str) -> Masking:
        """What is masked in the jobs of this queue."""
        return masking_of(self.workload(name).personal_fields)

    def shown(self, actor: Actor, job: Job) -> Job:
        """The job as the actor may see it: in clear, with an audit line, or masked."""
        return self._shown(actor, JobDetails(job, [], [], ()), reveal=True).job

    def _shown(self, actor: Actor, details: JobDetails, *, reveal: bool) -> JobDetails:
        job = details.job
        history = self.masking(job.queue).history(job, details.events, details.notes)
        masked = JobDetails(*history, details.actions)
        if not reveal or not actor.has("reveal") or details == masked:
            return replace(masked, masked=details != masked)
        self.accounts.note(actor, "job.reveal", queue=job.queue, site=job.tenant, target=job.id)
        return replace(details, revealed=True)

    def job(self, actor: Actor, job_id: str, *, reveal: bool = False) -> JobDetails:
        """One job with its history, masked without ``reveal``; one of another site is not found."""
        self.accounts.require(actor, "read", "job.read", target=job_id)
        unreachable: StoreUnreachable | None = None
        for queue in list(self.queues.values()):
            try:
                job = queue.job(job_id)
            except StoreUnreachable as problem:  # other queues may be in other stores
                unreachable = problem
                continue
            if job and self.sees(actor, job):
                leaving = {m.action for m in queue.lifecycle.moves if job.state in m.sources}
                actions = tuple(one for one in self.offered_actions(queue) if one in leaving)
                history = queue.events(job_id), queue.notes(job_id)
                return self._shown(actor, JobDetails(job, *history, actions), reveal=reveal)
        if unreachable is not None:
            raise unreachable
        raise NotFound("there is no job %(job)s", job=repr(job_id))

    def pauses(self, actor: Actor, name: str) -> list[Pause]:
        """The pauses of this queue that the actor may see."""
        queue = self.queue(actor, name)
        sites = self.visible_sites(actor, name)
        paused = queue.store.paused(name)
        return [pause for pause in paused if sites is None or pause.tenant in {"", *sites}]

    # Actions

    def offered_actions(self, queue: Queue) -> tuple[str, ...]:
        """The operator's actions that need no data and are not reserved for the workload."""
        restricted = self.workload(queue.name).restricted_actions
        actions = queue.lifecycle.plain_actions_of("operator")
        return tuple(action for action in actions if action not in restricted)

    def act(
        self,
        actor: Actor,
        name: str,
        action: str,
        *,
        ids: Sequence[str] | None = None,
        where: Filter | None = None,
        options: frozenset[str] = frozenset(),
        reason: str | None = None,
        site: str | None = None,
        by_workload: bool = False,
        **recorded: Any,
    ) -> BulkResult:
        """Run an operator's action on chosen jobs, or on all that match a filter.

        Each batch of a thousand commits together with its line in the audit log.
        ``site`` narrows them to one site; ``by_workload`` allows an action that is reserved for
        the workload. ``recorded`` is what the action sets: ``code``, ``priority`` and the like.
        """
        queue = self.queue(actor, name, "operate", action)
        actions = queue.lifecycle.actions_of("operator")
        if action in actions and action not in queue.lifecycle.plain_actions_of("operator"):
            raise Invalid(
                "%(call)s needs new data: use its workload's page, API or command",
                code="needs_payload",
                call=repr(action),
            )
        if not by_workload:
            self.require_unrestricted(name, action)
        sites = self._selected_sites(actor, name, site, f"queue.{action}")
        if site is not None and where is not None:
            where = replace(where, tenants=(site,))
        request: dict[str, Any] = {}
        if where is not None:
            given = {name: n for name, n in asdict(where).items() if n not in (None, (), False)}
            request["filter"] = given
        request |= {"reason": reason} if reason else {}
        request |= {"priority": n} if (n := recorded.get("priority")) is not None else {}
        target = ids[0] if ids and len(ids) == 1 else None

        def on_batch(bulk: BulkResult) -> None:
            details = {"moved": bulk.moved, "already": bulk.already, **request}
            details |= {"refused": bulk.refused} if bulk.refused else {}
            self.accounts.note(actor, f"queue.{action}", queue=name, site=site, target=target, details=details)

        visible = None if where is None else self.narrow(actor, name, where, action)
        recorded |= {"ids": ids, "where": visible, "options": options, "reason": reason}
        recorded |= {"tenants": None if sites is None else sorted(sites), "limit": MAX_BULK_JOBS}
        try:
            bulk = queue.act(action, actor=actor.name, in_transaction=on_batch, **recorded)
        except BadInput as problem:
            raise invalid_field(problem.field, str(problem), code=problem.code) from None
        if not bulk.outcomes:  # nothing matched: the request is audited all the same
            on_batch(bulk)
        return bulk

    def require_unrestricted(self, name: str, action: str) -> None:
        """Raise Invalid for an action that is reserved for the workload."""
        if action in self.workload(name).restricted_actions:
            raise Invalid(
                "%(call)s does more than move a job: use the page, API or command of %(queue)s",
                code="needs_workload",
                call=repr(action),
                queue=repr(name),
            )

    def preview(
        self,
        actor: Actor,
        name: str,
        action: str,
        *,
        ids: Sequence[str] | None = None,
        where: Filter | None = None,
        options: frozenset[str] = frozenset(),
        site: str | None = None,
    ) -> ActionPreview:
        """What ``act`` would do now with all matching jobs; the states in lifecycle order."""
        queue = self.queue(actor, name, "operate", action)
        if (ids is None) == (where is None):
            raise Invalid("specify the jobs by id or by filter, not both", code="bad_selection")
        if not queue.lifecycle.allows(action, "operator"):
            raise Invalid(
                "%(call)s is not an operator action for %(queue)s", code="unknown_call", call=repr(action), queue=name
            )
        self.require_unrestricted(name, action)
        matching = where or Filter()
        if site is not None:
            matching = replace(matching, tenants=(site,))
        counts = queue.preview(action, self.narrow(actor, name, matching, action), ids, options)
        order = {state: n for n, state in enumerate(queue.lifecycle.state)}
        keys = sorted(counts, key=lambda key: (order.get(key[0], len(order)), key))
        return ActionPreview({key: counts[key] for key in keys})

    def enqueue(self, actor: Actor, name: str, news: Sequence[NewJob]) -> list[Outcome | BadInput]:
        """Enqueue jobs by hand, for admins; producers use their workload's API."""
        queue = self.queue(actor, name, "admin", "enqueue")
        for at, new in enumerate(news):
            if path := find_masked(new.payload, "payload"):
                raise masked_input(f"jobs[{at}].{path}")
        needed = queue.lifecycle.enqueue_move.stamp_input
        if any(set(needed) - set(new.stamps) for new in news):
            raise RequestConflict(
                "a job in %(queue)s needs %(needed)s: use its workload's API or command",
                code="needs_stamps",
                queue=repr(name),
                needed=", ".join(needed),
            )
        with queue.store.transaction():
            outcomes = queue.enqueue_many(news, actor=actor.name)
            results = [one.result for one in outcomes if isinstance(one, Outcome)]
            details = {"inserted": results.count("inserted")}
            self.accounts.note(actor, "queue.enqueue", queue=name, details=details)
        return outcomes

    def pause(self, actor: Actor, name: str, *, site: str | None = None, reason: str | None = None) -> None:
        """Let no jobs of the queue, or of one site, be claimed until it is resumed."""
        queue = self._controlled_queue(actor, name, site, "pause")
        details = {"reason": reason} if reason else None
        with queue.store.transaction():
            queue.pause(actor=actor.name, tenant=site or "", reason=reason)
            self.accounts.note(actor, "queue.pause", queue=name, site=site, details=details)

    def resume(self, actor: Actor, name: str, *, site: str | None = None) -> bool:
        """End a pause; return whether there was one."""
        queue = self._controlled_queue(actor, name, site, "resume")
        with queue.store.transaction():
            was_paused = queue.resume(tenant=site or "")
            self.accounts.note(actor, "queue.resume", queue=name, site=site)
        return was_paused

    def _controlled_queue(self, actor: Actor, name: str, site: str | None, action: str) -> Queue:
        queue = self.queue(actor, name, "operate", action)
        if site is None and self.visible_sites(actor, name) is not None:
            self.accounts.note(actor, f"queue.{action}", allowed=False, queue=name)
            raise Forbidden("acting on the whole queue needs access to all sites: name a site")
        if site is not None:
            self._selected_sites(actor, name, site, f"queue.{action}")
        return queue

    # Sites

    def _selected_sites(
        self, actor: Actor, name: str, site: str | None, action: str = "queue.read"
    ) -> frozenset[str] | None:
        """The requested sites; a site the actor may not see, existing or not, is refused."""
        sites = self.visible_sites(actor, name)
        if site is None:
            return sites
        if sites is not None and site not in sites:
            self.accounts.note(actor, action, allowed=False, queue=name, site=site)
            raise Forbidden("you have no access to this site")
        return frozenset({site})

    def narrow(self, actor: Actor, name: str, where: Filter, action: str = "read") -> Filter:
        """The filter, over the sites that the actor may see."""
        sites = self.visible_sites(actor, name)
        if sites is None:
            return where
        if where.tenants is None:
            return replace(where, tenants=tuple(sorted(sites)))
        for site in where.tenants:
            self._selected_sites(actor, name, site, f"queue.{action}")
        return where


def stats_of_sites(queue: Queue, stats: QueueStats, sites: Collection[str] | None) -> QueueStats:
    """The counts of these sites; overdue counts exist only for the whole queue."""
    if sites is None:
        return stats
    counts = sorted(count for count in stats.counts if count.tenant in sites)
    return count_jobs(queue.name, counts, queue.lifecycle.state, (None, 0, stats.now))
