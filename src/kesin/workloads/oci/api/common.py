"""FastAPI dependencies of the oci routes: the signed-in actor, the raw body, the cron caller."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request

from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Forbidden, NotSignedIn


async def signed_in_actor(request: Request) -> Actor:
    """The actor of the request; raises NotSignedIn for an actor without any right."""
    actor: Actor = request.state.actor
    if not actor.grants:
        raise NotSignedIn("sign in, or send a key as x-api-key or Authorization: Bearer")
    return actor


async def raw_body(request: Request) -> bytes:
    """The unparsed body: it may be JSON, NDJSON or CSV."""
    return await request.body()


SignedInActor = Annotated[Actor, Depends(signed_in_actor)]
RawBody = Annotated[bytes, Depends(raw_body)]
SiteId = Annotated[str | None, Query(alias="siteId", max_length=128)]


def require_cron(context: WorkloadContext, request: Request) -> Actor:
    """The actor that knows the cron secret; raises Forbidden for any other."""
    actor: Actor = request.state.actor
    if not actor.has("cron"):
        if actor.grants:  # an anonymous request is not logged: it could fill the log
            context.commands.accounts.note(actor, "cron.oci", allowed=False, queue="oci")
        raise Forbidden("the cron secret is not set or not this one")
    return actor
