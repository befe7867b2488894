"""The pages of a PDF: choose a template, fill in its form, preview, create, view, download."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urljoin

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from kesin.engine.access.listing import shown_title
from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid, NotFound, Problem
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Job
from kesin.store.records import Filter
from kesin.web.dashboard.forms.schema_form import SchemaForm, localized_text
from kesin.web.dashboard.forms.uploads import WideForm
from kesin.web.dashboard.frame.page import Context, PageContext, app_state, page_router
from kesin.web.dashboard.frame.routes import FirstFields
from kesin.web.dashboard.queues import listing
from kesin.web.dashboard.state_groups import state_groups
from kesin.web.middleware import FRAMING_CSP
from kesin.web.validation import validation_message
from kesin.workloads.pdf.api.common import find_owned_job, note_download, require_access
from kesin.workloads.pdf.api.download import LinkRequest, download_response, job_download, new_link
from kesin.workloads.pdf.errors import ADVICE, RenderFailed
from kesin.workloads.pdf.jobs import submit
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStatus, Submitted, parse_job, pdf_title
from kesin.workloads.pdf.schemas import PdfJobRequest
from kesin.workloads.pdf.services import PdfServiceLoader

if TYPE_CHECKING:
    from kesin.workloads.pdf.templating.library import PdfTemplate  # it needs kesin[pdf]


class ValueProblem(NamedTuple):
    """What is wrong with a value: the id of its field, what people call it, and why."""

    field: str
    label: str
    message: str


router = page_router()

PATH: Final = "/dashboard/pdf"
STEP: Final = 20  # PDFs that are read at a time, below the form
# The browser's PDF viewer is a plug-in with inline styles; nothing else is allowed.
VIEWER_CSP: Final = "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'self'"

Name = Annotated[str, Query(max_length=200)]


def require_workbench(ctx: PageContext, action: str, target: str | None = None) -> PdfServiceLoader:
    """The workbench, if the user may create PDFs."""
    require_access(ctx.workload("pdf"), ctx.actor, action, target=target)
    return app_state(ctx.request.app, "pdf_desk", lambda: PdfServiceLoader(ctx.workload("pdf")))


@router.get(PATH, response_class=HTMLResponse)
def pdf_page(
    ctx: Context,
    template: Name = "",
    start: Literal["sample", "empty"] = "sample",
    part: Literal["", "jobs", "more", "broken"] = "",
) -> HTMLResponse:
    """The page, or its list of jobs or of broken templates alone."""
    workbench = require_workbench(ctx, "list")
    if part == "broken":  # after the page: one that loops takes seconds
        unusable = workbench.services.library.find_unusable()
        return ctx.page("pdf/part_broken.html", broken=_broken_templates(workbench, unusable))
    sent = ctx.request.query_params if part == "more" else listing.NONE
    values = _job_list(ctx, workbench, sent)
    if part or ctx.in_part:
        return ctx.page(f"pdf/part_{part or 'jobs'}.html", **values)
    library, allowed = workbench.services.library, workbench.services.config.template_allowlist
    names = [name for name in library.names if name in allowed]
    broken = _broken_templates(workbench, library.broken)
    chosen = template or (names[0] if names else "")
    templates = [library.get(name) for name in names]
    values |= {"templates": templates, "chosen": None, "worded": localized_text, "broken": broken}
    values["stale"] = library.rejected.get(chosen)
    if chosen and chosen not in broken:
        selected = submit.require_template(workbench.services, chosen)
        value = dict(selected.sample_in(ctx.language)) if start == "sample" else {}
        form = TemplateForm(ctx, workbench, selected).values(value, {}, as_json=False)
        values |= {"chosen": selected, "oob": False, "rejected": False, **form}
    return ctx.page("pdf/page.html", headers={"content-security-policy": FRAMING_CSP}, **values)


def _broken_templates(workbench: PdfServiceLoader, problems: Mapping[str, RenderFailed]) -> dict[str, RenderFailed]:
    allowed = workbench.services.config.template_allowlist
    return {name: problem for name, problem in problems.items() if name in allowed}


class TemplateForm(NamedTuple):
    """The form of a template for one user."""

    ctx: PageContext
    workbench: PdfServiceLoader
    template: PdfTemplate

    @classmethod
    def submitted(cls, ctx: PageContext, fields: Mapping[str, str], action: str) -> TemplateForm:
        """The form of the template that the fields name, if the user may create PDFs."""
        workbench = require_workbench(ctx, action)
        name = fields.get("template", "")
        return cls(ctx, workbench, submit.require_template(workbench.services, name))

    @property
    def fields(self) -> SchemaForm:
        return SchemaForm(self.template.schema, language=self.ctx.language)

    def values(self, value: Any, sent: Mapping[str, str], *, as_json: bool) -> dict[str, Any]:
        """The form filled with a value, the value's problems, and what was sent beside it."""
        return {
            "root": self.fields.draw(value),
            "as_json": as_json,
            "source": json.dumps(value, ensure_ascii=False, indent=2),
            "problems": self.problems(value),
            "path": PATH,
            "file_name": sent.get("file_name", ""),
            "landscape": "landscape" in sent,
            "archive": "archive" in sent,
        }

    def problems(self, value: Any) -> list[ValueProblem]:
        if not isinstance(value, dict):
            return [ValueProblem("v", "", "must be a JSON object")]
        services, owner, form = self.workbench.services, self.ctx.actor.name, self.fields
        found = submit.find_problems(services, owner, self.template.name, value)
        pointers = ((problem.path.rstrip("/"), problem.message) for problem in found)
        return [ValueProblem(f"v{at}", form.label_of(at), message) for at, message in pointers]

    def read(self, sent: Mapping[str, str]) -> Any:
        if "source" not in sent:
            return self.fields.read(sent)
        try:
            return json.loads(sent["source"])
        except (ValueError, RecursionError) as problem:
            why = Message("the JSON cannot be read: %(problem)s", problem=problem)
            raise Invalid(why, code="not_json") from None

    def checked(self, sent: Mapping[str, str]) -> tuple[Any, list[ValueProblem]]:
        try:
            value = self.read(sent)
            return value, self.problems(value)
        except Invalid as problem:
            return None, [ValueProblem("v", "", problem.message)]


