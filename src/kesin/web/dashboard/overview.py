"""The overview: whether everything is well, then a card for each queue."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from fastapi.responses import HTMLResponse
from markupsafe import Markup, escape

from kesin.engine.queue import Queue
from kesin.lifecycle.budget import HOUR_S, MINUTE_S, SECOND_US
from kesin.store.errors import StoreUnreachable
from kesin.store.records import Filter, QueueStats
from kesin.web.auth import guarded_router
from kesin.web.dashboard.frame.formatting import Formatter
from kesin.web.dashboard.frame.page import Context, PageContext
from kesin.web.dashboard.health import count_workers, next_sweep_s, warnings
from kesin.web.dashboard.queues.charts import Trend, Trends
from kesin.web.dashboard.state_groups import StateGroup, failed_states, hold_states, state_groups

router = guarded_router(include_in_schema=False)
ALARMING_SHARE: Final = 0.2  # of the jobs that ended within a day
MAX_FAILED_READ: Final = 200  # to find their most common error code
MAX_SITES_NAMED: Final = 3  # in a sentence
NO_WORKER_S: Final = MINUTE_S  # due jobs wait so long without any worker
OVERDUE_S: Final = 15 * MINUTE_S  # due jobs wait so long although workers run


class Trouble(NamedTuple):
    """Something that needs attention, and the page about it."""

    text: Markup
    href: str


class CardLabel(NamedTuple):
    """A highlighted word on a card."""

    text: str
    family: StateGroup


@dataclass(slots=True)
class Card:
    """A queue at a glance."""

    queue: str
    title: str
    path: str
    counts: dict[StateGroup, int] = field(default_factory=dict)
    trend: Trend = field(default_factory=Trend)
    whole: bool = False  # the user may see all of its jobs
    waits_us: int | None = None
    stuck: int = 0
    workers: int = 0
    sweep_s: int | None = None
    marks: list[CardLabel] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)


@router.get("/dashboard", response_class=HTMLResponse)
def overview(ctx: Context) -> HTMLResponse:
    """A sentence, then a card for each queue."""
    readable = ctx.actor.has("read")
    queues = ctx.service.commands.readable_queues(ctx.actor) if readable else []
    cards = [_card_or_unreachable(ctx, queue) for queue in queues]
    template = "part_cards.html" if ctx.in_part else "overview.html"
    return ctx.page(template, cards=cards, process_troubles=_process_troubles(ctx) if cards else [])


def _card_or_unreachable(ctx: PageContext, queue: Queue) -> Card:
    """The queue's card, or one that says that its store does not answer."""
    title = ctx.title_of(queue.name)
    card = Card(queue.name, title, f"/dashboard/queues/{queue.name}")
    try:
        return _CardBuilder(ctx, queue, card).card()
    except StoreUnreachable:
        trouble = Trouble(escape(ctx.say("its store does not answer")), card.path)
        return Card(queue.name, title, card.path, troubles=[trouble])


def _process_troubles(ctx: PageContext) -> list[Trouble]:
    """What is wrong with this process itself."""
    troubles, checks = [], ctx.service.checks()
    path = "/dashboard/workers" if ctx.actor.has("operate") else ""
    if "workers" in checks and not checks["workers"].ok:
        troubles.append(Trouble(escape(ctx.say("Workers of this process are silent.")), path))
    if "sweeper" in checks and not checks["sweeper"].ok:
        text = ctx.say("The sweeper of this process has missed its last turns.")
        troubles.append(Trouble(escape(text), path))
    return troubles


