"""What orders add to the dashboard's own pages: links and a panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kesin.engine.access.commands import JobDetails
from kesin.lifecycle.model import Job
from kesin.web.dashboard.frame.formatting import pretty
from kesin.web.dashboard.frame.page import Link, PageContext, Panel
from kesin.web.dashboard.queues.failures import first_job
from kesin.web.failures import FailureGroup
from kesin.workloads.optiplan.customers import WORKLOAD
from kesin.workloads.optiplan.pipeline.progress import ProgressStore
from kesin.workloads.optiplan.pipeline.waiting import waiting_for

MAX_DELIVERIES: Final = 20


def may_see_orders(ctx: PageContext) -> bool:
    """Whether the user may see the workshop's orders."""
    sees_all = ctx.commands.visible_sites(ctx.actor, WORKLOAD) is None
    return ctx.actor.has("optiplan") or (ctx.actor.has("read") and sees_all)


def links(ctx: PageContext) -> list[Link]:
    """The link to the orders page, for users who may see orders."""
    if not may_see_orders(ctx):
        return []
    return [Link(ctx.say("Cutting orders"), "/dashboard/optiplan", "page")]


def job_link(ctx: PageContext, job: Job) -> Link | None:
    """The link to the order's row on the orders page, for users who may see orders."""
    row = f"held-{job.id}" if job.state == "HOLD" else f"row-{job.id}"
    return next((Link(link.title, f"{link.path}#{row}") for link in links(ctx)), None)


def triage(ctx: PageContext, group: FailureGroup) -> Link | None:
    """The order itself, or the orders of the state; None for users who may not see orders."""
    if not may_see_orders(ctx):
        return None
    if group.n == 1 and (job := first_job(ctx, group)):
        return Link(ctx.say("Open the order"), f"/dashboard/jobs/{job.id}")
    return Link(ctx.say("Open the orders"), f"/dashboard/optiplan?state={group.state}")


def job_panel(ctx: PageContext, history: JobDetails) -> Panel:
    """The cutting plan, the files, and the deliveries to the saw."""
    job, now = history.job, ctx.service.queues[history.job.queue].now
    masking = ctx.commands.masking(job.queue)
    progress = ProgressStore(ctx.accounts.directory, now).read(job.id)
    return Panel(
        "optiplan/panel.html",
        {
            "waits": waiting_for(job),
            "drawn": bool(progress.xml),
            "xml": progress.xml,
            "imports": progress.files,
            "deliveries": deliveries(ctx, job, progress.deliveries),
            "invalid": pretty(masking.value(progress.invalid)) if progress.invalid else "",
        },
    )


def deliveries(
    ctx: PageContext, job: Job, attempts: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Each delivery attempt and its result, newest first; the order tells the last result."""
    results = {
        "open": ctx.say("waits for the saw"),
        "withdrawn": ctx.say("taken back"),
        "refused": ctx.say("refused by the saw"),
    }
    rows = []
    for attempt in attempts[-MAX_DELIVERIES:]:
        delivery = attempt["delivery"]
        files = [file["name"] for file in delivery["files"]]
        rows.append({"try": delivery["try"], "files": files, "state": results[attempt["state"]]})
    if rows and attempts[-1]["state"] == "open" and job.state in {"DELIVERED", "DONE"}:
        rows[-1]["state"] = ctx.say("taken by the saw")
    return rows[::-1]
