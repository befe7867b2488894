"""The overview: an inbox of what needs a person, then a card for each queue that has work."""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markupsafe import Markup, escape

from kesin.engine.queue import Queue
from kesin.foundation.problems import Problem
from kesin.lifecycle.budget import MINUTE_S, SECOND_US
from kesin.lifecycle.vocabulary import READY
from kesin.store.errors import StoreUnreachable
from kesin.store.records import QueueStats
from kesin.web.dashboard.admin.workers import count_workers
from kesin.web.dashboard.frame.formatting import Formatter
from kesin.web.dashboard.frame.page import Context, PageContext, current_site, page_router
from kesin.web.dashboard.frame.routes import FormFields
from kesin.web.dashboard.queues import actions, failures
from kesin.web.dashboard.queues.bulk import take_action
from kesin.web.dashboard.queues.charts import Trend, trend_of
from kesin.web.dashboard.queues.failures import FailureButton, FailureLine
from kesin.web.dashboard.queues.page import CHANGED
from kesin.web.dashboard.state_groups import StateGroup
from kesin.web.failures import Failures

router = page_router()
ALARMING_SHARE: Final = 0.2  # of the jobs that ended within a day
MAX_SITES_NAMED: Final = 3  # in a sentence
GROUP: Final = ("queue", "state", "code", "category")  # what a form calls a group by
MAX_TOGETHER: Final = 50  # groups in one dialog, and sites of one group: the worst
NO_WORKER_S: Final = MINUTE_S  # due jobs wait so long without any worker
OVERDUE_S: Final = 15 * MINUTE_S  # due jobs wait so long although workers run


@dataclass(slots=True)
class QueueCard:
    """A queue at a glance."""

    queue: str
    title: str
    path: str
    own: bool = False  # of the user's program, not of a workload
    jobs: int = 0
    waiting: int = 0
    waits_us: int | None = None
    trend: Trend = field(default_factory=Trend)
    whole: bool = False  # the user may see all of its jobs
    workers: int = 0
    failures: Failures = field(default_factory=Failures)
    lines: list[FailureLine] = field(default_factory=list)
    marks: list[tuple[str, StateGroup]] = field(default_factory=list)  # highlighted words
    troubles: list[Markup] = field(default_factory=list)  # what is wrong besides failed jobs

    @property
    def has_work(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.jobs or self.troubles or sum(self.trend.done) or sum(self.trend.failed))


@router.get("/dashboard", response_class=HTMLResponse)
def overview(ctx: Context) -> HTMLResponse:
    """What needs a person, then a card for each queue."""
    ctx.service.open_stored_queues()
    queues = ctx.commands.readable_queues(ctx.actor) if ctx.actor.has("read") else []
    cards = [_card_or_unreachable(ctx, queue) for queue in queues]
    cards.sort(key=lambda card: not card.own)
    template = "part_cards.html" if ctx.in_part else "overview.html"
    troubles = _process_troubles(ctx) if cards else []
    return ctx.page(template, cards=cards, process_troubles=troubles, now=ctx.accounts.now())


@router.get(failures.TRIAGE_PATH, response_class=HTMLResponse)
def triage(ctx: Context) -> HTMLResponse:
    """The dialog about one group of failures, or about all: a retry, or where each is fixed."""
    given, site = ctx.request.query_params, current_site(ctx)
    wanted = tuple(given.get(name, "") for name in GROUP)
    lines, known = list[FailureLine](), ctx.service.workloads
    for queue in sorted(ctx.commands.readable_queues(ctx.actor), key=lambda q: q.name in known):
        with suppress(StoreUnreachable):  # the overview says so
            stats = ctx.stats(queue, site) if site else ctx.totals(queue)
            needing = failures.failures_of(ctx, queue, stats, site).needing
            some = tuple(group for group in needing if not wanted[0] or group[:4] == wanted)
            lines += failures.failure_lines(ctx, queue, Failures(some), site)
    by_default = not wanted[0] and "permanent" not in given
    left_out = [by_default and line.retried_if_chosen for line in lines[:MAX_TOGETHER]]
    groups = [_triage(ctx, *one) for one in zip(lines, left_out, strict=False)]
    more, now = len(lines[MAX_TOGETHER:]), ctx.accounts.now()
    return ctx.page("triage.html", groups=groups, alone=wanted[0], more=more, now=now)


def _triage(ctx: PageContext, line: FailureLine, permanent: bool) -> dict[str, Any]:  # noqa: FBT001
    """What a retry would do and the form sends for it; else what is offered, and at which sites."""
    group, button, offer = line.group, line.button or FailureButton(""), ""
    if (fields := button.form or button.fields) and not permanent:
        queue = ctx.service.queues[group.queue]
        selection = actions.read_selection(ctx, queue, parse_qs(urlencode(fields)))
        offer = urlencode({**fields, "queue": group.queue, "until": selection.until})
        if button.fields:
            preview = actions.preview(ctx, queue, fields["call"], selection, frozenset())
            return {"line": line, "preview": preview, "form": offer, "permanent": permanent}
    find = ctx.pages_of(group.queue).triage if button.asks else None
    names = {site.id: site.name for site in ctx.accounts.sites(ctx.actor)} if find else {}
    sites = [
        (names.get(site, site), n, link.path)
        for site, n in sorted(group.tenants.items(), key=lambda one: -one[1])[:MAX_TOGETHER]
        if find and (link := find(ctx, group._replace(tenants={site: n})))
    ]
    return {"line": line, "form": "", "offer": offer, "sites": sites, "permanent": permanent}


