"""The page of a queue: counts by state, the matching jobs, and actions on many of them."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from kesin.engine.access.listing import JobSearch, plain_key, titles_of
from kesin.engine.queue import Queue
from kesin.engine.schedules import listed_schedules
from kesin.foundation.clock import iso
from kesin.foundation.text import csv_text
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.lifecycle.moves import DISMISSED
from kesin.store.counters import rate_left, slots_in_use
from kesin.store.limits import MAX_PAGE, MAX_TENANT
from kesin.store.records import QueueStats
from kesin.web.bodies import first_value
from kesin.web.dashboard.frame.formatting import Formatter
from kesin.web.dashboard.frame.navigation import mark_seen
from kesin.web.dashboard.frame.page import Context, PageContext, page_router
from kesin.web.dashboard.frame.routes import FirstFields, FormFields
from kesin.web.dashboard.queues import actions, failures, filters
from kesin.web.dashboard.queues.bulk import BulkRun, runs_of, take_action
from kesin.web.dashboard.queues.charts import charts_of
from kesin.web.dashboard.queues.listing import NONE, JobSource, shown_rows, visible_jobs
from kesin.web.dashboard.state_groups import state_groups, states_in
from kesin.web.dependencies import csv_response

router = page_router()
CHANGED: Final = {"HX-Trigger": "kesin:forget", "HX-Trigger-After-Swap": json.dumps({"renew": {"target": "#view"}})}
MAX_SITES: Final = 200  # in the filter's list
MAX_FAILURES_SHOWN: Final = 12  # error codes in the panel; the filter lists all
MAX_FULLEST_SHOWN: Final = 3  # sites, with the slots that they use
MAX_CSV_ROWS: Final = 50_000
CSV_COLUMNS: Final[dict[str, Callable[[Job], object]]] = {
    "id": lambda job: job.id,
    "key": lambda job: job.dedup_key,
    "site": lambda job: job.tenant,
    "state": lambda job: job.state,
    "error_code": lambda job: job.error_code,
    "error_category": lambda job: job.error_category,
    "error_message": lambda job: job.error_message,
    "attempts": lambda job: job.attempt_count,
    "max_attempts": lambda job: job.max_attempts,
    "created_at": lambda job: iso(job.created_at),
    "moved_at": lambda job: iso(job.moved_at),
    "due_at": lambda job: iso(job.run_at),
    "finished_at": lambda job: iso(job.finished_at),
}


@router.get("/dashboard/queues/{queue}", response_class=HTMLResponse)
def show(ctx: Context, queue: str) -> HTMLResponse:
    opened = ctx.commands.queue(ctx.actor, queue)
    template = "part_queue.html" if ctx.in_part else "queue.html"
    values = _page_values(ctx, opened)
    wanted, failed = values["wanted"], states_in(opened.lifecycle, "failed")
    shows_failures = not wanted.site and (not wanted.states or {*failed} & {*wanted.states})
    if shows_failures and not ctx.in_part:  # a page that refreshes by itself has not been read
        mark_seen(ctx, opened, opened.now())
    return ctx.page(template, **values)


@router.post("/dashboard/queues/{queue}/renewal", response_class=HTMLResponse)
def renew(ctx: Context, queue: str, sent: FirstFields) -> HTMLResponse:
    """The part that refreshes, with the rows that are shown; a form, as an address is too short."""
    opened = ctx.commands.queue(ctx.actor, queue)
    return ctx.page("part_queue.html", renewal=True, **_page_values(ctx, opened, sent))


@router.get("/dashboard/queues/{queue}/rows", response_class=HTMLResponse)
def more(ctx: Context, queue: str) -> HTMLResponse:
    opened = ctx.commands.queue(ctx.actor, queue)
    return ctx.page("part_rows.html", **_table(ctx, opened, ctx.request.query_params))


@router.get("/dashboard/queues/{queue}/rows.csv")
def export(ctx: Context, queue: str) -> StreamingResponse:
    page_filter, _, source = _search(ctx, ctx.commands.queue(ctx.actor, queue))
    ctx.accounts.note(ctx.actor, "queue.export", queue=queue, site=page_filter.site or None)
    return csv_response(queue, _csv_lines(ctx, queue, source.search))


def _csv_lines(ctx: PageContext, queue: str, search: JobSearch) -> Iterator[str]:
    """The lines, page by page; a truncated file says so in its last line."""
    yield "\ufeff" + csv_text([CSV_COLUMNS])  # without its mark Excel misreads Turkish letters
    cursor: str | None = None
    written = 0
    while written < MAX_CSV_ROWS:
        page = filters.read_page(ctx, queue, search, limit=MAX_PAGE, cursor=cursor)
        yield csv_text([read(job) for read in CSV_COLUMNS.values()] for job in page.jobs)
        written += len(page.jobs)
        cursor = page.cursor
        if cursor is None:
            return
    yield csv_text([[ctx.say("There are more rows: narrow the filter to export the rest.")]])


@router.get("/dashboard/queues/{queue}/runs", response_class=HTMLResponse)
def runs(ctx: Context, queue: str) -> HTMLResponse:
    opened = ctx.commands.queue(ctx.actor, queue)
    return ctx.page("part_runs.html", queue=opened, runs=runs_shown(ctx, opened))


@router.post("/dashboard/queues/{queue}/sheet", response_class=HTMLResponse)
def sheet(ctx: Context, queue: str, sent: FormFields) -> HTMLResponse:
    opened = ctx.commands.queue(ctx.actor, queue, "operate", "preview")
    action, selection, options = actions.read_action(ctx, opened, sent)
    preview = actions.preview(ctx, opened, action, selection, options)
    number = Formatter(ctx.language).number(preview.moved)
    dismisses = opened.lifecycle.actions[action][0].error == DISMISSED
    kept = [("ids", ",".join(selection.sought.ids or ()))]
    if selection.every:
        kept = [*selection.wanted.pairs(), ("all", "1")]
    codes, among = failures.chosen_codes(ctx, opened, action, selection.sought)
    return ctx.page(
        "sheet_action.html",
        queue=opened,
        action=action,
        label=actions.label_of(ctx, action),
        meaning=ctx.say(actions.DISMISSAL) if dismisses else "",
        button=actions.button_of(ctx, action, preview.moved, number),
        ends=action in actions.DESTRUCTIVE,
        preview=preview,
        codes=codes,
        among=among,
        family=state_groups(opened.lifecycle),
        options={
            option: ctx.say(actions.OPTIONS.get(option, option))
            for option in sorted(opened.lifecycle.options_of(action))
        },
        sets_priority=opened.lifecycle.sets_priority(action),
        kept=[*kept, ("until", str(selection.until))],
    )


@router.post("/dashboard/queues/{queue}/act", response_class=HTMLResponse)
def act(ctx: Context, queue: str, sent: FormFields) -> Response:
    """Take the action and report exactly what happened; many jobs move in the background."""
    return _result(ctx, *take_action(ctx, queue, sent))


@router.get("/dashboard/queues/{queue}/steer", response_class=HTMLResponse)
def steer(ctx: Context, queue: str) -> HTMLResponse:
    commands, actor = ctx.commands, ctx.actor
    opened = commands.queue(actor, queue, "operate", "pause")
    visible = commands.visible_sites(actor, queue)
    sites = sorted(visible) if visible is not None else sorted(ctx.stats(opened).tenants)
    paused = {site.tenant for site in commands.pauses(actor, queue)}
    return ctx.page(
        "sheet_pause.html",
        queue=opened,
        title=ctx.title_of(queue),
        whole=visible is None and "" not in paused,
        sites=[site for site in sites if site not in paused][:MAX_SITES],
    )


@router.post("/dashboard/queues/{queue}/pause", response_class=HTMLResponse)
def pause(ctx: Context, queue: str, sent: FormFields) -> Response:
    site = first_value(sent, "site")[:MAX_TENANT] or None
    ctx.commands.pause(ctx.actor, queue, site=site, reason=actions.reason_of(sent))
    message = ctx.say("%(what)s is paused.", what=site or ctx.title_of(queue))
    return _result(ctx, ctx.commands.queue(ctx.actor, queue), message=message)


@router.post("/dashboard/queues/{queue}/resume", response_class=HTMLResponse)
def resume(ctx: Context, queue: str, sent: FormFields) -> Response:
    site = first_value(sent, "site")[:MAX_TENANT] or None
    was_paused = ctx.commands.resume(ctx.actor, queue, site=site)
    sentence = "%(what)s has been resumed." if was_paused else "%(what)s was not paused."
    message = ctx.say(sentence, what=site or ctx.title_of(queue))
    return _result(ctx, ctx.commands.queue(ctx.actor, queue), message=message)


def _search(ctx: PageContext, queue: Queue) -> tuple[filters.PageFilter, QueueStats, JobSource]:
    """The filter of the URL, the counters of its site, and the jobs that it searches for."""
    page_filter = filters.read_filter(filters.fields_of(ctx), queue.lifecycle)
    stats = ctx.stats(queue, page_filter.site)
    search = filters.resolve_search(ctx, queue.name, page_filter, stats, stats.now)
    ordered = replace(search.where, oldest_first=bool(page_filter.order))
    states = stats.states
    total: int | None = sum(states.get(name, 0) for name in page_filter.states or states)
    if not page_filter.counted:
        total = failures.count_by_code(ctx, queue, stats, search, page_filter.site)
    return page_filter, stats, visible_jobs(ctx, queue.name, search._replace(where=ordered), total)


def _page_values(ctx: PageContext, queue: Queue, sent: Mapping[str, str] = NONE) -> dict[str, Any]:
    table = _table(ctx, queue, sent)
    page_filter, stats = table["wanted"], table["stats"]
    found = failures.failures_of(ctx, queue, stats, page_filter.site)
    all_stats = ctx.stats(queue)
    listed = sorted(all_stats.tenants)[:MAX_SITES]
    visible = ctx.commands.visible_sites(ctx.actor, queue.name)
    schedules = listed_schedules(queue.store, queue.name, stats.now)
    return {
        **table,
        "title": ctx.title_of(queue.name),
        "of_site": _site_title(ctx, queue.name, page_filter.site),
        "charts": charts_of(ctx, queue, page_filter.site),
        "all_failures": found,
        "now": stats.now,
        "failure_lines": failures.failure_lines(ctx, queue, found, page_filter.site),
        "most_failures": MAX_FAILURES_SHOWN,
        "codes": failures.failure_codes(found, page_filter.code),
        "categories": list(Category.__members__),
        "sites": list(dict.fromkeys([*listed, *filter(None, [page_filter.site])])),
        "ages": filters.AGES,
        "offers": actions.offered_actions(ctx, queue),
        "whole": visible is None,
        "pauses": ctx.commands.pauses(ctx.actor, queue.name),
        "runs": runs_shown(ctx, queue),
        "schedules": [one for one in schedules if visible is None or one.schedule.tenant in visible],
        "slots": slots_in_use(queue.lifecycle, all_stats),
        "rate": queue.lifecycle.claims[0].guard("rate"),
        "rate_left": list(rate_left(queue.lifecycle, queue.store, all_stats).items()),
        "most_fullest": MAX_FULLEST_SHOWN,
        "searched": queue.store.listing(queue.name).search,
    }


def _table(ctx: PageContext, queue: Queue, sent: Mapping[str, str]) -> dict[str, Any]:
    page_filter, stats, source = _search(ctx, queue)
    workload = ctx.commands.workload(queue.name)
    return {
        "queue": queue,
        "listing": shown_rows(ctx, source, sent),
        "title_of": titles_of(ctx.commands, queue.name),
        "key_of": plain_key,
        "wanted": page_filter,
        "stats": stats,
        "family": state_groups(queue.lifecycle),
        "sited": bool(workload.name) and workload.has_sites,
        "operates": ctx.actor.has("operate"),
    }


def _site_title(ctx: PageContext, queue: str, site: str) -> str:
    """The name of the chosen site, or of the only one that the user may see."""
    visible = ctx.commands.visible_sites(ctx.actor, queue)
    if not site and visible is not None and len(visible) == 1:
        [site] = visible
    stored = ctx.accounts.directory.site(site) if site else None
    return stored.name if stored else site


def runs_shown(ctx: PageContext, queue: Queue) -> list[tuple[BulkRun, str, actions.Refusals]]:
    """The user's background runs on this queue, each with its label and its refusals."""
    return [
        (
            run,
            " · ".join(filter(None, (actions.label_of(ctx, run.call), run.site))),
            actions.describe_refusals(ctx, Counter(run.refused)),
        )
        for run in runs_of(ctx).of(ctx.actor, queue.name)
    ]


def _result(
    ctx: PageContext, queue: Queue, action: str = "", result: dict[str, Any] | None = None, message: str = ""
) -> Response:
    """The result on top of the page, which refreshes itself below it."""
    if not ctx.in_part:
        return RedirectResponse(f"/dashboard/queues/{queue.name}", status_code=303)
    runs, label = runs_shown(ctx, queue), actions.label_of(ctx, action) if action else ""
    values: dict[str, Any] = {"queue": queue, "result": result, "said": message, "label": label}
    return ctx.page("part_result.html", headers=CHANGED, runs=runs, **values)
