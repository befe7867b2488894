"""What conversions add to their jobs' pages: the upload, each response, and the actions."""

from typing import Any, Final, NamedTuple

from kesin.engine.access.commands import JobDetails
from kesin.foundation.messages import decode_note, recorded_message
from kesin.foundation.text import decode_json
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.records import Event
from kesin.web.dashboard.frame.formatting import pretty
from kesin.web.dashboard.frame.page import JobAction, Link, PageContext, Panel
from kesin.web.dashboard.jobs.actions import lifecycle_actions, possible_moves
from kesin.web.dashboard.queues.actions import label_of
from kesin.web.serialize import json_depth_limited
from kesin.workloads.oci.adjustments.intake import adjustment_title
from kesin.workloads.oci.adjustments.settling import siblings
from kesin.workloads.oci.conversions.conversion import Conversion, RowDefaults, Unsendable
from kesin.workloads.oci.google.data_manager import event
from kesin.workloads.oci.google.google_ads import click_conversion
from kesin.workloads.oci.lifecycle import DECISIONS
from kesin.workloads.oci.operations import ACTIONS
from kesin.workloads.oci.pages.site_links import control_path
from kesin.workloads.oci.site import SiteContext

MAX_EXCHANGES: Final = 20


class Exchange(NamedTuple):
    """The response to one upload, and the move that recorded it."""

    event: Event
    message: str
    request_id: str
    details: str


def job_panel(ctx: PageContext, history: JobDetails) -> Panel:
    """The request of the site's channel, and the responses so far."""
    context = ctx.workload("oci")
    job = context.queue.job(history.job.id) or history.job  # a masked one cannot be sent
    site = ctx.accounts.find_site(job.tenant)
    channel = site.channel if site else "api"
    try:
        rules = SiteContext(context, site).defaults if site else RowDefaults(job.tenant, None, "")
        conversion = Conversion.from_payload(job.payload, rules)
    except Unsendable as problem:
        request, unsendable = "", problem.message
    else:
        unsendable = ""
        if channel == "data_manager":
            body: dict[str, Any] = {"events": [event(conversion)]}
        else:
            action = f"customers/…/conversionActions/{conversion.action_id or '…'}"
            row = click_conversion(conversion, action)
            body = {"conversions": [row], "partialFailure": True}
        request = pretty(context.commands.masking("oci").value(body))
    version = ctx.service.settings.oci_google_version
    lines = {
        "data_manager": "POST https://datamanager.googleapis.com/v1/events:ingest",
        "api": f"POST https://googleads.googleapis.com/{version}/customers/…:uploadClickConversions",
    }
    shown = {"line": lines.get(channel, ""), "asked": request, "unsendable": unsendable}
    adjustments = siblings(SiteContext(context, site), [job.id])[job.id] if site else {}
    more = {"adjustments": adjustments, "title": adjustment_title, "exchanges": _exchanges(history)}
    return Panel("oci/panel.html", {**shown, **more})


def adjustment_panel(ctx: PageContext, history: JobDetails) -> Panel:
    """What an adjustment waits for, and the responses so far."""
    conversion, site = _sale(ctx, history.job), ctx.accounts.find_site(history.job.tenant)
    shown = {"job": history.job, "conversion": conversion, "channel": site.channel if site else ""}
    return Panel("oci/adjustment.html", {**shown, "exchanges": _exchanges(history)})


def sale_link(ctx: PageContext, job: Job) -> Link | None:
    """The conversion that is adjusted."""
    sale = _sale(ctx, job)
    return Link(ctx.say("The conversion"), f"/dashboard/jobs/{sale.id}") if sale else None


def _sale(ctx: PageContext, job: Job) -> Job | None:
    sale = ctx.workload("oci").queue.job(str(_object(job.payload).get("conversionId")))
    return sale if sale and sale.tenant == job.tenant else None


def job_actions(ctx: PageContext, history: JobDetails) -> list[JobAction]:
    """What OCI Control offers for the row, and the correction of its data."""
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
            hint = ctx.say("It fails again until its data is fixed.") if retry and bad_data else ""
            flags = {"primary": retry and not bad_data, "destructive": action == "MARK_FAILED"}
            given, to = {"action": action, "ids": job.id}, f"{path}/preview"
            offered.append(JobAction(label_of(ctx, action), to, fields=given, hint=hint, **flags))
    return offered


def _exchanges(history: JobDetails) -> list[Exchange]:
    """The responses that the worker or the script recorded with their moves, newest first."""
    exchanges = []
    for moved in reversed(history.events):
        note, result = _object(decode_note(moved.note)), _object(decode_json(moved.result))
        if not (note or result or moved.error_code) or not moved.from_state or "changed" in note:
            continue
        details = {name: value for name, value in (note | result).items() if name != "requestId"}
        request_id = note.get("requestId") or result.get("requestId") or ""
        message = recorded_message(moved.error_message, moved.note)
        shown = pretty(json_depth_limited(details)) if details else ""
        exchanges.append(Exchange(moved, message, str(request_id), shown))
        if len(exchanges) == MAX_EXCHANGES:
            break
    return exchanges


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
