"""OCI Control: a site's conversions, their errors, and the operator's actions."""

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kesin.engine.access.listing import JobSearch, in_trouble, search_jobs, titles_of
from kesin.foundation.permissions import Permission
from kesin.foundation.problems import Invalid, Problem
from kesin.foundation.text import csv_text
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.records import Filter
from kesin.web.dashboard.forms.uploads import Upload, Uploaded
from kesin.web.dashboard.frame.page import Context, PageContext, page_router
from kesin.web.dashboard.frame.routes import FirstFields
from kesin.web.dashboard.queues import actions, failures, listing
from kesin.web.dashboard.queues.bulk import runs_of
from kesin.web.dashboard.queues.page import runs_shown
from kesin.web.dashboard.state_groups import state_groups
from kesin.web.dependencies import csv_response
from kesin.workloads.common.advice import Advice
from kesin.workloads.common.columns import column_names
from kesin.workloads.oci import operations, reconciliation, script
from kesin.workloads.oci.conversions.conversion import CLICK_KINDS, INPUT_FIELDS
from kesin.workloads.oci.conversions.corrections import BYTE_ORDER_MARK, fix_rows
from kesin.workloads.oci.conversions.ingest import IngestPreview, import_rows
from kesin.workloads.oci.conversions.parsing import CsvFile
from kesin.workloads.oci.lifecycle import ADVICE
from kesin.workloads.oci.pages.sites import Word, control_path
from kesin.workloads.oci.site import SiteContext, require_site, visible_sites

router = page_router()

PATH: Final = "/dashboard/site/{site_id}/oci-control"
MAX_SITES: Final = 200  # in a list, or the site switch
MAX_LISTED_ROWS: Final = 25  # in a dialog
MAX_FILTER: Final = 512  # characters of a field
MAX_DAYS: Final = 92  # of a reconciliation
FIRST_DAY: Final = date(2000, 1, 1)  # that it shows
# After an action, the other parts of the page are loaded again.
CHANGED: Final = {"HX-Trigger": json.dumps({"oci-changed": "", "kesin:forget": ""})}

DayField = date | Literal[""]  # a field for a day may be sent empty


@dataclass(frozen=True, slots=True)
class ControlFilter:
    """The filter of the page."""

    status: str = ""
    code: str = ""
    category: str = ""
    q: str = ""
    order: str = ""

    @property
    def criteria(self) -> dict[str, list[str]]:
        values = {"status": self.status, "code": self.code, "category": self.category}
        return {name: [value] if value else [] for name, value in values.items()}

    def query(self, **other: str) -> str:
        return listing.query_of(asdict(self), **other)


def _chosen(ctx: PageContext) -> ControlFilter:
    names, given = ("status", "code", "category", "q"), ctx.request.query_params
    values = {name: listing.text_of(given, name, MAX_FILTER) for name in names}
    return ControlFilter(**values, order=listing.order_of(ctx))


def find_site(ctx: PageContext, site_id: str, permission: Permission, action: str) -> SiteContext:
    return require_site(ctx.workload("oci"), ctx.actor, site_id, permission, action=action)


def frame(ctx: PageContext, site: SiteContext) -> dict[str, Any]:
    every = site.context.commands.pauses(ctx.actor, site.queue.name)
    pauses = [pause for pause in every if pause.tenant in {"", site.id}]
    others = visible_sites(site.context, ctx.actor)[:MAX_SITES]
    return {
        "site": site.record,
        "path": control_path(site.id),
        "sites": [(other.record, control_path(other.id)) for other in others],
        "pauses": pauses,
        "may_operate": ctx.actor.has("operate"),
        "may_administer": ctx.actor.is_admin,
        "now": site.queue.now(),
    }


@router.get(PATH, response_class=HTMLResponse)
def oci_control(
    ctx: Context, site_id: str, part: Literal["", "summary", "sums", "rows", "more"] = "", before: DayField = ""
) -> HTMLResponse:
    site, chosen = find_site(ctx, site_id, "read", "oci.control"), _chosen(ctx)
    if part == "sums":
        sums, following = operations.daily_sums(site, chosen.criteria, before or None)
        more = chosen.query(part="sums", before=following.isoformat()) if following else ""
        return ctx.page("oci/part_sums.html", sums=sums, more=more, path=control_path(site.id))
    values: dict[str, Any] = {"chosen": chosen, "categories": list(Category.__members__)}
    if part in {"", "summary"}:
        stats = operations.SiteStats(site)
        warnings = [(each, stats.advice(each["code"], ctx.language)) for each in stats.warnings]
        values |= {"stats": stats, "warnings": warnings, "breaker": stats.breaker_state}
        failed = failures.failures_of(ctx, site.queue, ctx.stats(site.queue, site.id), site.id)
        values |= {"failures": failed, "codes": failures.failure_codes(failed, chosen.code)}
        values["steps"] = operations.onboarding(site, stats)
    if part != "summary":
        values |= _rows(ctx, site, ctx.request.query_params if part == "more" else listing.NONE)
    if not part:
        offered = actions.offered_actions(ctx, site.queue)
        values["offers"] = [offer for offer in offered if offer.action in operations.ACTIONS]
        values |= {"queue": site.queue, "runs": runs_shown(ctx, site.queue)}
    template = f"oci/part_{part}.html" if part else "oci/control.html"
    return ctx.page(template, **frame(ctx, site), **values)


