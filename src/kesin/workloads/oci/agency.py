"""Many sites: their settings in a spreadsheet, one script for all, what a new one still lacks."""

import json
from functools import partial
from typing import Any, Final

from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor
from kesin.workloads.oci.operations import SiteStats
from kesin.workloads.oci.site import (
    ACTIONS,
    FLAGS,
    HEARTBEAT,
    NUMBERS,
    WORKLOAD,
    SiteContext,
    SiteSettings,
    validate_settings,
    visible_sites,
)

MAX_MANAGED: Final = 50  # accounts that Google lets a manager script serve in a run
RECONCILIATION: Final = "reconciliation:"  # begins the names of what is known of each month
MAX_MONTHS: Final = 24
_WORDS: Final = {"yes": True, "no": False}
_KEY_SCOPES: Final = {"oci:ingest", "oci:script"}


def parse_setting(name: str, text: str) -> Any:
    """The value of a setting in a spreadsheet; raises Invalid."""
    value: Any = _WORDS.get(text.lower(), text) if name in FLAGS else text
    if name in NUMBERS and text.isascii() and text.isdecimal():
        value = int(text[:9])
    return validate_settings({name: value})[name]


_CELLS: Final = SiteSettings.__dataclass_fields__.keys() - {ACTIONS}
SETTING_CELLS: Final = {name: partial(parse_setting, name) for name in _CELLS}


def managed_sites(context: WorkloadContext, actor: Actor) -> list[SiteContext]:
    """The sites that a manager script serves next: those that waited longest, new ones first."""
    entries = context.commands.accounts.directory.metadata_entries(WORKLOAD, name=HEARTBEAT)
    beats = {entry.site: json.loads(entry.value) for entry in entries}

    def served_at(site: SiteContext) -> tuple[int, str]:
        beat = beats.get(site.id, {})
        return max(beat.get("at", 0), beat.get("tried_at", 0)), site.id

    sites = [site for site in visible_sites(context, actor) if site.channel == "script"]
    return sorted((s for s in sites if s.settings.customer_id), key=served_at)[:MAX_MANAGED]


def onboarding(site: SiteContext, stats: SiteStats) -> dict[str, bool]:
    """Which steps of its beginning a site has behind it, in their order."""
    acked = stats.last_ack_at is not None
    return {
        "key": acked or _has_key(site),
        "row": stats.last_updated_at is not None,
        "export": stats.was_claimed,
        "ack": acked,
        "attributed": acked and first_attributed(site) is not None,
    }


def _has_key(site: SiteContext) -> bool:
    keys = site.context.commands.accounts.directory.api_keys()
    own = [key for key in keys if key.site in {None, site.id} and key.revoked_at is None]
    return any(_KEY_SCOPES & set(key.scopes) for key in own)


def first_attributed(site: SiteContext) -> str | None:
    """The first day of which Google says that it attributed a conversion to a click."""
    directory = site.context.commands.accounts.directory
    page = directory.metadata_page(WORKLOAD, site.id, after=RECONCILIATION, limit=MAX_MONTHS)
    for entry in page:
        days = json.loads(entry.value) if entry.name.startswith(RECONCILIATION) else {}
        for day, actions in sorted(days.items()):
            if any(counts.get("attributed") for counts in actions.values()):
                return str(day)
    return None