@router.post(f"{PATH}/form", response_class=HTMLResponse)
def change_pdf_form(ctx: Context, fields: WideForm) -> HTMLResponse:
    """The form with a row more or less, or as JSON and back; typed values are kept."""
    form = TemplateForm.submitted(ctx, fields, "preview")
    value = form.read(fields)
    do, _, pointer = fields.get("do", "").partition(":")
    if do == "add":
        value = form.fields.with_added(value, pointer)
    elif do == "remove":
        value = form.fields.with_removed(value, pointer)
    elif do not in {"json", "fields"}:
        raise Invalid("specify the change: add, remove, json or fields")
    as_json = do == "json" or ("source" in fields and do != "fields")
    values = form.values(value, fields, as_json=as_json)
    then = {"HX-Trigger-After-Swap": "pdf-drawn"}  # and the preview follows
    return ctx.page("pdf/part_form.html", headers=then, chosen=form.template, **values)


@router.post(f"{PATH}/preview", response_class=HTMLResponse)
def preview_pdf(ctx: Context, fields: WideForm) -> HTMLResponse:
    """A frame, which the page fills by sending the values once more; or their problems."""
    form = TemplateForm.submitted(ctx, fields, "preview")
    _, problems = form.checked(fields)
    if problems:
        return _problem_list(ctx, problems)
    stale = form.workbench.services.library.rejected.get(form.template.name)
    return ctx.page("pdf/part_preview.html", path=PATH, stale=stale, oob=True)


