"""The first page answers one question: whether somebody can go back to sleep."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from kesin.engine.queue import Queue
from kesin.store.contract import Filter, QueueStats, StoreUnreachable
from kesin.web.dashboard.families import Family, families, needs_person
from kesin.web.dashboard.trends import Trend, Trends
from kesin.web.dashboard.view import TITLES, Looker, Looking

router = APIRouter(include_in_schema=False)
BAD_SHARE = 0.2  # of what ended within the last day
LOOKED_AT = 200  # failed jobs, to name the code that most of them have


@dataclass(frozen=True, slots=True)
class Card:
    """A queue at a glance."""

    queue: str
    title: str
    path: str
    counts: dict[Family, int]
    trend: Trend
    failed_share: float
    waits_us: int | None
    troubles: tuple[str, ...]


@router.get("/dashboard", response_class=HTMLResponse)
def overview(looking: Looking) -> HTMLResponse:
    """A sentence, then a card for each queue."""
    cards = [_any_card(looking, queue) for queue in _readable(looking)]
    template = "part_cards.html" if looking.in_part else "overview.html"
    return looking.page(template, cards=cards)


def _readable(looking: Looker) -> list[Queue]:
    if not looking.actor.has("read"):
        return []
    return looking.service.commands.readable(looking.actor)


def _any_card(looking: Looker, queue: Queue) -> Card:
    """The queue, or that its store is away: the others may live elsewhere."""
    try:
        return _card(looking, queue)
    except StoreUnreachable:
        title = looking.say(TITLES.get(queue.name, queue.name))
        told = (looking.say("its store does not answer"),)
        where = f"/dashboard/queues/{queue.name}"
        return Card(queue.name, title, where, {}, _NONE, 0.0, None, told)


def _card(looking: Looker, queue: Queue) -> Card:
    service, actor = looking.service, looking.actor
    stats = service.commands.seen(actor, queue.stats())
    found = families(queue.lifecycle)
    counts: Counter[Family] = Counter()
    for state, n in stats.states.items():
        counts[found.get(state, "expired")] += n
    whole = service.commands.visible(actor, queue.name) is None
    trend = Trends(service.accounts.directory, service.queues).of(queue) if whole else _NONE
    ended = sum(trend.done) + sum(trend.failed)
    share = sum(trend.failed) / ended if ended else 0.0
    waits = stats.now - stats.oldest_due_at if stats.oldest_due_at else None
    return Card(
        queue.name,
        looking.say(TITLES.get(queue.name, queue.name)),
        f"/dashboard/queues/{queue.name}",
        dict(counts),
        trend,
        share,
        waits,
        tuple(_troubles(looking, queue, stats, share)),
    )


def _troubles(looking: Looker, queue: Queue, stats: QueueStats, share: float) -> list[str]:
    """What somebody should know before going back to sleep."""
    told = []
    bad = sum(stats.states.get(one, 0) for one in needs_person(queue.lifecycle))
    if bad:
        code, n = _commonest(looking, queue)
        if code:
            told.append(
                looking.say(
                    "%(n)s for a person to look at, %(m)s of them with %(code)s",
                    n=bad,
                    m=n,
                    code=code,
                )
            )
        else:
            told.append(looking.say("%(n)s for a person to look at", n=bad))
    if share > BAD_SHARE:
        told.append(looking.say("%(p)s %% of the last day failed", p=round(share * 100)))
    if stats.lease_over:
        told.append(looking.say("%(n)s are stuck: their worker is gone", n=stats.lease_over))
    if looking.service.commands.pauses(looking.actor, queue.name):
        told.append(looking.say("paused"))
    return told


def _commonest(looking: Looker, queue: Queue) -> tuple[str | None, int]:
    where = Filter(states=needs_person(queue.lifecycle))
    page = looking.service.commands.jobs(looking.actor, queue.name, where, limit=LOOKED_AT)
    codes = Counter(job.error_code for job in page.jobs if job.error_code)
    return codes.most_common(1)[0] if codes else (None, 0)


_NONE = Trend((), ())
