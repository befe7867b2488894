"""Sites: the tenants of conversions."""

from typing import Any, Final

from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kesin.engine.access.site_changes import preview_removal, remove_site
from kesin.engine.access.sites import CHANNELS, site_uuid
from kesin.foundation.problems import Invalid, RequestConflict
from kesin.web.bodies import first_value
from kesin.web.dashboard.frame.page import Context, PageContext, page_router
from kesin.web.dashboard.frame.routes import FormFields

router = page_router()
PATH: Final = "/dashboard/admin/sites"
CHANNEL_WORDS: Final = {
    "script": "a Google Ads script fetches them",
    "api": "sent through the Google Ads API",
    "data_manager": "sent through the Data Manager API",
}


@router.get(PATH, response_class=HTMLResponse)
def sites(ctx: Context) -> HTMLResponse:
    return _site_list(ctx)


@router.post(PATH, response_class=HTMLResponse)
def add(ctx: Context, fields: FormFields) -> Response:
    site_id = first_value(fields, "id")
    try:
        ctx.accounts.add_site(ctx.actor, site_id, **_read_settings(fields))
    except (Invalid, RequestConflict) as problem:
        return _site_list(ctx, problem=problem, given=fields)
    return RedirectResponse(f"{PATH}/{site_id}?done=true", status_code=303)


@router.get(PATH + "/{site_id}", response_class=HTMLResponse)
def site_page(ctx: Context, site_id: str, done: str = "") -> HTMLResponse:
    return _site_page(ctx, site_id, done=bool(done))


@router.post(PATH + "/{site_id}", response_class=HTMLResponse)
def change(ctx: Context, site_id: str, fields: FormFields) -> Response:
    try:
        ctx.accounts.set_site(ctx.actor, site_id, **_read_settings(fields))
    except Invalid as problem:
        return _site_page(ctx, site_id, problem=problem, given=fields)
    return RedirectResponse(f"{PATH}/{site_id}?done=true", status_code=303)


@router.get(PATH + "/{site_id}/removal", response_class=HTMLResponse)
def removal_dialog(ctx: Context, site_id: str) -> HTMLResponse:
    found = preview_removal(ctx.commands, ctx.actor, site_id)
    return ctx.page("sheet_remove_site.html", found=found)


@router.post(PATH + "/{site_id}/removal", response_class=HTMLResponse)
def remove(ctx: Context, site_id: str, fields: FormFields) -> Response:
    try:
        remove_site(ctx.commands, ctx.actor, site_id, first_value(fields, "confirm"))
    except (Invalid, RequestConflict) as problem:
        return _site_page(ctx, site_id, problem=problem)
    return RedirectResponse(PATH, status_code=303)


def _read_settings(fields: dict[str, list[str]]) -> dict[str, Any]:
    """The settings that were filled in; the others stay."""
    names = ("name", "channel", "timezone", "currency")
    return {name: first_value(fields, name) for name in names if first_value(fields, name)}


def _site_list(ctx: PageContext, **outcome: Any) -> HTMLResponse:
    ctx.accounts.require(ctx.actor, "admin", "site.list")
    return _page(ctx, "admin_sites.html", sites=ctx.accounts.sites(ctx.actor), **outcome)


def _site_page(ctx: PageContext, site_id: str, **outcome: Any) -> HTMLResponse:
    site = ctx.accounts.site(ctx.actor, site_id)
    return _page(ctx, "admin_site.html", site=site, uuid=site_uuid(site.id), **outcome)


def _page(ctx: PageContext, template: str, **values: Any) -> HTMLResponse:
    channels = [(name, ctx.say(CHANNEL_WORDS[name])) for name in CHANNELS]
    return ctx.page(template, tab="sites", channels=channels, **values)
