"""Sites: the tenants of conversions."""

from __future__ import annotations

from typing import Final

from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse, Response

from kesin.engine.access.sites import CHANNELS, site_uuid
from kesin.foundation.problems import Problem, Refused, Unknown
from kesin.web.auth import guarded_router
from kesin.web.dashboard.admin.users import Fields, one
from kesin.web.dashboard.frame.page import Context, PageContext

router = guarded_router(include_in_schema=False)
PATH: Final = "/dashboard/admin/sites"
CHANNEL_WORDS: Final = {
    "script": "a Google Ads script fetches them",
    "api": "sent through the Google Ads API",
    "data_manager": "sent through the Data Manager API",
}


@router.get(PATH, response_class=HTMLResponse)
def sites(looking: Context) -> HTMLResponse:
    """Every site, and a form for one more."""
    return _list(looking)


@router.post(PATH, response_class=HTMLResponse)
def add(looking: Context, fields: Fields) -> Response:
    """A new site."""
    site_id = one(fields, "id")
    try:
        looking.service.accounts.add_site(looking.actor, site_id, **_given(fields))
    except Refused:
        raise
    except Problem as problem:
        return _list(looking, problem=problem, fields=fields)
    return RedirectResponse(f"{PATH}/{site_id}?done=true", status_code=303)


@router.get(PATH + "/{site_id}", response_class=HTMLResponse)
def site_page(looking: Context, site_id: str, done: str = "") -> HTMLResponse:
    """One site."""
    return _one(looking, site_id, done=bool(done))


@router.post(PATH + "/{site_id}", response_class=HTMLResponse)
def change(looking: Context, site_id: str, fields: Fields) -> Response:
    """Another name, channel, time zone or currency."""
    try:
        looking.service.accounts.set_site(looking.actor, site_id, **_given(fields))
    except (Refused, Unknown):
        raise
    except Problem as problem:
        return _one(looking, site_id, problem=problem)
    return RedirectResponse(f"{PATH}/{site_id}?done=true", status_code=303)


def _given(fields: dict[str, list[str]]) -> dict[str, str]:
    """What was filled in; the rest keeps what it has."""
    names = ("name", "channel", "timezone", "currency")
    return {name: one(fields, name) for name in names if one(fields, name)}


def _list(
    looking: PageContext,
    *,
    problem: Problem | None = None,
    fields: dict[str, list[str]] | None = None,
) -> HTMLResponse:
    accounts = looking.service.accounts
    accounts.require(looking.actor, "admin", "site.list")
    return looking.page(
        "admin_sites.html",
        status=problem.status if problem else 200,
        tab="sites",
        sites=accounts.sites(looking.actor),
        channels=_channels(looking),
        problem=problem,
        given=fields or {},
    )


def _one(
    looking: PageContext,
    site_id: str,
    *,
    problem: Problem | None = None,
    done: bool = False,
) -> HTMLResponse:
    accounts = looking.service.accounts
    accounts.require(looking.actor, "admin", "site.show", site=site_id)
    found = accounts.directory.site(site_id)
    if found is None:
        raise Unknown("there is no such site")
    return looking.page(
        "admin_site.html",
        status=problem.status if problem else 200,
        tab="sites",
        site=found,
        uuid=site_uuid(found.id),
        channels=_channels(looking),
        problem=problem,
        done=done,
    )


def _channels(looking: PageContext) -> list[tuple[str, str]]:
    return [(name, looking.say(CHANNEL_WORDS[name])) for name in CHANNELS]
