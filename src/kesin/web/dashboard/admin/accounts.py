"""The pages of accounts: users with their access, API keys, sites, and what all of them did."""

import json
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kesin.engine.access import site_changes
from kesin.engine.access.masking import Masking
from kesin.engine.access.sites import CHANNELS, site_uuid
from kesin.foundation.ids import is_id
from kesin.foundation.passwords import one_time_password
from kesin.foundation.permissions import ROLES, SCOPE_PURPOSES, SCOPES
from kesin.foundation.problems import Invalid, NotFound, Problem, RequestConflict
from kesin.store.audit_log import LAST_AUDIT_ID, AuditLine
from kesin.store.directory import User
from kesin.web.bodies import first_value
from kesin.web.dashboard.frame.page import Context, PageContext, page_router
from kesin.web.dashboard.frame.routes import FormFields
from kesin.web.dashboard.queues.listing import text_of

router = page_router()
PATH: Final = "/dashboard/admin/people"
KEYS_PATH: Final = "/dashboard/admin/keys"
SITES_PATH: Final = "/dashboard/admin/sites"
AUDIT_PATH: Final = "/dashboard/audit"
AUDIT_PAGE: Final = 50
AUDIT_FIELDS: Final = ("actor", "action", "queue", "site", "target")
MAX_FILTER: Final = 200  # characters
MASKING: Final = Masking()
MAX_DIGITS: Final = 5  # of a number of days
ROLE_WORDS: Final = {
    "viewer": "reads the jobs of the user's sites and queues",
    "operator": "also moves, pauses and resumes jobs",
    "admin": "has every permission, everywhere",
}
CHANNEL_WORDS: Final = {
    "script": "a Google Ads script fetches them",
    "api": "sent through the Google Ads API",
    "data_manager": "sent through the Data Manager API",
}


def require_confirmation(fields: dict[str, list[str]]) -> None:
    """Raise Invalid unless the confirmation box is ticked."""
    if first_value(fields, "sure") != "1":
        raise Invalid("tick the box to confirm", details={"field": "sure"})


@router.get(PATH, response_class=HTMLResponse)
def list_users(ctx: Context) -> HTMLResponse:
    return _user_list(ctx)


@router.post(PATH, response_class=HTMLResponse)
async def add(ctx: Context, fields: FormFields) -> Response:
    """Add a user; without a password, one is generated and shown once."""
    return await ctx.service.sign_ins.run(_add, ctx, fields)


def _add(ctx: PageContext, fields: dict[str, list[str]]) -> Response:
    name, chosen_password = first_value(fields, "name"), fields.get("password", [""])[0]
    password = chosen_password or one_time_password()
    try:
        ctx.accounts.add_user(ctx.actor, name, password, role=first_value(fields, "role"), **_read_access(fields))
    except (Invalid, NotFound, RequestConflict) as problem:
        return _user_list(ctx, problem=problem, given=fields)
    if chosen_password:
        return RedirectResponse(f"{PATH}/{name}", status_code=303)
    return _user_page(ctx, name, secret=password)


@router.get(PATH + "/{name}", response_class=HTMLResponse)
def show_user(ctx: Context, name: str, done: str = "") -> HTMLResponse:
    return _user_page(ctx, name, done=bool(done))


@router.post(PATH + "/{name}", response_class=HTMLResponse)
async def change(ctx: Context, name: str, fields: FormFields) -> Response:
    """Change role and access or the password, end the sessions, disable or enable the account."""
    return await ctx.service.sign_ins.run(_change, ctx, name, fields)


def _change(ctx: PageContext, name: str, fields: dict[str, list[str]]) -> Response:
    accounts, actor = ctx.accounts, ctx.actor
    change_kind = first_value(fields, "what")
    myself = actor.name == f"user:{name}"
    try:
        if change_kind == "may":
            accounts.user(actor, name)
            _refuse_lock_out(myself=myself and first_value(fields, "role") != "admin")
            accounts.set_user(actor, name, role=first_value(fields, "role"), **_read_access(fields))
        elif change_kind == "password":
            chosen_password = fields.get("password", [""])[0]
            password = chosen_password or one_time_password()
            accounts.set_password(actor, name, password)
            if not chosen_password and not myself:
                return _user_page(ctx, name, secret=password)
        elif change_kind == "sign_out":
            accounts.end_sessions(actor, name)
        elif change_kind in {"disable", "enable"}:
            accounts.user(actor, name)
            if change_kind == "disable":
                require_confirmation(fields)
            _refuse_lock_out(myself=myself)
            accounts.set_user(actor, name, disabled=change_kind == "disable")
        else:
            accounts.user(actor, name)
            return _user_page(ctx, name, problem=Invalid("there is no such form"))
    except (Invalid, RequestConflict) as problem:
        return _user_page(ctx, name, problem=problem, given=fields)
    return RedirectResponse(f"{PATH}/{name}?done=true", status_code=303)


