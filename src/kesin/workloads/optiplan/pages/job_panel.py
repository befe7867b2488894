"""What orders add to the dashboard's own pages: links, a panel, and their health."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kesin.engine.access.commands import JobDetails
from kesin.engine.workload import WorkloadContext
from kesin.lifecycle.model import Job
from kesin.web.dashboard.frame.formatting import pretty
from kesin.web.dashboard.frame.page import Link, PageContext, Panel
from kesin.web.dashboard.queues.failures import first_job
from kesin.web.failures import FailureGroup
from kesin.web.health import HealthCheck
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.pages import orders as order_pages
from kesin.workloads.optiplan.pages.plan_view import view_plan
from kesin.workloads.optiplan.pipeline.waiting import blocked_orders, waiting_for
from kesin.workloads.optiplan.workshop.config import Workshop

MAX_DELIVERIES: Final = 20
MAX_DRAWN: Final = 24  # patterns on the page


def links(ctx: PageContext) -> list[Link]:
    """The link to the orders page, for users who may see orders."""
    if not order_pages.may_see_orders(ctx):
        return []
    return [Link(ctx.say("Cutting orders"), "/dashboard/optiplan", "page")]


def job_link(ctx: PageContext, job: Job) -> Link | None:
    """The link to the order's row on the orders page, for users who may see orders."""
    row = f"held-{job.id}" if job.state == "HOLD" else f"row-{job.id}"
    return next((Link(link.title, f"{link.path}#{row}") for link in links(ctx)), None)


def triage(ctx: PageContext, group: FailureGroup) -> Link | None:
    """The order itself, or the orders of the state; None for users who may not see orders."""
    if not order_pages.may_see_orders(ctx):
        return None
    if group.n == 1 and (job := first_job(ctx, group)):
        return Link(ctx.say("Open the order"), f"/dashboard/jobs/{job.id}")
    return Link(ctx.say("Open the orders"), f"/dashboard/optiplan?state={group.state}")


def job_panel(ctx: PageContext, history: JobDetails) -> Panel:
    job, orders = history.job, order_pages.order_service(ctx)
    shared = order_pages.frame(ctx, "")
    masking, progress = ctx.commands.masking(job.queue), orders.progress(job)
    # Masked, the order would not say whether its customer is known; only that is read of it here.
    clear = orders.queue.job(job.id) if shared["may_create"] or shared["may_operate"] else None
    row = order_pages.order_row(ctx, orders, clear or job)
    return Panel(
        "optiplan/panel.html",
        {
            **shared,
            "row": row,
            # In clear: each time is a line in the audit log.
            "customer": orders.job(ctx.actor, job.id).payload["order"] if row.unknown else None,
            "waits": waiting_for(job),
            "plan": view_plan(ctx, orders, job),
            "max_drawn": MAX_DRAWN,
            "xml": progress.xml,
            "imports": progress.files,
            "deliveries": deliveries(ctx, job, progress.deliveries),
            "invalid": pretty(masking.value(progress.invalid)) if progress.invalid else "",
        },
        explains=row.needs_you,
    )


def deliveries(ctx: PageContext, job: Job, attempts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each delivery attempt and its result, newest first; the order tells the last result."""
    results = {
        "open": ctx.say("waiting for the saw"),
        "withdrawn": ctx.say("withdrawn"),
        "refused": ctx.say("rejected by the saw"),
    }
    rows = [
        {
            "try": attempt["delivery"]["try"],
            "files": [file["name"] for file in attempt["delivery"]["files"]],
            "state": results[attempt["state"]],
        }
        for attempt in attempts[-MAX_DELIVERIES:]
    ]
    if rows and attempts[-1]["state"] == "open" and job.state in {"DELIVERED", "DONE"}:
        rows[-1]["state"] = ctx.say("taken by the saw")
    return rows[::-1]


def check_health(context: WorkloadContext) -> HealthCheck:
    """Check it; not ready without rules and paths. Anybody may read the detail: no paths in it."""
    workshop = Workshop(context.settings)
    try:
        if workshop.rules_file.exists():
            workshop.rules()
        if workshop.paths_file.exists():
            workshop.paths()
    except OrderProblem as problem:
        file = Path(problem.details.get("file", "a settings file")).name
        return HealthCheck(ok=False, detail=f"{file} cannot be used: see `kesin optiplan doctor`")
    if not (blocked := blocked_orders(context.queue)):
        return HealthCheck(ok=True, detail="no order is blocked")
    awaited = " and ".join(sorted({waits.what for job in blocked if (waits := waiting_for(job))}))
    detail = f"blocked orders: {len(blocked)} ({awaited or 'worker'}); see `kesin optiplan doctor`"
    return HealthCheck(ok=False, detail=detail, needed=False)
