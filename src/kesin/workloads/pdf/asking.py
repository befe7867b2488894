"""Submit a request: the checks in their order, then one job and the promise of its webhook."""

from __future__ import annotations

from fastapi import Response

from kesin.engine.validation import BadInput
from kesin.foundation.problems import TooLarge
from kesin.store.errors import StoreUnreachable
from kesin.workloads.pdf.admission import Backpressure
from kesin.workloads.pdf.config import FailSafePolicy
from kesin.workloads.pdf.dispatch import enqueue_pdf_job
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.failsafe import handle_unavailable
from kesin.workloads.pdf.heartbeat import check_worker_health
from kesin.workloads.pdf.jobs import RenderRequest, Submitted
from kesin.workloads.pdf.requests import render_request, template_error
from kesin.workloads.pdf.schemas import PdfJobRequest
from kesin.workloads.pdf.shop import Tools


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
