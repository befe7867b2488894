"""A site's settings, its credentials and its connection: seen by operators, changed by admins."""

from __future__ import annotations

from dataclasses import fields as fields_of
from typing import Any, Final

from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse, Response

from kesin.engine.access.sites import CHANNELS, site_uuid
from kesin.engine.workload import WorkloadContext
from kesin.foundation.problems import Invalid, Problem
from kesin.store.directory import Site
from kesin.web.auth import guarded_router
from kesin.web.dashboard.frame.navigation import control_path
from kesin.web.dashboard.frame.page import Context, PageContext
from kesin.workloads.oci.pages.control import PATH, Fields, frame, site_for

router = guarded_router(include_in_schema=False)

OPTIONAL: Final = ("developer_token", "login_customer_id")
SECRET: Final = ("client_secret", "refresh_token", "developer_token")
_OF_SITE: Final = ("name", "channel", "timezone", "currency")


@router.get(f"{PATH}/settings", response_class=HTMLResponse)
def oci_settings(looking: Context, site_id: str, done: str = "") -> HTMLResponse:
    """What is set for a site, whether it could upload, and since when."""
    house, site = site_for(looking, site_id, "operate", "oci.settings")
    return _page(looking, house, site, done=done)


def _page(
    looking: PageContext,
    house: WorkloadContext,
    site: Site,
    *,
    done: str = "",
    problem: Problem | None = None,
    about: str = "",
    typed: dict[str, str] | None = None,
    findings: Any = None,
) -> HTMLResponse:
    from kesin.workloads.oci.advice import advice
    from kesin.workloads.oci.google.circuit_breaker import breaker_of
    from kesin.workloads.oci.google.credentials import Credentials, vault_name
    from kesin.workloads.oci.site import HEARTBEAT, Place, fact

    place, breaker = Place.of(site), breaker_of(house, site)
    values = {
        **{name: getattr(site, name) for name in _OF_SITE},
        "recover_minutes": str(place.recover_minutes),
        "silent_hours": str(place.silent_hours or ""),
        "conversion_name": place.conversion_name,
    }
    return looking.page(
        "oci_settings.html",
        status=problem.status if problem else 200,
        values={**values, **(typed or {})},
        usual_silent_hours=house.settings.oci_silent_hours,
        uuid=site_uuid(site.id),
        channels=CHANNELS,
        credentials=[one.name for one in fields_of(Credentials)],
        optional=OPTIONAL,
        secret_names=SECRET,
        kept=house.commands.accounts.directory.secret(vault_name(site.id)),
        sealing=house.settings.secret_keys is not None,
        breaker=breaker,
        breaker_state=breaker.state(house.queue.now()),
        breaker_advice=advice(breaker.code, breaker.kind or None, looking.language),
        heartbeat=fact(house, site, HEARTBEAT),
        done=done,
        problem=problem,
        about=about,
        wrong_field=(problem.details.get("field") if problem else None),
        findings=findings,
        **frame(looking, house, site),
    )


@router.post(f"{PATH}/settings")
def change_oci_settings(looking: Context, site_id: str, fields: Fields) -> Response:
    """Change what an agency decides for one site; all of it or nothing."""
    from kesin.workloads.oci.site import WORKLOAD, checked

    house, site = site_for(looking, site_id, "admin", "site.set")
    accounts = house.commands.accounts
    told = {name: fields.get(name, "").strip() for name in _OF_SITE}
    try:
        changes = checked(_changes(fields))
        with accounts.directory.transaction():
            accounts.set_site(looking.actor, site.id, **{k: v or None for k, v in told.items()})
            accounts.set_site_settings(looking.actor, site.id, WORKLOAD, changes)
    except Invalid as problem:
        typed = {name: value for name, value in fields.items() if len(value) <= 200}  # noqa: PLR2004
        return _page(looking, house, site, problem=problem, about="settings", typed=typed)
    return _back(site, "settings")


def _changes(fields: dict[str, str]) -> dict[str, Any]:
    name = fields.get("conversion_name", "").strip()
    return {
        "recover_minutes": _whole(fields, "recover_minutes"),
        "silent_hours": _whole(fields, "silent_hours"),
        "conversion_name": name or None,
    }


def _whole(fields: dict[str, str], name: str) -> int | None:
    """A number somebody typed; nothing typed takes the setting away."""
    text = fields.get(name, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 6:  # noqa: PLR2004
        raise Invalid(f"{name} must be a whole number", details={"field": name})
    return int(text)


@router.post(f"{PATH}/credentials")
def change_oci_credentials(looking: Context, site_id: str, fields: Fields) -> Response:
    """Seal what was typed in the place of what was kept, or forget it; nothing comes back."""
    from kesin.workloads.oci.google.credentials import Credentials, vault_name

    house, site = site_for(looking, site_id, "admin", "oci.credentials")
    name = vault_name(site.id)
    try:
        if fields.get("drop"):
            house.vault.drop(looking.actor, name)
            return _back(site, "dropped")
        typed = {one.name: fields.get(one.name, "") for one in fields_of(Credentials)}
        house.vault.put(looking.actor, name, Credentials.read(typed).sealed_text())
    except Problem as problem:
        return _page(looking, house, site, problem=problem, about="credentials")
    return _back(site, "credentials")


@router.post(f"{PATH}/check", response_class=HTMLResponse)
def check_oci_connection(looking: Context, site_id: str) -> HTMLResponse:
    """Try token, account and action without recording anything; well, the breaker closes."""
    from kesin.workloads.oci.google.channels import channels_of
    from kesin.workloads.oci.google.connection_check import check_site

    house, site = site_for(looking, site_id, "operate", "oci.check")
    ours = {} if site.channel == "script" else channels_of(house.settings)
    findings = check_site(house, site, ours, language=looking.language)
    house.commands.accounts.note(looking.actor, "oci.check", queue="oci", site=site.id)
    return _page(looking, house, site, findings=findings)


def _back(site: Site, done: str) -> Response:
    return RedirectResponse(f"{control_path(site.id)}/settings?done={done}", status_code=303)
