"""Actions on many jobs in the background: one thread, whose batches commit one by one."""

import json
import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, NamedTuple

from kesin.engine.queue import Queue
from kesin.foundation.ids import IdMaker
from kesin.foundation.logs import Logger
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Problem, RequestConflict
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import MINUTE_S, SECOND_US
from kesin.lifecycle.vocabulary import PRIORITIES
from kesin.store.directory import MetadataEntry
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.web.bodies import first_value
from kesin.web.dashboard.frame.page import PageContext, app_state
from kesin.web.dashboard.queues import actions
from kesin.web.dashboard.queues.filters import Fields
from kesin.web.service import Service

log = Logger("kesin.bulk")

WORKLOAD: Final = "dashboard"  # a stored name
RunState = Literal["waiting", "running", "done", "stopped", "failed"]
MAX_WAITING: Final = 8
MAX_ENDED: Final = 5  # ended runs that are kept for each user
SHOWN_S: Final = 15 * MINUTE_S  # after their end
SILENT_S: Final = MINUTE_S  # a run without progress for longer has lost its process
HEARTBEAT_S: Final = SILENT_S // 4  # how often runs that wait behind another are saved


@dataclass(slots=True)
class BulkRun:
    """The progress of a run; stored as JSON, so that its user sees it on any page and process."""

    id: str
    queue: str
    call: str
    total: int
    state: RunState = "waiting"
    done: int = 0
    moved: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    link: list[str] = field(default_factory=list)
    at: int = 0
    why: str = ""
    site: str = ""  # the only site it is about

    @property
    def active(self) -> bool:
        return self.state in {"waiting", "running"}

    def lost(self, now: int) -> bool:
        """Whether it is active but its process has ended."""
        return self.active and now - self.at > SILENT_S * SECOND_US

    @property
    def share(self) -> int:
        return min(100, 100 * self.done // max(self.total, 1))


class QueuedRun(NamedTuple):
    """A run with what it does and for whom."""

    run: BulkRun
    actor: Actor
    where: Filter
    terms: Mapping[str, Any]  # further arguments of `Commands.act`


class BulkRuns:
    """The runs of one process; its thread ends when none is left."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._ids = IdMaker(service.clock)
        self._waiting: deque[QueuedRun] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, actor: Actor, queue: str, action: str, where: Filter, total: int, **terms: Any) -> BulkRun:
        """Queue a run; raises RequestConflict when too many wait already."""
        run = BulkRun(self._ids.make(1)[0], queue, action, total, site=terms.get("site") or "")
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                raise RequestConflict("%(n)s actions are already waiting: try again when one is done", n=MAX_WAITING)
            self._save(actor, run)
            self._waiting.append(QueuedRun(run, actor, where, terms))
            if self._thread is None:
                self._thread = self._service.run_thread("kesin-bulk", self._work)
        return run

    def of(self, actor: Actor, queue: str) -> list[BulkRun]:
        """A user's runs on a queue that are active or ended lately, newest first."""
        now = self._service.queues[queue].now()
        entry = self._service.accounts.directory.metadata_entry(WORKLOAD, "", _name(actor))
        runs = [BulkRun(**values) for values in (json.loads(entry.value) or [])] if entry else []
        for run in runs:
            if run.lost(now):
                run.state = "stopped"
        shown = [run for run in runs if run.active or now - run.at < SHOWN_S * SECOND_US]
        return [run for run in reversed(shown) if run.queue == queue]

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                order = self._waiting.popleft()
            try:
                self._execute(order)
            except Problem as problem:  # e.g. the user lost a permission
                self._end(order, "failed", problem.message)
            except Exception:  # e.g. the store is unreachable
                log.exception("bulk_failed", action=order.run.call)
                self._end(order, "failed", "")

    def _end(self, order: QueuedRun, state: RunState, why: str) -> None:
        order.run.state, order.run.why = state, why
        try:
            self._save(order.actor, order.run)
        except Exception:  # it will look stopped, which is true
            log.exception("bulk_not_told", action=order.run.call)

    def _execute(self, order: QueuedRun) -> None:
        run, commands = order.run, self._service.commands
        run.state = "running"
        cursor: str | None = None
        while True:
            if self._service.stopping or not self._still_permitted(order.actor):
                self._end(order, "stopped", "")
                return
            page = commands.jobs(order.actor, run.queue, order.where, limit=MAX_PAGE, cursor=cursor)
            if page.jobs:
                ids = [job.id for job in page.jobs]
                bulk = commands.act(order.actor, run.queue, run.call, ids=ids, **order.terms)
                run.done += len(ids)
                run.moved += bulk.moved
                reasons, link = actions.refused_jobs(bulk)
                run.refused = dict(Counter(run.refused) + reasons)
                run.link = [*run.link, *link][: actions.MAX_LINKED]
            cursor = page.cursor
            if cursor is None:
                self._end(order, "done", "")
                return
            self._save(order.actor, run)
            self._refresh_waiting()

    def _refresh_waiting(self) -> None:
        """Keep the runs behind this one from looking lost."""
        with self._lock:
            waiting = list(self._waiting)
        for order in waiting:
            now = self._service.queues[order.run.queue].now()
            if now - order.run.at >= HEARTBEAT_S * SECOND_US:
                self._save(order.actor, order.run)

    def _still_permitted(self, actor: Actor) -> bool:
        """Whether the user still has the permissions that the run started with."""
        kind, _, name = actor.name.partition(":")
        if kind != "user":
            return True
        user = self._service.accounts.directory.user(name)
        if user is None or user.disabled_at is not None or user.role not in actor.grants:
            return False
        seen = (user.all_sites, frozenset(user.sites), frozenset(user.queues))
        return seen == (actor.all_sites, actor.sites, actor.queues)

    def _save(self, actor: Actor, run: BulkRun) -> None:
        directory = self._service.accounts.directory
        now = self._service.queues[run.queue].now()
        run.at = now
        with directory.transaction():
            entry = directory.lock_metadata(WORKLOAD, "", _name(actor), now)
            saved = [BulkRun(**other) for other in json.loads(entry.value) or []]
            runs = [run if other.id == run.id else other for other in saved]
            if run not in runs:
                runs.append(run)
            ended = [other.id for other in runs if not other.active or other.lost(now)]
            kept = [asdict(other) for other in runs if other.id not in ended[:-MAX_ENDED]]
            entry = MetadataEntry(WORKLOAD, "", _name(actor), canonical_json(kept), now)
            directory.put_metadata(entry)


def runs_of(ctx: PageContext) -> BulkRuns:
    return app_state(ctx.request.app, "bulk_runs", lambda: BulkRuns(ctx.service))


def take_action(ctx: PageContext, queue: str, sent: Fields) -> tuple[Queue, str, dict[str, Any] | None]:
    """Take the action that a form names; without a result it runs in the background.

    The result links to the first refused jobs; its state is that of the only job, if it moved.
    """
    opened = ctx.commands.queue(ctx.actor, queue, "operate", "act")
    action, selection, options = actions.read_action(ctx, opened, sent)
    reason = actions.reason_of(sent)
    priority = {str(n): n for n in PRIORITIES}.get(first_value(sent, "priority"))
    terms: dict[str, Any] = {"options": options, "reason": reason, "priority": priority}
    if selection.every and selection.sought.ids is None:
        preview = actions.preview(ctx, opened, action, selection, options)
        if preview.in_background:
            where = selection.sought.where
            runs_of(ctx).start(ctx.actor, queue, action, where, preview.matched, **terms)
            return opened, action, None
    jobs = actions.jobs_of(ctx, opened, selection)
    bulk = ctx.commands.act(ctx.actor, queue, action, **jobs, **terms)
    reasons, link = actions.refused_jobs(bulk)
    state = bulk.outcomes[0].state if bulk.moved == len(bulk.outcomes) == 1 else None
    refused = actions.describe_refusals(ctx, reasons)
    result = {"moved": bulk.moved, "refused": refused, "link": link, "state": state or ""}
    return opened, action, result


def _name(actor: Actor) -> str:
    return f"runs of {actor.name}"
