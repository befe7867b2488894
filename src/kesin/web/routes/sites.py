"""Sites and their keys: for admins, except for the list, in which all find their own sites."""

import json
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, Field

from kesin.engine.access import site_changes
from kesin.engine.access.site_changes import RemovalPreview
from kesin.engine.access.sites import site_uuid
from kesin.foundation.clock import iso
from kesin.foundation.permissions import Scope
from kesin.foundation.problems import NotFound
from kesin.store.directory import ApiKey, Site
from kesin.store.limits import MAX_TENANT
from kesin.web.auth import GuardedRouter, service_of
from kesin.web.dependencies import UNCACHED, SignedInActor, json_response
from kesin.web.schemas import Name, Strict, Text

router = GuardedRouter(prefix="/api", tags=["sites"])
Id = Annotated[str, Path(min_length=1, max_length=MAX_TENANT)]
Confirmation = Annotated[str, Query(max_length=MAX_TENANT, description="the site's id again")]


class SiteBody(BaseModel):
    """A site."""

    id: str
    uuid: str  # its other name
    name: str
    channel: str
    timezone: str
    currency: str
    settings: dict[str, Any] | None = Field(default=None, description="settings of its workloads")


class SiteChange(Strict):
    """The fields to change; omitted fields do not change."""

    name: Name | None = None
    channel: Text | None = None
    timezone: Text | None = None
    currency: Text | None = None


class NewSite(SiteChange):
    """A new site."""

    id: Name
    like: Name | None = Field(default=None, description="the site to copy settings from")


class NewKey(Strict):
    """A new key for one site."""

    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=20)]
    days: int | None = Field(default=None, ge=1, le=3_650, description="does not expire if omitted")


class SiteKey(BaseModel):
    """A key of a site."""

    id: str
    name: str
    scopes: list[str]
    used_at: str | None
    expires_at: str | None
    revoked_at: str | None
    key: str | None = Field(default=None, description="only when the key is created")


@router.get("/sites", response_model_exclude_none=True)
def list_sites(request: Request, actor: SignedInActor) -> list[SiteBody]:
    """The sites that you may see."""
    sites = service_of(request).accounts.sites(actor)
    return [_site(site._replace(settings="null")) for site in sites]


_KNOWN: dict[int | str, Any] = {200: {"model": SiteBody, "description": "The existing site"}}


@router.post("/sites", status_code=201, response_description="A new site", responses=_KNOWN)
def post_site(request: Request, response: Response, actor: SignedInActor, body: NewSite) -> SiteBody:
    """Add a site; repeating the request returns 200 and changes nothing."""
    service, given = service_of(request), body.model_dump(exclude={"id"})
    create = site_changes.create_site
    site, is_new = create(service.accounts, service.workloads, actor, body.id, **given)
    response.status_code = 201 if is_new else 200
    return _site(site)


@router.get("/sites/{site_id}")
def show_site(request: Request, actor: SignedInActor, site_id: Id) -> SiteBody:
    """A site with its settings."""
    return _site(service_of(request).accounts.site(actor, site_id))


@router.patch("/sites/{site_id}")
def patch_site(request: Request, actor: SignedInActor, site_id: Id, body: SiteChange) -> SiteBody:
    """Change a site's name, channel, time zone or currency."""
    return _site(service_of(request).accounts.set_site(actor, site_id, **body.model_dump()))


@router.get("/sites/{site_id}/removal")
def show_removal(request: Request, actor: SignedInActor, site_id: Id) -> RemovalPreview:
    """What removing the site would delete, and the open jobs that prevent it."""
    return site_changes.preview_removal(service_of(request).commands, actor, site_id)


@router.delete("/sites/{site_id}")
def delete_site(request: Request, actor: SignedInActor, site_id: Id, confirm: Confirmation = "") -> RemovalPreview:
    """Remove a site with its keys and credentials; refused while it has open jobs."""
    return site_changes.remove_site(service_of(request).commands, actor, site_id, confirm)


@router.get("/sites/{site_id}/keys")
def list_keys(request: Request, actor: SignedInActor, site_id: Id) -> list[SiteKey]:
    """The keys of this site, including revoked keys."""
    return [_key(key) for key in service_of(request).accounts.keys(actor) if key.site == site_id]


@router.post("/sites/{site_id}/keys", status_code=201, response_model=SiteKey)
def post_key(request: Request, actor: SignedInActor, site_id: Id, body: NewKey) -> Response:
    """Create a key for this site; only this response contains it."""
    create, given = service_of(request).accounts.create_key, body.model_dump()
    key, record = create(actor, **given, site=site_id)
    return json_response(_key(record, key), 201, cache_control=UNCACHED)


@router.delete("/sites/{site_id}/keys/{key_id}")
def delete_key(request: Request, actor: SignedInActor, site_id: Id, key_id: Id) -> SiteKey:
    """Revoke a key of this site; it stays in the list."""
    accounts = service_of(request).accounts
    own = [key for key in accounts.keys(actor) if (key.id, key.site) == (key_id, site_id)]
    if not own:
        raise NotFound("there is no such key")
    accounts.revoke_key(actor, key_id)
    return _key(accounts.directory.api_key(key_id) or own[0])


def _site(site: Site) -> SiteBody:
    more = {"uuid": site_uuid(site.id), "settings": json.loads(site.settings)}
    return SiteBody(**site._asdict() | more)


def _key(record: ApiKey, key: str | None = None) -> SiteKey:
    times = {name: iso(value) for name, value in record._asdict().items() if name.endswith("_at")}
    return SiteKey(id=record.id, name=record.name, scopes=list(record.scopes), key=key, **times)
