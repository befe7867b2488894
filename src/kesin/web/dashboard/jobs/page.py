"""A job's own page: what happened, what happens next, what may be done, and what it carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from fastapi.responses import HTMLResponse
from markupsafe import Markup

from kesin.engine.access.commands import History
from kesin.engine.queue import Queue
from kesin.foundation.ids import is_id
from kesin.foundation.problems import Unknown
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.drawing.svg import svg
from kesin.lifecycle.vocabulary import BUILT_IN_STAMPS, READY
from kesin.web.auth import guarded_router
from kesin.web.dashboard.frame.masking import masked, pretty
from kesin.web.dashboard.frame.page import Context, PageContext
from kesin.web.dashboard.jobs.outlook import Kind, Next, Outlook, outlook
from kesin.web.dashboard.jobs.panels import Panel, panel_of
from kesin.web.dashboard.jobs.timeline import MOST_LINES, path_of, story
from kesin.web.dashboard.queues.actions import label_of
from kesin.web.dashboard.state_groups import family_of
from kesin.web.middleware import FRAMING_CSP
from kesin.web.serialize import shown

router = guarded_router(include_in_schema=False)
MOST_AHEAD: Final = 1_000
ID_LENGTH: Final = 36
SHORT: Final = 40  # characters of a key that make a title
STAMPS: Final = {
    "conversion_at": "Conversion",
    "uploaded_at": "Uploaded",
    "failed_at": "Failed",
    "started_at": "Started",
}
COMING: Final[dict[Kind, str]] = {
    "answer": "%(worker)s works on it. Its lease lasts until",
    "claim": "A worker may take it from",
    "clock": "The clock moves it on at",
    "gone": "It is over. It is kept until",
}
AT_ONCE: Final[dict[Kind, str]] = {
    "answer": "Its worker is gone: the next sweep takes it back.",
    "clock": "The next sweep moves it on.",
    "gone": "It is over, and the next sweep removes it.",
    "person": "It waits for a person: nothing moves it by itself.",
    "over": "It is over: nothing more happens.",
}


@dataclass(frozen=True, slots=True)
class Told:
    """What will happen, as a sentence, and when."""

    text: str
    at: int | None = None
    move: str = ""
    to: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of the facts; a time is shown as one."""

    name: str
    text: str = ""
    at: int | None = None
    mono: bool = False


@router.get("/dashboard/jobs/{job_id}", response_class=HTMLResponse)
def job_page(looking: Context, job_id: str, seq: int | None = None) -> HTMLResponse:
    """The page; for htmx the parts that move, and the rest once the job has moved since ``seq``."""
    history, queue = _found(looking, job_id)
    if looking.in_part:
        values = _moving(looking, history, queue)
        changed = seq != history.job.seq
        if changed:
            values |= _resting(looking, history, queue)
        return looking.page("part_job.html", oob=True, changed=changed, **values)
    return _whole(looking, history, queue)


@router.post("/dashboard/jobs/{job_id}/unmask", response_class=HTMLResponse)
def unmask(looking: Context, job_id: str) -> HTMLResponse:
    """Payload and result uncovered, for admins, each time with a line in the audit log."""
    accounts = looking.service.accounts
    accounts.require(looking.actor, "admin", "job.unmask", target=job_id[:ID_LENGTH])
    history, queue = _found(looking, job_id)
    job = history.job
    accounts.note(looking.actor, "job.unmask", queue=job.queue, site=job.tenant, target=job.id)
    if looking.in_part:
        values = _values(looking, history, bare=True)
        return looking.page("part_job_values.html", job=job, oob=False, **values)
    return _whole(looking, history, queue, bare=True)


def _whole(
    looking: PageContext, history: History, queue: Queue, *, bare: bool = False
) -> HTMLResponse:
    values = _moving(looking, history, queue) | _resting(looking, history, queue, bare=bare)
    answer = looking.page("job.html", oob=False, changed=False, **values)
    panel: Panel | None = values["panel"]
    if panel is not None and panel.frames:
        answer.headers["content-security-policy"] = FRAMING_CSP
    return answer


def _found(looking: PageContext, job_id: str) -> tuple[History, Queue]:
    commands = looking.service.commands
    if not is_id(job_id):
        commands.accounts.require(looking.actor, "read", "job.read")
        raise Unknown("there is no such job")
    history = commands.job(looking.actor, job_id)
    return history, commands.queues[history.job.queue]


def _moving(looking: PageContext, history: History, queue: Queue) -> dict[str, Any]:
    """What changes while the job moves: the story, the facts, the actions."""
    job, now = history.job, queue.now()
    pauses = looking.service.commands.pauses(looking.actor, job.queue)
    actions = history.actions if looking.actor.has("operate") else ()
    future = outlook(queue.lifecycle, job, now, pauses, acts=bool(history.actions))
    lines = story(looking, history, queue.lifecycle, now)
    state = queue.lifecycle.state.get(job.state)
    return {
        "job": job,
        "title": looking.title_of(job.queue),
        "name": job.dedup_key if job.dedup_key and len(job.dedup_key) <= SHORT else job.id[:8],
        "now": now,
        "family": family_of(queue.lifecycle, job.state),
        "family_of": lambda name: family_of(queue.lifecycle, name),
        "lines": lines[:MOST_LINES],
        "hidden": max(len(lines) - MOST_LINES, 0),
        "next": _sentence(looking, queue, history, future),
        "otherwise": [_otherwise(looking, one) for one in future.otherwise if one.kind != "person"],
        "facts": _facts(looking, history, queue),
        "actions": [(call, label_of(looking, call)) for call in actions],
        "goes_on": state is not None and not state.terminal,
    }


