"""Dependencies of the oci routes: the site of a request, and the cron caller."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request

from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Forbidden

SiteId = Annotated[str | None, Query(alias="siteId", max_length=128)]


def require_cron(context: WorkloadContext, request: Request) -> Actor:
    """The actor that knows the cron secret; raises Forbidden for any other."""
    actor: Actor = request.state.actor
    if not actor.has("cron"):
        if actor.grants:  # an anonymous request is not logged: it could fill the log
            context.commands.accounts.note(actor, "cron.oci", allowed=False, queue="oci")
        raise Forbidden("the cron secret is not set or not this one")
    return actor
