"""The sites that the actor may see."""

from __future__ import annotations

from fastapi import Request

from kesin.engine.access.sites import site_uuid
from kesin.web import schemas
from kesin.web.auth import guarded_router, service_of
from kesin.web.dependencies import SignedInActor

router = guarded_router(prefix="/api", tags=["sites"])


@router.get("/sites")
def list_sites(request: Request, actor: SignedInActor) -> list[schemas.SiteBody]:
    """Your sites."""
    sites = service_of(request).accounts.sites(actor)
    return [schemas.SiteBody(uuid=site_uuid(site.id), **site._asdict()) for site in sites]
