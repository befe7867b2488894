"""The page of a job: its timeline, what happens next, actions, payload and result."""

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from fastapi.responses import HTMLResponse
from markupsafe import Markup

from kesin.engine.access.commands import JobDetails
from kesin.engine.access.companions import companions_of
from kesin.engine.access.corrected import failed_by_data
from kesin.engine.access.listing import plain_key
from kesin.engine.queue import Queue
from kesin.foundation.ids import is_id
from kesin.foundation.logs import Logger
from kesin.foundation.problems import NotFound, Problem
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.drawing.svg import svg
from kesin.lifecycle.errors import Category
from kesin.lifecycle.failures import allowed_from, decided_codes
from kesin.lifecycle.model import Job, MoveContext, failing_guard
from kesin.lifecycle.vocabulary import BUILT_IN_STAMPS, GONE, OWNED, READY, STAY
from kesin.store.counters import states_without_slot
from kesin.store.records import Pause
from kesin.web.dashboard.frame.formatting import pretty
from kesin.web.dashboard.frame.page import Context, JobAction, PageContext, Panel, page_router
from kesin.web.dashboard.jobs.timeline import MAX_LINES, corrections, current_error, timeline
from kesin.web.dashboard.queues.actions import DESTRUCTIVE, label_of
from kesin.web.dashboard.queues.fix import fix_path, offers_fix
from kesin.web.dashboard.state_groups import state_group
from kesin.web.middleware import FRAMING_CSP
from kesin.web.serialize import json_depth_limited

log = Logger("kesin.dashboard")
router = page_router()
MAX_AHEAD: Final = 1_000
ID_LENGTH: Final = 36
MAX_KEY_IN_TITLE: Final = 40  # characters; a longer key is no title
MAX_GIST: Final = 80  # characters of another job's result
MAX_WAITED_NAMED: Final = 3  # jobs that a sentence names
Kind = Literal["claim", "slots", "answer", "parents", "clock", "gone", "person", "paused", "over"]
NEEDS_HELP: Final = frozenset({"failed", "person", "retrying"})


@router.get("/dashboard/jobs/{job_id}", response_class=HTMLResponse)
def job_page(ctx: Context, job_id: str, seq: int | None = None) -> HTMLResponse:
    """The page, or its changing parts, and the rest too if the job has moved since ``seq``."""
    history, queue = _find_job(ctx, job_id)
    if ctx.in_part:
        values = _changing_values(ctx, history, queue)
        changed = seq != history.job.seq
        if changed:
            values |= _stable_values(ctx, history, queue)
        return ctx.page("part_job.html", oob=True, changed=changed, **values)
    return _whole_page(ctx, history, queue)


@router.post("/dashboard/jobs/{job_id}/unmask", response_class=HTMLResponse)
def unmask(ctx: Context, job_id: str) -> HTMLResponse:
    """Everything without masks, for those who may reveal; each time an audit line."""
    ctx.accounts.require(ctx.actor, "reveal", "job.reveal", target=job_id[:ID_LENGTH])
    history, queue = _find_job(ctx, job_id, reveal=True)
    job = history.job
    if not history.revealed:  # nothing of it is masked
        ctx.accounts.note(ctx.actor, "job.reveal", queue=job.queue, site=job.tenant, target=job.id)
    if ctx.in_part:
        values = _stable_values(ctx, history, queue, bare=True)
        return ctx.page("part_job_unmasked.html", job=job, oob=False, **values)
    return _whole_page(ctx, history, queue, bare=True)


def _whole_page(ctx: PageContext, history: JobDetails, queue: Queue, *, bare: bool = False) -> HTMLResponse:
    values = _changing_values(ctx, history, queue) | _stable_values(ctx, history, queue, bare=bare)
    panel: Panel | None = values["panel"]
    headers = {"content-security-policy": FRAMING_CSP} if panel and panel.frames else {}
    return ctx.page("job.html", headers=headers, oob=False, changed=False, **values)


