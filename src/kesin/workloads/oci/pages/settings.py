"""A site's settings, credentials and connection: shown to operators, changed by admins."""

from dataclasses import asdict
from typing import Any, Final

from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kesin.engine.access.sites import CHANNELS, site_uuid
from kesin.foundation.problems import Invalid, Problem
from kesin.web.dashboard.frame.page import Context, PageContext, page_router
from kesin.web.dashboard.frame.routes import FirstFields
from kesin.workloads.oci import script
from kesin.workloads.oci.conversions import actions
from kesin.workloads.oci.conversions.parsing import LOCALES
from kesin.workloads.oci.google.circuit_breaker import read_breaker, seal_credentials
from kesin.workloads.oci.google.connection_check import check_site, look_up_actions
from kesin.workloads.oci.google.credentials import GoogleCredentials, vault_name
from kesin.workloads.oci.lifecycle import ADVICE
from kesin.workloads.oci.pages.control import PATH, find_site, frame
from kesin.workloads.oci.pages.sites import control_path
from kesin.workloads.oci.site import FLAGS, HEARTBEAT, NUMBERS, SiteContext, read_setting

router = page_router()

OPTIONAL: Final = ("developer_token", "login_customer_id")
SECRET: Final = ("client_secret", "refresh_token", "developer_token")
_SITE_FIELDS: Final = ("name", "channel", "timezone", "currency")


@router.get(f"{PATH}/settings", response_class=HTMLResponse)
def oci_settings(ctx: Context, site_id: str, done: str = "") -> HTMLResponse:
    return _page(ctx, find_site(ctx, site_id, "operate", "oci.settings"), done=done)


def _page(ctx: PageContext, site: SiteContext, typed: dict[str, str] | None = None, **outcome: Any) -> HTMLResponse:
    context, breaker = site.context, read_breaker(site)
    values: dict[str, Any] = {name: getattr(site.record, name) for name in _SITE_FIELDS}
    values |= {name: value or "" for name, value in asdict(site.settings).items()}
    if typed and outcome.get("about") == "settings":
        values |= typed | {name: name in typed for name in FLAGS}
    gone = (site.read_metadata("actions") or {}).get("gone", ())
    shown = {"about": "", "findings": None, "changes": None, "gone": gone}
    return ctx.page(
        "oci/settings.html",
        values=values,
        typed=typed or {},
        usual_silent_hours=context.settings.oci_silent_hours,
        uuid=site_uuid(site.id),
        channels=CHANNELS,
        countings=actions.COUNTINGS,
        locales=LOCALES,
        credentials=[*GoogleCredentials.__dataclass_fields__],
        optional=OPTIONAL,
        secret_names=SECRET,
        kept=context.commands.accounts.directory.secret(vault_name(site.id)),
        sealing=context.settings.secret_keys is not None,
        breaker=breaker,
        breaker_state=breaker.state(context.queue.now()),
        breaker_advice=ADVICE.find(breaker.code, breaker.kind or None, ctx.language),
        heartbeat=site.read_metadata(HEARTBEAT),
        **{**shown, "actions": list(values["actions"]), **outcome},
        **frame(ctx, site),
    )


@router.post(f"{PATH}/settings")
def change_oci_settings(ctx: Context, site_id: str, fields: FirstFields) -> Response:
    """Change the settings of a site, all of them or none; an empty field removes one."""
    site = find_site(ctx, site_id, "admin", "site.set")
    accounts = site.context.commands.accounts
    site_values = {name: fields.get(name, "").strip() for name in _SITE_FIELDS}
    try:
        texts = ("conversion_name", "consent_default", "phone_country", "locale", "customer_id")
        typed = {name: fields.get(name, "").strip() for name in (*texts, *NUMBERS)}
        changes: dict[str, Any] = {name: name in fields or None for name in FLAGS}
        changes |= {name: read_setting(name, text) if text else None for name, text in typed.items()}
        with accounts.directory.transaction():
            accounts.set_site(ctx.actor, site.id, **{k: v or None for k, v in site_values.items()})
            accounts.set_site_settings(ctx.actor, site.id, site.queue.name, changes)
    except Invalid as problem:
        typed = {name: value for name, value in fields.items() if len(value) <= 200}  # noqa: PLR2004
        return _page(ctx, site, problem=problem, about="settings", typed=typed)
    return _redirect_back(site, "settings")


