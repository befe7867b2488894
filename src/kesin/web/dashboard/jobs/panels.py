"""The panel that a workload adds to the page of its jobs."""

from __future__ import annotations

from kesin.engine.access.commands import JobDetails
from kesin.foundation.logs import Logger
from kesin.foundation.problems import Problem
from kesin.web.dashboard.frame.page import PageContext, Panel

log = Logger("kesin.dashboard")


def job_panel(ctx: PageContext, history: JobDetails) -> Panel | None:
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
        return Panel("panel_away.html", {"message": ctx.say("It cannot be shown now.")})
