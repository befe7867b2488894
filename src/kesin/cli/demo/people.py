"""Who takes part in the demonstration: sites, people who sign in, and programs with keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kesin.engine.accounts import Accounts
from kesin.foundation.access import system
from kesin.foundation.passwords import one_time_password

SITES: Final = {"bosphorus-plumbing": "Bosphorus Plumbing", "galata-dental": "Galata Dental"}
SITE, QUIET_SITE = SITES
ADMIN: Final = "admin"
OPERATOR: Final = "ayse"
_DEMO: Final = system("demo")


@dataclass(frozen=True, slots=True)
class People:
    """Names with passwords, and the programs' keys."""

    passwords: dict[str, str]
    site_keys: dict[str, str]
    desk_key: str


def invited(accounts: Accounts) -> People:
    """Make all of them."""
    for site, name in SITES.items():
        accounts.add_site(_DEMO, site, name=name)
    passwords = {ADMIN: one_time_password(), OPERATOR: one_time_password()}
    accounts.add_person(_DEMO, ADMIN, passwords[ADMIN], role="admin", all_sites=True)
    accounts.add_person(
        _DEMO,
        OPERATOR,
        passwords[OPERATOR],
        role="operator",
        all_sites=True,
        queues=("oci", "pdf", "pdf_batches", "pdf_webhooks", "optiplan"),
    )
    scopes = ("oci:ingest", "oci:script")
    keys = {
        site: accounts.create_key(_DEMO, f"script of {site}", scopes, site=site, days=1)[0]
        for site in SITES
    }
    desk, _ = accounts.create_key(_DEMO, "the shop's desk", ("pdf", "optiplan"), days=1)
    return People(passwords, keys, desk)
