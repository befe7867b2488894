"""Many sites: their settings in a spreadsheet, one script for all, what a new one still lacks."""

import json
from functools import partial
from typing import Final

from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor
from kesin.workloads.oci.operations import SiteStats
from kesin.workloads.oci.reconciliation import is_copied, read_days
from kesin.workloads.oci.site import (
    ACTIONS,
    HEARTBEAT,
    WORKLOAD,
    SiteContext,
    SiteSettings,
    read_setting,
    visible_sites,
)

MAX_MANAGED: Final = 50  # accounts that Google lets a manager script serve in a run
_KEY_SCOPES: Final = {"oci:ingest", "oci:script"}


_CELLS: Final = SiteSettings.__dataclass_fields__.keys() - {ACTIONS}
SETTING_CELLS: Final = {name: partial(read_setting, name) for name in sorted(_CELLS)}


def managed_sites(context: WorkloadContext, actor: Actor, *, starts: bool) -> list[SiteContext]:
    """The sites that a manager script serves next: those that waited longest, new ones first."""
    entries = context.commands.accounts.directory.metadata_entries(WORKLOAD, name=HEARTBEAT)
    beats = {entry.site: json.loads(entry.value) for entry in entries}

    def served_at(site: SiteContext) -> tuple[int, str]:
        beat = beats.get(site.id, {})
        return max(beat.get("at", 0), beat.get("tried_at", 0)), site.id

    sites = [site for site in visible_sites(context, actor) if site.channel == "script"]
    chosen = sorted((s for s in sites if s.settings.customer_id), key=served_at)[:MAX_MANAGED]
    for site in chosen if starts else ():  # whatever becomes of the run, others go first next time
        with site.locked_metadata(HEARTBEAT) as beat:
            beat["tried_at"] = context.queue.now()
    return chosen


def onboarding(site: SiteContext, stats: SiteStats) -> dict[str, bool]:
    """Which steps of its beginning a site has behind it, in their order."""
    acked, has_figures = stats.last_ack_at is not None, is_copied(site) or bool(read_days(site))
    return {
        "key": acked or _has_key(site),
        "row": stats.last_updated_at is not None,
        "export": stats.was_claimed,
        "ack": acked,
        "attributed": acked and (not has_figures or first_attributed(site) is not None),
    }


def _has_key(site: SiteContext) -> bool:
    keys = site.context.commands.accounts.directory.api_keys()
    own = [key for key in keys if key.site in {None, site.id} and key.revoked_at is None]
    own = [key for key in own if not key.expires_at or key.expires_at > site.queue.now()]
    return any(_KEY_SCOPES & set(key.scopes) for key in own)


def first_attributed(site: SiteContext) -> str | None:
    """The first day of which Google says that it attributed a conversion to a click."""
    days = read_days(site).items()
    named = (day for day, by in days if any(of.get("attributed") for of in by.values()))
    return min(named, default=None)
