"""The dashboard pages for PDFs, and what PDFs add to the dashboard's own pages."""

from typing import Final

from kesin.engine.access.commands import JobDetails
from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.foundation.messages import decode_note, recorded_message, recorded_traceback
from kesin.foundation.terminal import pluralize
from kesin.lifecycle.model import Job
from kesin.web.dashboard.frame.page import JobAction, Link, PageContext, Panel, WorkerHeartbeat, WorkloadPages
from kesin.web.dashboard.jobs.page import lifecycle_actions
from kesin.web.health import HealthCheck
from kesin.workloads.pdf.api.jobs import requested_contents
from kesin.workloads.pdf.errors import PdfErrorCode
from kesin.workloads.pdf.jobs.heartbeat import find_stuck_workers, open_heartbeats
from kesin.workloads.pdf.jobs.store import parse_job
from kesin.workloads.pdf.jobs.submit import MADE_AGAIN
from kesin.workloads.pdf.pages import page, versions

TEMPLATE_ERROR: Final = PdfErrorCode.TEMPLATE_ERROR.value


def links(ctx: PageContext) -> list[Link]:
    return [Link(ctx.say("Make a PDF"), "/dashboard/pdf", "add")] if ctx.actor.has("pdf") else []


def job_actions(ctx: PageContext, history: JobDetails) -> list[JobAction]:
    job, offered = history.job, lifecycle_actions(ctx, history)
    if not _may_open(ctx, job):
        return offered
    if job.state == "succeeded":
        path = f"/pdf/jobs/{job.id}/download"
        offered.append(JobAction(ctx.say("Download"), path, is_link=True, primary=True))
        offered.append(JobAction(ctx.say("Create link…"), f"{page.PATH}/jobs/{job.id}/links"))
    if job.state in {"failed", "expired"}:
        path, fields = f"{page.PATH}/jobs/{job.id}/again", {"job": job.id}
        offered.append(JobAction(ctx.say("Render again"), path, fields=fields, primary=True))
    return offered


def _may_open(ctx: PageContext, job: Job) -> bool:
    return ctx.actor.has("pdf") and (ctx.actor.is_admin or job.tenant == ctx.actor.name)


def job_panel(ctx: PageContext, history: JobDetails) -> Panel | None:
    """The PDF, for users who may download it, or where its template failed."""
    job = history.job
    last = history.events[-1]
    dismissed = decode_note(last.note) if last.move == "dismiss" else None
    excerpt = recorded_traceback(last.note) if job.error_code == TEMPLATE_ERROR else ""
    if job.state == "failed" and not excerpt:  # the page says why
        return None
    own = ctx.service.queues["pdf"].job(job.id) if job.tenant == ctx.actor.name else None
    return Panel(
        "pdf/panel.html",
        {
            "again": (dismissed or {}).get(MADE_AGAIN),
            "may": _may_open(ctx, job),
            "outcome": job.result if isinstance(job.result, dict) else {},
            "failure": recorded_message(last.error_message, last.note) if excerpt else "",
            "excerpt": excerpt,
            "template": job.payload.get("template") if isinstance(job.payload, dict) else "",
            **requested_contents(parse_job(own or job)),  # masked for others
        },
        frames=True,
    )


def check_health(context: WorkloadContext) -> HealthCheck:
    """Report stuck workers. The detail is public, so it contains no names."""
    if stuck := len(find_stuck_workers(context.queue)):
        renderers = pluralize(stuck, "render worker")
        detail = f"{renderers} stuck: `kesin pdf doctor` says which to restart"
        return HealthCheck(ok=False, detail=detail)
    return HealthCheck(ok=True, detail="no render worker is stuck")


def heartbeats(ctx: PageContext, queue: Queue) -> list[WorkerHeartbeat]:
    """The render workers: each reports every few seconds."""
    beats = open_heartbeats(queue.store).read(ctx.accounts.now())
    states = (", ".join(f"{name}: {each}" for name, each in beat.state.items()) for beat in beats)
    said = zip(beats, states, strict=True)
    return [WorkerHeartbeat(beat.worker, beat.at, beat.is_alive, text[:200]) for beat, text in said]


PAGES: Final = WorkloadPages(
    package=__name__,
    icon="document",
    routers=(page.router, versions.router),
    links=links,
    job_panel=job_panel,
    job_actions=job_actions,
    heartbeats=heartbeats,
    health=check_health,
    polling_elements=frozenset({"pdf-jobs"}),
)
