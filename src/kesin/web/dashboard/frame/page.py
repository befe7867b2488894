"""A page: who looks at it, in which language and theme, and what workloads bring to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple, TypeVar
from urllib.parse import quote
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment
from markupsafe import Markup, escape

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands, JobDetails
from kesin.engine.access.listing import plain_key, titles_of
from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Problem, Unavailable
from kesin.lifecycle.model import Job
from kesin.store.directory import Site
from kesin.store.errors import StoreUnreachable
from kesin.store.limits import MAX_TENANT
from kesin.store.records import QueueStats
from kesin.web.auth import NOBODY, GuardedRouter, SignInRequired, service_of
from kesin.web.bodies import requires_sign_in
from kesin.web.dashboard.frame.formatting import UTC, shown_zone, zone_named
from kesin.web.dashboard.frame.i18n import Catalogue, Language, choose_language, translate
from kesin.web.failures import FailureGroup
from kesin.web.health import HealthCheck
from kesin.web.service import Service

LANGUAGE_COOKIE: Final = "kesin_language"
THEME_COOKIE: Final = "kesin_theme"
ZONE_COOKIE: Final = "kesin_zone"  # the browser's time zone, which a script stores
CLOCK_COOKIE: Final = "kesin_clock"  # whose time pages show
CLOCKS: Final = ("mine", "utc", "site")  # what the time switch offers; the first is the default
THEMES: Final = ("auto", "light", "dark")
SITES_PATH: Final = "/dashboard/site/"


@dataclass(frozen=True, slots=True)
class Link:
    """A workload's own page, in the navigation or at the top of a job's page."""

    title: str
    path: str
    icon: str = ""  # a name of icons.html; empty: its workload's


@dataclass(frozen=True, slots=True)
class Panel:
    """What a workload adds to the pages of its jobs: a template and its values."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    frames: bool = False  # it shows a document in a frame
    explains: bool = False  # it says why the job stopped, in place of the dashboard


@dataclass(frozen=True, slots=True)
class JobAction:
    """An action on a job's page: a link, or a request that returns a dialog or a report.

    ``primary`` marks the action to take now. A destructive action is never primary and comes last.
    """

    label: str
    path: str
    is_link: bool = False
    fields: Mapping[str, str] = field(default_factory=dict)  # posted; without them it is a GET
    primary: bool = False
    destructive: bool = False
    hint: str = ""  # what to know before it is taken


class WorkerHeartbeat(NamedTuple):
    """A worker process that reports by itself that it is running."""

    worker: str
    seen_at: int
    is_fresh: bool
    detail: str = ""


class QueueWarning(NamedTuple):
    """Something wrong beside the jobs of a queue."""

    text: Markup
    label: str  # the same in two or three words


@dataclass(frozen=True, slots=True)
class WorkloadPages:
    """A workload's part of the dashboard. Every field is optional.

    ``package`` contains the templates in ``templates/``, named ``<workload>/<file>``, and the
    catalogues ``locale/<language>/*.po``.
    """

    package: str = ""
    routers: Sequence[APIRouter] = ()
    links: Callable[[PageContext], Sequence[Link]] = lambda *_: ()
    # The page about a site: from the site's id, and the path of the page that is open.
    site_path: Callable[[str, str], str] | None = None
    job_panel: Callable[[PageContext, JobDetails], Panel | None] | None = None
    # In place of the operator's moves of the lifecycle; asked only for those who may operate.
    job_actions: Callable[[PageContext, JobDetails], Sequence[JobAction]] | None = None
    job_link: Callable[[PageContext, Job], Link | None] = lambda *_: None  # to its place elsewhere
    waits_for: Callable[[Job], str] = lambda _: ""  # what a job between two attempts waits for
    stopped: Callable[[PageContext, Job], str] = lambda *_: ""  # why no worker takes a due job
    # Where failures of a group are dealt with; None: the dashboard offers what the queue has.
    # A link without a path: each site has its own place, for which this is asked site by site.
    triage: Callable[[PageContext, FailureGroup], Link | None] = lambda *_: None
    # Where a text is searched in what is masked in lists, for those who may reveal it.
    masked_search: Callable[[PageContext, str], Sequence[Link]] = lambda *_: ()
    heartbeats: Callable[[PageContext, Queue], Sequence[WorkerHeartbeat]] = lambda *_: ()
    warnings: Callable[[PageContext, Queue], Sequence[QueueWarning]] = lambda *_: ()
    health: Callable[[WorkloadContext], HealthCheck] | None = None  # its part of /health/ready
    overdue_after_s: int | None = None  # how long due jobs may wait without an alarm
    # Elements that refresh by themselves, by id: their requests keep no session alive.
    polling_elements: frozenset[str] = frozenset()
    icon: str = ""  # in the navigation, a name of icons.html; empty: that of any queue


