"""Submits and cancels jobs: checks the request, applies back-pressure and the fail-safe policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from fastapi import Response
from fastapi.responses import HTMLResponse

from kesin.engine.queue import Queue, apply_changes
from kesin.engine.validation import BadInput
from kesin.engine.workload import WorkloadContext
from kesin.foundation import problems as refusals
from kesin.foundation.encryption import SETTING
from kesin.foundation.messages import Message
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Invalid, Problem, Unavailable
from kesin.foundation.settings import Settings
from kesin.foundation.text import canonical_json, is_storable
from kesin.lifecycle.model import Change
from kesin.lifecycle.vocabulary import Role
from kesin.store.directory import MetadataEntry
from kesin.store.errors import StoreUnreachable
from kesin.store.metadata import metadata_for
from kesin.web.dependencies import problem_response
from kesin.workloads.pdf import errors
from kesin.workloads.pdf.config import FailSafePolicy
from kesin.workloads.pdf.jobs.dispatch import enqueue_pdf_job
from kesin.workloads.pdf.jobs.heartbeat import check_worker_health
from kesin.workloads.pdf.jobs.store import (
    UNFINISHED,
    WORKLOAD,
    PdfJob,
    PdfJobStore,
    RenderRequest,
    Submitted,
    password_mac,
)
from kesin.workloads.pdf.schemas import PdfJobRequest, PdfRenderOptions
from kesin.workloads.pdf.security import LIBRARY_CSP, validate_template
from kesin.workloads.pdf.services import PdfServices
from kesin.workloads.pdf.steps.model import Step
from kesin.workloads.pdf.storage.base import StorageError, storage_down
from kesin.workloads.pdf.uploads.store import RULE

if TYPE_CHECKING:
    from kesin.workloads.pdf.templating.library import PdfTemplate, TemplateLibrary
    from kesin.workloads.pdf.templating.variables import VariableProblem

PDF_RENDER_UNAVAILABLE: Final = "PDF_RENDER_UNAVAILABLE"
UNAVAILABLE_RETRY_S: Final = 15
BACKPRESSURE_ACTIVE: Final = "BACKPRESSURE_ACTIVE"
BACKPRESSURE_RETRY_S: Final = 30
BACKPRESSURE_KEY: Final = "back-pressure"
RESUME_SHARE: Final = 0.8  # of the limit, below which back-pressure ends
FALLBACK_HEADER: Final = "X-Pdf-Fallback"
CANCEL_MOVE: Final = "cancel"
_INVALID: Final = {errors.TEMPLATE_TOO_COSTLY, errors.PICTURES_TOO_LARGE, errors.HTML_REFUSED}
MADE_AGAIN: Final = "madeAgainAs"  # in the note of a dismissed failure


def build_render_request(services: PdfServices, body: PdfJobRequest, owner: str) -> RenderRequest:
    """Check a request and build it; raises Problem: 400 for the template, 422 for variables.

    HTML is stored as an upload, so that the job stays small.
    """
    options, pdf_only = body.options or PdfRenderOptions(), body.pdf_only
    if pdf_only and options.fail_safe is FailSafePolicy.DEGRADE:
        why = Message("must not be degrade: HTML cannot replace a PDF that has %(fields)s", fields=", ".join(pdf_only))
        raise errors.invalid_fields([("options.fail_safe", why, "fail_safe")])
    paper, given = asdict(options.paper()), options.model_fields_set
    conformance, attachments = paper.pop("conformance"), []
    del paper["finish"], paper["own_page"]
    if body.attachments or body.einvoice:
        from kesin.workloads.pdf.einvoices.attach import store_attachments

        pictures = services.library.pictures
        attachments = store_attachments(services.uploads, pictures, body, owner)
    payload = {
        "engine": options.engine,
        "paper": {**paper, "margin_mm": list(paper["margin_mm"])},
        **({"conformance": list(conformance)} if conformance else {}),
        # Only if it fails: a PDF with empty boxes must not serve such a request.
        **({"missing_glyphs": "fail"} if options.missing_glyphs == "fail" else {}),
        **({"attachments": attachments} if attachments else {}),
        **({"then": build_steps(services, body.then, owner)} if body.then else {}),
    }
    passwords = next((step.encrypt.passwords for step in body.then if step.encrypt), {})
    timeout = options.timeout if "timeout" in given else None
    metadata: dict[str, Any] = {"timeout": timeout, "file_name": body.file_name}
    metadata["webhook_url"] = body.webhook_url
    if attachments:
        metadata["sizes"] = [file.pop("bytes") for file in attachments]
        metadata["einvoice"] = body.einvoice and body.einvoice.format
    if body.link_ttl is not None:
        services.links.require_absolute()
        metadata["link_ttl"] = body.link_ttl
    own_policy = "fail_safe" in given or pdf_only
    fail_safe = options.fail_safe if own_policy else services.config.fail_safe_policy
    titled: dict[str, Any]
    name = body.template_name
    if body.source is not None:
        titled = {"title": check_html(services.library, body.source.html)}
        payload["html"], _ = services.uploads.store(owner, body.source.html.encode(), "file")
    else:
        template = check_template(services, body.template_name)
        check_variables(services, owner, body.template_name, body.variables)
        facts = _template_facts(template, pinned="@" in body.template_name)
        name, payload = template.name, payload | {"variables": body.variables, **facts}
        titled = {"fields": [*template.schema.get("properties", ())][:8]}
    metadata |= titled | {"batch": None}
    return RenderRequest(name, payload, owner, metadata, fail_safe, passwords=passwords)


def build_steps(services: PdfServices, steps: Sequence[Step], owner: str) -> list[dict[str, Any]]:
    """Check the steps of a request and build what the job keeps of them; raises Problem."""
    built: list[dict[str, Any]] = []
    for index, step in enumerate(steps):
        field, kept = f"then/{index}/{step.kind}", step.model_dump(exclude_none=True)
        part = kept[step.kind]
        if "upload" in part:
            services.uploads.require(owner, part["upload"], f"{field}/upload")
        elif "template" in part:
            name, at = part["template"], f"{field}/variables"
            template = check_template(services, name)
            check_variables(services, owner, name, part["variables"], at)
            part |= {"template": template.name, **_template_facts(template, pinned="@" in name)}
        elif step.encrypt is not None:
            if services.ring is None:
                why = Message("passwords need a key ring: set %(name)s", name=SETTING)
                raise errors.invalid_fields([(field, why, "keys")], code="NO_SECRET_KEYS")
            mac = password_mac(services.ring, owner, step.encrypt.passwords)
            allowed = {"allow": sorted({*part["allow"]})} if "allow" in part else {}
            kept["encrypt"] = {"mac": mac, **allowed}
        built.append(kept)
    return built


def _template_facts(template: PdfTemplate, *, pinned: bool) -> dict[str, Any]:
    """Return what the payload says of its template; ``version`` is the name that pins it."""
    facts: dict[str, Any] = {"template_hash": template.content_hash}
    if template.version:
        facts["version"] = f"{template.name}@{template.version}"
    return facts | ({"pinned": True} if pinned else {})


def require_template(services: PdfServices, name: str) -> PdfTemplate:
    """Return a template or a version; raises NotFound, alike for unknown and forbidden ones."""
    library, allowed = services.library, services.config.template_allowlist
    plain, pin, _ = name.partition("@")
    exists = bool(pin) or name in library.names or name in library.broken
    if not exists or not validate_template(plain, allowed):
        raise refusals.NotFound("there is no such template here")
    if name in library.broken:
        raise template_error(library.broken[name].message, library.broken[name].details)
    with problems_raised():
        return library.get(name)


def check_template(services: PdfServices, name: str) -> PdfTemplate:
    """Return the template that a request names; raises a Problem of status 400."""
    try:
        return require_template(services, name)
    except refusals.NotFound:
        named = "it is not listed in KESIN_PDF_ALLOWED_TEMPLATES"
        why = f"there is no such template here, or {named}: GET /pdf/templates lists the others"
        raise template_error(why) from None


@contextmanager
def problems_raised() -> Iterator[None]:
    """Raise Problem for what fails in the templates or in the storage."""
    try:
        yield
    except errors.RenderFailed as problem:
        raise fill_problem(problem) from None
    except StorageError:
        raise storage_down() from None


def find_problems(
    services: PdfServices, owner: str, name: str, variables: Mapping[str, Any], usable: set[str] | None = None
) -> list[VariableProblem]:
    """Return what the template cannot use of the variables of an owner; raises Problem.

    ``usable``: uploads that the owner may name, for the next variables.
    """
    from kesin.workloads.pdf.templating.variables import VariableProblem

    with problems_raised():
        try:
            usable = set() if usable is None else usable
            inserted = services.uploads.insert_pictures(owner, variables, usable)
        except Invalid as problem:
            [wrong] = problem.details["fields"]
            return [VariableProblem(wrong["field"], wrong["rule"], wrong["message"])]
        return services.library.find_problems(name, inserted)


def check_variables(
    services: PdfServices, owner: str, name: str, variables: Mapping[str, Any], at: str = "variables"
) -> None:
    """Raise Invalid with the path of every variable that the template cannot use."""
    problems = find_problems(services, owner, name, variables)
    wrong = [(at + each.path.rstrip("/"), each.message, each.rule) for each in problems]
    if not wrong and not is_storable(variables):
        wrong = [(at, "contains characters that cannot be stored", "text")]
    if wrong:
        code = {"code": "UPLOAD_NOT_FOUND"} if wrong[0][2] == RULE else {}
        raise errors.invalid_fields(wrong, **code)


def check_html(library: TemplateLibrary, html: str) -> str:
    """Return the title of HTML; raises Invalid for what is refused in it."""
    try:
        return library.inspect_html(html)
    except errors.RenderFailed as problem:
        refusal = fill_problem(problem)
        field = {"field": "source.html", "message": problem.message, "rule": "html"}
        refusal.details = {"fields": [field]}
        raise refusal from None


def template_error(message: str, details: errors.Details = None) -> Problem:
    return Problem(message, code=errors.PdfErrorCode.TEMPLATE_ERROR.value, details=details)


def fill_problem(failure: errors.RenderFailed) -> Problem:
    """Build the Problem of a failure: 422 for a limit, 503 if another try may help, else 400."""
    if failure.code in _INVALID:
        return Invalid(failure.message, code=failure.code, details=failure.details)
    if failure.code in errors.TRANSIENT_ERRORS:
        return Unavailable(failure.message, code=failure.code)
    return template_error(failure.message, failure.details)


def check_backpressure(queue: Queue, waiting: int, max_queued: int) -> None:
    """Raise TooManyRequests while too many jobs wait, until clearly fewer do (RESUME_SHARE)."""
    metadata, key = metadata_for(queue.store), (WORKLOAD, "", BACKPRESSURE_KEY)
    was_active = metadata.metadata_entry(*key) is not None
    active = waiting >= max_queued * (RESUME_SHARE if was_active else 1)
    if active and not was_active:
        metadata.put_metadata(MetadataEntry(*key, str(waiting), queue.now()))
    elif was_active and not active:
        metadata.delete_metadata(*key)
    if active:
        raise _too_many(Message("%(n)s jobs are waiting: try again later", n=waiting))


def _too_many(why: Message) -> refusals.TooManyRequests:
    code, retry_s = BACKPRESSURE_ACTIVE, BACKPRESSURE_RETRY_S
    return refusals.TooManyRequests(why, retry_after_s=retry_s, code=code)


def render_unavailable() -> Unavailable:
    why = Message("no PDF worker is running at the moment: try again in a few seconds")
    return Unavailable(why, code=PDF_RENDER_UNAVAILABLE)


def document_headers(*, framed: bool = False) -> dict[str, str]:
    """Headers of a document: no scripts, and no frames but ours, or none unless ``framed``."""
    ancestors, frames = ("'self'", "SAMEORIGIN") if framed else ("'none'", "DENY")
    policy = f"{LIBRARY_CSP}; script-src 'none'; frame-ancestors {ancestors}; sandbox"
    headers = {"Content-Security-Policy": policy, "X-Frame-Options": frames}
    return headers | {"Content-Disposition": "inline", "Cache-Control": "no-store"}


def preview_response(services: PdfServices, owner: str, name: str, variables: Mapping[str, Any]) -> Response:
    document = _fill_in(services, owner, name, variables)
    return HTMLResponse(document, headers=document_headers(framed=True))


def _fill_in(services: PdfServices, owner: str, name: str, variables: Mapping[str, Any]) -> str:
    with problems_raised():
        inserted = services.uploads.insert_pictures(owner, variables)
        return services.library.render_html(name, inserted)


def handle_unavailable(policy: FailSafePolicy, html: str | None) -> Response:
    """Build the response without a job: the library's safe HTML if the policy degrades, or 503."""
    if policy is FailSafePolicy.DEGRADE and html is not None:
        return HTMLResponse(html, headers=document_headers() | {FALLBACK_HEADER: "html"})
    return problem_response(render_unavailable(), retry_after=str(UNAVAILABLE_RETRY_S))


