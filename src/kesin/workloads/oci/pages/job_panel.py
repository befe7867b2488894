"""What conversions add to their jobs' pages: uploads and responses, actions, corrected data."""

from typing import Any, Final

from fastapi.responses import HTMLResponse

from kesin.engine.access.commands import JobDetails
from kesin.foundation.ids import is_id
from kesin.foundation.messages import decode_note, recorded_message
from kesin.foundation.problems import NotFound
from kesin.foundation.text import as_object, decode_json
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.web.dashboard.frame.formatting import pretty
from kesin.web.dashboard.frame.page import Context, JobAction, Link, PageContext, Panel, page_router
from kesin.web.dashboard.frame.routes import FirstFields
from kesin.web.dashboard.jobs.page import lifecycle_actions, possible_moves
from kesin.web.dashboard.queues.actions import label_of
from kesin.web.serialize import json_depth_limited
from kesin.workloads.oci.adjustments import adjustment_title, siblings
from kesin.workloads.oci.conversions.conversion import (
    CONVERSION_FIELDS,
    HASH_FIELDS,
    PLAIN_FIELDS,
    Conversion,
    RowDefaults,
    Unsendable,
)
from kesin.workloads.oci.conversions.corrections import fix_rows
from kesin.workloads.oci.google.data_manager import event
from kesin.workloads.oci.google.google_ads import click_conversion
from kesin.workloads.oci.lifecycle import DECISIONS, WAITING
from kesin.workloads.oci.operations import ACTIONS
from kesin.workloads.oci.pages.control import CHANGED, PATH, find_site, frame, only_row, reason_of, row_advice
from kesin.workloads.oci.pages.sites import control_path
from kesin.workloads.oci.site import SiteContext

router = page_router()
MAX_EXCHANGES: Final = 20
_OF_PERSONS: Final = {*HASH_FIELDS, *PLAIN_FIELDS}
FIXABLE: Final = tuple(name for name in (*CONVERSION_FIELDS, *PLAIN_FIELDS) if name not in {"externalId", "revision"})


def job_panel(ctx: PageContext, history: JobDetails) -> Panel:
    """The row as the site's channel sends it, if it was sent or waits, and the responses so far."""
    context = ctx.workload("oci")
    job = context.queue.job(history.job.id) or history.job  # a masked one cannot be sent
    record = ctx.accounts.find_site(job.tenant)
    site = SiteContext(context, record) if record else None
    shown: dict[str, Any] = {"channel": record.channel if record else "api", "job": job}
    shown |= {"unsendable": "", "version": ctx.service.settings.oci_google_version}
    try:
        rules = site.defaults if site else RowDefaults(job.tenant, None, "")
        conversion = Conversion.from_payload(job.payload, rules)
    except Unsendable as problem:
        shown["unsendable"] = problem.message
    else:
        if shown["channel"] == "data_manager":
            body: dict[str, Any] = {"events": [event(conversion)]}
        elif site and site.channel == "script":
            body = conversion.script_item(job.id, site.zone, more=site.settings.script_columns)
        else:
            action = f"customers/…/conversionActions/{conversion.action_id or '…'}"
            body = {"conversions": [click_conversion(conversion, action)], "partialFailure": True}
        shown["asked"] = pretty(context.commands.masking("oci").value(body))
    adjustments = siblings(site, [job.id])[job.id] if site else {}
    shown |= {"adjustments": adjustments, "title": adjustment_title, "waiting": WAITING}
    return Panel("oci/panel.html", shown | {"exchanges": _exchanges(history)})


def adjustment_panel(ctx: PageContext, history: JobDetails) -> Panel:
    """What an adjustment waits for, and the responses so far."""
    conversion, site = _sale(ctx, history.job), ctx.accounts.find_site(history.job.tenant)
    shown = {"job": history.job, "conversion": conversion, "channel": site.channel if site else ""}
    return Panel("oci/adjustment.html", {**shown, "exchanges": _exchanges(history)})


def sale_link(ctx: PageContext, job: Job) -> Link | None:
    sale = _sale(ctx, job)
    return Link(ctx.say("The conversion"), f"/dashboard/jobs/{sale.id}") if sale else None


def _sale(ctx: PageContext, job: Job) -> Job | None:
    sale = ctx.workload("oci").queue.job(str(as_object(job.payload).get("conversionId")))
    return sale if sale and sale.tenant == job.tenant else None


