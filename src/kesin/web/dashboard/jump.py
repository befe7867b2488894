"""The jump dialog: pages, queues, sites and jobs that a few typed characters can mean."""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Annotated, Final, NamedTuple

from fastapi import Query
from fastapi.responses import HTMLResponse

from kesin.engine.access.listing import plain_key, titled_jobs
from kesin.engine.queue import Queue
from kesin.foundation.ids import is_id
from kesin.lifecycle.model import Job
from kesin.store.errors import StoreUnreachable
from kesin.store.limits import LAST_ID
from kesin.store.records import Filter
from kesin.store.search import fold
from kesin.web.dashboard.frame.navigation import below, page_entries
from kesin.web.dashboard.frame.page import Context, PageContext, page_router

router = page_router()
MAX_FOUND: Final = 20
MAX_JOBS: Final = 5  # of a queue
MIN_CHARS: Final = 2  # to search fields and titles by
_ID_START: Final = re.compile(r"[0-9a-f]{6,8}|[0-9a-f]{8}-[0-9a-f-]*")


class JumpTarget(NamedTuple):
    """A place to jump to, and what kind of place it is."""

    title: str
    path: str
    kind: str
    is_job: bool = False
    key: str = ""

    def rank(self, wanted: str) -> int:
        """0 if a word, the title or the key is the text, 1 if one begins with it, else 2."""
        title, end = self.title.casefold(), self.path.rpartition("/")[2]
        words = (title, *title.split(), self.key.casefold(), end)
        return 0 if wanted in words else 2 - any(word.startswith(wanted) for word in words)


@router.get("/dashboard/jump", response_class=HTMLResponse)
def jump(ctx: Context, q: Annotated[str, Query(max_length=200)] = "") -> HTMLResponse:
    """The places that a text can mean, of those that the user may see."""
    wanted = q.strip()
    targets = _targets(ctx, wanted) if ctx.actor.has("read") else _pages(ctx)
    found: dict[str, JumpTarget] = {}
    for target in targets:
        place = f"{target.title} {target.path.removeprefix('/dashboard')}".casefold()
        if target.is_job or wanted.casefold() in place:
            found.setdefault(target.path, target)
    best = sorted(found.values(), key=lambda target: target.rank(wanted.casefold()))
    return ctx.page("part_jump.html", found=best[:MAX_FOUND])


def _targets(ctx: PageContext, wanted: str) -> Iterator[JumpTarget]:
    queues = ctx.commands.readable_queues(ctx.actor)
    for queue in queues if wanted else ():
        try:
            for job in _jobs(ctx, queue, wanted):
                title = ctx.job_name(job) or plain_key(job) or job.id
                kind = f"{ctx.title_of(job.queue)} · {job.state}"
                path, key = f"/dashboard/jobs/{job.id}", job.dedup_key or ""
                yield JumpTarget(title, path, kind, is_job=True, key=key)
        except StoreUnreachable:  # the other queues may live elsewhere
            continue
    for queue in queues:
        path = f"/dashboard/queues/{queue.name}"
        yield JumpTarget(ctx.title_of(queue.name), path, ctx.say("queue"))
    yield from _pages(ctx)
    for name, pages in ctx.frame.pages.items():
        if pages.site_path is None:
            continue
        for site in ctx.sites(name):
            title = site.name if site.name == site.id else f"{site.name} · {site.id}"
            yield JumpTarget(title, pages.site_path(site.id, ""), ctx.say("site"))


def _pages(ctx: PageContext) -> Iterator[JumpTarget]:
    yield JumpTarget(ctx.say("Overview"), "/dashboard", ctx.say("page"))
    for entry in (*page_entries(ctx), *below(ctx)):
        yield JumpTarget(entry.title, entry.path, ctx.say("page"))


def _jobs(ctx: PageContext, queue: Queue, text: str) -> list[Job]:
    """The jobs of an id, of its beginning, of a key or field, by an index; else of new titles."""
    commands, actor, start = ctx.commands, ctx.actor, text.lower()
    if is_id(start):
        return commands.find(actor, queue.name, [start])
    if _ID_START.fullmatch(start):
        end = start + LAST_ID[len(start) :]
        if is_id(end):
            before = commands.jobs(actor, queue.name, Filter(), limit=MAX_JOBS, cursor=end).jobs
            newest = [*commands.find(actor, queue.name, [end]), *before][:MAX_JOBS]
            if found := list(takewhile(lambda job: job.id.startswith(start), newest)):
                return found
    held = queue.store.key_holders(queue.name, list(ctx.stats(queue).tenants), text)
    jobs = commands.find(actor, queue.name, held[:MAX_FOUND])
    # A key that is masked for the user is not found by it.
    found = [job for job in jobs if actor.has("reveal") or job.dedup_key == text]
    if found or len(fold(text)) < MIN_CHARS:
        return found
    by_field = commands.jobs(actor, queue.name, Filter(search=text), limit=MAX_JOBS).jobs
    return by_field or titled_jobs(commands, actor, queue.name, text, MAX_JOBS)
