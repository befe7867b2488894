"""How fast the demonstration goes: at a stroll while somebody looks, briskly if nobody does."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Final

from kesin.engine.access.accounts import Accounts
from kesin.foundation.passwords import one_time_password
from kesin.foundation.permissions import system


@dataclass(frozen=True, slots=True)
class Pace:
    """Waits in seconds; None where nothing more comes after what is there at the start."""

    page: int  # conversions a run of the script takes
    script_every_s: float
    lease_s: int  # in real life 15 minutes: what a crashed script held comes back after it
    orders: int  # of known customers at the start; one more is held
    throws: bool = False  # Google may tell the script to come back in some minutes
    sales_every_s: float | None = None
    invoice_every_s: float | None = None
    order_every_s: float | None = None

    @property
    def goes_on(self) -> bool:
        """Whether new work keeps coming in."""
        return self.sales_every_s is not None


STROLL: Final = Pace(
    page=25,
    script_every_s=2.0,
    lease_s=15,
    orders=2,
    throws=True,
    sales_every_s=3.0,
    invoice_every_s=10.0,
    order_every_s=40.0,
)
BRISK: Final = Pace(page=100, script_every_s=0.5, lease_s=3, orders=1)


class News:
    """Sentences that wait to be shown, and how often what happened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._untold: list[str] = []
        self._times: Counter[str] = Counter()

    def tell(self, text: str) -> None:
        """Something happened."""
        with self._lock:
            self._untold.append(text)

    def count(self, what: str, times: int = 1) -> None:
        """So often more, for the summary."""
        with self._lock:
            self._times[what] += times

    def times(self, what: str) -> int:
        """How often it was."""
        with self._lock:
            return self._times[what]

    def heard(self) -> list[str]:
        """What was said since the last time, in order."""
        with self._lock:
            told, self._untold = self._untold, []
        return told


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
