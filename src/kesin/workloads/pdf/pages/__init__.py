"""The dashboard pages for PDFs, and what PDFs add to the dashboard's own pages."""

from __future__ import annotations

from typing import Final

from kesin.engine.access.commands import JobDetails
from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.foundation.terminal import pluralize
from kesin.web.dashboard.frame.page import Link, PageContext, Panel, WorkerHeartbeat, WorkloadPages
from kesin.web.health import HealthCheck
from kesin.workloads.pdf.jobs.heartbeat import find_stuck_workers, open_heartbeats
from kesin.workloads.pdf.pages import page

MAX_DETAIL_CHARS = 200


def links(ctx: PageContext) -> list[Link]:
    """The page that makes PDFs, for those who may."""
    return [Link(ctx.say("Make a PDF"), "/dashboard/pdf")] if ctx.actor.has("pdf") else []


def job_panel(ctx: PageContext, history: JobDetails) -> Panel:
    """The PDF itself, for those who may download it."""
    job, actor = history.job, ctx.actor
    outcome = job.result if isinstance(job.result, dict) else {}
    return Panel(
        "pdf/panel.html",
        {
            "there": job.state == "succeeded",
            "state": job.state,
            "may": actor.has("pdf") and (actor.is_admin or job.tenant == actor.name),
            "pages": outcome.get("pages"),
            "warnings": outcome.get("warnings") or (),
        },
        frames=True,
    )


def check_health(context: WorkloadContext) -> HealthCheck:
    """Whether a renderer makes no progress. Anybody may read the detail: no names in it."""
    if stuck := len(find_stuck_workers(context.queue)):
        renderers = pluralize(stuck, "renderer")
        detail = f"{renderers} stuck: restart them, `kesin pdf doctor` says which"
        return HealthCheck(ok=False, detail=detail)
    return HealthCheck(ok=True, detail="no renderer is stuck")


def heartbeats(ctx: PageContext, queue: Queue) -> list[WorkerHeartbeat]:
    """The render processes: each reports every few seconds."""
    return [
        WorkerHeartbeat(
            beat.worker,
            beat.at,
            beat.is_alive,
            ", ".join(f"{name}: {value}" for name, value in beat.state.items())[:MAX_DETAIL_CHARS],
        )
        for beat in open_heartbeats(queue.store).read(ctx.service.accounts.now())
    ]


PAGES: Final = WorkloadPages(
    package=__name__,
    routers=(page.router,),
    links=links,
    job_panel=job_panel,
    heartbeats=heartbeats,
    health=check_health,
    polling_elements=frozenset({"pdf-jobs"}),
)