@router.post(f"{PATH}/credentials")
def change_oci_credentials(ctx: Context, site_id: str, fields: FirstFields) -> Response:
    """Replace the sealed credentials, or delete them; they are never shown."""
    site = find_site(ctx, site_id, "admin", "oci.credentials")
    typed: dict[str, str] = {}
    try:
        if fields.get("drop"):
            site.context.vault.drop(ctx.actor, vault_name(site.id))
            return _redirect_back(site, "dropped")
        typed = {name: fields.get(name, "") for name in GoogleCredentials.__dataclass_fields__}
        seal_credentials(site, ctx.actor, typed)
    except Problem as problem:
        open_values = {name: typed[name][:200] for name in typed if name not in SECRET}
        return _page(ctx, site, problem=problem, about="credentials", typed=open_values)
    return _redirect_back(site, "credentials")


@router.post(f"{PATH}/check", response_class=HTMLResponse)
def check_oci_connection(ctx: Context, site_id: str) -> HTMLResponse:
    """Check token, account and conversion action without uploading; success closes the breaker."""
    site = find_site(ctx, site_id, "operate", "oci.check")
    findings = check_site(site, language=ctx.language)
    site.note(ctx.actor, "oci.check")
    return _page(ctx, site, findings=findings)


@router.post(f"{PATH}/conversion-actions")
def change_oci_actions(ctx: Context, site_id: str, fields: FirstFields) -> Response:
    site = find_site(ctx, site_id, "admin", "site.set")
    rows = [n for n in range(actions.MAX_ACTIONS + 1) if f"remove-{n}" not in fields]
    typed = [action for n in rows if (action := _typed_action(fields, n))["name"]]
    gone = [fields[name] for name in fields if name.startswith("gone-")]
    try:
        kept = {action.name: action for action in actions.parse_actions(typed)}
        dropped = [each.name for each in site.settings.actions if each.name not in kept]
        if "confirm" not in fields and (names := script.names_in_use(site, dropped)):
            why = "waiting rows name %(names)s and would be refused: tick the box to save anyway"
            raise Invalid(why, details={"field": "confirm"}, names=", ".join(names))  # noqa: TRY301
    except Invalid as problem:
        return _page(ctx, site, problem=problem, about="actions", actions=typed, gone=gone)
    changes = actions.ActionChanges(tuple(kept.values()), gone=tuple(n for n in kept if n in gone))
    site.change_actions(ctx.actor, "page", lambda _before: changes)
    return _redirect_back(site, "settings")


def _typed_action(fields: dict[str, str], number: int) -> dict[str, Any]:
    names = ("name", "id", "counting", "lookback_days")
    typed: dict[str, Any] = {n: fields.get(f"{n}-{number}", "").strip()[:200] for n in names}
    if typed["lookback_days"].isdecimal():
        typed["lookback_days"] = int(typed["lookback_days"][:6])
    return {**typed, "default": fields.get("default") == str(number)}


@router.post(f"{PATH}/conversion-actions/lookup", response_class=HTMLResponse)
def look_up_oci_actions(ctx: Context, site_id: str) -> HTMLResponse:
    """Show what Google's list of conversion actions would change; saving the form stores it."""
    site = find_site(ctx, site_id, "operate", "oci.check")
    site.note(ctx.actor, "oci.check")
    try:
        found = look_up_actions(site)
    except Problem as problem:
        return _page(ctx, site, problem=problem, about="actions")
    return _page(ctx, site, changes=found, actions=[*map(asdict, found.actions)], gone=found.gone)


def _redirect_back(site: SiteContext, done: str) -> Response:
    return RedirectResponse(f"{control_path(site.id)}/settings?done={done}", status_code=303)