def _problem_list(ctx: PageContext, problems: list[ValueProblem], *, rejected: bool = False) -> HTMLResponse:
    """The problems; the page marks their fields, and goes to the first if they were submitted."""
    return ctx.page(
        "pdf/part_problems.html",
        status=422 if rejected else 200,
        headers={"HX-Retarget": "#pdf-problems", "HX-Reswap": "innerHTML"},
        problems=problems,
        rejected=rejected,
    )


@router.post(f"{PATH}/document")
def show_pdf_preview(ctx: Context, fields: WideForm) -> Response:
    """The document of these values for a frame, or why there is none: it runs and loads nothing."""
    try:
        form = TemplateForm.submitted(ctx, fields, "preview")
        value, problems = form.checked(fields)
        if not problems:
            services, name = form.workbench.services, form.template.name
            return submit.preview_response(services, ctx.actor.name, name, value)
        problem: Problem = Invalid(problems[0].message)
    except Problem as refusal:
        problem = refusal
    headers = submit.document_headers(framed=True)  # the usual page may not be shown in a frame
    return ctx.page("pdf/preview_error.html", headers=headers, problem=problem)


@router.post(f"{PATH}/jobs", response_class=HTMLResponse)
def make_pdf(ctx: Context, fields: WideForm) -> HTMLResponse:
    """Submit the PDF job; the response is the list with the job on top."""
    form = TemplateForm.submitted(ctx, fields, "create")
    value, problems = form.checked(fields)
    if problems:
        return _problem_list(ctx, problems, rejected=True)
    body: dict[str, Any] = {
        "template_name": form.template.name,
        "variables": value,
        "file_name": fields.get("file_name", "").strip() or None,
        "options": {
            "fail_safe": "strict",
            "landscape": "landscape" in fields,
            "conformance": ["pdf/a-3a", "pdf/ua-1"] if "archive" in fields else [],
        },
    }
    try:
        request = PdfJobRequest.model_validate(body)
    except ValidationError as problem:
        why = validation_message(problem.errors(include_url=False)[0])
        listed = [ValueProblem("pdf-file", ctx.say("File name"), why)]
        return _problem_list(ctx, listed, rejected=True)
    services = form.workbench.services
    asked = submit.build_render_request(services, request, ctx.actor.name)
    submitted = submit.submit_request(services, asked, ctx.service.settings)
    return ctx.page("pdf/part_jobs.html", **_job_list(ctx, form.workbench, made=submitted))


@router.post(f"{PATH}/jobs/{{job_id}}/cancel", response_class=HTMLResponse)
def cancel_pdf(ctx: Context, job_id: str, sent: FirstFields) -> HTMLResponse:
    workbench = require_workbench(ctx, "cancel")
    jobs, context = workbench.services.jobs, ctx.workload("pdf")
    submit.cancel_job(context, jobs, ctx.actor, find_owned_job(jobs, ctx.actor, job_id), None)
    return ctx.page("pdf/part_jobs.html", **_job_list(ctx, workbench, sent))


@router.post(f"{PATH}/renewal", response_class=HTMLResponse)
def renew_pdfs(ctx: Context, sent: FirstFields) -> HTMLResponse:
    """The jobs that are shown, as they are now."""
    return ctx.page("pdf/part_jobs.html", **_job_list(ctx, require_workbench(ctx, "list"), sent))


@router.get(f"{PATH}/jobs/{{job_id}}/links", response_class=HTMLResponse, name="link_dialog")
@router.post(f"{PATH}/jobs/{{job_id}}/links", response_class=HTMLResponse)
def create_link(ctx: Context, job_id: str, sent: FirstFields) -> HTMLResponse:
    """The dialog for a link and, once it is submitted, its address, which is shown only now."""
    workbench, address = require_workbench(ctx, "link", target=job_id[:64]), ""
    job = find_owned_job(workbench.services.jobs, ctx.actor, job_id)
    if ctx.request.method == "POST":
        try:
            given = {name: sent[name] for name in LinkRequest.model_fields if sent.get(name)}
            link = new_link(workbench, ctx.actor, job_id, LinkRequest.model_validate(given))
        except ValidationError as problem:
            raise Invalid(validation_message(problem.errors(include_url=False)[0])) from None
        address = urljoin(str(ctx.request.base_url), link.url)
    counted = workbench.services.links.counted(job.job_id)
    return ctx.page("pdf/sheet_link.html", job_id=job.job_id, address=address, counted=counted)