@router.post(f"{PATH}/renewal", response_class=HTMLResponse)
def oci_renew(ctx: Context, site_id: str, sent: FirstFields) -> HTMLResponse:
    site = find_site(ctx, site_id, "read", "oci.control")
    values = {"chosen": _chosen(ctx), **_rows(ctx, site, sent)}
    return ctx.page("oci/part_rows.html", **frame(ctx, site), **values)


def _rows(ctx: PageContext, site: SiteContext, sent: Mapping[str, str]) -> dict[str, Any]:
    queue, chosen = site.queue.name, _chosen(ctx)
    search = operations.search_rows(site, ctx.actor, chosen.criteria, chosen.q)
    # What is no id is a word.
    if chosen.q and not listing.visible_jobs(ctx, queue, search).page(limit=1).jobs:
        where = replace(search.where, text=chosen.q, contains=None)
        search = search_jobs(site.context.commands, ctx.actor, queue, where, [site.id])
    where = in_trouble(site.queue.lifecycle, search.where)
    search = search._replace(where=replace(where, oldest_first=bool(chosen.order)))
    stats = ctx.stats(site.queue, site.id)
    states = stats.states
    shown_states = [chosen.status] if chosen.status else [state for state, n in states.items() if n]
    total: int | None = sum(states.get(state, 0) for state in shown_states)
    if chosen.code or chosen.category or chosen.q:
        total = failures.count_by_code(ctx, site.queue, stats, search, site.id)
    source = listing.visible_jobs(ctx, queue, search, total)
    return {
        "listing": listing.shown_rows(ctx, source, sent),
        "columns_of": operations.row_columns,
        "advice_on": partial(row_advice, ctx),
        "title_of": titles_of(site.context.commands, queue),
        "states": shown_states,
        "family": state_groups(site.queue.lifecycle),
    }


# Actions


@router.post(f"{PATH}/preview", response_class=HTMLResponse)
def oci_preview(ctx: Context, site_id: str, fields: FirstFields) -> HTMLResponse:
    site = find_site(ctx, site_id, "operate", "oci.preview")
    action = fields.get("action", "")
    operations.action_arguments(site, action)  # raises Problem for an unknown one
    ids, where, chosen, until = _selection(site, fields)
    chosen_ids = None if ids is None else tuple(operations.strip_seals(ids))
    selected: dict[str, Any] = {"ids": chosen_ids, "where": where, "site": site.id}
    preview = site.context.commands.preview(ctx.actor, "oci", action, **selected)
    missing = 0 if chosen_ids is None else len(chosen_ids) - preview.matched
    row = only_row(ctx, site, ids)
    search = JobSearch(chosen_ids, where or Filter(tenants=(site.id,)))
    codes, among = failures.chosen_codes(ctx, site.queue, action, search)
    return ctx.page(
        "oci/part_action.html",
        action=action,
        codes=codes,
        among=among,
        would=preview,
        refused=actions.refusals(ctx, preview, missing),
        matched=preview.matched + missing,
        in_background=where is not None and preview.matched > actions.MAX_FOREGROUND_JOBS,
        ids=",".join(ids or ()),
        by_filter=ids is None,
        until=until,
        chosen=chosen,
        categories=list(Category.__members__),
        row=row,
        advice=row_advice(ctx, row) if row else None,
        **frame(ctx, site),
    )


def only_row(ctx: PageContext, site: SiteContext, ids: Sequence[str] | None) -> Job | None:
    """The row of a dialog about a single one, masked."""
    wanted = operations.strip_seals(ids or ())
    found = site.context.commands.find(ctx.actor, "oci", wanted) if len(wanted) == 1 else []
    return next((job for job in found if job.tenant == site.id), None)


def row_advice(ctx: PageContext, job: Job) -> Advice | None:
    code = job.error_code
    return ADVICE.find(code, job.error_category, ctx.language) if code else None


