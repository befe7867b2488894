"""The first page answers one question: whether somebody can go back to sleep."""

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
from kesin.web.dashboard.frame.formatting import Figures
from kesin.web.dashboard.frame.page import Context, PageContext
from kesin.web.dashboard.health import next_sweep_s, open_breakers, workers_alive
from kesin.web.dashboard.queues.charts import Trend, Trends
from kesin.web.dashboard.state_groups import Family, ended_badly, families, waits_for_person

router = guarded_router(include_in_schema=False)
BAD_SHARE: Final = 0.2  # of what ended within the last day
LOOKED_AT: Final = 200  # failed jobs, to name the code that most of them have
NAMED: Final = 3  # sites in a sentence
NOBODY_S: Final = MINUTE_S  # work that is due for so long, and no worker is known
PATIENCE_S: Final = 15 * MINUTE_S  # work that is due for so long, whoever works
PATIENCE_OF_S: Final = {"oci": 3 * HOUR_S}  # Google's scripts come once an hour at most


class Trouble(NamedTuple):
    """What somebody should know before going back to sleep, and where to look."""

    text: Markup
    href: str


class Mark(NamedTuple):
    """A word on a card that catches the eye."""

    text: str
    family: Family


@dataclass(slots=True)
class Card:
    """A queue at a glance."""

    queue: str
    title: str
    path: str
    counts: dict[Family, int] = field(default_factory=dict)
    trend: Trend = field(default_factory=Trend)
    whole: bool = False  # seen whole: else some of it is not known
    waits_us: int | None = None
    stuck: int = 0
    workers: int = 0
    sweep_s: int | None = None
    marks: list[Mark] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)


@router.get("/dashboard", response_class=HTMLResponse)
def overview(looking: Context) -> HTMLResponse:
    """A sentence, then a card for each queue."""
    cards = [_any_card(looking, queue) for queue in _readable(looking)]
    template = "part_cards.html" if looking.in_part else "overview.html"
    return looking.page(template, cards=cards, house=_house(looking) if cards else [])


def _readable(looking: PageContext) -> list[Queue]:
    if not looking.actor.has("read"):
        return []
    return looking.service.commands.readable(looking.actor)


def _any_card(looking: PageContext, queue: Queue) -> Card:
    """The queue, or that its store is away: the others may live elsewhere."""
    title = looking.title_of(queue.name)
    card = Card(queue.name, title, f"/dashboard/queues/{queue.name}")
    try:
        return _Looked(looking, queue, card).card()
    except StoreUnreachable:
        told = Trouble(escape(looking.say("its store does not answer")), card.path)
        return Card(queue.name, title, card.path, troubles=[told])


def _house(looking: PageContext) -> list[Trouble]:
    """What is wrong with this process itself, whichever queue suffers from it."""
    told, checks = [], looking.service.checks()
    path = "/dashboard/workers" if looking.actor.has("operate") else ""
    if "workers" in checks and not checks["workers"].ok:
        told.append(Trouble(escape(looking.say("Workers of this process are silent.")), path))
    if "sweeper" in checks and not checks["sweeper"].ok:
        said = looking.say("The sweeper of this process has missed its last turns.")
        told.append(Trouble(escape(said), path))
    return told