@dataclass(frozen=True, slots=True)
class Frame:
    """What all pages of an app share."""

    pages: Mapping[str, WorkloadPages]
    environment: Callable[[Language], Environment]
    catalogue: Callable[[Language], Catalogue]


@dataclass(frozen=True, slots=True)
class PageContext:
    """A request for a page, with its user, language, theme and time zone."""

    request: Request
    actor: Actor
    catalogue: Catalogue
    theme: str
    zone: ZoneInfo = UTC  # the browser's
    clock: str = CLOCKS[0]  # whose time the user chose

    @property
    def service(self) -> Service:
        return service_of(self.request)

    @property
    def commands(self) -> Commands:
        return self.service.commands

    @property
    def accounts(self) -> Accounts:
        return self.service.accounts

    @property
    def frame(self) -> Frame:
        frame: Frame = self.request.app.state.frame
        return frame

    @property
    def language(self) -> Language:
        return self.catalogue.language

    @property
    def in_part(self) -> bool:
        """Whether the request is for part of a page that is already open."""
        headers = self.request.headers
        restored = headers.get("hx-history-restore-request") == "true"  # going back: a whole page
        return headers.get("hx-request") == "true" and not restored

    def workload(self, name: str) -> WorkloadContext:
        """The context of a workload of this service."""
        return self.service.workload_context(name)

    def pages_of(self, queue: str) -> WorkloadPages:
        """The dashboard parts of a queue's workload."""
        return self.frame.pages.get(queue, _NO_PAGES)

    def sees_all(self, queue: Queue) -> bool:
        """Whether the user may see all jobs of a queue, and therefore figures about all of them."""
        return self.commands.visible_sites(self.actor, queue.name) is None

    def say(self, sentence: str, **values: Any) -> str:
        """A sentence from the dashboard in the user's language."""
        text = self.catalogue.gettext(sentence)
        return text % values if values else text

    def stats(self, queue: Queue, site: str = "") -> QueueStats:
        """The counts that the user may see; read once per request, for the page and its frame."""
        read: dict[str, QueueStats] = self.request.scope.setdefault("kesin.stats", {})
        if queue.name not in read:
            read[queue.name] = queue.stats()
        return self.commands.visible_stats(self.actor, read[queue.name], site=site or None)

    def totals(self, queue: Queue, *, oldest: bool = False) -> QueueStats:
        """Like `stats` without tenants, and cheaper; counts only jobs that the user may see."""
        read: dict[str, QueueStats] = self.request.scope.setdefault("kesin.stats", {})
        if queue.name in read or not self.sees_all(queue):
            return self.stats(queue)
        key = f"totals {queue.name}"
        if oldest or key not in read:
            read[key] = queue.totals(oldest=oldest)
        return read[key]

    def sites(self, queue: str) -> list[Site]:
        """The sites whose jobs in a queue the user may see; read once per request."""
        scope, visible = self.request.scope, self.actor.sites_in(queue)
        if "kesin.sites" not in scope:
            scope["kesin.sites"] = self.accounts.sites(self.actor)
        return [one for one in scope["kesin.sites"] if visible is None or one.id in visible]

    def title_of(self, queue: str) -> str:
        """The display name of a queue."""
        workload = self.service.workloads.get(queue)
        return self.say(workload.title) if workload and workload.title else queue

    def job_name(self, job: Job) -> str:
        """The display name of a job; empty if it has only a key or an id."""
        return titles_of(self.commands, job.queue)(job)

    def job_names(self, queue: str, ids: Sequence[str]) -> dict[str, str]:
        """Masked titles or keys of these jobs, if the user may see them; in one query."""
        named = dict[str, str]()
        if queue in self.commands.queues and ids:
            with suppress(StoreUnreachable):  # their ids are shown
                title = titles_of(self.commands, queue)
                jobs = self.commands.find(self.actor, queue, ids)
                named = {job.id: title(job) or plain_key(job) for job in jobs}
        return named

    def tell(self, message: str | None) -> Markup:
        """A message from a lower layer; without a translation, it is marked as English."""
        text = translate(self.catalogue, message) if message else ""
        if text is None:
            return Markup('<span lang="en">{}</span>').format(message)
        return escape(text)

    def page(
        self, template: str, *, status: int | None = None, headers: Mapping[str, str] | None = None, **values: Any
    ) -> HTMLResponse:
        """Fill in the template; every value is escaped. A ``problem`` sets the status.

        A form's outcome is in ``problem`` (with the entered values in ``given``), ``secret`` or
        ``done``; ``errors`` are shown next to their fields.
        """
        problem: Problem | None = values.get("problem")
        no_outcome: dict[str, Any] = {"problem": None, "given": {}, "secret": None, "done": False}
        no_outcome["errors"] = field_errors(problem) if problem else {}
        found = self.frame.environment(self.language).get_template(template)
        # Without a switch the store does not respond: no site is asked for.
        site = None if "switch" in values else self._site(values.get("job"))
        clocks = {"mine": self.zone, "utc": UTC}
        clocks |= {"site": zone_named(site.timezone)} if site else {}
        zone = clocks.get(self.clock, self.zone)
        token = shown_zone.set(zone)
        try:
            text = found.render(ctx=self, clocks=clocks, zone=zone, **no_outcome | values)
        finally:
            shown_zone.reset(token)
        status = status or (problem.status if problem else 200)
        usual = {"Cache-Control": "no-store", "Vary": "HX-Request, Cookie"}
        of_problem = problem.headers if problem else {}
        return HTMLResponse(text, status, {**usual, **of_problem, **(headers or {})})

    def _site(self, job: Job | None) -> Site | None:
        """The site that the page is about, if the user may see it."""
        actor = self.actor
        sees_all = actor.is_admin or (actor.all_sites and actor.has("read"))
        about = current_site(self)
        if not about and job and self.commands.workload(job.queue).has_sites:
            about = job.tenant
        if not about and not sees_all and len(actor.sites) == 1:
            [about] = actor.sites
        site = self.accounts.find_site(about) if about else None
        return site if site and (sees_all or site.id in actor.sites) else None


