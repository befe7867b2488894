"""A page of the dashboard: the newest deliveries, each with its receiver."""

from typing import Annotated

from fastapi import Depends
from fastapi.responses import HTMLResponse

from kesin import Filter, Link, PageContext, WorkloadPages, page_context, page_router
from kesin_courier.titles import receiver

NEWEST = 50
PATH = "/dashboard/courier"
router = page_router()


def links(ctx: PageContext) -> list[Link]:
    """The navigation link, for users who may see deliveries."""
    return [Link(ctx.say("Deliveries"), PATH)] if ctx.actor.has("read") else []


@router.get(PATH, response_class=HTMLResponse)
def deliveries(ctx: Annotated[PageContext, Depends(page_context)]) -> HTMLResponse:
    """The command layer decides which deliveries the user sees."""
    commands = ctx.service.commands
    jobs = commands.jobs(ctx.actor, "courier", Filter(), limit=NEWEST).jobs
    rows = [{"job": job, "receiver": receiver(job.payload)} for job in jobs]
    return ctx.page("courier/deliveries.html", rows=rows, now=ctx.service.accounts.now())


PAGES = WorkloadPages(package=__package__ or "kesin_courier", routers=(router,), links=links)
