"""Checks a site's connection: token and account with a trial upload, its conversion actions."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast

from kesin.foundation.clock import iso
from kesin.foundation.messages import Message
from kesin.foundation.problems import Problem, Unavailable
from kesin.lifecycle.errors import Category
from kesin.workloads.common.advice import Language
from kesin.workloads.oci.conversions.actions import ActionChanges, merge_actions
from kesin.workloads.oci.conversions.conversion import Conversion
from kesin.workloads.oci.google import circuit_breaker as breaking
from kesin.workloads.oci.google.channel import (
    Channel,
    ConnectionTrouble,
    Finding,
    RequestFailure,
    RowRefused,
)
from kesin.workloads.oci.google.classify import REQUEST_REFUSED
from kesin.workloads.oci.google.client import RequestReply
from kesin.workloads.oci.lifecycle import ADVICE
from kesin.workloads.oci.site import ACTIONS, HEARTBEAT, SiteContext

if TYPE_CHECKING:
    from kesin.workloads.oci.google.google_ads import GoogleAds


# A click id that cannot exist: the conversion is validated and never recorded.
TRIAL_CONVERSION: Final = Conversion(
    external_id="kesin-check",
    order_id="kesin-check",
    gclid="KesinChecksThisAccountNoRealClick",
    wbraid="",
    gbraid="",
    name="Kesin check",
    at=datetime(2026, 1, 1, 12, tzinfo=UTC),
    value=Decimal(1),
    currency="USD",
)

_TOKEN_CODES: Final = ("INVALID_GRANT", "TOKEN_", "OAUTH_TOKEN", "ACCESS_TOKEN", "UNAUTHENTICATED")
_ACTION_CODES: Final = (
    *("NO_CONVERSION_ACTION", "INVALID_CONVERSION_ACTION"),
    *("RESOURCE_NAME_", "RESOURCE_NOT_", "BAD_RESOURCE_ID"),
)
_ADVICE: Final = {
    "token": "Grant consent again and store the new refresh token; tokens expire after"
    " seven days while the consent screen is in testing",
    "account": "Check customer_id and login_customer_id, and that the user may use this account",
    "action": "The action must exist in this account, be enabled and import from clicks",
    "later": "Google gave no clear answer; try again in a few minutes",
    "settings": "Look up the actions in the site's settings, choose which to keep, and save.",
    "scope": "Look-ups need the adwords scope, even if rows go through Data Manager.",
}
_PASSED_DETAILS: Final = {
    "token": "Google issues access tokens",
    "account": "the account can be used",
    "action": "the conversion action accepts uploads",
}


def build_findings(outcome: RequestFailure | RequestReply) -> list[Finding]:
    """Build findings up to the first failure; an error about the trial row itself is not one."""
    rows = [outcome.refused] if isinstance(outcome, RequestFailure) else outcome.rows
    refusals = (each for each in rows if isinstance(each, RowRefused))
    refused = min(refusals, key=lambda each: each.category is not Category.AUTH, default=None)
    passed = [Finding(name, ok=True, detail=detail) for name, detail in _PASSED_DETAILS.items()]
    if refused is None or _is_about_row(outcome, refused):
        return passed
    code, why = refused.code, Message(refused.message)
    name = "action" if code.startswith(_ACTION_CODES) else "account"
    name = "token" if code.startswith(_TOKEN_CODES) else name
    detail = Message("%(field)s: %(problem)s", field=code, problem=why)
    advice = _ADVICE[name if refused.category is Category.AUTH else "later"]
    failed = Finding(name, ok=False, detail=detail, advice=advice, code=code)
    return [*passed[: list(_PASSED_DETAILS).index(name)], failed]


def _is_about_row(outcome: RequestFailure | RequestReply, refused: RowRefused) -> bool:
    if isinstance(outcome, RequestFailure):
        return outcome.trouble is None and refused.code != REQUEST_REFUSED
    unknown_click = "TOO_RECENT" in refused.code or refused.code.endswith("_NOT_FOUND")
    return refused.category in {Category.VALIDATION, Category.PERMANENT} or (
        unknown_click and refused.category is Category.TRANSIENT
    )


def check_site(
    site: SiteContext, channels: Mapping[str, Channel], *, language: Language = "en"
) -> list[Finding]:
    """Check the site; if all passes, a breaker opened by wrong credentials closes."""
    findings = [*_check(site, channels), *check_actions(site, channels)]
    for at, finding in enumerate(findings):
        if finding.code and language != "en":  # the advice on a code is in every language
            findings[at] = replace(finding, advice=ADVICE.find(finding.code, "AUTH", language).act)
    return findings


def _check(site: SiteContext, channels: Mapping[str, Channel]) -> list[Finding]:
    channel = channels.get(site.channel)
    if channel is None:
        return [_script_finding(site)]
    credentials = breaking.open_credentials(site)
    if isinstance(credentials, ConnectionTrouble):
        code = credentials.code
        act = ADVICE.find(code, "AUTH").act
        return [Finding("credentials", ok=False, detail=credentials.message, advice=act, code=code)]
    findings = [Finding("credentials", ok=True, detail="encrypted and readable")]
    findings += channel.check(credentials)
    if all(finding.ok for finding in findings) and breaking.read_breaker(site).kind == "AUTH":
        breaking.close_breaker(site)
        findings.append(Finding("breaker", ok=True, detail="was open, is now closed"))
    return findings


def _script_finding(site: SiteContext) -> Finding:
    beat = site.read_metadata(HEARTBEAT) or {}
    if not beat.keys() - {"tried_at"}:
        why = "the site uses a script, but no script has ever reported"
        act = "Install the Google Ads script, or move the site to the 'api' channel."
        return Finding("script", ok=False, detail=why, advice=act)
    version = beat.get("script_version", "unknown")
    detail = Message("the script reported, version %(version)s", version=version)
    return Finding("script", ok=True, detail=detail)


def look_up_actions(site: SiteContext, channels: Mapping[str, Channel]) -> ActionChanges:
    """What Google's list would change; Unavailable says why it is not known. Stores nothing."""
    credentials, breaker = breaking.open_credentials(site), breaking.read_breaker(site)
    if isinstance(credentials, ConnectionTrouble):
        code, message = credentials.code, credentials.message
    elif breaker.kind not in {"", "AUTH"} and breaker.state(site.queue.now()) == "open":
        code, message = breaker.code, breaker.message
    else:
        listed, given = cast("GoogleAds", channels["api"]).list_actions(credentials), site.settings
        if not isinstance(listed, RequestFailure):
            own = credentials.conversion_action_resource_name.rpartition("/")[2]
            return merge_actions(given.actions, listed, [given.conversion_name, own])
        if listed.trouble and listed.trouble.kind == "RATE_LIMIT":
            breaking.record_upload(site, listed.trouble)
        code, message = listed.refused.code, listed.refused.message
    why = "Google did not list the conversion actions (%(code)s): %(problem)s"
    raise Unavailable(Message(why, code=code, problem=Message(message)))