def job_actions(ctx: PageContext, history: JobDetails) -> list[JobAction]:
    job, queue = history.job, ctx.workload("oci").queue
    if ctx.accounts.find_site(job.tenant) is None:
        return lifecycle_actions(ctx, history)
    path, offered = control_path(job.tenant), []
    fix = f"{path}/rows/{job.id}/fix"
    bad_data = job.state == "FAILED" and job.error_category == Category.VALIDATION
    if bad_data:
        offered.append(JobAction(ctx.say("Fix data"), fix, primary=job.error_code not in DECISIONS))
    elif job.state == "COMPLETED":
        offered.append(JobAction(ctx.say("Correct a sent row"), fix))
    untouched = job.state == "QUEUED" and job.attempt_count == job.attempt_base
    for action in ACTIONS:
        if action == "RESET_TO_QUEUED" and untouched and not job.error_code:
            continue
        if possible_moves(queue.lifecycle, job, action, queue.now()):
            retry = action == "RETRY_SELECTED"
            why = ctx.say("It will fail until its data is fixed.") if retry and bad_data else ""
            flags = {"primary": retry and not bad_data, "destructive": action == "MARK_FAILED"}
            given, to = {"action": action, "ids": job.id}, f"{path}/preview"
            offered.append(JobAction(label_of(ctx, action), to, fields=given, hint=why, **flags))
    return offered


def _exchanges(history: JobDetails) -> list[dict[str, Any]]:
    """The responses that the worker or the script recorded with their moves, newest first."""
    exchanges: list[dict[str, Any]] = []
    for moved in reversed(history.events):
        note, result = as_object(decode_note(moved.note)), as_object(decode_json(moved.result))
        if not (note or result or moved.error_code) or not moved.from_state or "changed" in note:
            continue
        details = {name: value for name, value in (note | result).items() if name != "requestId"}
        request_id = note.get("requestId") or result.get("requestId") or ""
        shown = pretty(json_depth_limited(details)) if details else ""
        exchange = {"event": moved, "request_id": request_id, "details": shown}
        exchange["message"] = recorded_message(moved.error_message, moved.note)
        exchanges.append(exchange)
        if len(exchanges) == MAX_EXCHANGES:
            break
    return exchanges


@router.get(f"{PATH}/rows/{{job_id}}/fix", response_class=HTMLResponse)
def oci_fix_dialog(ctx: Context, site_id: str, job_id: str) -> HTMLResponse:
    site = find_site(ctx, site_id, "operate", "oci.fix")
    return ctx.page("oci/part_fix.html", **_fix_values(ctx, site, job_id), refused=None)


@router.post(f"{PATH}/rows/{{job_id}}/fix", response_class=HTMLResponse)
def oci_fix(ctx: Context, site_id: str, job_id: str, fields: FirstFields) -> HTMLResponse:
    """Correct the row; what is refused stands in the dialog, with what was typed."""
    site = find_site(ctx, site_id, "operate", "oci.fix")
    values = _fix_values(ctx, site, job_id)
    row: dict[str, Any] = {name: fields[name] for name in FIXABLE if fields.get(name, "").strip()}
    row["externalId"] = values["payload"].get("externalId")
    again, taken = "again" in fields, bool(fields.get("taken"))
    [result] = fix_rows(site, ctx.actor, [row], reason=reason_of(fields), again=again, taken=taken)
    if result.is_change:
        return ctx.page("oci/part_row_fixed.html", headers=CHANGED, result=result, **values)
    shown = {name: value for name, value in row.items() if name not in PLAIN_FIELDS}
    values["payload"] = values["payload"] | shown
    return ctx.page("oci/part_fix.html", **values, refused=result)


def _fix_values(ctx: PageContext, site: SiteContext, job_id: str) -> dict[str, Any]:
    row = only_row(ctx, site, [job_id]) if is_id(job_id) else None
    if row is None or not isinstance(row.payload, dict):
        raise NotFound("there is no such job")
    names = [n for n in FIXABLE if site.settings.enhanced or n not in _OF_PERSONS]
    if row.state == "COMPLETED":  # Google takes a new value of these alone
        names.sort(key=lambda name: name not in {"conversionValue", "conversionCurrency"})
    values = {"row": row, "payload": row.payload, "names": names, "advice": row_advice(ctx, row)}
    return values | frame(ctx, site)
