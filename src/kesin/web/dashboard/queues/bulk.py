"""Actions on more jobs than somebody waits for: one thread, a batch at a time.

Each batch commits by itself, with its line in the audit log. How far a run came is written down
beside it, so that whoever started it sees it from any page and any process; and if this process
goes away in the middle, what was done is done, what was not is untouched, and the page says so.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from kesin.foundation.ids import IdMaker
from kesin.foundation.logs import Logger
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Clash, Problem
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import MINUTE_S, SECOND_US
from kesin.store.directory import Fact
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.web.dashboard.frame.page import PageContext, once
from kesin.web.dashboard.queues.actions import LINKED, linked, reason_key, unmoved
from kesin.web.dashboard.queues.charts import WORKLOAD
from kesin.web.service import Service

log = Logger("kesin.bulk")

State = Literal["waiting", "running", "done", "stopped", "failed"]
MOST_WAITING: Final = 8
KEPT: Final = 5  # runs of one person that ended
SHOWN_S: Final = 15 * MINUTE_S  # after they ended
SILENT_S: Final = MINUTE_S  # a run that says nothing for so long has lost its process
TOLD_EVERY_S: Final = SILENT_S // 4  # a run that waits behind another says that it still does


@dataclass(slots=True)
class Run:
    """How far an action came; kept as JSON."""

    id: str
    queue: str
    call: str
    total: int
    state: State = "waiting"
    done: int = 0
    moved: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    link: list[str] = field(default_factory=list)
    at: int = 0
    why: str = ""
    site: str = ""  # the only one it is about

    @property
    def active(self) -> bool:
        """Whether it goes on."""
        return self.state in {"waiting", "running"}

    def lost(self, now: int) -> bool:
        """Whether it would go on, but its process went away."""
        return self.active and now - self.at > SILENT_S * SECOND_US

    @property
    def share(self) -> int:
        """How much is done, of a hundred."""
        return min(100, 100 * self.done // max(self.total, 1))


@dataclass(frozen=True, slots=True)
class Order:
    """What a run is to do, and for whom."""

    run: Run
    actor: Actor
    where: Filter
    options: frozenset[str]
    reason: str | None
    terms: Mapping[str, Any]  # what else the action says of each job, as the command layer takes it


class Runs:
    """The runs of one process; the thread ends when there is nothing left to do."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._ids = IdMaker(service.clock)
        self._waiting: deque[Order] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(
        self,
        actor: Actor,
        queue: str,
        call: str,
        where: Filter,
        total: int,
        *,
        options: frozenset[str] = frozenset(),
        reason: str | None = None,
        site: str | None = None,
        **terms: Any,
    ) -> Run:
        """Take an order; raises Clash when too many wait already."""
        run = Run(self._ids.make(1)[0], queue, call, total, site=site or "")
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                raise Clash(f"{MOST_WAITING} actions are waiting already: try again when one ended")
            self._keep(actor, run)
            self._waiting.append(Order(run, actor, where, options, reason, terms))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="kesin-bulk", daemon=True)
                self._thread.start()
        return run

    def join(self, timeout_s: float) -> None:
        """Wait for what runs."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def of(self, actor: Actor, queue: str) -> list[Run]:
        """The runs of a person on a queue that go on or ended lately, the newest first."""
        now = self._service.queues[queue].now()
        fact = self._service.accounts.directory.fact(WORKLOAD, "", _name(actor))
        runs = [Run(**one) for one in (json.loads(fact.value) or [])] if fact else []
        for run in runs:
            if run.lost(now):
                run.state = "stopped"
        return [
            run
            for run in reversed(runs)
            if run.queue == queue and (run.active or now - run.at < SHOWN_S * SECOND_US)
        ]

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                order = self._waiting.popleft()
            try:
                self._carry_out(order)
            except Problem as problem:  # somebody's rights ended, say
                self._end(order, "failed", problem.message)
            except Exception:  # the store is away: told by silence if it stays away
                log.exception("bulk_failed", call=order.run.call)
                self._end(order, "failed", "")

    def _end(self, order: Order, state: State, why: str) -> None:
        order.run.state, order.run.why = state, why
        try:
            self._keep(order.actor, order.run)
        except Exception:  # it will look stopped, which is true
            log.exception("bulk_not_told", call=order.run.call)

    def _carry_out(self, order: Order) -> None:
        run, commands = order.run, self._service.commands
        run.state = "running"
        cursor: str | None = None
        while True:
            if self._service.stopping or not self._still(order.actor):
                self._end(order, "stopped", "")
                return
            page = commands.jobs(order.actor, run.queue, order.where, limit=MAX_PAGE, cursor=cursor)
            if page.jobs:
                bulk = commands.act(
                    order.actor,
                    run.queue,
                    run.call,
                    ids=[job.id for job in page.jobs],
                    options=order.options,
                    reason=order.reason,
                    site=run.site or None,
                    **order.terms,
                )
                run.done += len(page.jobs)
                run.moved += bulk.moved
                stayed = unmoved(bulk)
                reasons = Counter(run.refused) + Counter(reason_key(one) for one in stayed)
                run.refused = dict(reasons)
                run.link = [*run.link, *linked(stayed)][:LINKED]
            cursor = page.cursor
            if cursor is None:
                self._end(order, "done", "")
                return
            self._keep(order.actor, run)
            self._tell_who_waits()

    def _tell_who_waits(self) -> None:
        """Those behind the run at work are alive as long as it is."""
        with self._lock:
            waiting = list(self._waiting)
        for order in waiting:
            now = self._service.queues[order.run.queue].now()
            if now - order.run.at >= TOLD_EVERY_S * SECOND_US:
                self._keep(order.actor, order.run)

    def _still(self, actor: Actor) -> bool:
        """Whether the person may still do what was theirs to do when the run began."""
        kind, _, name = actor.name.partition(":")
        if kind != "user":
            return True
        person = self._service.accounts.directory.person(name)
        return (
            person is not None
            and person.disabled_at is None
            and person.role in actor.grants
            and person.all_sites == actor.all_sites
            and frozenset(person.sites) == actor.sites
            and frozenset(person.queues) == actor.queues
        )

    def _keep(self, actor: Actor, run: Run) -> None:
        """Write down how far it came."""
        directory = self._service.accounts.directory
        now = self._service.queues[run.queue].now()
        run.at = now
        with directory.transaction():
            held = directory.hold_fact(WORKLOAD, "", _name(actor), now)
            kept = [Run(**one) for one in json.loads(held.value) or []]
            runs = [run if one.id == run.id else one for one in kept]
            if run not in runs:
                runs.append(run)
            over = [one.id for one in runs if not one.active or one.lost(now)]
            value = canonical_json([asdict(one) for one in runs if one.id not in over[:-KEPT]])
            directory.put_fact(Fact(WORKLOAD, "", _name(actor), value, now))


def runs_of(looking: PageContext) -> Runs:
    """The runs of the looker's service."""
    return once(looking.request.app, "bulk_runs", lambda: Runs(looking.service))


def _name(actor: Actor) -> str:
    return f"runs of {actor.name}"