class _CardBuilder:
    """Builds the card of a queue from one read of its statistics."""

    def __init__(self, ctx: PageContext, queue: Queue, card: Card) -> None:
        self.ctx = ctx
        self.queue = queue
        self._card = card
        self.figures = Formatter(ctx.language)
        self.commands = ctx.service.commands
        self.stats: QueueStats = self.commands.visible_stats(ctx.actor, queue.stats())
        self.pauses = self.commands.pauses(ctx.actor, queue.name)

    def card(self) -> Card:
        card, stats, service = self._card, self.stats, self.ctx.service
        groups = state_groups(self.queue.lifecycle)
        counts: Counter[StateGroup] = Counter()
        for state, n in stats.states.items():
            counts[groups.get(state, "expired")] += n
        card.counts = dict(counts)
        card.whole = self.commands.visible_sites(self.ctx.actor, self.queue.name) is None
        if card.whole:  # these figures cover all jobs
            card.trend = Trends(service.accounts.directory, service.queues).of(self.queue)
            card.waits_us = stats.now - stats.oldest_due_at if stats.oldest_due_at else None
            card.stuck = stats.lease_over
            card.workers = count_workers(self.ctx, self.queue)
            card.sweep_s = next_sweep_s(self.ctx, self.queue)
        self._failures()
        self._on_hold()
        self._share()
        self._stuck()
        self._pauses()
        self._waiting()
        self._warnings()
        return card

    def _add_trouble(self, sentence: str, href: str = "", **values: Any) -> None:
        """Add a trouble. The sentence is translated already; its values are escaped here."""
        text = escape(sentence) % values if values else escape(sentence)
        self._card.troubles.append(Trouble(text, href or self._card.path))

    def _to(self, states: tuple[str, ...], code: str = "") -> str:
        query = [("state", state) for state in states] + ([("code", code)] if code else [])
        return f"{self._card.path}?{urlencode(query)}"

    def _failures(self) -> None:
        """Jobs that failed within the last hour, and their most common error code.

        Only some jobs are read, so the numbers are exact only if those are all.
        """
        say, bad = self.ctx.say, failed_states(self.queue.lifecycle)
        if not sum(self.stats.states.get(state, 0) for state in bad):
            return
        since, trend = self.stats.now - HOUR_S * SECOND_US, self._card.trend
        if trend.since is not None and trend.since <= since and not trend.failed_hour:
            return  # the counters show none
        page = self.commands.jobs(
            self.ctx.actor, self.queue.name, Filter(states=bad), limit=MAX_FAILED_READ
        )
        recent = [job for job in page.jobs if job.moved_at > since]
        exact = page.cursor is None
        n = len(recent) if exact else max(len(recent), trend.failed_hour)
        if not n:
            return
        codes = Counter(job.error_code for job in recent if job.error_code)
        code, m = codes.most_common(1)[0] if codes else ("", 0)
        values: dict[str, Any] = {"n": self.figures.number(n), "m": self.figures.number(m)}
        values["code"] = Markup("<code>{}</code>").format(code)
        if exact and m == n:
            sentence = say("%(n)s failed in the last hour with %(code)s")
        elif exact and code:
            sentence = say("%(n)s failed in the last hour, %(m)s of them %(code)s")
        elif exact:
            sentence = say("%(n)s failed in the last hour")
        elif m * 2 > len(recent):
            sentence = say("at least %(n)s failed in the last hour, most of them %(code)s")
        else:
            sentence, code = say("at least %(n)s failed in the last hour"), ""
        self._add_trouble(sentence, self._to(bad, code), **values)

    def _on_hold(self) -> None:
        states = hold_states(self.queue.lifecycle)
        n = sum(self.stats.states.get(state, 0) for state in states)
        if n:
            sentence = self.ctx.say("%(n)s for a person to look at")
            self._add_trouble(sentence, self._to(states), n=self.figures.number(n))

    def _share(self) -> None:
        share = self._card.trend.failed_share
        if share is not None and share > ALARMING_SHARE:
            percent = self.figures.percent(share)
            sentence = self.ctx.say("%(p)s of the last day failed")
            self._add_trouble(sentence, self._to(failed_states(self.queue.lifecycle)), p=percent)
            label = self.ctx.say("%(p)s failed", p=percent)
            self._card.marks.append(CardLabel(label, "retrying"))

    def _stuck(self) -> None:
        if self._card.stuck:
            sentence = self.ctx.say("%(n)s are stuck: their worker is gone")
            self._add_trouble(sentence, n=self.figures.number(self._card.stuck))

    def _pauses(self) -> None:
        """The whole queue, or the sites that are paused by their names."""
        if not self.pauses:
            return
        sites = [pause.tenant for pause in self.pauses if pause.tenant]
        if len(sites) == len(self.pauses):
            more = " …" if len(sites) > MAX_SITES_NAMED else ""
            names = ", ".join(sites[:MAX_SITES_NAMED]) + more
            self._add_trouble(self.ctx.say("paused for %(sites)s"), sites=names)
        else:
            self._add_trouble(self.ctx.say("paused"))
        self._card.marks.append(CardLabel(self.ctx.say("paused"), "retrying"))

    def _waiting(self) -> None:
        """Due jobs that no worker claims; paused jobs wait as they should."""
        card, say = self._card, self.ctx.say
        waits_s = (card.waits_us or 0) / SECOND_US
        overdue_after_s = self.ctx.pages_of(card.queue).overdue_after_s
        if self.pauses:
            return
        if waits_s > (overdue_after_s or OVERDUE_S):
            self._add_trouble(
                say("the oldest waits for %(span)s"), span=self.figures.duration(card.waits_us)
            )
        if waits_s > (overdue_after_s or NO_WORKER_S) and not card.workers:
            self._add_trouble(say("no worker is at it"))
            card.marks.append(CardLabel(say("no worker"), "failed"))

    def _warnings(self) -> None:
        for warning in warnings(self.ctx, self.queue):
            self._card.troubles.append(Trouble(warning.text, self._card.path))
            self._card.marks.append(CardLabel(warning.label, "failed"))
