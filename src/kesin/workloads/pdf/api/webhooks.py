"""The doors of webhooks: the owner's secret, its deliveries, and one more try."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from kesin.engine.queue import Bulk
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import iso
from kesin.foundation.ids import is_id
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Clash, Unknown
from kesin.lifecycle.model import Job
from kesin.store.records import Filter
from kesin.workloads.pdf.api.common import Asker, Cursor, admit, sent
from kesin.workloads.pdf.webhooks.delivery import promise_of
from kesin.workloads.pdf.webhooks.worker import QUEUE, Hooks

PAGE: Final = 100


class SecretBody(BaseModel):
    """What an owner's webhooks are signed with."""

    secret: str = Field(description="whsec_ and base64, as Standard Webhooks has it")


class DeliveryBody(BaseModel):
    """A webhook, promised, sent or given up."""

    id: str = Field(description="the webhook-id that the receiver sees on every try")
    kind: str | None
    subject: str | None = Field(description="the job or batch it tells of")
    host: str | None = Field(description="of the address; the rest of it may be a secret")
    state: str
    attempts: int
    next_at: str | None = Field(description="of one that is tried again")
    error: str | None
    error_message: str | None


class DeliveryPage(BaseModel):
    """Some deliveries, newest first."""

    webhooks: list[DeliveryBody]
    cursor: str | None


def hook_router(house: WorkloadContext) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["pdf"])
    hooks = Hooks(house)
    accounts = house.commands.accounts

    @router.get("/pdf/webhooks/secret", response_model=SecretBody)
    def webhook_secret(actor: Asker) -> Response:
        """What your webhooks are signed with; nobody else's are."""
        admit(house, actor, "webhook_secret")
        secret = hooks.secret(actor.name)
        accounts.note(actor, "pdf.webhook_secret", queue=QUEUE)
        return sent(SecretBody(secret=secret), cache_control="private, no-store")

    @router.get("/pdf/webhooks")
    def webhooks(actor: Asker, cursor: Cursor = None) -> DeliveryPage:
        """Your deliveries, newest first."""
        admit(house, actor, "webhooks")
        page = hooks.queue.jobs(Filter(tenants=(actor.name,)), limit=PAGE, cursor=cursor)
        return DeliveryPage(webhooks=[_told(one) for one in page.jobs], cursor=page.cursor)

    @router.post("/pdf/webhooks/{webhook_id}/resend")
    def resend_webhook(actor: Asker, webhook_id: str) -> DeliveryBody:
        """Try one again that was given up."""
        admit(house, actor, "webhook_resend", target=webhook_id)
        _owned(hooks, actor, webhook_id)

        def witness(bulk: Bulk) -> None:
            accounts.note(
                actor,
                "pdf.webhook_resend",
                queue=QUEUE,
                target=webhook_id,
                details={"moved": bulk.moved},
            )

        done = hooks.queue.act("resend", actor=actor.name, ids=[webhook_id], witness=witness)
        if not done.moved:
            raise Clash("only a webhook that was given up is sent again", code="WEBHOOK_NOT_FAILED")
        return _told(_owned(hooks, actor, webhook_id))

    return router


def _owned(hooks: Hooks, actor: Actor, webhook_id: str) -> Job:
    """The delivery, if it is the actor's or the actor is an admin; another's looks like none."""
    job = hooks.queue.job(webhook_id) if is_id(webhook_id) else None
    if job is None or not (actor.is_admin or job.tenant == actor.name):
        raise Unknown("there is no such webhook")
    return job


def _told(job: Job) -> DeliveryBody:
    promise = promise_of(job)
    return DeliveryBody(
        id=job.id,
        kind=promise and promise.kind,
        subject=promise and promise.subject,
        host=promise and urlsplit(promise.url).hostname,
        state=job.state,
        attempts=job.attempt_count,
        next_at=iso(job.run_at) if job.state == "pending" else None,
        error=job.error_code,
        error_message=job.error_message,
    )
