"""The look-up of a site's conversion actions in Google Ads, and their check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from kesin.foundation.messages import Message
from kesin.foundation.problems import Problem, Unavailable
from kesin.workloads.oci.conversions.actions import ActionChanges, merge_actions
from kesin.workloads.oci.google import circuit_breaker as breaking
from kesin.workloads.oci.google.channel import Channel, ConnectionTrouble, Finding, RequestFailure
from kesin.workloads.oci.site import ACTIONS, SiteContext

if TYPE_CHECKING:
    from kesin.workloads.oci.google.google_ads import GoogleAds

_SETTINGS = "Look the actions up in the settings of the site; choose, remove and save them there."
_SCOPE = "Look-ups need the scope adwords, also where rows go through Data Manager."


def look_up_actions(site: SiteContext, channels: Mapping[str, Channel]) -> ActionChanges:
    """What Google's list would change, whatever API the rows go to; nothing is stored.

    Raises Unavailable with what Google says. While Google asks for a pause, it is not asked.
    """
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
    why = "Google does not list the conversion actions: %(code)s: %(problem)s"
    raise Unavailable(Message(why, code=code, problem=Message(message)))


def check_actions(site: SiteContext, channels: Mapping[str, Channel]) -> list[Finding]:
    """Compare a site's actions with Google's: what is enabled, counting, look-back, the default."""
    given, known = site.settings, site.read_metadata(ACTIONS) or {}
    if not given.actions:
        return []
    changes = ActionChanges((), gone=tuple(known.get("gone", ())))  # in the script's last list
    try:
        changes = changes if site.channel == "script" else look_up_actions(site, channels)
    except Problem as problem:
        return [Finding("actions", ok=False, detail=problem.message, advice=_SCOPE)]
    found = [] if given.default_name else ["no action is the default: a row needs a name"]
    if names := ", ".join(changes.gone):
        found.append(Message("not enabled in Google Ads: %(names)s", names=names))
    if names := ", ".join(changes.changed):
        found.append(Message("different in Google Ads: %(names)s", names=names))
    fine = Message("%(n)s conversion actions, as Google Ads has them", n=len(given.actions))
    bad = [Finding("actions", ok=False, detail=why, advice=_SETTINGS) for why in found]
    return bad or [Finding("actions", ok=True, detail=fine)]
