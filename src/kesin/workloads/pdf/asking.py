"""Asking for a PDF: the checks in their order, then one job, and the promise to tell of it."""

from __future__ import annotations

from fastapi import Response

from kesin.engine.validation import BadInput
from kesin.foundation.problems import TooLarge
from kesin.store.errors import StoreUnreachable
from kesin.workloads.pdf.admission import Admission
from kesin.workloads.pdf.config import FailSafePolicy
from kesin.workloads.pdf.dispatch import enqueue_pdf_job
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.failsafe import handle_unavailable
from kesin.workloads.pdf.heartbeat import check_worker_health
from kesin.workloads.pdf.jobs import Asked
from kesin.workloads.pdf.requests import Wanted, template_error, wanted
from kesin.workloads.pdf.schemas import PdfJobRequest
from kesin.workloads.pdf.shop import Tools


def asked_for(
    tools: Tools, most_queued: int, owner: str, request: PdfJobRequest
) -> Asked | Response:
    """The job that serves a request, or what is answered while nothing renders; raises Problem.

    Who asks for what is there or on its way gets it, however long the line is and whether or not
    anybody renders: there is nothing more to do for it.
    """
    asked = wanted(tools.book, tools.config, request)
    if asked.webhook_url is not None:
        tools.hooks.check(asked.webhook_url)
    queue = tools.jobs.queue
    try:
        there = tools.jobs.serving(asked.template, asked.payload, owner=owner)
        if there is not None:
            if asked.webhook_url is not None:
                tools.hooks.promise("job", there.job_id, owner, asked.webhook_url)
            return Asked(there, new=False)
        stats = queue.stats()
        alive = check_worker_health(queue.store, stats.now)
    except RenderFailed as problem:
        raise template_error(problem.message) from None
    except StoreUnreachable:
        return _fallback(tools, asked)
    if not alive:
        return _fallback(tools, asked)
    Admission(queue, most_queued).check(stats)
    try:
        return _made(tools, owner, asked)
    except StoreUnreachable:  # gone since it was asked how many wait
        return _fallback(tools, asked)


def _made(tools: Tools, owner: str, asked: Wanted) -> Asked:
    try:
        with tools.jobs.queue.store.transaction():
            found = tools.jobs.ask(asked.template, asked.payload, owner=owner, manner=asked.manner)
            if asked.webhook_url is not None:
                tools.hooks.promise("job", found.job.job_id, owner, asked.webhook_url)
    except BadInput as problem:
        if problem.code == "payload_too_large":
            raise TooLarge(str(problem)) from None
        raise
    if found.new:
        enqueue_pdf_job(found.job.job_id, store=tools.jobs.queue.store)
    return found


def _fallback(tools: Tools, asked: Wanted) -> Response:
    html = None
    if asked.policy is FailSafePolicy.DEGRADE:
        try:
            html = tools.book.html(asked.template, asked.payload["variables"])
        except RenderFailed as problem:
            raise template_error(problem.message) from None
    return handle_unavailable(asked.policy, html)