@router.post(f"{PATH}/jobs/{{job_id}}/again", response_class=HTMLResponse)
def make_pdf_again(ctx: Context, job_id: str) -> HTMLResponse:
    """Submit the request of a failed or expired job once more, for its owner."""
    services = require_workbench(ctx, "create").services
    job = find_owned_job(services.jobs, ctx.actor, job_id)
    if "html" in job.payload:
        require_access(ctx.workload("pdf"), ctx.actor, "html", scope="pdf:html")
    asked = submit.repeat_request(services, job, ctx.actor)
    submitted = submit.submit_request(services, asked, ctx.service.settings)
    return ctx.page("pdf/part_again.html", headers={"HX-Trigger": "kesin:forget"}, made=submitted)


def _job_list(
    ctx: PageContext, workbench: PdfServiceLoader, sent: Mapping[str, str] = listing.NONE, made: Submitted | None = None
) -> dict[str, Any]:
    jobs = workbench.services.jobs
    queue, stats = jobs.queue, jobs.queue.stats()
    everybody = ctx.actor.is_admin and ctx.request.query_params.get("everybody") == "1"
    owners = None if everybody else (ctx.actor.name,)
    mine = sum(stats.tenants.get(ctx.actor.name, {}).values())
    order, text = listing.order_of(ctx), listing.text_of(ctx.request.query_params, "text")
    where = Filter(tenants=owners, text=text or None, oldest_first=bool(order))
    total = None if text else stats.total if everybody else mine
    source = listing.all_jobs(ctx, queue, where, total)
    masking = ctx.commands.masking(queue.name)

    def row_of(job: Job) -> tuple[PdfJob, int | None, str, str]:
        pdf, seen = parse_job(job), masking.job(job) if everybody else job
        return pdf, jobs.position(pdf), _advice(ctx, pdf), shown_title(pdf_title(seen.payload))

    return {
        "listing": listing.shown_rows(ctx, source, sent, STEP),
        "row_of": row_of,
        "query": partial(listing.query_of, {"everybody": "1" * everybody, "text": text, "order": order}),
        "everybody": everybody,
        "of_all": stats.total,
        "text": text,
        "order": order,
        "path": PATH,
        "family": state_groups(jobs.queue.lifecycle),
        "made": made,
        "now_s": jobs.queue.now() / SECOND_US,
    }


def _advice(ctx: PageContext, job: PdfJob) -> str:
    if job.error_code is None:
        return ""
    advice = ADVICE.find(job.internal_code or job.error_code.value, language=ctx.language)
    return f"{advice.means} {advice.act}"


@router.get("/dashboard/jobs/{job_id}/paper")
def show_pdf(ctx: Context, request: Request, job_id: str) -> Response:
    """The PDF, for its owner and for admins; for others the job does not exist."""
    services = require_workbench(ctx, "download", target=job_id[:64]).services
    job = find_owned_job(services.jobs, ctx.actor, job_id)
    if job.status is not PdfJobStatus.SUCCEEDED:
        raise NotFound("this job has no PDF")
    response = download_response(services.artifacts, job_download(job), request)
    note_download(ctx.workload("pdf"), ctx.actor, "download", job_id, response, request.method)
    response.headers["content-disposition"] = "inline"
    response.headers["x-frame-options"] = "SAMEORIGIN"
    response.headers["content-security-policy"] = VIEWER_CSP
    return response