def check_actions(site: SiteContext, channels: Mapping[str, Channel]) -> list[Finding]:
    """Compare a site's actions with Google's: what is enabled, counting, look-back, the default."""
    given, known = site.settings, site.read_metadata(ACTIONS) or {}
    if not given.actions:
        return []
    changes = ActionChanges((), gone=tuple(known.get("gone", ())))  # in the script's last list
    how, at = "conversion actions as Google Ads has them: %(n)s", iso(known.get("at")) or ""
    if site.channel == "script" and known.get("source") == "script":
        how = "conversion actions as the script last reported them, at %(at)s: %(n)s"
    elif site.channel == "script":
        how = "conversion actions as they were entered, not yet reported by a script: %(n)s"
    try:
        changes = changes if site.channel == "script" else look_up_actions(site, channels)
    except Problem as problem:
        return [Finding("actions", ok=False, detail=problem.message, advice=_ADVICE["scope"])]
    found = [] if given.default_name else ["there is no default action: each row must name one"]
    if names := ", ".join(changes.gone):
        found.append(Message("not enabled in Google Ads: %(names)s", names=names))
    if names := ", ".join(changes.changed):
        found.append(Message("different in Google Ads: %(names)s", names=names))
    fine = Message.fill(how, {"n": len(given.actions), "at": f"{at[:16]}Z"})
    bad = [Finding("actions", ok=False, detail=why, advice=_ADVICE["settings"]) for why in found]
    return bad or [Finding("actions", ok=True, detail=fine)]
