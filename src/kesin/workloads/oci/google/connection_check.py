"""Checks a site's connection with a validated trial upload: token, account, conversion action."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from kesin.foundation.messages import Message
from kesin.lifecycle.errors import Category
from kesin.workloads.common.advice import Language
from kesin.workloads.oci.advice import ADVICE
from kesin.workloads.oci.conversions.conversion import Conversion
from kesin.workloads.oci.google.action_check import check_actions
from kesin.workloads.oci.google.batching import RequestReply
from kesin.workloads.oci.google.channel import (
    Channel,
    ConnectionTrouble,
    Finding,
    RequestFailure,
    RowRefused,
)
from kesin.workloads.oci.google.circuit_breaker import close_breaker, open_credentials, read_breaker
from kesin.workloads.oci.google.error_table import REQUEST_REFUSED
from kesin.workloads.oci.site import HEARTBEAT, SiteContext

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
    "token": "Consent again and put the new refresh token; a consent screen in testing gives"
    " tokens of seven days",
    "account": "Check customer_id, login_customer_id and that the user may use this account",
    "action": "The action must exist in this account, be enabled and import from clicks",
    "later": "Google could not say; try again in a few minutes",
}
_PASSED_DETAILS: Final = {
    "token": "Google gives access tokens",
    "account": "the account may be used",
    "action": "the conversion action takes uploads",
}


def build_findings(outcome: RequestFailure | RequestReply) -> list[Finding]:
    """Build one finding per subject, up to the first that fails.

    An error about the trial conversion itself is expected: account and action have passed.
    """
    refused = outcome.refused if isinstance(outcome, RequestFailure) else _worst_refusal(outcome)
    if refused is None or _is_about_row(outcome, refused):
        return [_passed(name) for name in _PASSED_DETAILS]
    name = _subject(refused.code)
    subjects = list(_PASSED_DETAILS)
    passed = [_passed(subject) for subject in subjects[: subjects.index(name)]]
    fixable = refused.category is Category.AUTH
    detail = Message("%(field)s: %(problem)s", field=refused.code, problem=Message(refused.message))
    advice = _ADVICE[name if fixable else "later"]
    return [*passed, Finding(name, ok=False, detail=detail, advice=advice, code=refused.code)]


def _worst_refusal(reply: RequestReply) -> RowRefused | None:
    refused = [refusal for refusal in reply.rows if isinstance(refusal, RowRefused)]
    auth_refusals = [refusal for refusal in refused if refusal.category is Category.AUTH]
    return next(iter(auth_refusals or refused), None)


def _is_about_row(outcome: RequestFailure | RequestReply, refused: RowRefused) -> bool:
    if isinstance(outcome, RequestFailure):
        return outcome.trouble is None and refused.code != REQUEST_REFUSED
    unknown_click = "TOO_RECENT" in refused.code or refused.code.endswith("_NOT_FOUND")
    return refused.category in {Category.VALIDATION, Category.PERMANENT} or (
        unknown_click and refused.category is Category.TRANSIENT
    )


def _subject(code: str) -> str:
    if code.startswith(_TOKEN_CODES):
        return "token"
    return "action" if code.startswith(_ACTION_CODES) else "account"


def _passed(name: str) -> Finding:
    return Finding(name, ok=True, detail=_PASSED_DETAILS[name])


def check_site(
    site: SiteContext, channels: Mapping[str, Channel], *, language: Language = "en"
) -> list[Finding]:
    """Check the site; if all passes, a breaker opened by wrong credentials closes."""
    findings = [*_check(site, channels), *check_actions(site, channels)]
    for at, finding in enumerate(findings):
        if finding.code and language != "en":  # the advice on a code is in every language
            act = ADVICE.find(finding.code, "AUTH", language).act
            findings[at] = replace(finding, advice=act)
    return findings


def _check(site: SiteContext, channels: Mapping[str, Channel]) -> list[Finding]:
    channel = channels.get(site.channel)
    if channel is None:
        return [_script_finding(site)]
    credentials = open_credentials(site)
    if isinstance(credentials, ConnectionTrouble):
        code = credentials.code
        act = ADVICE.find(code, "AUTH").act
        return [Finding("credentials", ok=False, detail=credentials.message, advice=act, code=code)]
    findings = [
        Finding("credentials", ok=True, detail="sealed and readable"),
        *channel.check(credentials),
    ]
    if all(finding.ok for finding in findings) and read_breaker(site).kind == "AUTH":
        close_breaker(site)
        findings.append(Finding("breaker", ok=True, detail="was open, is closed now"))
    return findings


def _script_finding(site: SiteContext) -> Finding:
    beat = site.read_metadata(HEARTBEAT)
    if beat is None:
        return Finding(
            "script",
            ok=False,
            detail="the site is left to a script, and none has ever reported",
            advice="Install the Google Ads Script, or move the site to the channel 'api'.",
        )
    version = beat.get("script_version", "unknown")
    detail = Message("the script reported, version %(version)s", version=version)
    return Finding("script", ok=True, detail=detail)