@router.post(f"{PATH}/actions", response_class=HTMLResponse)
def oci_act(ctx: Context, site_id: str, fields: FirstFields) -> HTMLResponse:
    """Take the action and report exactly what happened; many rows move in the background."""
    action = fields.get("action", "")
    site = find_site(ctx, site_id, "operate", f"queue.{action[:40]}")
    ids, where, _, _ = _selection(site, fields)
    reason = reason_of(fields)
    options: dict[str, Any] = {
        "code": fields.get("mark_code", "").strip() or None,  # ``code`` is what is filtered by
        "category": fields.get("kind") or None,
        "clear_errors": "clear_errors" in fields,
    }
    if where is not None:
        arguments = operations.action_arguments(site, action, **options)
        preview = site.context.commands.preview(ctx.actor, "oci", action, where=where, site=site.id)
        if preview.matched > actions.MAX_FOREGROUND_JOBS:
            runs_of(ctx).start(ctx.actor, "oci", action, where, preview.matched, reason=reason, **arguments)
            runs = runs_shown(ctx, site.queue)
            return ctx.page("oci/part_begun.html", headers=CHANGED, queue=site.queue, runs=runs)
    done = operations.run_action(site, ctx.actor, action, ids=ids, where=where, reason=reason, **options)
    return ctx.page(
        "oci/part_acted.html",
        headers=CHANGED,
        done=done,
        row=only_row(ctx, site, ids),
        reasons=Counter(done.reasons).most_common(),
        shown=done.refused[:MAX_LISTED_ROWS],
        **frame(ctx, site),
    )


def reason_of(fields: Mapping[str, str]) -> str | None:
    return fields.get("reason", "").strip()[: actions.MAX_REASON_CHARS] or None


def _selection(site: SiteContext, fields: dict[str, str]) -> tuple[list[str] | None, Filter | None, ControlFilter, int]:
    """The selected rows, or all that match and were created before the dialog was opened."""
    until = actions.read_until(site.queue, fields.get("until", ""))
    names = ("status", "code", "category")
    chosen = ControlFilter(*(listing.text_of(fields, name, MAX_FILTER) for name in names))
    if fields.get("all"):
        if fields.get("q", "").strip():  # the filter has no search: more would move than is shown
            why = "actions do not apply to a search: select rows, or clear the search"
            raise Invalid(why, code="bad_selection")
        where = in_trouble(site.queue.lifecycle, operations.build_filter(site, chosen.criteria))
        return None, replace(where, created_before=until), chosen, until
    ids = [row_id for row_id in fields.get("ids", "").split(",") if row_id]
    if not ids:
        raise Invalid("select some rows first", code="bad_selection")
    if len(ids) > actions.MAX_SELECTED:
        why = "select at most %(most)s rows, or all that match"
        raise Invalid(why, code="bad_selection", most=actions.MAX_SELECTED)
    return ids, None, chosen, until


@router.get(f"{PATH}/pause", response_class=HTMLResponse)
def oci_pause_dialog(ctx: Context, site_id: str) -> HTMLResponse:
    site = find_site(ctx, site_id, "operate", "queue.pause")
    return ctx.page("oci/part_pause.html", **frame(ctx, site))


@router.post(f"{PATH}/pause")
def oci_pause(ctx: Context, site_id: str, fields: FirstFields) -> Response:
    site = find_site(ctx, site_id, "operate", "queue.pause")
    if fields.get("resume"):
        site.context.commands.resume(ctx.actor, "oci", site=site.id)
    else:
        site.context.commands.pause(ctx.actor, "oci", site=site.id, reason=reason_of(fields))
    return RedirectResponse(control_path(site.id), status_code=303)


# Files


@router.get(f"{PATH}/export", response_class=HTMLResponse)
def oci_export_preview(ctx: Context, site_id: str) -> HTMLResponse:
    site = find_site(ctx, site_id, "read", "oci.preview")
    preview = script.ExportPreview(site, limit=script.MAX_EXPORT_ROWS, masked=True)
    left_out = {item["id"] for item in preview.skipped}
    items, skipped = (rows[:MAX_LISTED_ROWS] for rows in (preview.items, preview.skipped))
    return ctx.page(
        "oci/part_export.html",
        found=preview,
        going=len(preview.items),
        items=[{**item, "click": _short_click_id(item)} for item in items],
        skipped=[(item, ADVICE.find(item["code"], "VALIDATION", ctx.language)) for item in skipped],
        warnings=[item for item in preview.warnings if item.get("id") not in left_out],
        most=script.MAX_EXPORT_ROWS,
        **frame(ctx, site),
    )


