"""From the body of a request to a RenderRequest, checked against the template."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fastapi import Response
from fastapi.responses import HTMLResponse, JSONResponse

from kesin.engine.queue import Queue
from kesin.engine.validation import BadInput
from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Clash, Invalid, Problem, TooLarge, TooMany, Unavailable
from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Change
from kesin.lifecycle.vocabulary import Role
from kesin.store.directory import Fact
from kesin.store.errors import StoreUnreachable
from kesin.store.metadata import facts_of
from kesin.store.records import QueueStats
from kesin.workloads.pdf.config import FailSafePolicy, PdfRenderConfig
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.jobs.dispatch import enqueue_pdf_job
from kesin.workloads.pdf.jobs.heartbeat import check_worker_health
from kesin.workloads.pdf.jobs.stats import WORKLOAD
from kesin.workloads.pdf.jobs.store import (
    PdfJob,
    PdfJobStatus,
    PdfJobStore,
    RenderRequest,
    Submitted,
)
from kesin.workloads.pdf.schemas import PdfJobRequest, PdfRenderOptions
from kesin.workloads.pdf.security import LIBRARY_CSP, validate_template
from kesin.workloads.pdf.services import Tools

if TYPE_CHECKING:
    from kesin.workloads.pdf.templating.library import TemplateBook


def render_request(
    book: TemplateBook, config: PdfRenderConfig, body: PdfJobRequest, owner: str
) -> RenderRequest:
    """Raises Problem: 400 for the template, 422 for its variables."""
    check_template(book, config, body.template_name)
    check_variables(book, body.template_name, body.variables)
    options = body.options or PdfRenderOptions()
    paper = options.paper().told()
    return RenderRequest(
        template=body.template_name,
        payload={
            "variables": body.variables,
            "engine": options.engine,
            "paper": {**paper, "margin_mm": list(paper["margin_mm"])},
            "template_hash": book.get(body.template_name).content_hash,
        },
        owner=owner,
        manner={
            "timeout": options.timeout if "timeout" in options.model_fields_set else None,
            "file_name": body.file_name,
            "webhook_url": body.webhook_url,
            "batch": None,
        },
        fail_safe=(
            options.fail_safe
            if "fail_safe" in options.model_fields_set
            else config.fail_safe_policy
        ),
    )


def usable(book: TemplateBook, config: PdfRenderConfig, name: str) -> bool:
    """Whether there is such a template and it may be used."""
    return validate_template(name, config.template_allowlist) and name in book


def check_template(book: TemplateBook, config: PdfRenderConfig, name: str) -> None:
    """Unknown and not allowed look the same from outside."""
    if not usable(book, config, name):
        raise template_error("there is no such template here: GET /pdf/templates lists them")


def check_variables(book: TemplateBook, name: str, variables: Mapping[str, Any]) -> None:
    """Raise Invalid with the path of everything the template cannot work with."""
    try:
        found = book.check(name, variables)
    except RenderFailed as problem:
        raise template_error(problem.message) from None
    if found:
        raise _invalid((one.path, one.message, one.rule) for one in found)
    if canonical_json(variables) != unmended(variables):
        raise _invalid([("", "holds characters that cannot be stored", "text")])


def unmended(value: Mapping[str, Any]) -> str:
    """As the queue would spell it if a database could keep every character."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def template_error(message: str) -> Problem:
    """The template's fault, in the seed's word."""
    return Problem(message, code=PdfErrorCode.TEMPLATE_ERROR.value)


def _invalid(problems: Iterable[tuple[str, str, str]]) -> Invalid:
    fields = [
        {"field": f"variables{path.rstrip('/')}", "message": message, "rule": rule}
        for path, message, rule in problems
    ]
    return Invalid(f"{fields[0]['field']} {fields[0]['message']}", details={"fields": fields})


BACKPRESSURE_FACT: Final = "back-pressure"
BACKPRESSURE_ACTIVE: Final = "BACKPRESSURE_ACTIVE"
RESUME_SHARE: Final = 0.8
BACKPRESSURE_RETRY_S: Final = 30


@dataclass(slots=True)
class Backpressure:
    """Whether a new job may come in."""

    queue: Queue
    most: int

    def check(self, stats: QueueStats | None = None) -> None:
        """Raise TooMany while the line is too long; it must get clearly shorter to open again."""
        facts = facts_of(self.queue.store)
        waiting = (stats or self.queue.stats()).states["queued"]
        closed = facts.fact(WORKLOAD, "", BACKPRESSURE_FACT) is not None
        if not closed and waiting >= self.most:
            facts.put_fact(Fact(WORKLOAD, "", BACKPRESSURE_FACT, str(waiting), self.queue.now()))
            closed = True
        elif closed and waiting < self.most * RESUME_SHARE:
            facts.drop_fact(WORKLOAD, "", BACKPRESSURE_FACT)
            closed = False
        if closed:
            raise TooMany(
                f"{waiting} jobs are waiting: try again later",
                retry_after_s=BACKPRESSURE_RETRY_S,
                code=BACKPRESSURE_ACTIVE,
            )


