"""The HTTP routes: accept deliveries and report on them, with the caller's permissions."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from kesin import Actor, BadInput, Forbidden, Invalid, NotFound, NotSignedIn, WorkloadContext
from kesin_courier.schemas import Accepted, Delivery, Report
from kesin_courier.send import BadAddress, read_url


def caller(request: Request) -> Actor:
    """The caller, as the service authenticated it."""
    actor: Actor = request.state.actor
    if not actor.grants:
        raise NotSignedIn("sign in, or send an API key")
    return actor


Caller = Annotated[Actor, Depends(caller)]


def courier_router(context: WorkloadContext) -> APIRouter:
    """The workload's routes; the command layer checks permissions."""
    router = APIRouter(prefix="/api/courier", tags=["courier"])
    queue, commands = context.queue, context.commands

    @router.post("/deliveries", status_code=202)
    def accept(wanted: Delivery, actor: Caller) -> Accepted:
        """Enqueue a delivery; a worker sends it as soon as it is free."""
        commands.queue(actor, queue.name, "operate", "enqueue")
        if wanted.site not in {site.id for site in commands.accounts.sites(actor)}:
            commands.accounts.note(
                actor, "queue.enqueue", allowed=False, queue=queue.name, site=wanted.site
            )
            raise Forbidden("you have no access to this site")
        try:
            read_url(wanted.url)
            payload = {"url": wanted.url, "body": wanted.body}
            job = queue.enqueue(payload, key=wanted.key, tenant=wanted.site, actor=actor.name)
        except BadAddress as problem:
            raise Invalid(str(problem), code="bad_url", details={"field": "url"}) from None
        except BadInput as bad:
            raise Invalid(str(bad), code=bad.code, details={"field": bad.field}) from None
        commands.accounts.note(
            actor, "queue.enqueue", queue=queue.name, site=wanted.site, target=job.id
        )
        return Accepted(id=job.id, result=job.result)

    @router.get("/deliveries/{delivery_id}")
    def report(delivery_id: str, actor: Caller) -> Report:
        """The state of a delivery; 404 for deliveries of other sites."""
        history = commands.job(actor, delivery_id)
        job = history.job
        if job.queue != queue.name:
            raise NotFound(f"there is no delivery {delivery_id!r}")
        return Report(
            id=job.id,
            site=job.tenant,
            state=job.state,
            attempts=job.attempt_count,
            error_code=job.error_code,
            error_message=job.error_message,
            result=job.result,
            moves=[event.move for event in history.events],
        )

    return router
