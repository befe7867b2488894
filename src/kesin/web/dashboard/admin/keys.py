"""Keys of machines: made, shown once, revoked."""

from __future__ import annotations

from typing import Final

from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse, Response

from kesin.foundation.permissions import SCOPES
from kesin.foundation.problems import Invalid, Problem, Refused, Unknown
from kesin.store.directory import ApiKey
from kesin.web.auth import guarded_router
from kesin.web.dashboard.admin.users import Fields, is_sure, one
from kesin.web.dashboard.frame.page import Context, PageContext

router = guarded_router(include_in_schema=False)
PATH: Final = "/dashboard/admin/keys"
MOST_DIGITS: Final = 5
SCOPE_WORDS: Final = {
    "oci:ingest": "post conversions of its site",
    "oci:script": "export and acknowledge conversions of its site",
    "pdf": "ask for PDFs and fetch its own",
    "optiplan": "send orders and customers",
    "read": "look at jobs",
    "operate": "look at jobs and move them",
    "metrics": "read the metrics",
    "admin": "everything",
}


@router.get(PATH, response_class=HTMLResponse)
def keys(looking: Context, done: str = "") -> HTMLResponse:
    """Every key without the key itself, and a form for one more."""
    return _list(looking, done=bool(done))


@router.post(PATH, response_class=HTMLResponse)
def create(looking: Context, fields: Fields) -> HTMLResponse:
    """A new key: the answer is the only place that ever shows it."""
    try:
        days = one(fields, "days")
        if days and not (days.isascii() and days.isdecimal() and len(days) <= MOST_DIGITS):
            raise Invalid("a key lasts 1…3650 days", details={"field": "days"})
        key, kept = looking.service.accounts.create_key(
            looking.actor,
            one(fields, "name"),
            fields.get("scope", []),
            site=one(fields, "site") or None,
            days=int(days) if days else None,
        )
    except Refused:
        raise
    except Problem as problem:
        return _list(looking, problem=problem, fields=fields)
    return _list(looking, key=key, kept=kept)


@router.get(PATH + "/{key_id}", response_class=HTMLResponse)
def key_page(looking: Context, key_id: str) -> HTMLResponse:
    """One key, before it is revoked."""
    return _one(looking, key_id)


@router.post(PATH + "/{key_id}", response_class=HTMLResponse)
def revoke(looking: Context, key_id: str, fields: Fields) -> Response:
    """End a key, for good."""
    accounts = looking.service.accounts
    accounts.require(looking.actor, "admin", "key.revoke", target=key_id[:8])
    try:
        is_sure(fields)
    except Invalid as problem:
        return _one(looking, key_id, problem=problem)
    accounts.revoke_key(looking.actor, key_id)
    return RedirectResponse(f"{PATH}?done=true", status_code=303)


def _one(looking: PageContext, key_id: str, *, problem: Problem | None = None) -> HTMLResponse:
    accounts = looking.service.accounts
    known = {key.id: key for key in accounts.keys(looking.actor)}
    if key_id not in known:
        raise Unknown("there is no such key")
    return looking.page(
        "admin_key.html",
        status=problem.status if problem else 200,
        tab="keys",
        key=known[key_id],
        problem=problem,
        now=accounts.now(),
    )


def _list(
    looking: PageContext,
    *,
    problem: Problem | None = None,
    fields: dict[str, list[str]] | None = None,
    key: str | None = None,
    kept: ApiKey | None = None,
    done: bool = False,
) -> HTMLResponse:
    accounts = looking.service.accounts
    found = accounts.keys(looking.actor)
    return looking.page(
        "admin_keys.html",
        status=problem.status if problem else 200,
        tab="keys",
        keys=sorted(found, key=lambda one: (one.revoked_at is not None, -one.created_at)),
        scopes=[(scope, looking.say(SCOPE_WORDS[scope])) for scope in SCOPES],
        sites=[site.id for site in accounts.sites(looking.actor)],
        problem=problem,
        given=fields or {},
        secret=key,
        kept=kept,
        done=done,
        now=accounts.now(),
    )