def repeat_request(services: PdfServices, job: PdfJob, actor: Actor) -> RenderRequest:
    """The request of a job again, with its template as it is now; dismisses a failed job."""
    if any("encrypt" in step for step in job.payload.get("then", ())):
        why = "this job's passwords are gone: send the request again"
        raise refusals.RequestConflict(why, code=errors.PdfErrorCode.PASSWORD_GONE)
    if html_id := job.payload.get("html"):
        payload, uploads = job.payload, services.uploads
        with problems_raised():  # stored again, so that it stays as long as the new job
            uploads.store(job.owner, uploads.read(job.owner, html_id), "file")
    else:
        payload, pinned = dict(job.payload), job.payload.get("pinned", False)
        version = payload.pop("version", job.template_name)
        name = version if pinned else job.template_name
        template = check_template(services, name)
        check_variables(services, job.owner, name, payload.get("variables", {}))
        payload |= _template_facts(template, pinned=pinned)
    metadata = {**(job.metadata or {}), "webhook_url": None, "batch": None}
    metadata.pop("link_ttl", None)
    settles = (job.job_id, actor.name) if job.status == "failed" else None
    return RenderRequest(job.template_name, payload, job.owner, metadata, settles=settles)


def submit_request(services: PdfServices, request: RenderRequest, limits: Settings) -> Submitted:
    """Return the job of a request, an equal one even under back-pressure; raises Problem."""
    with suppress(StoreUnreachable):  # before or after the checks
        if submitted := find_job(services, request) or create_job(services, request, limits):
            return submitted
    raise render_unavailable()


