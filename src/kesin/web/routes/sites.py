"""The sites somebody may know of."""

from __future__ import annotations

from fastapi import Request

from kesin.engine.access.sites import site_uuid
from kesin.web import schemas
from kesin.web.auth import Asker, guarded_router, service_of

router = guarded_router(prefix="/api", tags=["sites"])


@router.get("/sites")
def list_sites(request: Request, actor: Asker) -> list[schemas.SiteBody]:
    """Your sites."""
    return [
        schemas.SiteBody(
            id=one.id,
            uuid=site_uuid(one.id),
            name=one.name,
            channel=one.channel,
            timezone=one.timezone,
            currency=one.currency,
        )
        for one in service_of(request).accounts.sites(actor)
    ]
