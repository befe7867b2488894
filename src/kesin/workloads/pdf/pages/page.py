"""PDFs by hand: choose a template, fill in its form, see the page, make it, fetch it."""

from __future__ import annotations

import json
import secrets
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

from fastapi import FastAPI, Query, Response
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from kesin.foundation.problems import Invalid, Unknown
from kesin.lifecycle.budget import SECOND_US
from kesin.web.auth import guarded_router
from kesin.web.dashboard.forms.schema_form import SchemaForm, by_pointer, worded
from kesin.web.dashboard.forms.uploads import WideForm
from kesin.web.dashboard.frame.page import Context, PageContext, once
from kesin.web.middleware import FRAMING_CSP
from kesin.web.schemas import Cursor
from kesin.web.service import Service

if TYPE_CHECKING:
    from kesin.workloads.pdf.jobs.store import PdfJob
    from kesin.workloads.pdf.services import Tools
    from kesin.workloads.pdf.templating.library import Template

KEPT_S: Final = 120.0
MOST_KEPT: Final = 64  # of everybody, each at most as large as a form
MOST_OF_ONE: Final = 8


class Kept(NamedTuple):
    """Values somebody wants to look at."""

    owner: str
    template: str
    variables: dict[str, Any]
    until: float


class PdfDesk:
    """One for an app."""

    def __init__(self, service: Service) -> None:
        from kesin.workloads.pdf.services import Shop

        self._shop = Shop(service.house(service.workloads["pdf"]))
        self._monotonic = service.clock.monotonic
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def tools(self) -> Tools:
        """Opened at the first question; raises Unavailable with what to install."""
        return self._shop.tools

    def keep(self, owner: str, template: str, variables: dict[str, Any]) -> str:
        """The name under which these values can be looked at."""
        token = secrets.token_urlsafe(24)
        with self._lock:
            mine = [name for name, one in self._kept.items() if one.owner == owner]
            for old in mine[: max(0, len(mine) - MOST_OF_ONE + 1)]:
                del self._kept[old]
            while len(self._kept) >= MOST_KEPT:
                self._kept.popitem(last=False)
            self._kept[token] = Kept(owner, template, variables, self._monotonic() + KEPT_S)
        return token

    def kept(self, owner: str, token: str) -> Kept:
        """What lies there; another's looks like nothing."""
        with self._lock:
            found = self._kept.get(token)
            if found is None or found.owner != owner or found.until < self._monotonic():
                raise Unknown("this preview is over: change a value to see it again")
            return found


def desk_of(app: FastAPI, service: Service) -> PdfDesk:
    """The app's own."""
    return once(app, "pdf_desk", lambda: PdfDesk(service))


router = guarded_router(include_in_schema=False)

PATH: Final = "/dashboard/pdf"
JOBS: Final = 20
FAMILY: Final = {
    "queued": "waiting",
    "running": "working",
    "succeeded": "done",
    "failed": "failed",
    "expired": "expired",
}

Name = Annotated[str, Query(max_length=200)]


def admitted(looking: PageContext, action: str) -> PdfDesk:
    """The desk, if the looker may make PDFs."""
    from kesin.workloads.pdf.api.common import admit

    service = looking.service
    admit(service.house(service.workloads["pdf"]), looking.actor, action)
    return desk_of(looking.request.app, service)


@router.get(PATH, response_class=HTMLResponse)
def pdf_page(  # noqa: PLR0917  # each one is a query parameter
    looking: Context,
    template: Name = "",
    start: Literal["sample", "empty"] = "sample",
    everybody: Literal["", "1"] = "",
    cursor: Cursor = None,
    part: Literal["", "jobs"] = "",
) -> HTMLResponse:
    """The page, or its list of jobs alone."""
    desk = admitted(looking, "list")
    told = _jobs(looking, desk, everybody=bool(everybody), cursor=cursor)
    if part == "jobs":
        return looking.page("part_pdf_jobs.html", **told)
    names = _names(desk)
    chosen = template or (names[0] if names else "")
    templates = [desk.tools.book.get(name) for name in names]
    told |= {"templates": templates, "chosen": None, "worded": worded}
    if chosen:
        found = _template(desk, chosen)
        value = dict(found.sample) if start == "sample" else {}
        told |= {"chosen": found, **_form(looking, desk, found, value, as_json=False)}
        told |= _previewed(looking, desk, found, value)
    answer = looking.page("pdf.html", **told)
    answer.headers["content-security-policy"] = FRAMING_CSP
    return answer


