"""A queue's page: what is in it by state, the rows that match, and everything done with many."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends
from fastapi.responses import HTMLResponse, StreamingResponse
from starlette.responses import RedirectResponse, Response

from kesin.engine.queue import Queue
from kesin.foundation.ids import is_id
from kesin.lifecycle.errors import Category
from kesin.store.limits import MAX_TENANT
from kesin.store.records import QueueStats
from kesin.web.auth import guarded_router
from kesin.web.dashboard.frame.formatting import Figures
from kesin.web.dashboard.frame.navigation import mark
from kesin.web.dashboard.frame.page import Context, PageContext
from kesin.web.dashboard.frame.routes import form_lists
from kesin.web.dashboard.queues import actions
from kesin.web.dashboard.queues.bulk import Run, runs_of
from kesin.web.dashboard.queues.charts import Charts, charts_of
from kesin.web.dashboard.queues.csv_export import exported
from kesin.web.dashboard.queues.filters import (
    AGES,
    MOST_SHOWN,
    PAGE,
    Wanted,
    fields_of,
    meant,
    rows,
    wanted_of,
)
from kesin.web.dashboard.state_groups import Family, ended_badly, families

router = guarded_router(include_in_schema=False)
MOST_LISTED: Final = 200  # sites in the filter's list
Sent = Annotated[dict[str, list[str]], Depends(form_lists)]


@dataclass(frozen=True, slots=True)
class StateCard:
    """A state with its number; a click filters by it."""

    name: str
    family: Family
    n: int
    href: str
    chosen: bool


@router.get("/dashboard/queues/{queue}", response_class=HTMLResponse)
def show(looking: Context, queue: str) -> HTMLResponse:
    """The whole page, or all of it that can change."""
    found = looking.service.commands.queue(looking.actor, queue)
    template = "part_queue.html" if looking.in_part else "queue.html"
    limit = min(max(_number(looking, "rows"), PAGE), MOST_SHOWN)
    seen = _seen(looking, found, limit)
    if not looking.in_part and _shows_failures(found, seen["wanted"]):
        mark(looking, found)  # what a page asks for by itself is no look of a person
    return looking.page(template, **seen)


@router.get("/dashboard/queues/{queue}/rows", response_class=HTMLResponse)
def more(looking: Context, queue: str) -> HTMLResponse:
    """The rows after those that are shown."""
    found = looking.service.commands.queue(looking.actor, queue)
    wanted, stats = _asked(looking, found)
    sought = meant(looking, queue, wanted, stats, stats.now)
    cursor = looking.request.query_params.get("cursor", "")
    page = rows(looking, queue, sought, cursor=cursor if is_id(cursor) else None)
    shown = _number(looking, "shown")
    told = _table(looking, found, wanted, stats)
    told |= {"jobs": page.jobs, "cursor": page.cursor, "shown": shown + len(page.jobs)}
    return looking.page("part_rows.html", **told)


@router.get("/dashboard/queues/{queue}/rows.csv")
def export(looking: Context, queue: str) -> StreamingResponse:
    """Everything that matches, as a file."""
    found = looking.service.commands.queue(looking.actor, queue)
    wanted, stats = _asked(looking, found)
    sought = meant(looking, queue, wanted, stats, stats.now)
    return StreamingResponse(
        exported(looking, queue, sought),
        media_type="text/csv; charset=utf-8",
        headers={
            "content-disposition": f'attachment; filename="{queue}.csv"',
            "cache-control": "private, no-store",
        },
    )


@router.get("/dashboard/queues/{queue}/runs", response_class=HTMLResponse)
def runs(looking: Context, queue: str) -> HTMLResponse:
    """How far the actions in the background are."""
    found = looking.service.commands.queue(looking.actor, queue)
    return looking.page("part_runs.html", queue=found, runs=runs_shown(looking, found))


# Actions


@router.post("/dashboard/queues/{queue}/sheet", response_class=HTMLResponse)
def sheet(looking: Context, queue: str, sent: Sent) -> HTMLResponse:
    """What an action would do, before it is done."""
    found = looking.service.commands.queue(looking.actor, queue, "operate", "preview")
    call = actions.call_of(looking, found, sent)
    chosen = actions.selected(looking, found, sent)
    foreseen = actions.preview(looking, found, call, chosen, actions.options_of(found, call, sent))
    number = Figures(looking.language).number(foreseen.moved)
    kept = chosen.wanted.pairs() if chosen.every else []
    if not chosen.every:
        kept = [("ids", ",".join(chosen.sought.ids or ()))]
    return looking.page(
        "sheet_action.html",
        queue=found,
        call=call,
        label=actions.label_of(looking, call),
        button=actions.button_of(looking, call, foreseen.moved, number),
        ends=call in actions.ENDS,
        preview=foreseen,
        family=families(found.lifecycle),
        options={one: looking.say(actions.OPTIONS.get(one, one)) for one in _options(found, call)},
        kept=[*kept, ("until", str(chosen.until)), *([("all", "1")] if chosen.every else [])],
        most_reason=actions.MOST_REASON,
    )


@router.post("/dashboard/queues/{queue}/act", response_class=HTMLResponse)
def act(looking: Context, queue: str, sent: Sent) -> Response:
    """Do it, and say exactly what happened; many jobs move in the background."""
    found = looking.service.commands.queue(looking.actor, queue, "operate", "act")
    call = actions.call_of(looking, found, sent)
    chosen = actions.selected(looking, found, sent)
    why, options = actions.reason_of(sent), actions.options_of(found, call, sent)
    if chosen.every and chosen.sought.ids is None:
        foreseen = actions.preview(looking, found, call, chosen, options)
        if foreseen.in_background:
            runs_of(looking).begin(
                looking.actor,
                queue,
                call,
                chosen.sought.where,
                foreseen.matched,
                options=options,
                reason=why,
            )
            return _result(looking, found, call=call, told=None, said="")
    bulk = actions.act(looking, found, call, chosen, reason=why, options=options)
    told = actions.told(looking, bulk)
    return _result(looking, found, call=call, told=told, said="")


# Pauses


@router.get("/dashboard/queues/{queue}/steer", response_class=HTMLResponse)
def steer(looking: Context, queue: str) -> HTMLResponse:
    """What to pause, and why."""
    commands, actor = looking.service.commands, looking.actor
    found = commands.queue(actor, queue, "operate", "pause")
    seen = commands.visible(actor, queue)
    sites = sorted(seen) if seen is not None else sorted(commands.stats(actor, queue).tenants)
    paused = {one.tenant for one in commands.pauses(actor, queue)}
    return looking.page(
        "sheet_pause.html",
        queue=found,
        title=looking.title_of(queue),
        whole=seen is None and "" not in paused,
        sites=[one for one in sites if one not in paused][:MOST_LISTED],
        most_reason=actions.MOST_REASON,
    )


@router.post("/dashboard/queues/{queue}/pause", response_class=HTMLResponse)
def pause(looking: Context, queue: str, sent: Sent) -> Response:
    """Hand out no more jobs of the queue, or of one site."""
    site = _site_of(sent)
    commands = looking.service.commands
    commands.pause(looking.actor, queue, site=site, reason=actions.reason_of(sent))
    said = looking.say("%(what)s is paused.", what=site or looking.title_of(queue))
    return _result(looking, commands.queue(looking.actor, queue), call="", told=None, said=said)


@router.post("/dashboard/queues/{queue}/resume", response_class=HTMLResponse)
def resume(looking: Context, queue: str, sent: Sent) -> Response:
    """Hand them out again."""
    site = _site_of(sent)
    commands = looking.service.commands
    was = commands.resume(looking.actor, queue, site=site)
    what = site or looking.title_of(queue)
    if was:
        said = looking.say("%(what)s runs again.", what=what)
    else:
        said = looking.say("%(what)s was not paused.", what=what)
    return _result(looking, commands.queue(looking.actor, queue), call="", told=None, said=said)


# What the templates are filled with


def _asked(looking: PageContext, queue: Queue) -> tuple[Wanted, QueueStats]:
    wanted = wanted_of(fields_of(looking), queue.lifecycle)
    stats = looking.service.commands.stats(looking.actor, queue.name, site=wanted.site or None)
    return wanted, stats


def _seen(looking: PageContext, queue: Queue, limit: int) -> dict[str, Any]:
    commands, actor = looking.service.commands, looking.actor
    wanted, stats = _asked(looking, queue)
    sought = meant(looking, queue.name, wanted, stats, stats.now)
    page = rows(looking, queue.name, sought, limit=limit)
    charts = charts_of(looking, queue, wanted.site)
    every = stats if not wanted.site else commands.stats(actor, queue.name)
    return {
        **_table(looking, queue, wanted, stats),
        "title": looking.title_of(queue.name),
        "of_site": _site_title(looking, queue.name, wanted.site),
        "jobs": page.jobs,
        "cursor": page.cursor,
        "shown": len(page.jobs),
        "matching": _matching(wanted, stats, len(page.jobs), more=page.cursor is not None),
        "cards": _cards(queue, wanted, stats),
        "charts": charts,
        "codes": _codes(queue, charts, wanted),
        "categories": list(Category.__members__),
        "sites": _sites(every, wanted),
        "ages": AGES,
        "offers": actions.offers(looking, queue),
        "whole": commands.visible(actor, queue.name) is None,
        "pauses": commands.pauses(actor, queue.name),
        "runs": runs_shown(looking, queue),
    }


def _table(looking: PageContext, queue: Queue, wanted: Wanted, stats: QueueStats) -> dict[str, Any]:
    return {
        "queue": queue,
        "wanted": wanted,
        "stats": stats,
        "family": families(queue.lifecycle),
        "sited": queue.name not in looking.service.commands.unsited,
        "operates": looking.actor.has("operate"),
        "most_shown": MOST_SHOWN,
        "narrowest": PAGE,
    }


def _shows_failures(queue: Queue, wanted: Wanted) -> bool:
    """Whether whoever opens this sees what failed, of every site."""
    bad = ended_badly(queue.lifecycle)
    return not wanted.site and (not wanted.states or any(one in wanted.states for one in bad))


def _site_title(looking: PageContext, queue: str, site: str) -> str:
    """The site that is looked at: the one chosen, or the only one there is to see."""
    seen = looking.service.commands.visible(looking.actor, queue)
    if not site and seen is not None and len(seen) == 1:
        [site] = seen
    known = looking.service.accounts.directory.site(site) if site else None
    return known.name if known else site


def _matching(wanted: Wanted, stats: QueueStats, shown: int, *, more: bool) -> tuple[int, bool]:
    """How many match, and whether there are more: counters know without counting."""
    if wanted.counted:
        return sum(stats.states.get(one, 0) for one in wanted.states or stats.states), False
    return shown, more


def _cards(queue: Queue, wanted: Wanted, stats: QueueStats) -> list[StateCard]:
    found = families(queue.lifecycle)
    path = f"/dashboard/queues/{queue.name}"
    return [
        StateCard(
            state.name,
            found[state.name],
            stats.states.get(state.name, 0),
            path + wanted.with_state(state.name).query(),
            state.name in wanted.states,
        )
        for state in queue.lifecycle.states
    ]


def _codes(queue: Queue, charts: Charts, wanted: Wanted) -> list[str]:
    """Those seen lately first, then all that the trade declares."""
    declared = sorted(code.name for code in queue.lifecycle.errors.codes)
    seen = [one.code for one in charts.codes]
    chosen = [wanted.code] if wanted.code else []
    return list(dict.fromkeys([*seen, *declared, *chosen]))


def _sites(stats: QueueStats, wanted: Wanted) -> list[str]:
    listed = sorted(stats.tenants)[:MOST_LISTED]
    return list(dict.fromkeys([*listed, *([wanted.site] if wanted.site else [])]))


def runs_shown(
    looking: PageContext, queue: Queue
) -> list[tuple[Run, str, tuple[actions.Refusals, ...]]]:
    """What the looker began here, with its name and why some jobs stayed."""
    return [
        (
            run,
            " · ".join(filter(None, (actions.label_of(looking, run.call), run.site))),
            actions.in_words(looking, Counter(run.refused)),
        )
        for run in runs_of(looking).of(looking.actor, queue.name)
    ]


def _number(looking: PageContext, name: str) -> int:
    """A number of the address; what is none is nought."""
    given = looking.request.query_params.get(name, "")
    return int(given) if given.isdecimal() and len(given) < 10 else 0  # noqa: PLR2004


def _options(queue: Queue, call: str) -> list[str]:
    return sorted(queue.lifecycle.options_of(call))


def _site_of(sent: dict[str, list[str]]) -> str | None:
    return next(iter(sent.get("site", ())), "").strip()[:MAX_TENANT] or None


def _result(
    looking: PageContext, queue: Queue, *, call: str, told: actions.Told | None, said: str
) -> Response:
    """A line on top of the page; the page renews itself below it."""
    if not looking.in_part:
        return RedirectResponse(f"/dashboard/queues/{queue.name}", status_code=303)
    answer = looking.page(
        "part_result.html",
        queue=queue,
        told=told,
        said=said,
        label=actions.label_of(looking, call) if call else "",
        runs=runs_shown(looking, queue),
    )
    answer.headers["HX-Trigger"] = "kesin:forget"
    answer.headers["HX-Trigger-After-Swap"] = json.dumps({"renew": {"target": "#view"}})
    return answer