def find_job(services: PdfServices, request: RenderRequest, *, ask_storage: bool = True) -> Submitted | None:
    """Return the job that serves a request already, unless its file is lost; raises Problem."""
    if (url := request.metadata.get("webhook_url")) is not None:
        services.hooks.require_allowed(url)
    with problems_raised():
        existing = services.jobs.find_reusable(request, ask_storage=ask_storage)
    if existing is None:
        return None
    if ask_storage or existing.status in UNFINISHED:
        _follow_up(services, request, existing.job_id)
    return Submitted(existing, new=False)


def create_job(services: PdfServices, request: RenderRequest, limits: Settings) -> Submitted | None:
    """Enqueue a request; return None while no worker is running, raises Problem."""
    queue = services.jobs.queue
    stats = queue.stats()
    if not check_worker_health(queue.store, stats.now):
        return None
    check_backpressure(queue, stats.states["queued"], limits.pdf_max_queued)
    owned = stats.tenants.get(request.owner, {}).get("queued", 0)
    if owned >= limits.pdf_max_queued_per_owner:
        raise _too_many(Message("%(n)s of your jobs are waiting: try again later", n=owned))
    try:
        with queue.store.transaction():
            submitted = services.jobs.enqueue(request)
            if submitted.new and request.passwords and services.ring:
                job_id = submitted.job.job_id
                services.jobs.put_passwords(job_id, request.passwords, services.ring)
            _follow_up(services, request, submitted.job.job_id)
    except BadInput as problem:
        if problem.code == "payload_too_large":
            raise refusals.TooLarge(str(problem)) from None
        raise
    if submitted.new:
        enqueue_pdf_job(submitted.job.job_id, store=queue.store)
    return submitted


