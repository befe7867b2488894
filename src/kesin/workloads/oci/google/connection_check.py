"""What a validated trial upload tells of a site: token, account, conversion action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from kesin.engine.workload import WorkloadContext
from kesin.lifecycle.errors import Category
from kesin.store.directory import Site
from kesin.workloads.oci.advice import Language, advice
from kesin.workloads.oci.conversions.conversion import Conversion
from kesin.workloads.oci.google.batching import Reply
from kesin.workloads.oci.google.channel import Channel, Finding, Refused, Trouble
from kesin.workloads.oci.google.circuit_breaker import breaker_of, close, opened
from kesin.workloads.oci.google.client import Failure
from kesin.workloads.oci.google.error_table import REQUEST_REFUSED
from kesin.workloads.oci.site import HEARTBEAT, fact

# Obviously no click: it is validated and never recorded, and it must belong to nobody.
TRIAL: Final = Conversion(
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

_TOKEN: Final = ("INVALID_GRANT", "TOKEN_", "OAUTH_TOKEN", "ACCESS_TOKEN", "UNAUTHENTICATED")
_ACTION: Final = (
    "NO_CONVERSION_ACTION",
    "INVALID_CONVERSION_ACTION",
    "RESOURCE_NAME_",
    "RESOURCE_NOT_",
    "BAD_RESOURCE_ID",
)
_ADVICE: Final = {
    "token": "Consent again and put the new refresh token; a consent screen in testing gives"
    " tokens of seven days",
    "account": "Check customer_id, login_customer_id and that the user may use this account",
    "action": "The action must exist in this account, be enabled and import from clicks",
    "later": "Google could not say; try again in a few minutes",
}
_FINE: Final = {
    "token": "Google gives access tokens",
    "account": "the account may be used",
    "action": "the conversion action takes uploads",
}


def findings(outcome: Failure | Reply) -> list[Finding]:
    """One line for each thing, up to the first that is wrong.

    Complaints about the trial conversion itself are what is hoped for: account and action passed.
    """
    refused = outcome.refused if isinstance(outcome, Failure) else _gravest(outcome)
    if refused is None or _about_the_row(outcome, refused):
        return [_fine(name) for name in _FINE]
    name = _subject(refused.code)
    passed = [_fine(one) for one in list(_FINE)[: list(_FINE).index(name)]]
    mendable = refused.category is Category.AUTH
    detail = f"{refused.code}: {refused.message}"
    advice = _ADVICE[name if mendable else "later"]
    return [*passed, Finding(name, ok=False, detail=detail, advice=advice, code=refused.code)]


def _gravest(reply: Reply) -> Refused | None:
    refused = [one for one in reply.rows if isinstance(one, Refused)]
    faults = [one for one in refused if one.category is Category.AUTH]
    return next(iter(faults or refused), None)


def _about_the_row(outcome: Failure | Reply, refused: Refused) -> bool:
    if isinstance(outcome, Failure):
        return outcome.trouble is None and refused.code != REQUEST_REFUSED
    young = refused.code.startswith("TOO_RECENT_") or refused.code.endswith("_NOT_FOUND")
    return refused.category in {Category.VALIDATION, Category.PERMANENT} or (
        young and refused.category is Category.TRANSIENT
    )


def _subject(code: str) -> str:
    if code.startswith(_TOKEN):
        return "token"
    return "action" if code.startswith(_ACTION) else "account"


def _fine(name: str) -> Finding:
    return Finding(name, ok=True, detail=_FINE[name])


def check_site(
    house: WorkloadContext,
    site: Site,
    channels: Mapping[str, Channel],
    *,
    language: Language = "en",
) -> list[Finding]:
    """What was found; when all is well, a breaker that wrong credentials opened closes."""
    findings = _found(house, site, channels)
    return findings if language == "en" else [_translated(one, language) for one in findings]


def _translated(finding: Finding, language: Language) -> Finding:
    """The same with the code's own advice; only that is written in every language."""
    if not finding.code:
        return finding
    return replace(finding, advice=advice(finding.code, "AUTH", language).act)


def _found(house: WorkloadContext, site: Site, channels: Mapping[str, Channel]) -> list[Finding]:
    channel = channels.get(site.channel)
    if channel is None:
        return [_script(house, site)]
    credentials = opened(house, site)
    if isinstance(credentials, Trouble):
        code = credentials.code
        act = advice(code, "AUTH").act
        return [Finding("credentials", ok=False, detail=credentials.message, advice=act, code=code)]
    findings = [
        Finding("credentials", ok=True, detail="sealed and readable"),
        *channel.check(credentials),
    ]
    if all(one.ok for one in findings) and breaker_of(house, site).kind == "AUTH":
        close(house, site)
        findings.append(Finding("breaker", ok=True, detail="was open, is closed now"))
    return findings


def _script(house: WorkloadContext, site: Site) -> Finding:
    beat = fact(house, site, HEARTBEAT)
    if beat is None:
        return Finding(
            "script",
            ok=False,
            detail="the site is left to a script, and none has ever reported",
            advice="Install the Google Ads Script, or move the site to the channel 'api'.",
        )
    told = f"the script reported, version {beat.get('script_version', 'unknown')}"
    return Finding("script", ok=True, detail=told)
