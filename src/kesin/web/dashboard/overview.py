"""The overview: an inbox of what needs a person, then a card for each queue that has work."""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kesin.engine.queue import Queue
from kesin.engine.validation import BadInput
from kesin.foundation.problems import Problem
from kesin.lifecycle.budget import MINUTE_S, SECOND_US
from kesin.lifecycle.vocabulary import READY
from kesin.store.errors import StoreUnreachable
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
NO_WORKER_S: Final = MINUTE_S  # how long due jobs may wait without a worker
OVERDUE_S: Final = 15 * MINUTE_S  # how long due jobs may wait although workers run


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
    troubles: list[str] = field(default_factory=list)  # what is wrong besides failed jobs

    @property
    def has_work(self) -> bool:
        return bool(self.jobs or self.troubles or sum(self.trend.done) or sum(self.trend.failed))


@router.get("/dashboard", response_class=HTMLResponse)
def overview(ctx: Context) -> HTMLResponse:
    ctx.service.open_stored_queues()
    queues = ctx.commands.readable_queues(ctx.actor) if ctx.actor.has("read") else []
    cards = [_card(ctx, queue) for queue in queues]
    cards.sort(key=lambda card: not card.own)
    template = "part_cards.html" if ctx.in_part else "overview.html"
    troubles, checks = [], ctx.service.checks() if cards else {}
    if "workers" in checks and not checks["workers"].ok:
        troubles.append(ctx.say("Workers in this process are not responding."))
    if "sweeper" in checks and not checks["sweeper"].ok:
        troubles.append(ctx.say("The sweeper in this process has missed its most recent sweeps."))
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
    if (fields := button.dismissal or button.fields) and not permanent:
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
    if not retried:
        raise BadInput("no_group", "group", "no group is selected: select one or close the dialog")
    if all(problem for *_, problem in retried):
        raise retried[0][-1]
    if not ctx.in_part:
        return RedirectResponse("/dashboard", status_code=303)
    return ctx.page("part_retried.html", headers=CHANGED, retried=retried)


def _card(ctx: PageContext, queue: Queue) -> QueueCard:
    """The queue's card, or one that says that its store does not respond."""
    card = QueueCard(queue.name, ctx.title_of(queue.name), f"/dashboard/queues/{queue.name}")
    card.own = queue.name not in ctx.service.workloads
    try:
        _fill(ctx, queue, card)
    except StoreUnreachable:
        card.troubles = [ctx.say("Its store is not responding.")]
    return card


def _fill(ctx: PageContext, queue: Queue, card: QueueCard) -> None:
    """Fill a card from one read of the queue's statistics."""
    stats, lifecycle = ctx.totals(queue, oldest=True), queue.lifecycle
    figures, say = Formatter(ctx.language), ctx.say
    card.jobs = stats.total
    card.waiting = sum(
        n
        for state, n in stats.states.items()
        if state in lifecycle.waiting_states or (state in lifecycle.state and lifecycle.unowned_phase(state) == READY)
    )
    card.whole = ctx.sees_all(queue)
    if card.whole:  # these figures cover all jobs
        card.trend = trend_of(queue, stats)
        card.waits_us = stats.now - stats.oldest_due_at if stats.oldest_due_at else None
        card.workers = count_workers(ctx, queue)
    card.failures = failures.failures_of(ctx, queue, stats)
    lines = failures.failure_lines(ctx, queue, card.failures)
    card.lines = [line for line in lines if line.group.needs_you]
    if stats.lease_over:
        n = figures.number(stats.lease_over)
        card.troubles.append(say("Jobs stuck because their worker stopped: %(n)s.", n=n))
    if pauses := ctx.commands.pauses(ctx.actor, queue.name):
        sites = [pause.tenant for pause in pauses]
        names = ", ".join(sites[:MAX_SITES_NAMED]) + " …" * (len(sites) > MAX_SITES_NAMED)
        paused = say("Paused for %(sites)s.", sites=names) if all(sites) else say("Paused.")
        card.troubles.append(paused)
        card.marks.append((say("paused"), "retrying"))
    else:  # paused jobs wait as they should
        _add_waiting(ctx, card, figures)
    for warning in ctx.pages_of(card.queue).warnings(ctx, queue):
        card.troubles.append(warning.text)
        card.marks.append((warning.label, "failed"))
    share = card.trend.failed_share
    if share is not None and share > ALARMING_SHARE:
        card.marks.append((say("%(p)s failed", p=figures.percent(share)), "retrying"))


def _add_waiting(ctx: PageContext, card: QueueCard, figures: Formatter) -> None:
    """Due jobs that no worker claims."""
    waits_s, span = (card.waits_us or 0) / SECOND_US, figures.duration(card.waits_us)
    overdue_after_s = ctx.pages_of(card.queue).overdue_after_s
    if waits_s > (overdue_after_s or NO_WORKER_S) and not card.workers:
        why = "No worker is running; the oldest job has been waiting for %(span)s."
        card.troubles.append(ctx.say(why, span=span))
        card.marks.append((ctx.say("no worker"), "failed"))
    elif waits_s > (overdue_after_s or OVERDUE_S):
        card.troubles.append(ctx.say("The oldest job has been waiting for %(span)s.", span=span))