def _find_job(ctx: PageContext, job_id: str, *, reveal: bool = False) -> tuple[JobDetails, Queue]:
    if not is_id(job_id):
        ctx.accounts.require(ctx.actor, "read", "job.read")
        raise NotFound("there is no such job")
    history = ctx.commands.job(ctx.actor, job_id, reveal=reveal)
    return history, ctx.commands.queues[history.job.queue]


def _changing_values(ctx: PageContext, history: JobDetails, queue: Queue) -> dict[str, Any]:
    job, now, lifecycle = history.job, queue.now(), queue.lifecycle
    pauses = ctx.commands.pauses(ctx.actor, job.queue)
    full: frozenset[str] = frozenset()  # states without a slot, as far as the user may know
    limited = any(lifecycle.capacity_of(move) for move in lifecycle.claims)
    if limited and job.phase == READY:
        full = states_without_slot(lifecycle, ctx.stats(queue), job.tenant)
    future = outlook(lifecycle, job, now, pauses, full)
    companions = companions_of(ctx.commands, ctx.actor, history)
    before = [_shown_relative(ctx, parent) for parent in companions.parents.jobs]
    after = [_shown_relative(ctx, child) for child in companions.children.jobs]
    due = future.next.kind == "claim" and (future.next.at or 0) <= now
    counted = due and job.phase == READY and ctx.sees_all(queue)
    explained = job.error_code if _is_stopped(lifecycle, job) else None
    lines = timeline(ctx, history, lifecycle, now, explained)
    state = lifecycle.state.get(job.state)
    pages, workload = ctx.pages_of(job.queue), ctx.commands.workload(queue.name)
    own_stamps = [stamp for stamp in lifecycle.stamps if stamp not in BUILT_IN_STAMPS]
    return {
        "job": job,
        "title": ctx.title_of(job.queue),
        "name": key if 0 < len(key := plain_key(job)) <= MAX_KEY_IN_TITLE else f"…{job.id[-8:]}",
        "now": now,
        "family": state_group(lifecycle, job.state),
        "family_of": lambda name: state_group(lifecycle, name),
        "lines": lines[:MAX_LINES],
        "hidden": max(len(lines) - MAX_LINES, 0),
        "outlook": future,
        "progress": companions.progress,
        "beside": (("parents", companions.parents, before), ("children", companions.children, after)),
        "waits": companions.parents,
        "waits_for": ctx.tell(pages.waits_for(job)),
        "stopped": pages.stopped(ctx, job) if due else "",
        "waited": before[: min(companions.parents.pending, MAX_WAITED_NAMED)],
        "ahead": queue.store.count_ahead(job.queue, job.id, limit=MAX_AHEAD) if counted else None,
        "most_ahead": MAX_AHEAD,
        "sited": bool(workload.name) and workload.has_sites,
        "due_at": job.run_at if job.phase == READY else None,
        "stamps": {stamp: getattr(job, lifecycle.stamp_column(stamp)) for stamp in own_stamps},
        "flags": [flag for flag in lifecycle.flags if job.flags & lifecycle.flag_bit(flag)],
        "link": pages.job_link(ctx, job),
        "actions": job_actions(ctx, history),
        "explained": explained,
        "settled": job.error_code in decided_codes(lifecycle),
        "goes_on": state is not None and not state.terminal,
    }


def _is_stopped(lifecycle: Lifecycle, job: Job) -> bool:
    """Whether the job rests with an error: what went wrong is then what came of it."""
    return state_group(lifecycle, job.state) in {"failed", "person"}


