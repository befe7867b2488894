"""Builds the upload channels; checks a site's connection and its conversion actions with them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from typing import cast

from kesin.foundation.clock import SystemClock, iso
from kesin.foundation.messages import Message
from kesin.foundation.problems import Problem, Unavailable
from kesin.foundation.settings import Settings
from kesin.workloads.common.advice import Language
from kesin.workloads.oci.conversions.actions import ActionChanges, merge_actions
from kesin.workloads.oci.google import circuit_breaker as breaking
from kesin.workloads.oci.google.channel import Channel, ConnectionTrouble, Finding, RequestFailure
from kesin.workloads.oci.google.credentials import AccessTokens
from kesin.workloads.oci.google.data_manager import DataManager
from kesin.workloads.oci.google.google_ads import GoogleAds
from kesin.workloads.oci.google.http import BoundedHttpClient
from kesin.workloads.oci.lifecycle import ADVICE
from kesin.workloads.oci.site import ACTIONS, HEARTBEAT, SiteContext

_SETTINGS_ADVICE = "Look up the actions in the site's settings, choose which to keep, and save."
_SCOPE_ADVICE = "Look-ups need the adwords scope, even if rows go through Data Manager."


@lru_cache(maxsize=8)
def channels_of(settings: Settings) -> Mapping[str, Channel]:
    """Build every channel of our worker; raises Unavailable without the library they need."""
    if find_spec("httpx") is None:
        why = "uploading to Google needs httpx: install it with `pip install 'kesin[oci]'`"
        raise Unavailable(why)
    http = BoundedHttpClient(settings.oci_timeout_s, monotonic=SystemClock().monotonic)
    tokens = AccessTokens(http, settings.oci_token_url)
    ads_url = f"{settings.oci_google_url.rstrip('/')}/{settings.oci_google_version}"
    manager = DataManager(http, tokens, f"{settings.oci_data_manager_url.rstrip('/')}/v1")
    return {"api": GoogleAds(http, tokens, ads_url), "data_manager": manager}


def check_site(site: SiteContext, *, language: Language = "en") -> list[Finding]:
    """Check the site; if all passes, a breaker opened by wrong credentials closes."""
    findings = [*_check(site), *check_actions(site)]
    for at, finding in enumerate(findings):
        if finding.code and language != "en":  # the advice on a code is in every language
            findings[at] = replace(finding, advice=ADVICE.find(finding.code, "AUTH", language).act)
    return findings


def _check(site: SiteContext) -> list[Finding]:
    if site.channel == "script":
        return [_script_finding(site)]
    channel = channels_of(site.context.settings)[site.channel]
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


def look_up_actions(site: SiteContext) -> ActionChanges:
    """What Google's list would change; Unavailable says why it is not known. Stores nothing."""
    credentials, breaker = breaking.open_credentials(site), breaking.read_breaker(site)
    if isinstance(credentials, ConnectionTrouble):
        code, message = credentials.code, credentials.message
    elif breaker.kind not in {"", "AUTH"} and breaker.state(site.queue.now()) == "open":
        code, message = breaker.code, breaker.message
    else:
        google, given = cast("GoogleAds", channels_of(site.context.settings)["api"]), site.settings
        listed = google.list_actions(credentials)
        if not isinstance(listed, RequestFailure):
            own = credentials.conversion_action_resource_name.rpartition("/")[2]
            return merge_actions(given.actions, listed, [given.conversion_name, own])
        if listed.trouble and listed.trouble.kind == "RATE_LIMIT":
            breaking.record_upload(site, listed.trouble)
        code, message = listed.refused.code, listed.refused.message
    why = "Google did not list the conversion actions (%(code)s): %(problem)s"
    raise Unavailable(Message(why, code=code, problem=Message(message)))


def check_actions(site: SiteContext) -> list[Finding]:
    """Compare a site's actions with Google's: what is enabled, counting, look-back, the default."""
    given, known = site.settings, site.read_metadata(ACTIONS) or {}
    if not given.actions:
        return []
    changes = ActionChanges((), gone=tuple(known.get("gone", ())))  # in the script's last list
    how, at = "conversion actions listed by Google Ads: %(n)s", iso(known.get("at")) or ""
    if site.channel == "script" and known.get("source") == "script":
        how = "conversion actions last reported by the script, at %(at)s: %(n)s"
    elif site.channel == "script":
        how = "conversion actions entered here, not yet reported by a script: %(n)s"
    try:
        changes = changes if site.channel == "script" else look_up_actions(site)
    except Problem as problem:
        return [Finding("actions", ok=False, detail=problem.message, advice=_SCOPE_ADVICE)]
    found = [] if given.default_name else ["there is no default action: each row must name an action"]
    if names := ", ".join(changes.gone):
        found.append(Message("not enabled in Google Ads: %(names)s", names=names))
    if names := ", ".join(changes.changed):
        found.append(Message("different in Google Ads: %(names)s", names=names))
    fine = Message.fill(how, {"n": len(given.actions), "at": f"{at[:16]}Z"})
    bad = [Finding("actions", ok=False, detail=why, advice=_SETTINGS_ADVICE) for why in found]
    return bad or [Finding("actions", ok=True, detail=fine)]
