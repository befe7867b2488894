"""Lists of conversion actions as a site and Google have them."""

from __future__ import annotations

from typing import Any

from kesin.workloads.oci.site import validate_settings
from tests.workloads.oci.own_site import OwnSite, ok, refused

SALE: dict[str, Any] = {"name": "Phone sale", "id": "987654321", "default": True}
LEAD: dict[str, Any] = {"name": "Lead", "id": "11", "counting": "ONE_PER_CLICK", "lookback_days": 7}
SALE_AT_GOOGLE = {"name": "Phone sale", "id": "987654321", "counting": "MANY_PER_CLICK"}
ENABLED = "ENABLED"


def listed(*entries: dict[str, Any], status: str = ENABLED) -> list[tuple[str, dict[str, Any]]]:
    return [(status, {"counting": "MANY_PER_CLICK", "lookback_days": 30, **one}) for one in entries]


def give(site: OwnSite, *entries: dict[str, Any]) -> None:
    """Give the site these actions."""
    site.change_settings(**validate_settings({"actions": list(entries)}))


def posted(site: OwnSite, *entries: dict[str, Any], status: int = 200) -> Any:
    """Post a list as a script does."""
    rows = [{"status": ENABLED, "counting": "MANY_PER_CLICK", "lookbackDays": 30, **one} for one in entries]
    response = site.report("actions", actions=rows)
    return ok(response) if status == 200 else refused(response, status)


def names(site: OwnSite) -> list[str]:
    return [action.name for action in site.place.settings.actions]