def fallback_response(services: PdfServices, request: RenderRequest) -> Response:
    """Build the response while no worker is running, or the store is unreachable."""
    html = None
    if request.fail_safe is FailSafePolicy.DEGRADE:
        name = request.payload.get("version", request.template)
        html = _fill_in(services, request.owner, name, request.payload["variables"])
    return handle_unavailable(request.fail_safe, html)


def _follow_up(services: PdfServices, request: RenderRequest, job_id: str) -> None:
    """Subscribe the webhook of a request to its job, and dismiss the failure that it makes up."""
    if (url := request.metadata.get("webhook_url")) is not None:
        link_s = request.metadata.get("link_ttl")
        services.hooks.subscribe("job", job_id, request.owner, url, link_s)
    if request.settles is not None:
        failed, actor = request.settles
        changes = [Change(failed, note=canonical_json({MADE_AGAIN: job_id}))]
        apply_changes(services.jobs.queue, "dismiss", changes, role="producer", actor=actor)


def cancel_job(context: WorkloadContext, jobs: PdfJobStore, actor: Actor, job: PdfJob, reason: str | None) -> PdfJob:
    """Cancel a waiting job, as its producer or an operator; raises RequestConflict for others."""
    owns = job.owner == actor.name
    role: Role = "producer" if owns else "operator"
    default_reason = "cancelled by its owner" if owns else "cancelled by an admin"
    details = {"reason": reason or default_reason}
    change = Change(job.job_id, note=canonical_json(details))
    with jobs.queue.store.transaction():
        [outcome] = apply_changes(jobs.queue, CANCEL_MOVE, [change], role=role, actor=actor.name)
        if outcome.result == "moved":
            jobs.forget_passwords([job.job_id])
            context.commands.accounts.note(
                actor, "pdf.cancel", queue="pdf", site=job.owner, target=job.job_id, details=details
            )
    current = jobs.get_job(job.job_id) or job
    cancelled = any(event.move == CANCEL_MOVE for event in jobs.queue.events(job.job_id))
    if outcome.result != "moved" and not cancelled:
        why = "only waiting jobs can be cancelled; this one is %(state)s"
        state = current.status.value
        raise refusals.RequestConflict(why, details={"status": state}, state=state)
    return current
