"""Who stands at the door: the actor the service found out, or the cron caller."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request

from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import NotSignedIn, Refused


async def asker(request: Request) -> Actor:
    """Whoever asks; one without any right is sent to sign in."""
    actor: Actor = request.state.actor
    if not actor.grants:
        raise NotSignedIn("sign in, or send a key as x-api-key or Authorization: Bearer")
    return actor


async def whole_body(request: Request) -> bytes:
    """The body as it came: it may be spelled in several ways."""
    return await request.body()


Asker = Annotated[Actor, Depends(asker)]
Body = Annotated[bytes, Depends(whole_body)]
SiteId = Annotated[str | None, Query(alias="siteId", max_length=128)]


def cron_caller(house: WorkloadContext, request: Request) -> Actor:
    """Whoever knows the cron secret; anybody else is refused."""
    actor: Actor = request.state.actor
    if not actor.has("cron"):
        if actor.grants:  # nobody is not worth a line, and could fill the log
            house.commands.accounts.note(actor, "cron.oci", allowed=False, queue="oci")
        raise Refused("the cron secret is not set or not this one")
    return actor