PDF_RENDER_UNAVAILABLE: Final = "PDF_RENDER_UNAVAILABLE"
UNAVAILABLE_RETRY_S: Final = 15
FALLBACK: Final = "X-Pdf-Fallback"


def unavailable() -> Unavailable:
    """Nobody renders at the moment."""
    return Unavailable(
        "no worker renders at the moment: try again in a few seconds",
        code=PDF_RENDER_UNAVAILABLE,
    )


def document(html: str, *, framed: bool = False) -> Response:
    """A document of the book as an answer; that it runs nothing is said once more in a header.

    ``framed``: pages of ours may show it.
    """
    ancestors, frames = ("'self'", "SAMEORIGIN") if framed else ("'none'", "DENY")
    return HTMLResponse(
        html,
        headers={
            "Content-Security-Policy": f"{LIBRARY_CSP}; frame-ancestors {ancestors}; sandbox",
            "X-Frame-Options": frames,
            "Content-Disposition": "inline",
            "Cache-Control": "no-store",
        },
    )


def handle_unavailable(policy: FailSafePolicy, html: str | None) -> Response:
    """The answer in the place of a job. Degrading needs the document: without it, 503 as well.

    ``html`` is a document of the book: its values are escaped and it loads nothing.
    """
    if policy is FailSafePolicy.DEGRADE and html is not None:
        answer = document(html)
        answer.headers[FALLBACK] = "html"
        return answer
    told = unavailable()
    return JSONResponse(
        told.body(), status_code=told.status, headers={"Retry-After": str(UNAVAILABLE_RETRY_S)}
    )


def submit_job(
    tools: Tools, body: PdfJobRequest, *, owner: str, max_queued: int
) -> Submitted | Response:
    """The job that serves a request, or the fallback while no worker renders; raises Problem.

    An equal job that is ready or on its way serves the request, however many jobs wait and whether
    or not a worker renders: it needs no more work.
    """
    request = render_request(tools.book, tools.config, body, owner)
    if request.webhook_url is not None:
        tools.hooks.check(request.webhook_url)
    queue = tools.jobs.queue
    try:
        held = tools.jobs.serving(request)
        if held is not None:
            _promise_webhook(tools, request, held.job_id)
            return Submitted(held, new=False)
        stats = queue.stats()
        alive = check_worker_health(queue.store, stats.now)
    except RenderFailed as problem:
        raise template_error(problem.message) from None
    except StoreUnreachable:
        return _fallback(tools, request)
    if not alive:
        return _fallback(tools, request)
    Backpressure(queue, max_queued).check(stats)
    try:
        return _enqueue(tools, request)
    except StoreUnreachable:  # it answered a moment ago, and does not any more
        return _fallback(tools, request)


def _enqueue(tools: Tools, request: RenderRequest) -> Submitted:
    try:
        with tools.jobs.queue.store.transaction():
            submitted = tools.jobs.enqueue(request)
            _promise_webhook(tools, request, submitted.job.job_id)
    except BadInput as problem:
        if problem.code == "payload_too_large":
            raise TooLarge(str(problem)) from None
        raise
    if submitted.new:
        enqueue_pdf_job(submitted.job.job_id, store=tools.jobs.queue.store)
    return submitted


def _promise_webhook(tools: Tools, request: RenderRequest, job_id: str) -> None:
    if request.webhook_url is not None:
        tools.hooks.promise("job", job_id, request.owner, request.webhook_url)


def _fallback(tools: Tools, request: RenderRequest) -> Response:
    html = None
    if request.fail_safe is FailSafePolicy.DEGRADE:
        try:
            html = tools.book.html(request.template, request.payload["variables"])
        except RenderFailed as problem:
            raise template_error(problem.message) from None
    return handle_unavailable(request.fail_safe, html)


CANCEL: Final = "cancel"


def cancel_job(
    house: WorkloadContext, jobs: PdfJobStore, actor: Actor, job: PdfJob, reason: str | None
) -> PdfJob:
    """Cancel a waiting job and return it; raises Clash for a job that no longer waits.

    Its owner does it as its producer, an admin as an operator. The move and its line in the audit
    log are written together.
    """
    owns = job.owner == actor.name
    role: Role = "producer" if owns else "operator"
    told = {"reason": reason or ("its owner wants it no more" if owns else "cancelled by an admin")}
    change = Change(job.job_id, note=canonical_json(told))
    with jobs.queue.store.transaction():
        [outcome] = jobs.queue.apply(CANCEL, [change], role=role, actor=actor.name)
        if outcome.result == "moved":
            house.commands.accounts.note(
                actor, "pdf.cancel", queue="pdf", site=job.owner, target=job.job_id, details=told
            )
    now = jobs.get_job(job.job_id) or job
    if outcome.result != "moved" and not _was_cancelled(jobs, now):
        raise Clash(
            f"only a waiting job is cancelled, and this one is {now.status.value}",
            details={"status": now.status.value},
        )
    return now


def _was_cancelled(jobs: PdfJobStore, job: PdfJob) -> bool:
    if job.status is not PdfJobStatus.EXPIRED:
        return False
    return any(event.move == CANCEL for event in jobs.queue.events(job.job_id))