def _short_click_id(item: dict[str, Any]) -> str:
    """The kind of a click id and its last letters: enough to recognise it."""
    kinds = (kind for kind in CLICK_KINDS if item.get(kind))
    return next((f"{kind} …{str(item[kind])[-4:]}" for kind in kinds), "–")


@router.get(f"{PATH}/reconciliation", response_class=HTMLResponse)
def oci_reconciliation(
    ctx: Context, site_id: str, since: DayField = "", until: DayField = "", file: Word = ""
) -> Response:
    """What the site sent, and what Google took and attributed, by day; or the same as a file."""
    site = find_site(ctx, site_id, "read", "oci.control")
    state: dict[str, Any] = reconciliation.read_state(site)
    zone = ZoneInfo(state.get("zone", site.record.timezone))
    now = datetime.fromtimestamp(site.queue.now() / SECOND_US, zone)
    yesterday = now.date() - timedelta(days=1)
    last = max(min(until or yesterday, yesterday), FIRST_DAY)
    first = max(min(since or last - timedelta(days=13), last), last - timedelta(days=MAX_DAYS - 1))
    figures = list(reconciliation.read_figures(site, first, last))
    if file:
        text = csv_text([reconciliation.DayFigures._fields, *figures])
        return csv_response(f"reconciliation-{site.id}-{first}-{last}", [BYTE_ORDER_MARK + text])
    days = [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]
    state["short"] = reconciliation.short_days(state, site.queue.now())
    state["copied"] = reconciliation.is_copied(site)
    shown = {"state": state, "figures": figures, "days": days, **frame(ctx, site)}
    return ctx.page("oci/reconciliation.html", **shown)


@router.get(f"{PATH}/import", response_class=HTMLResponse)
def oci_import_page(ctx: Context, site_id: str) -> HTMLResponse:
    site = find_site(ctx, site_id, "operate", "oci.import")
    return ctx.page("oci/import.html", known=INPUT_FIELDS, **frame(ctx, site))


@router.post(f"{PATH}/import", response_class=HTMLResponse)
async def oci_import(ctx: Context, site_id: str, sent: Uploaded) -> HTMLResponse:
    """Show what a file would do, and take it in when it comes again with the digest it had then."""
    return await ctx.service.imports.run(_import_file, ctx, site_id, sent)


def _import_file(ctx: PageContext, site_id: str, sent: Upload) -> HTMLResponse:
    site = find_site(ctx, site_id, "operate", "oci.import")
    ignored = column_names([sent.fields.get("ignoreColumns", "")])
    digest = sha256(f"{site.record} {sorted(ignored)} ".encode() + sent.data).hexdigest()
    preview, taken = IngestPreview(), sent.fields.get("digest") == digest
    values: dict[str, Any] = {"fields": sent.fields, "digest": digest, "preview": preview}
    try:
        file = CsvFile(io.BytesIO(sent.data), ignored, site.defaults)
        take_in = import_rows if taken else preview.add
        results = take_in(site, file.read(), ctx.actor)
        numbered = list(zip(file.lines, results, strict=True))
        values |= {"read_as": file.describe(), "taken": taken, "results": numbered}
    except Problem as problem:
        values["refusal"] = problem
    template = "oci/part_import.html" if ctx.in_part else "oci/import.html"
    return ctx.page(template, known=INPUT_FIELDS, **values, **frame(ctx, site))


@router.post(f"{PATH}/fixes", response_class=HTMLResponse)
async def oci_fixes(ctx: Context, site_id: str, sent: Uploaded) -> HTMLResponse:
    """Import corrected dead letters: each is corrected, sent again, or refused with a reason."""
    return await ctx.service.imports.run(_import_fixes, ctx, site_id, sent)


def _import_fixes(ctx: PageContext, site_id: str, sent: Upload) -> HTMLResponse:
    site = find_site(ctx, site_id, "operate", "oci.fix")
    if not sent.data:
        raise Invalid("The file is empty. Choose the corrected CSV.", code="no_file")
    ignored = column_names([sent.fields.get("ignoreColumns", "")])
    rows = CsvFile(io.BytesIO(sent.data), ignored, site.defaults).read()
    reason, again = reason_of(sent.fields), "again" in sent.fields
    results = fix_rows(site, ctx.actor, rows, reason=reason, again=again)
    refused: Sequence[Any] = [result for result in results if result.result == "rejected"]
    return ctx.page(
        "oci/part_fixed.html",
        headers=CHANGED,
        counts=Counter(result.result for result in results),
        total=len(results),
        refused=refused[:MAX_LISTED_ROWS],
        refused_count=len(refused),
        **frame(ctx, site),
    )
