"""Could this site upload now? Token, account and action are tried, and nothing is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kesin.store.directory import Site
from kesin.workloads.oci.advice import Language, advice
from kesin.workloads.oci.channel import Channel, Finding, Trouble
from kesin.workloads.oci.connections import breaker_of, close, opened
from kesin.workloads.oci.places import HEARTBEAT, fact
from kesin.workloads.workload import House


def check_site(
    house: House, site: Site, channels: Mapping[str, Channel], *, language: Language = "en"
) -> list[Finding]:
    """What was found; when all is well, a breaker that wrong credentials opened closes."""
    findings = _found(house, site, channels)
    return findings if language == "en" else [_translated(one, language) for one in findings]


def _translated(finding: Finding, language: Language) -> Finding:
    """The same with the code's own advice; only that is written in every language."""
    if not finding.code:
        return finding
    return replace(finding, advice=advice(finding.code, "AUTH", language).act)


def _found(house: House, site: Site, channels: Mapping[str, Channel]) -> list[Finding]:
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


def _script(house: House, site: Site) -> Finding:
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