def _names(desk: PdfDesk) -> list[str]:
    tools = desk.tools
    return [name for name in tools.book.names if name in tools.config.template_allowlist]


def _template(desk: PdfDesk, name: str) -> Template:
    if name not in _names(desk):
        raise Unknown("there is no such template here")
    return desk.tools.book.get(name)


def _form(
    looking: PageContext, desk: PdfDesk, template: Template, value: Any, *, as_json: bool
) -> dict[str, Any]:
    """The form with a value in it, and what is wrong with that."""
    problems = _problems(desk, template, value)
    form = SchemaForm(template.schema, by_pointer(iter(problems)), looking.language)
    return {
        "root": form.draw(value),
        "as_json": as_json,
        "source": json.dumps(value, ensure_ascii=False, indent=2),
        "problems": problems,
        "path": PATH,
    }


def _problems(desk: PdfDesk, template: Template, value: Any) -> list[tuple[str, str]]:
    if not isinstance(value, dict):
        return [("", "must be a JSON object")]
    return [(one.path, one.message) for one in desk.tools.book.check(template.name, value)]


def _previewed(
    looking: PageContext, desk: PdfDesk, template: Template, value: Any
) -> dict[str, str | None]:
    """Where the document with these values can be looked at, if it can."""
    if _problems(desk, template, value):
        return {"token": None}
    return {"token": desk.keep(looking.actor.name, template.name, value)}


def _typed(template: Template, fields: dict[str, str]) -> Any:
    """The value in a form that was sent, whichever way it was typed."""
    if "source" not in fields:
        return SchemaForm(template.schema).read(fields)
    try:
        return json.loads(fields["source"])
    except (ValueError, RecursionError) as problem:
        raise Invalid(f"the JSON cannot be read: {problem}", code="not_json") from None


@router.post(f"{PATH}/form", response_class=HTMLResponse)
def change_pdf_form(looking: Context, fields: WideForm) -> HTMLResponse:
    """The form with a row more or less, or as JSON and back; nothing that was typed is lost."""
    desk = admitted(looking, "preview")
    template = _template(desk, fields.get("template", ""))
    value = _typed(template, fields)
    form = SchemaForm(template.schema)
    do, _, pointer = fields.get("do", "").partition(":")
    if do == "add":
        value = form.added(value, pointer)
    elif do == "remove":
        value = form.removed(value, pointer)
    elif do not in {"json", "fields"}:
        raise Invalid("say what to change: add, remove, json or fields")
    as_json = do == "json" or ("source" in fields and do != "fields")
    told = _form(looking, desk, template, value, as_json=as_json)
    answer = looking.page("part_pdf_form.html", chosen=template, **told)
    answer.headers["HX-Trigger-After-Swap"] = "pdf-drawn"  # and the preview follows
    return answer


@router.post(f"{PATH}/preview", response_class=HTMLResponse)
def preview_pdf(looking: Context, fields: WideForm) -> HTMLResponse:
    """The document as it would be printed, or what keeps it from being printed."""
    desk = admitted(looking, "preview")
    template = _template(desk, fields.get("template", ""))
    try:
        value = _typed(template, fields)
        problems = _problems(desk, template, value)
    except Invalid as problem:
        value, problems = None, [("", problem.message)]
    if problems:
        answer = looking.page("part_pdf_problems.html", problems=problems)
        answer.headers.update({"HX-Retarget": "#pdf-problems", "HX-Reswap": "innerHTML"})
        return answer
    token = desk.keep(looking.actor.name, template.name, value)
    return looking.page("part_pdf_preview.html", token=token, path=PATH)