def _refuse_lock_out(*, myself: bool) -> None:
    """Refuse a change by which admins would lock themselves out."""
    if myself:
        raise RequestConflict("you would lose your own access: ask another admin")


def _read_access(fields: dict[str, list[str]]) -> dict[str, Any]:
    return {
        "all_sites": first_value(fields, "all_sites") == "1",
        "sites": [site for site in fields.get("site", []) if site],
        "queues": [queue for queue in fields.get("queue", []) if queue],
    }


def _user_list(ctx: PageContext, **outcome: Any) -> HTMLResponse:
    users = ctx.accounts.users(ctx.actor)
    return ctx.page("admin_people.html", tab="people", people=users, **outcome, **_choices(ctx))


def _user_page(ctx: PageContext, name: str, **outcome: Any) -> HTMLResponse:
    user: User = ctx.accounts.user(ctx.actor, name)
    return ctx.page(
        "admin_person.html",
        tab="people",
        person=user,
        sessions=ctx.accounts.directory.sessions_of(user.name),
        myself=ctx.actor.name == f"user:{user.name}",
        now=ctx.accounts.now(),
        **outcome,
        **_choices(ctx),
    )


def _choices(ctx: PageContext) -> dict[str, Any]:
    return {
        "roles": [(role, ctx.say(ROLE_WORDS[role])) for role in ROLES],
        "sites": [site.id for site in ctx.accounts.sites(ctx.actor)],
        "queues": [(name, ctx.title_of(name)) for name in ctx.service.queues],
    }


# API keys: created, shown once, revoked


@router.get(KEYS_PATH, response_class=HTMLResponse)
def keys(ctx: Context, done: str = "") -> HTMLResponse:
    """All API keys without their secrets, and a form for a new one."""
    return _key_list(ctx, done=bool(done))


@router.post(KEYS_PATH, response_class=HTMLResponse)
def create(ctx: Context, fields: FormFields) -> HTMLResponse:
    """Create an API key; only this response shows it."""
    days = first_value(fields, "days")
    if days and not (days.isascii() and days.isdecimal() and len(days) <= MAX_DIGITS):
        problem = Invalid("a key must expire in 1…3650 days", details={"field": "days"})
        return _key_list(ctx, problem=problem, given=fields)
    try:
        name, scopes = first_value(fields, "name"), fields.get("scope", [])
        site, lasts = first_value(fields, "site") or None, int(days) if days else None
        key, created = ctx.accounts.create_key(ctx.actor, name, scopes, site=site, days=lasts)
    except (Invalid, NotFound, RequestConflict) as refusal:
        return _key_list(ctx, problem=refusal, given=fields)
    return _key_list(ctx, secret=key, kept=created)


@router.get(KEYS_PATH + "/{key_id}", response_class=HTMLResponse)
def key_page(ctx: Context, key_id: str) -> HTMLResponse:
    return _key_page(ctx, key_id)


@router.post(KEYS_PATH + "/{key_id}", response_class=HTMLResponse)
def revoke(ctx: Context, key_id: str, fields: FormFields) -> Response:
    ctx.accounts.require(ctx.actor, "admin", "key.revoke", target=key_id[:8])
    try:
        require_confirmation(fields)
    except Invalid as problem:
        return _key_page(ctx, key_id, problem=problem)
    ctx.accounts.revoke_key(ctx.actor, key_id)
    return RedirectResponse(f"{KEYS_PATH}?done=true", status_code=303)


def _key_page(ctx: PageContext, key_id: str, *, problem: Problem | None = None) -> HTMLResponse:
    keys = {key.id: key for key in ctx.accounts.keys(ctx.actor)}
    if key_id not in keys:
        raise NotFound("there is no such key")
    key, now = keys[key_id], ctx.accounts.now()
    return ctx.page("admin_key.html", tab="keys", key=key, problem=problem, now=now)


def _key_list(ctx: PageContext, **outcome: Any) -> HTMLResponse:
    keys = ctx.accounts.keys(ctx.actor)
    return ctx.page(
        "admin_keys.html",
        tab="keys",
        keys=sorted(keys, key=lambda key: (key.revoked_at is not None, -key.created_at)),
        scopes=[(scope, ctx.say(SCOPE_PURPOSES[scope])) for scope in SCOPES],
        sites=[site.id for site in ctx.accounts.sites(ctx.actor)],
        now=ctx.accounts.now(),
        **{"kept": None, **outcome},
    )


