"""Routes for webhooks: the owner's secret, list deliveries, resend."""

from typing import Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from kesin.engine.bulk import BulkResult
from kesin.foundation.clock import iso
from kesin.foundation.problems import RequestConflict
from kesin.lifecycle.model import Job
from kesin.store.records import Filter
from kesin.web.auth import GuardedRouter
from kesin.web.dependencies import UNCACHED, SignedInActor, json_response
from kesin.web.schemas import Cursor
from kesin.workloads.pdf.api.common import find_owned, require_access
from kesin.workloads.pdf.services import PdfServiceLoader
from kesin.workloads.pdf.webhooks.worker import QUEUE, Webhooks, parse_subscription

PAGE_SIZE: Final = 100


class SecretBody(BaseModel):
    """The secret that signs an owner's webhooks."""

    secret: str = Field(description="`whsec_` followed by base64, as in Standard Webhooks")


class DeliveryBody(BaseModel):
    """A webhook: waiting, delivered or failed."""

    id: str = Field(description="the `webhook-id` header, the same in every attempt")
    kind: str | None
    subject: str | None = Field(description="the job or batch that the webhook reports on")
    host: str | None = Field(description="only the URL's host, as its path may be secret")
    state: str
    attempts: int
    next_at: str | None = Field(description="time of the next attempt; only while `pending`")
    error: str | None
    error_message: str | None


class DeliveryPage(BaseModel):
    """A page of webhooks, newest first."""

    webhooks: list[DeliveryBody]
    cursor: str | None


def webhook_router(loader: PdfServiceLoader) -> APIRouter:
    router, context = GuardedRouter(tags=["pdf"]), loader.context
    webhook_service = Webhooks(context)
    accounts = context.commands.accounts

    @router.get("/pdf/webhooks/secret", response_model=SecretBody)
    def webhook_secret(actor: SignedInActor) -> Response:
        """The secret that signs your webhooks; each owner has a different secret."""
        require_access(context, actor, "webhook_secret")
        secret = webhook_service.secret(actor.name)
        accounts.note(actor, "pdf.webhook_secret", queue=QUEUE)
        return json_response(SecretBody(secret=secret), cache_control=UNCACHED)

    @router.get("/pdf/webhooks")
    def webhooks(actor: SignedInActor, cursor: Cursor = None) -> DeliveryPage:
        """Your webhooks, newest first."""
        require_access(context, actor, "webhooks")
        where = Filter(tenants=(actor.name,))
        page = webhook_service.queue.jobs(where, limit=PAGE_SIZE, cursor=cursor)
        return DeliveryPage(webhooks=list(map(_delivery_body, page.jobs)), cursor=page.cursor)

    @router.post("/pdf/webhooks/{webhook_id}/resend")
    def resend_webhook(actor: SignedInActor, webhook_id: str) -> DeliveryBody:
        """Send a failed webhook again."""
        require_access(context, actor, "webhook_resend", target=webhook_id)
        queue, by = webhook_service.queue, actor.name
        find_owned(queue, actor, webhook_id, "webhook")

        def audit(bulk: BulkResult) -> None:
            details, action = {"moved": bulk.moved}, "pdf.webhook_resend"
            accounts.note(actor, action, queue=QUEUE, target=webhook_id, details=details)

        if not queue.act("resend", actor=by, ids=[webhook_id], in_transaction=audit).moved:
            why = "only a failed webhook can be sent again"
            raise RequestConflict(why, code="WEBHOOK_NOT_FAILED")
        return _delivery_body(find_owned(queue, actor, webhook_id, "webhook"))

    return router


def _delivery_body(job: Job) -> DeliveryBody:
    subscription = parse_subscription(job)
    return DeliveryBody(
        id=job.id,
        kind=subscription and subscription.kind,
        subject=subscription and subscription.subject,
        host=subscription and urlsplit(subscription.url).hostname,
        state=job.state,
        attempts=job.attempt_count,
        next_at=iso(job.run_at) if job.state == "pending" else None,
        error=job.error_code,
        error_message=job.error_message,
    )
