"""What an actor sees of titles, and what a text finds for the actor."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kesin.engine.access.commands import Commands
from kesin.engine.access.listing import JobSearch, resolve_text, titles_in
from kesin.foundation.permissions import Actor
from kesin.lifecycle.model import Job
from kesin.store.records import Filter, Page
from kesin.store.search import is_found

MAX_TITLES: Final = 300  # of the newest jobs, that are read at each letter typed


def titles_of(commands: Commands, name: str) -> Callable[[Job], str]:
    """What lists call the jobs of a queue, from as much of them as is shown."""
    return titles_in(commands.queues[name].store, name, commands.workload(name).job_title)


def search_jobs(
    commands: Commands, actor: Actor, name: str, where: Filter, tenants: Sequence[str] | None = None
) -> JobSearch:
    """What a filter's text is among the actor's jobs; keys are those of ``tenants``."""
    if not where.text:
        return JobSearch(None, where)
    where = commands.narrow(actor, name, where)
    if tenants is None:
        tenants = where.tenants or tuple(commands.stats(actor, name).tenants)

    def read(narrower: Filter, limit: int) -> Page:
        if not actor.has("reveal"):
            return commands.jobs(actor, name, narrower, limit=limit)
        return commands.queue(actor, name).jobs(narrower, limit=limit)  # found, but shown masked

    return resolve_text(where, tenants, read, titles_of(commands, name))


def titled_jobs(commands: Commands, actor: Actor, name: str, text: str, limit: int) -> list[Job]:
    """The newest jobs with this key or a word of their title, as far as titles may be shown."""
    queue, title = commands.queue(actor, name), titles_of(commands, name)
    jobs = queue.jobs(commands.narrow(actor, name, Filter()), limit=MAX_TITLES).jobs
    seen = jobs if actor.has("reveal") else map(commands.masking(name).job, jobs)
    found = [
        job
        for job in seen
        if text == job.dedup_key or is_found({"title": title(job)}, ("title",), text)
    ][:limit]
    return commands.shown_list(actor, name, found, "everything", same_look=True)


def found_jobs(
    commands: Commands, actor: Actor, name: str, search: JobSearch, **reveal: Any
) -> list[Job]:
    """Those of the jobs searched by id that the actor may see and that fit, in their order."""
    return search.chosen(commands.find(actor, name, search.ids or (), **reveal))