def _shown_relative(ctx: PageContext, job: Job) -> dict[str, Any]:
    """A job before or after the one whose page it is, with the gist of its result or error."""
    name = ctx.job_name(job) or plain_key(job) or f"…{job.id[-12:]}"
    return {
        "job": job,
        "name": _shortened(name, MAX_KEY_IN_TITLE),
        "title": ctx.title_of(job.queue),
        "family": state_group(ctx.service.queues[job.queue].lifecycle, job.state),
        "gist": _shortened(job.error_code or job.result_json or "", MAX_GIST),
    }


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _stable_values(ctx: PageContext, history: JobDetails, queue: Queue, *, bare: bool = False) -> dict[str, Any]:
    """What changes only with a move: picture, payload, corrections, and the panel or the result."""
    job, lifecycle, say = history.job, queue.lifecycle, ctx.catalogue.gettext
    state = lifecycle.state.get(job.state)
    travelled = frozenset((event.from_state, event.to_state) for event in history.events)
    return {
        "picture": _lifecycle_svg(say, lifecycle, travelled, job.state),
        "panel": _job_panel(ctx, history),
        "payload": pretty(json_depth_limited(job.payload)),
        "result": None if job.result_json is None else pretty(json_depth_limited(job.result)),
        "succeeded": state is not None and state.success,
        "has_panel": ctx.pages_of(job.queue).job_panel is not None,
        "failure": current_error(ctx, history) if _is_stopped(lifecycle, job) else None,
        "corrections": corrections(queue, history),
        "bare": bare,
        "masked": history.masked,
    }


def _job_panel(ctx: PageContext, history: JobDetails) -> Panel | None:
    """What the workload adds. The job is shown even if its panel fails."""
    make = ctx.pages_of(history.job.queue).job_panel
    if make is None:
        return None
    try:
        return make(ctx, history)
    except Problem as problem:
        return Panel("panel_away.html", {"message": problem.message})
    except Exception:
        log.exception("panel_failed", queue=history.job.queue)
        return Panel("panel_away.html", {"message": ctx.say("This part cannot be shown now.")})


@lru_cache(maxsize=256)
def _lifecycle_svg(
    say: Callable[[str], str], lifecycle: Lifecycle, edges: frozenset[tuple[str, str]], here: str
) -> Markup:
    picture = svg(lifecycle, edges, here, styled=False, translate=say)
    return Markup(picture)  # noqa: S704  # everything in it was escaped there


# Actions: those of the workload, else the operator's moves


def job_actions(ctx: PageContext, history: JobDetails) -> list[JobAction]:
    """What the user can do with the job now: what helps comes first, what destroys last."""
    if not ctx.actor.has("operate"):
        return []
    find: Callable[[PageContext, JobDetails], Sequence[JobAction]]
    find = ctx.pages_of(history.job.queue).job_actions or lifecycle_actions
    try:
        found = find(ctx, history)
    except Exception:  # the job is shown even if its workload cannot say what it offers
        log.exception("actions_failed", queue=history.job.queue)
        return []
    return sorted(found, key=lambda action: (action.destructive, not action.primary))


def lifecycle_actions(ctx: PageContext, history: JobDetails) -> list[JobAction]:
    """The operator's moves that the job can make now, each with the dialog of its queue."""
    job, queue = history.job, ctx.service.queues[history.job.queue]
    possible = [
        (action, action in DESTRUCTIVE or groups <= {"failed", "expired"})
        for action in history.actions
        if (moves := possible_moves(queue.lifecycle, job, action, queue.now()))
        for groups in [{"" if m.to == STAY else state_group(queue.lifecycle, m.to) for m in moves}]
    ]
    sets_priority = queue.lifecycle.sets_priority
    helpful = [action for action, ends in possible if not (ends or sets_priority(action))]
    needs_help = state_group(queue.lifecycle, job.state) in NEEDS_HELP
    needs_help &= job.error_code not in decided_codes(queue.lifecycle)
    permanent = job.error_category == Category.PERMANENT
    bad_data = failed_by_data(queue, job) and offers_fix(ctx, queue, job.state)
    why = "%(category)s: it will fail again unless the cause has been fixed." if permanent else ""
    why = "It will fail until its data is fixed." if bad_data else why
    path = fix_path(job.queue, ids=job.id)
    fix = [JobAction(ctx.say("Fix data"), path, is_link=True, primary=True)] if bad_data else []
    return fix + [
        JobAction(
            label_of(ctx, action),
            f"/dashboard/queues/{job.queue}/sheet",
            fields={"call": action, "ids": job.id},
            primary=needs_help and not (bad_data or permanent) and action in helpful[:1],
            destructive=destructive,
            hint=ctx.say(why, category=job.error_category) if why and action == "requeue" else "",
        )
        for action, destructive in possible
    ]