@router.get(f"{PATH}/preview/{{token}}")
def look_at_pdf_preview(looking: Context, token: str) -> Response:
    """The document itself: it runs nothing and loads nothing, and only its maker sees it."""
    desk = admitted(looking, "preview")
    found = desk.kept(looking.actor.name, token)
    from kesin.workloads.pdf.errors import RenderFailed
    from kesin.workloads.pdf.jobs.submit import document, template_error

    try:
        return document(desk.tools.book.html(found.template, found.variables), framed=True)
    except RenderFailed as problem:
        raise template_error(problem.message) from None


@router.post(f"{PATH}/jobs", response_class=HTMLResponse)
def make_pdf(looking: Context, fields: WideForm) -> HTMLResponse:
    """Ask for the PDF; the answer is the list with the job on top."""
    desk = admitted(looking, "create")
    template = _template(desk, fields.get("template", ""))
    from kesin.workloads.pdf.jobs.store import Submitted
    from kesin.workloads.pdf.jobs.submit import submit_job, unavailable
    from kesin.workloads.pdf.schemas import PdfJobRequest

    asked: dict[str, Any] = {
        "template_name": template.name,
        "variables": _typed(template, fields),
        "file_name": fields.get("file_name", "").strip() or None,
        "options": {
            "fail_safe": "strict",
            **({"landscape": True} if "landscape" in fields else {}),
        },
    }
    try:
        request = PdfJobRequest.model_validate(asked)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(str(one) for one in first["loc"])
        raise Invalid(f"{where}: {first['msg']}") from None
    most = looking.service.settings.pdf_max_queued
    found = submit_job(desk.tools, request, owner=looking.actor.name, max_queued=most)
    if not isinstance(found, Submitted):
        raise unavailable()
    told = {**_jobs(looking, desk, everybody=False, cursor=None), "made": found}
    return looking.page("part_pdf_jobs.html", **told)


@router.post(f"{PATH}/jobs/{{job_id}}/cancel", response_class=HTMLResponse)
def cancel_pdf(looking: Context, job_id: str) -> HTMLResponse:
    """Want a waiting job no more."""
    desk = admitted(looking, "cancel")
    from kesin.workloads.pdf.api.common import owners_job
    from kesin.workloads.pdf.jobs.submit import cancel_job

    jobs = desk.tools.jobs
    house = looking.service.house(looking.service.workloads["pdf"])
    cancel_job(house, jobs, looking.actor, owners_job(jobs, looking.actor, job_id), None)
    return looking.page("part_pdf_jobs.html", **_jobs(looking, desk, everybody=False, cursor=None))


def _jobs(
    looking: PageContext, desk: PdfDesk, *, everybody: bool, cursor: str | None
) -> dict[str, Any]:
    """Somebody's jobs, newest first; an admin may see everybody's."""
    jobs = desk.tools.jobs
    all_of_them = everybody and looking.actor.is_admin
    found, following = jobs.page(
        owner=None if all_of_them else looking.actor.name, limit=JOBS, cursor=cursor
    )
    return {
        "jobs": [(one, jobs.position(one), _advice(looking, one)) for one in found],
        "following": following,
        "everybody": all_of_them,
        "cursor": cursor,
        "path": PATH,
        "family": FAMILY,
        "made": None,
        "now_s": jobs.queue.now() / SECOND_US,
    }


def _advice(looking: PageContext, job: PdfJob) -> str:
    """What to do about a job that failed, in the looker's language."""
    from kesin.workloads.pdf.advice import describe

    if job.error_code is None:
        return ""
    told = describe(job.internal_code or job.error_code.value)[looking.language]
    return f"{told['means']} {told.get('act', '')}".strip()