# Sites: the tenants of conversions


@router.get(SITES_PATH, response_class=HTMLResponse)
def sites(ctx: Context) -> HTMLResponse:
    return _site_list(ctx)


@router.post(SITES_PATH, response_class=HTMLResponse)
def add_site(ctx: Context, fields: FormFields) -> Response:
    site_id = first_value(fields, "id")
    try:
        ctx.accounts.add_site(ctx.actor, site_id, **_read_settings(fields))
    except (Invalid, RequestConflict) as problem:
        return _site_list(ctx, problem=problem, given=fields)
    return RedirectResponse(f"{SITES_PATH}/{site_id}?done=true", status_code=303)


@router.get(SITES_PATH + "/{site_id}", response_class=HTMLResponse)
def site_page(ctx: Context, site_id: str, done: str = "") -> HTMLResponse:
    return _site_page(ctx, site_id, done=bool(done))


@router.post(SITES_PATH + "/{site_id}", response_class=HTMLResponse)
def change_site(ctx: Context, site_id: str, fields: FormFields) -> Response:
    try:
        ctx.accounts.set_site(ctx.actor, site_id, **_read_settings(fields))
    except Invalid as problem:
        return _site_page(ctx, site_id, problem=problem, given=fields)
    return RedirectResponse(f"{SITES_PATH}/{site_id}?done=true", status_code=303)


@router.get(SITES_PATH + "/{site_id}/removal", response_class=HTMLResponse)
def removal_dialog(ctx: Context, site_id: str) -> HTMLResponse:
    found = site_changes.preview_removal(ctx.commands, ctx.actor, site_id)
    return ctx.page("sheet_remove_site.html", found=found)


@router.post(SITES_PATH + "/{site_id}/removal", response_class=HTMLResponse)
def remove_site(ctx: Context, site_id: str, fields: FormFields) -> Response:
    try:
        site_changes.remove_site(ctx.commands, ctx.actor, site_id, first_value(fields, "confirm"))
    except (Invalid, RequestConflict) as problem:
        return _site_page(ctx, site_id, problem=problem)
    return RedirectResponse(SITES_PATH, status_code=303)


def _read_settings(fields: dict[str, list[str]]) -> dict[str, Any]:
    """The settings that were filled in; the others stay."""
    names = ("name", "channel", "timezone", "currency")
    return {name: first_value(fields, name) for name in names if first_value(fields, name)}


def _site_list(ctx: PageContext, **outcome: Any) -> HTMLResponse:
    ctx.accounts.require(ctx.actor, "admin", "site.list")
    return _sites_page(ctx, "admin_sites.html", sites=ctx.accounts.sites(ctx.actor), **outcome)


def _site_page(ctx: PageContext, site_id: str, **outcome: Any) -> HTMLResponse:
    site = ctx.accounts.site(ctx.actor, site_id)
    return _sites_page(ctx, "admin_site.html", site=site, uuid=site_uuid(site.id), **outcome)


def _sites_page(ctx: PageContext, template: str, **values: Any) -> HTMLResponse:
    channels = [(name, ctx.say(CHANNEL_WORDS[name])) for name in CHANNELS]
    return ctx.page(template, tab="sites", channels=channels, **values)


# The audit log: who asked for what, and whether it was allowed


@router.get(AUDIT_PATH, response_class=HTMLResponse)
def audit(ctx: Context, before: Annotated[int, Query(ge=1, le=LAST_AUDIT_ID)] = LAST_AUDIT_ID) -> HTMLResponse:
    """The newest matching lines; ``before`` continues below a line."""
    given = ctx.request.query_params
    filters = {name: text for name in AUDIT_FIELDS if (text := text_of(given, name, MAX_FILTER))}
    page = ctx.accounts.search_audit(ctx.actor, **filters, before=before, limit=AUDIT_PAGE)
    more = f"{AUDIT_PATH}?{urlencode({**filters, 'before': page.before})}" if page.before else None
    rows = ctx.in_part and ctx.request.headers.get("hx-target", "") == "more"
    return ctx.page(
        "part_audit_rows.html" if rows else "audit.html",
        lines=[_audit_row(line) for line in page.lines],
        more=more,
        wanted=filters,
        queues=list(ctx.service.queues),
    )


def _audit_row(line: AuditLine) -> tuple[AuditLine, str, bool]:
    """The line, its details as they are shown, and whether it is about a job."""
    details = ""
    if line.details:
        details = json.dumps(MASKING.value(json.loads(line.details)), ensure_ascii=False)
    return line, details, line.queue is not None and is_id(line.target)
