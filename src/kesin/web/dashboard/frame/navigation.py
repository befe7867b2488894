"""The navigation: queues and the workloads' own pages, the site switch, administration."""

import json
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlencode

from kesin.engine.queue import Queue
from kesin.foundation.text import canonical_json
from kesin.store.directory import MetadataEntry, Site
from kesin.store.errors import StoreUnreachable
from kesin.web.dashboard.frame.page import PageContext, current_site
from kesin.web.dashboard.state_groups import states_in

MAX_IN_BAR: Final = 4  # entries on a phone, beside the button that opens the rest
MAX_SITES: Final = 200  # in the site switch
_QUEUES: Final = "/dashboard/queues/"
_SEEN: Final = "dashboard_seen"  # a stored name


@dataclass(frozen=True, slots=True)
class NavEntry:
    """A line of the navigation."""

    title: str
    path: str
    icon: str  # a name of icons.html
    badge: int = 0  # jobs that need a person
    here: bool = False
    unreachable: bool = False  # its store does not respond
    group: str = ""  # entries of one workload stand together
    nested: bool = False  # below the first entry of its group
    in_bar: bool = False  # shown on a phone, where there is room for few
    calls: bool = False  # the badge is loud: some failed since the user last opened the page


def navigation(ctx: PageContext, at: str = "") -> list[NavEntry]:
    """The overview, then each visible queue with its badge and its workload's own pages."""
    path = at or ctx.request.url.path
    entries = [NavEntry(ctx.say("Overview"), "/dashboard", "overview", here=path == "/dashboard")]
    if not ctx.actor.has("read"):
        return _with_bar(entries)
    grouped = [*_queue_entries(ctx, path), *page_entries(ctx, path)]
    shipped = {workload.group for workload in ctx.service.workloads.values()}
    for group in sorted(dict.fromkeys(e.group for e in grouped), key=shipped.__contains__):
        [first, *others] = [entry for entry in grouped if entry.group == group]
        entries += [first, *(replace(entry, nested=True) for entry in others)]
    return _with_bar(entries)


def _queue_entries(ctx: PageContext, path: str) -> list[NavEntry]:
    """The queues, each with how many jobs need a person, and whether some are new to this user."""
    actor, commands = ctx.actor, ctx.commands
    opened = ctx.accounts.directory.metadata_entry(_SEEN, "", actor.name)
    marks = (json.loads(opened.value) or {}) if opened else {}  # queue → when it was last opened
    entries = []
    for queue in commands.readable_queues(actor):
        badge, calls, unreachable = 0, False, False
        try:
            stats, visible = ctx.totals(queue), commands.visible_sites(actor, queue.name)
            failures = ctx.service.failures.of(queue, stats, visible)
            seen_at, held = marks.get(queue.name, -1), states_in(queue.lifecycle, "person")
            new = any(group.latest > seen_at or group.state in held for group in failures.needing)
            badge, calls = failures.needs_you + stats.lease_over, new or stats.lease_over > 0
        except StoreUnreachable:  # the other queues may live elsewhere
            unreachable = True
        title, href = ctx.title_of(queue.name), f"{_QUEUES}{queue.name}"
        here = f"{path}/".startswith(f"{href}/")
        workload = ctx.service.workloads.get(queue.name)
        group = workload.group if workload else queue.name
        icon = ctx.pages_of(group).icon or "queue"
        entries.append(NavEntry(title, href, icon, badge, here, unreachable, group, calls=calls))
    return entries


def page_entries(ctx: PageContext, path: str = "") -> list[NavEntry]:
    return [
        NavEntry(link.title, link.path, icon, here=path.startswith(link.path), group=name)
        for name, pages in ctx.frame.pages.items()
        for link in pages.links(ctx)
        for icon in (link.icon or pages.icon or "page",)
    ]


def _with_bar(entries: list[NavEntry]) -> list[NavEntry]:
    """What a phone shows at once: the overview, what needs attention, then the open page."""
    [first, *others] = entries
    others.sort(key=lambda entry: (not (entry.badge or entry.unreachable), not entry.here))
    chosen = {entry.path for entry in (first, *others[: MAX_IN_BAR - 1])}
    return [replace(entry, in_bar=entry.path in chosen) for entry in entries]


def below(ctx: PageContext, at: str = "") -> list[NavEntry]:
    """Entries about the service itself, for those who may see them."""
    path, actor = at or ctx.request.url.path, ctx.actor
    offered = (
        (actor.is_admin, ctx.say("Audit"), "/dashboard/audit", "audit"),
        (actor.has("operate"), ctx.say("Workers"), "/dashboard/workers", "workers"),
        (actor.is_admin, ctx.say("Admin"), "/dashboard/admin/people", "admin"),
    )
    return [
        NavEntry(title, href, icon, here=path.startswith(href.removesuffix("/people")))
        for may, title, href, icon in offered
        if may
    ]


def site_switch(ctx: PageContext) -> tuple[str, list[tuple[str, str, bool]]] | None:
    """For users with several sites: the open one's name, then (title, page, is open) for each."""
    if not ctx.actor.has("read"):
        return None
    path = ctx.request.url.path
    queue = path.removeprefix(_QUEUES) if path.startswith(_QUEUES) else ""
    about = queue or next((name for name, pages in ctx.frame.pages.items() if pages.site_path), "")
    known = ctx.service.queues if queue else ctx.service.workloads
    if about not in known or not ctx.commands.workload(about).has_sites:
        return None
    sites = ctx.sites(about)
    if len(sites) < 2:  # noqa: PLR2004
        return None
    here = current_site(ctx)
    every = ctx.say("all sites")
    chosen = next((site for site in sites if site.id == here), None)
    site_path = ctx.pages_of(about).site_path

    def href(site: Site) -> str:
        if queue or site_path is None:
            return f"{path}?{urlencode({'site': site.id})}"
        return site_path(site.id, path)

    options = [(site.name, href(site), site == chosen) for site in sites[:MAX_SITES]]
    if queue:
        options.insert(0, (every, path, not here))
    return chosen.name if chosen else every, options


def mark_seen(ctx: PageContext, queue: Queue, now: int) -> None:
    directory, name = ctx.accounts.directory, ctx.actor.name
    with directory.transaction():
        marks = json.loads(directory.lock_metadata(_SEEN, "", name, now).value) or {}
        value = canonical_json(marks | {queue.name: now})
        directory.put_metadata(MetadataEntry(_SEEN, "", name, value, now))