@router.post(failures.TRIAGE_PATH, response_class=HTMLResponse)
def retry_groups(ctx: Context, sent: FormFields) -> Response:
    """Retry or dismiss groups, each by itself: a refused one does not stop the others."""
    retried: list[tuple[Any, ...]] = []
    for text in sent.get("group", [])[:MAX_TOGETHER]:
        fields = parse_qs(text) | {"reason": sent.get("reason", [])}
        group = [fields.get(name, [""])[0] for name in (*GROUP, "call")]
        try:
            retried.append((*group, take_action(ctx, group[0], fields)[2], None))
        except (Problem, StoreUnreachable) as problem:
            retried.append((*group, None, problem))
    if retried and all(problem for *_, problem in retried):
        raise retried[0][-1]
    if not ctx.in_part:
        return RedirectResponse("/dashboard", status_code=303)
    return ctx.page("part_retried.html", headers=CHANGED, retried=retried)


def _card_or_unreachable(ctx: PageContext, queue: Queue) -> QueueCard:
    """The queue's card, or one that says that its store does not answer."""
    card = QueueCard(queue.name, ctx.title_of(queue.name), f"/dashboard/queues/{queue.name}")
    card.own = queue.name not in ctx.service.workloads
    try:
        _CardBuilder(ctx, queue, card).fill()
    except StoreUnreachable:
        card.troubles = [escape(ctx.say("Its store does not answer."))]
    return card


def _process_troubles(ctx: PageContext) -> list[str]:
    """What is wrong with this process itself."""
    troubles, checks = [], ctx.service.checks()
    if "workers" in checks and not checks["workers"].ok:
        troubles.append(ctx.say("Workers of this process are silent."))
    if "sweeper" in checks and not checks["sweeper"].ok:
        troubles.append(ctx.say("The sweeper of this process has missed its last turns."))
    return troubles


class _CardBuilder:
    """Fills the card of a queue from one read of its statistics."""

    def __init__(self, ctx: PageContext, queue: Queue, card: QueueCard) -> None:
        self.ctx = ctx
        self.queue = queue
        self._card = card
        self.figures = Formatter(ctx.language)
        self.stats: QueueStats = ctx.totals(queue, oldest=True)
        self.pauses = ctx.commands.pauses(ctx.actor, queue.name)

    def fill(self) -> None:
        card, stats, lifecycle = self._card, self.stats, self.queue.lifecycle
        card.jobs = stats.total
        card.waiting = sum(
            n
            for state, n in stats.states.items()
            if state in lifecycle.waiting_states
            or (state in lifecycle.state and lifecycle.unowned_phase(state) == READY)
        )
        card.whole = self.ctx.sees_all(self.queue)
        if card.whole:  # these figures cover all jobs
            card.trend = trend_of(self.queue, stats)
            card.waits_us = stats.now - stats.oldest_due_at if stats.oldest_due_at else None
            card.workers = count_workers(self.ctx, self.queue)
        card.failures = failures.failures_of(self.ctx, self.queue, stats)
        lines = failures.failure_lines(self.ctx, self.queue, card.failures)
        card.lines = [line for line in lines if line.group.needs_you]
        if stats.lease_over:
            sentence = self.ctx.say("%(n)s are stuck: their worker is gone.")
            self._add_trouble(sentence, n=self.figures.number(stats.lease_over))
        self._pauses()
        self._waiting()
        for warning in self.ctx.pages_of(card.queue).warnings(self.ctx, self.queue):
            card.troubles.append(warning.text)
            card.marks.append((warning.label, "failed"))
        share = card.trend.failed_share
        if share is not None and share > ALARMING_SHARE:
            label = self.ctx.say("%(p)s failed", p=self.figures.percent(share))
            card.marks.append((label, "retrying"))

    def _add_trouble(self, sentence: str, **values: str) -> None:
        """Add a trouble. The sentence is translated already; its values are escaped here."""
        self._card.troubles.append(escape(sentence) % values if values else escape(sentence))

    def _pauses(self) -> None:
        """The whole queue, or the sites that are paused by their names."""
        if not self.pauses:
            return
        sites = [pause.tenant for pause in self.pauses if pause.tenant]
        if len(sites) == len(self.pauses):
            more = " …" if len(sites) > MAX_SITES_NAMED else ""
            names = ", ".join(sites[:MAX_SITES_NAMED]) + more
            self._add_trouble(self.ctx.say("Paused for %(sites)s."), sites=names)
        else:
            self._add_trouble(self.ctx.say("Paused."))
        self._card.marks.append((self.ctx.say("paused"), "retrying"))

    def _waiting(self) -> None:
        """Due jobs that no worker claims; paused jobs wait as they should."""
        card, say = self._card, self.ctx.say
        waits_s = (card.waits_us or 0) / SECOND_US
        overdue_after_s = self.ctx.pages_of(card.queue).overdue_after_s
        if self.pauses:
            return
        span = self.figures.duration(card.waits_us)
        if waits_s > (overdue_after_s or NO_WORKER_S) and not card.workers:
            sentence = say("No worker is running; the oldest job has waited %(span)s.")
            self._add_trouble(sentence, span=span)
            card.marks.append((say("no worker"), "failed"))
        elif waits_s > (overdue_after_s or OVERDUE_S):
            self._add_trouble(say("The oldest job has waited %(span)s."), span=span)