class _Looked:
    """One look at a queue, from which its card is filled."""

    def __init__(self, looking: PageContext, queue: Queue, card: Card) -> None:
        self.looking = looking
        self.queue = queue
        self._card = card
        self.figures = Figures(looking.language)
        self.commands = looking.service.commands
        self.stats: QueueStats = self.commands.seen(looking.actor, queue.stats())
        self.pauses = self.commands.pauses(looking.actor, queue.name)

    def card(self) -> Card:
        """Everything on it."""
        card, stats, service = self._card, self.stats, self.looking.service
        found = families(self.queue.lifecycle)
        counts: Counter[Family] = Counter()
        for state, n in stats.states.items():
            counts[found.get(state, "expired")] += n
        card.counts = dict(counts)
        card.whole = self.commands.visible(self.looking.actor, self.queue.name) is None
        if card.whole:  # the rest is about everybody's rows
            card.trend = Trends(service.accounts.directory, service.queues).of(self.queue)
            card.waits_us = stats.now - stats.oldest_due_at if stats.oldest_due_at else None
            card.stuck = stats.lease_over
            card.workers = workers_alive(self.looking, self.queue)
            card.sweep_s = next_sweep_s(self.looking, self.queue)
        self._failures()
        self._on_hold()
        self._share()
        self._stuck()
        self._pauses()
        self._waiting()
        self._breakers()
        return card

    def _tell(self, sentence: str, href: str = "", **values: Any) -> None:
        """A trouble; the sentence is said already, what fills it is escaped here."""
        self._card.troubles.append(
            Trouble(
                escape(sentence) % values if values else escape(sentence), href or self._card.path
            )
        )

    def _to(self, states: tuple[str, ...], code: str = "") -> str:
        asked = [("state", one) for one in states] + ([("code", code)] if code else [])
        return f"{self._card.path}?{urlencode(asked)}"

    def _failures(self) -> None:
        """What failed within the last hour, and what most of it has in common.

        The rows looked at are few, so the numbers are told as exact only if those are all.
        """
        say, bad = self.looking.say, ended_badly(self.queue.lifecycle)
        if not sum(self.stats.states.get(one, 0) for one in bad):
            return
        since, noted = self.stats.now - HOUR_S * SECOND_US, self._card.trend
        if noted.since is not None and noted.since <= since and not noted.failed_hour:
            return  # the counters know, without a look at the rows
        page = self.commands.jobs(
            self.looking.actor, self.queue.name, Filter(states=bad), limit=LOOKED_AT
        )
        lately = [job for job in page.jobs if job.moved_at > since]
        exact = page.cursor is None
        n = len(lately) if exact else max(len(lately), noted.failed_hour)
        if not n:
            return
        codes = Counter(job.error_code for job in lately if job.error_code)
        code, m = codes.most_common(1)[0] if codes else ("", 0)
        values: dict[str, Any] = {"n": self.figures.number(n), "m": self.figures.number(m)}
        values["code"] = Markup("<code>{}</code>").format(code)
        if exact and m == n:
            said = say("%(n)s failed in the last hour with %(code)s")
        elif exact and code:
            said = say("%(n)s failed in the last hour, %(m)s of them %(code)s")
        elif exact:
            said = say("%(n)s failed in the last hour")
        elif m * 2 > len(lately):
            said = say("at least %(n)s failed in the last hour, most of them %(code)s")
        else:
            said, code = say("at least %(n)s failed in the last hour"), ""
        self._tell(said, self._to(bad, code), **values)

    def _on_hold(self) -> None:
        states = waits_for_person(self.queue.lifecycle)
        n = sum(self.stats.states.get(one, 0) for one in states)
        if n:
            said = self.looking.say("%(n)s for a person to look at")
            self._tell(said, self._to(states), n=self.figures.number(n))

    def _share(self) -> None:
        share = self._card.trend.failed_share
        if share is not None and share > BAD_SHARE:
            percent = self.figures.percent(share)
            said = self.looking.say("%(p)s of the last day failed")
            self._tell(said, self._to(ended_badly(self.queue.lifecycle)), p=percent)
            told = self.looking.say("%(p)s failed", p=percent)
            self._card.marks.append(Mark(told, "retrying"))

    def _stuck(self) -> None:
        if self._card.stuck:
            said = self.looking.say("%(n)s are stuck: their worker is gone")
            self._tell(said, n=self.figures.number(self._card.stuck))

    def _pauses(self) -> None:
        """The whole queue, or the sites that are paused by their names."""
        if not self.pauses:
            return
        sites = [one.tenant for one in self.pauses if one.tenant]
        if len(sites) == len(self.pauses):
            self._tell(self.looking.say("paused for %(sites)s"), sites=_some(sites))
        else:
            self._tell(self.looking.say("paused"))
        self._card.marks.append(Mark(self.looking.say("paused"), "retrying"))

    def _waiting(self) -> None:
        """Work that is due and that nobody takes; what is paused waits as it should."""
        card, say = self._card, self.looking.say
        waits_s = (card.waits_us or 0) / SECOND_US
        patience_s = PATIENCE_OF_S.get(card.queue)
        if self.pauses:
            return
        if waits_s > (patience_s or PATIENCE_S):
            self._tell(
                say("the oldest waits for %(span)s"), span=self.figures.lasted(card.waits_us)
            )
        if waits_s > (patience_s or NOBODY_S) and not card.workers:
            self._tell(say("no worker is at it"))
            card.marks.append(Mark(say("no worker"), "failed"))

    def _breakers(self) -> None:
        sites = open_breakers(self.looking, self.queue)
        if sites:
            names = _some([one.name for one in sites])
            self._tell(self.looking.say("the breaker is open for %(sites)s"), sites=names)
            self._card.marks.append(Mark(self.looking.say("the breaker is open"), "failed"))


def _some(names: list[str]) -> str:
    """A few of them: a sentence is no list."""
    return ", ".join(names[:NAMED]) + (" …" if len(names) > NAMED else "")
