"""Whether anybody works: the processes that say so, the leases they hold, and the sweeps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fastapi.responses import HTMLResponse

from kesin.engine.queue import Queue
from kesin.lifecycle.budget import SECOND_US
from kesin.store.errors import StoreUnreachable
from kesin.web.auth import guarded_router
from kesin.web.dashboard.frame.page import Context, PageContext
from kesin.web.dashboard.health import held

router = guarded_router(include_in_schema=False)
PATH: Final = "/dashboard/workers"
MOST_HELD: Final = 500  # claimed jobs of a queue that are looked at


@dataclass(slots=True)
class Hand:
    """A worker that holds jobs, or says that it lives."""

    name: str
    queue: str
    title: str
    held: int = 0
    over: int = 0  # leases that have run out
    lease_until: int | None = None  # the first to end
    seen_at: int | None = None
    told: str = ""
    here: bool = False  # in this very process
    well: bool = True


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stage of the sweep: how often, and how soon again; in microseconds."""

    stage: str
    every_us: int
    in_us: int | None


@router.get(PATH, response_class=HTMLResponse)
def workers(looking: Context) -> HTMLResponse:
    """For whoever may steer: of the queues they see whole."""
    looking.service.accounts.require(looking.actor, "operate", "workers.read")
    commands = looking.service.commands
    queues = [
        one
        for one in commands.readable(looking.actor)
        if commands.visible(looking.actor, one.name) is None
    ]
    waiting = [_waiting(looking, one) for one in queues]
    there = [one for one, told in zip(queues, waiting, strict=True) if not told["away"]]
    values: dict[str, Any] = {
        "hands": _hands(looking, there),
        "here": len(looking.service.workers),
        "waiting": waiting,
        "checks": looking.service.checks(),
        "stretches": _stretches(looking),
        "swept_us": _swept_us(looking),
        "now": looking.service.accounts.now(),
    }
    template = "part_workers.html" if looking.in_part else "workers.html"
    return looking.page(template, **values)


def _hands(looking: PageContext, queues: list[Queue]) -> list[Hand]:
    found: dict[tuple[str, str], Hand] = {}

    def hand(queue: Queue, name: str) -> Hand:
        title = looking.title_of(queue.name)
        return found.setdefault((queue.name, name), Hand(name, queue.name, title))

    for queue in queues:
        _holding(queue, hand)
    for worker in looking.service.workers:
        if worker.queue in queues:
            one = hand(worker.queue, worker.name)
            one.here, one.well = True, worker.alive
    pdf = next((one for one in queues if one.name == "pdf"), None)
    if pdf is not None:
        _beating(looking, pdf, hand)
    _beside(looking, queues, found)
    return sorted(found.values(), key=lambda one: (one.queue, one.name))


def _holding(queue: Queue, hand: Callable[[Queue, str], Hand]) -> None:
    """Who holds claimed jobs; a worker that died still does until a sweep takes them back."""
    now = queue.now()
    for worker, lease_until in held(queue, MOST_HELD):
        one = hand(queue, worker)
        one.held += 1
        one.over += lease_until <= now
        one.lease_until = min(one.lease_until or lease_until, lease_until)
        one.well = one.well and not one.over


def _beating(looking: PageContext, queue: Queue, hand: Callable[[Queue, str], Hand]) -> None:
    """Renderers are processes of their own and say every few seconds that they live."""
    from kesin.workloads.pdf.jobs.heartbeat import signs_of

    signs = signs_of(queue.store)
    fresh = signs.fresh(looking.service.accounts.now())
    for name, (at, told) in signs.known().items():
        one = hand(queue, name)
        one.seen_at = at
        one.well = one.well and name in fresh
        one.told = ", ".join(f"{name}: {value}" for name, value in told.items())[:200]


def _beside(looking: PageContext, queues: list[Queue], found: dict[tuple[str, str], Hand]) -> None:
    """The processes that this one started: not all of their queues say who works there."""
    service, name = looking.service, looking.say("beside this process")
    if service.beside is None:
        return
    known = {hand.queue for hand in found.values() if hand.well}
    for queue in queues:
        trade = service.workloads.get(queue.name)
        if (
            trade is not None
            and trade.needs_own_process
            and trade.worker
            and queue.name not in known
        ):
            title = looking.title_of(queue.name)
            found[queue.name, name] = Hand(name, queue.name, title, well=service.beside)


def _waiting(looking: PageContext, queue: Queue) -> dict[str, Any]:
    told: dict[str, Any] = {
        "queue": queue.name,
        "title": looking.title_of(queue.name),
        "away": False,
    }
    try:
        stats = queue.stats()
        paused = bool(looking.service.commands.pauses(looking.actor, queue.name))
    except StoreUnreachable:  # the others may live elsewhere
        return told | {"away": True, "oldest_us": None, "lease_over": 0, "paused": False}
    return told | {
        "oldest_us": stats.now - stats.oldest_due_at if stats.oldest_due_at else None,
        "lease_over": stats.lease_over,
        "paused": paused,
    }


def _stretches(looking: PageContext) -> list[Stretch]:
    sweeper = looking.service.sweeper
    if sweeper is None:
        return []
    due = sweeper.due_in_s()
    return [
        Stretch(stage, _micros(every), _micros(due[stage]) if stage in due else None)
        for stage, every in sweeper.every_s.items()
    ]


def _swept_us(looking: PageContext) -> int | None:
    sweeper = looking.service.sweeper
    if sweeper is None or sweeper.last_success is None:
        return None
    return _micros(looking.service.clock.monotonic() - sweeper.last_success)


def _micros(seconds: float) -> int:
    return math.ceil(max(seconds, 0)) * SECOND_US