def _resting(
    looking: PageContext, history: History, queue: Queue, *, bare: bool = False
) -> dict[str, Any]:
    """What changes only with a move: the picture, what it carries, what the trade adds."""
    name = queue.lifecycle.name
    small = _drawn(looking.words.gettext, queue.lifecycle, path_of(history), history.job.state)
    return {
        "picture": small,
        "larger": small.replace(f"life-{name}-", f"large-{name}-"),  # ids are unique on a page
        "panel": panel_of(looking, history),
        **_values(looking, history, bare=bare),
    }


def _values(looking: PageContext, history: History, *, bare: bool) -> dict[str, Any]:
    job = history.job
    cover = shown if bare else masked
    return {
        "payload": pretty(cover(job.data)),
        "result": None if job.result is None else pretty(cover(job.outcome)),
        "bare": bare,
        "may_unmask": looking.actor.is_admin,
    }


@lru_cache(maxsize=256)
def _drawn(
    say: Callable[[str], str], lifecycle: Lifecycle, lit: frozenset[tuple[str, str]], here: str
) -> Markup:
    drawn = svg(lifecycle, lit, here, styled=False, say=say)
    return Markup(drawn)  # noqa: S704  # everything in it was escaped there


def _sentence(looking: PageContext, queue: Queue, history: History, future: Outlook) -> Told:
    """What is next, with the moment where one is known."""
    one = future.next
    if one.at is not None and one.at > queue.now():
        text = looking.say(COMING[one.kind], worker=history.job.worker or "?")
        return Told(text, one.at, one.move, one.to if one.kind == "clock" else "", one.kind)
    if one.kind == "claim":
        return Told(_in_line(looking, queue, history), kind=one.kind)
    if one.kind == "paused":
        return Told(_paused(looking, one), kind=one.kind)
    to = one.to if one.kind == "clock" else ""
    return Told(looking.say(AT_ONCE[one.kind]), None, one.move, to, one.kind)


def _otherwise(looking: PageContext, one: Next) -> Told:
    if one.kind == "gone":
        return Told(looking.say("If nobody acts, it is removed at"), one.at or None)
    if one.kind == "claim":
        return Told(looking.say("A worker may take it from"), one.at or None, one.move, one.to)
    return Told(looking.say("Otherwise the clock moves it on at"), one.at or None, one.move, one.to)


def _in_line(looking: PageContext, queue: Queue, history: History) -> str:
    job = history.job
    whole = looking.service.commands.visible(looking.actor, job.queue) is None
    ahead = queue.store.ahead(job.queue, job.id, most=MOST_AHEAD) if whole else None
    if job.phase != READY or ahead is None:
        return looking.say("It is due: the next free worker takes it.")
    if ahead == 0:
        return looking.say("It is due and first in line: the next free worker takes it.")
    shown_as = f"{MOST_AHEAD}+" if ahead >= MOST_AHEAD else ahead
    return looking.say("It is due, with %(n)s before it in line.", n=shown_as)


def _paused(looking: PageContext, one: Next) -> str:
    pause = one.pause
    who = pause.actor.removeprefix("user:") if pause else "?"
    reason = f" ({pause.reason})" if pause and pause.reason else ""
    if pause and pause.tenant:
        told = "%(who)s paused this site%(why)s: nothing is handed out until somebody resumes it."
    else:
        told = "%(who)s paused this queue%(why)s: nothing is handed out until somebody resumes it."
    return looking.say(told, who=who, why=reason)


def _facts(looking: PageContext, history: History, queue: Queue) -> list[Fact]:
    job, say = history.job, looking.say
    sited = queue.name not in looking.service.commands.unsited
    used = job.attempt_count - job.attempt_base
    found = [
        Fact(say("Id"), job.id, mono=True),
        Fact(say("Site") if sited else say("Owner"), job.tenant),
        Fact(say("Key"), job.dedup_key or "", mono=True),
        Fact(say("Attempts"), say("%(n)s of %(m)s", n=used, m=job.max_attempts)),
        Fact(say("Retries"), str(job.retry_count) if job.retry_count else ""),
        Fact(say("Error"), job.error_code or "", mono=True),
        Fact(say("Category"), job.error_category or ""),
        Fact(say("Worker"), job.worker or "", mono=True),
        Fact(say("Created"), at=job.created_at),
        Fact(say("Moved"), at=job.moved_at),
        Fact(say("Due"), at=job.run_at if job.phase == READY else None),
        Fact(say("Timer"), at=job.timer_at),
        Fact(say("Lease until"), at=job.lease_until),
        Fact(say("Finished"), at=job.finished_at),
    ]
    for stamp in queue.lifecycle.stamps:
        if stamp not in BUILT_IN_STAMPS:
            at: int | None = getattr(job, queue.lifecycle.stamp_column(stamp))
            known = STAMPS.get(stamp)
            found.append(Fact(say(known) if known else stamp, at=at))
    flags = [one for one in queue.lifecycle.flags if job.flags & queue.lifecycle.flag_bit(one)]
    found.append(Fact(say("Marks"), ", ".join(flags)))
    return [one for one in found if one.text or one.at is not None]