def current_site(ctx: PageContext) -> str:
    """The site that the address names; empty when the page is about all of them."""
    path = ctx.request.url.path
    if path.startswith(SITES_PATH):
        return path.removeprefix(SITES_PATH).partition("/")[0]
    return ctx.request.query_params.get("site", "").strip()[:MAX_TENANT]


def field_errors(problem: Problem) -> dict[str, list[str]]:
    """The messages of a problem by the field that each is about."""
    errors: dict[str, list[str]] = {}
    one = {"field": problem.details.get("field"), "message": problem.message}
    for row in problem.details.get("fields") or ([one] if one["field"] else ()):
        errors.setdefault(str(row["field"]), []).append(row["message"])
    return errors


_NO_PAGES: Final = WorkloadPages()
_T = TypeVar("_T")
_state_lock = threading.Lock()


def app_state(app: FastAPI, name: str, make: Callable[[], _T]) -> _T:
    """What pages keep in their app under this name; made at the first use, once."""
    with _state_lock:
        if not hasattr(app.state, name):
            setattr(app.state, name, make())
        value: _T = getattr(app.state, name)
        return value


@requires_sign_in
async def page_context(request: Request) -> PageContext:
    """The context of the signed-in user; other callers are redirected to the sign-in page."""
    actor: Actor = request.state.actor
    if not actor.grants:
        raise SignInRequired
    return any_context(request)


def any_context(request: Request) -> PageContext:
    language = choose_language(request.cookies.get(LANGUAGE_COOKIE), request.headers.get("accept-language", ""))
    catalogue = request.app.state.frame.catalogue(language)
    theme = request.cookies.get(THEME_COOKIE, "auto")
    actor = getattr(request.state, "actor", NOBODY)
    zone = zone_named(request.cookies.get(ZONE_COOKIE, "UTC"))
    clock = request.cookies.get(CLOCK_COOKIE, CLOCKS[0])
    return PageContext(request, actor, catalogue, theme if theme in THEMES else "auto", zone, clock)


Context = Annotated[PageContext, Depends(page_context)]


def page_router() -> APIRouter:
    """A router for pages: it identifies the user, and its routes are not part of the API."""
    return GuardedRouter(include_in_schema=False)


def redirect_to_sign_in(request: Request) -> Response:
    """To the sign-in page, and back here afterwards; a part of a page sends the whole one."""
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.headers.get("hx-request") == "true":
        whole = request.headers.get("hx-current-url", "")
        back = "/" + whole.split("/", 3)[3] if whole.count("/") > 2 else "/dashboard"  # noqa: PLR2004
        return Response(status_code=204, headers={"HX-Redirect": f"/sign-in?next={quote(back)}"})
    return RedirectResponse(f"/sign-in?next={quote(here)}", status_code=303)


def problem_page(request: Request, problem: Problem, *, status: int | None = None, bare: bool = False) -> HTMLResponse:
    """A page that says what went wrong; a bare one asks the store nothing."""
    ctx = any_context(request)
    template = "part_problem.html" if ctx.in_part else "problem.html"
    # When the store does not respond, neither do the counts of the navigation.
    without_counts: dict[str, Any] = {"nav": [], "switch": None}
    values = without_counts if bare or isinstance(problem, Unavailable) else {}
    if bare:
        values["nav_below"] = []
    return ctx.page(template, status=status, problem=problem, **values)