def possible_moves(lifecycle: Lifecycle, job: Job, action: str, now: int) -> list[Move]:
    """The moves of the action that show in lists and whose guards hold now."""
    context = MoveContext(now=now, actor="")
    return [
        move
        for move in lifecycle.actions[action]
        if job.state in move.sources and move.relocates and failing_guard(move, job, lifecycle, context, None) is None
    ]


# What will happen next, and when: as soon as the guards of an automatic move hold


class Upcoming(NamedTuple):
    """Something that will happen. ``at`` is None where the time cannot be known."""

    kind: Kind
    at: int | None = None
    move: str = ""
    to: str = ""
    pause: Pause | None = None
    slots: int = 0  # of the state in which all are taken


class Outlook(NamedTuple):
    """What is next, and what happens otherwise."""

    next: Upcoming
    otherwise: tuple[Upcoming, ...] = ()


def outlook(
    lifecycle: Lifecycle, job: Job, now: int, pauses: Sequence[Pause] = (), full: Collection[str] = ()
) -> Outlook:
    """What happens to the job; ``full`` are the states that have no slot for it."""
    scheduled = _scheduled_moves(lifecycle, job, now)
    if job.phase == OWNED:
        return Outlook(Upcoming("answer", job.lease_until), tuple(scheduled))
    if job.state in lifecycle.waiting_states:
        return Outlook(Upcoming("parents"), tuple(scheduled))
    claims = [
        Upcoming("claim", at, move.name, move.target(job.state))
        for move in lifecycle.claims
        if job.state in move.sources and (at := allowed_from(lifecycle, move, job, now)) is not None
    ]
    pause = next((pause for pause in pauses if pause.tenant in ("", job.tenant)), None)
    if claims and pause:
        return Outlook(Upcoming("paused", pause=pause), tuple(scheduled))
    claims = [
        step._replace(kind="slots", slots=lifecycle.state[step.to].capacity)
        if step.to in full and (step.at or 0) <= now
        else step
        for step in claims
    ]
    upcoming = sorted([*claims, *scheduled], key=lambda step: step.at or 0)
    moving = [step for step in upcoming if step.kind != "gone"]
    rest = tuple(step for step in upcoming if step.kind == "gone")
    state = lifecycle.state.get(job.state)
    acts = any("operator" in move.by and job.state in move.sources for move in lifecycle.moves)
    # More than a day away: until then the job waits for a person rather than for time.
    far = bool(moving) and (moving[0].at or 0) - now > DAY_S * SECOND_US
    if moving and not (state and state.resting and acts and far):
        return Outlook(moving[0], (*_later(moving), *rest))
    if acts and not (state and (state.terminal or state.success)):
        return Outlook(Upcoming("person"), (*moving, *rest))
    return Outlook(rest[0] if rest else Upcoming("person" if acts else "over"))


def _later(moving: Sequence[Upcoming]) -> tuple[Upcoming, ...]:
    """What follows after the first, each result once."""
    results: dict[tuple[str, str], Upcoming] = {}
    for upcoming in moving:
        results.setdefault((upcoming.kind, upcoming.to), upcoming)
    return tuple(results.values())[1:]


def _scheduled_moves(lifecycle: Lifecycle, job: Job, now: int) -> list[Upcoming]:
    upcoming = []
    for move in lifecycle.scheduled_moves:
        if job.state in move.sources:
            at = allowed_from(lifecycle, move, job, now)
            if at is not None:
                kind: Kind = "gone" if move.prunes else "clock"
                to = GONE if move.prunes else move.target(job.state)
                upcoming.append(Upcoming(kind, at, move.name, to))
    return sorted(upcoming, key=lambda step: step.at or 0)
