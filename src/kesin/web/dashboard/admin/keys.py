"""API keys: created, shown once, revoked."""

from typing import Any, Final

from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kesin.foundation.permissions import SCOPE_PURPOSES, SCOPES
from kesin.foundation.problems import Invalid, NotFound, Problem, RequestConflict
from kesin.web.bodies import first_value
from kesin.web.dashboard.admin.users import require_confirmation
from kesin.web.dashboard.frame.page import Context, PageContext, page_router
from kesin.web.dashboard.frame.routes import FormFields

router = page_router()
PATH: Final = "/dashboard/admin/keys"
MAX_DIGITS: Final = 5


@router.get(PATH, response_class=HTMLResponse)
def keys(ctx: Context, done: str = "") -> HTMLResponse:
    """All API keys without their secrets, and a form for a new one."""
    return _key_list(ctx, done=bool(done))


@router.post(PATH, response_class=HTMLResponse)
def create(ctx: Context, fields: FormFields) -> HTMLResponse:
    """Create an API key; only this response shows it."""
    days = first_value(fields, "days")
    if days and not (days.isascii() and days.isdecimal() and len(days) <= MAX_DIGITS):
        problem = Invalid("a key lasts 1…3650 days", details={"field": "days"})
        return _key_list(ctx, problem=problem, given=fields)
    try:
        name, scopes = first_value(fields, "name"), fields.get("scope", [])
        site, lasts = first_value(fields, "site") or None, int(days) if days else None
        key, created = ctx.accounts.create_key(ctx.actor, name, scopes, site=site, days=lasts)
    except (Invalid, NotFound, RequestConflict) as refusal:
        return _key_list(ctx, problem=refusal, given=fields)
    return _key_list(ctx, secret=key, kept=created)


@router.get(PATH + "/{key_id}", response_class=HTMLResponse)
def key_page(ctx: Context, key_id: str) -> HTMLResponse:
    """One API key, before it is revoked."""
    return _key_page(ctx, key_id)


@router.post(PATH + "/{key_id}", response_class=HTMLResponse)
def revoke(ctx: Context, key_id: str, fields: FormFields) -> Response:
    """Revoke an API key for good."""
    ctx.accounts.require(ctx.actor, "admin", "key.revoke", target=key_id[:8])
    try:
        require_confirmation(fields)
    except Invalid as problem:
        return _key_page(ctx, key_id, problem=problem)
    ctx.accounts.revoke_key(ctx.actor, key_id)
    return RedirectResponse(f"{PATH}?done=true", status_code=303)


def _key_page(ctx: PageContext, key_id: str, *, problem: Problem | None = None) -> HTMLResponse:
    keys = {key.id: key for key in ctx.accounts.keys(ctx.actor)}
    if key_id not in keys:
        raise NotFound("there is no such key")
    key, now = keys[key_id], ctx.accounts.now()
    return ctx.page("admin_key.html", tab="keys", key=key, problem=problem, now=now)


def _key_list(ctx: PageContext, **outcome: Any) -> HTMLResponse:
    accounts = ctx.accounts
    keys = accounts.keys(ctx.actor)
    return ctx.page(
        "admin_keys.html",
        tab="keys",
        keys=sorted(keys, key=lambda key: (key.revoked_at is not None, -key.created_at)),
        scopes=[(scope, ctx.say(SCOPE_PURPOSES[scope])) for scope in SCOPES],
        sites=[site.id for site in accounts.sites(ctx.actor)],
        now=accounts.now(),
        **{"kept": None, **outcome},
    )
