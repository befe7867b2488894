"""A `kesin serve` process to attack: two sites, users of each kind, and rows that stay secret."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kesin.engine.access.accounts import Accounts
from kesin.foundation.clock import wall_clock_us
from kesin.foundation.permissions import system_actor
from kesin.store.directory import Directory
from tests.attacks.wire import Wire
from tests.cli.programs import Programs
from tests.web.schema_requests import CRON_SECRET, HOOK_SECRET, INTERNAL, PASSWORD, SECRET_KEY
from tests.web.serving import Served, opened, serve
from tests.workloads.optiplan.order_bodies import order, part

ROOT = system_actor("cli:tests")
OWN, OTHER = "north", "south"
CANARY = "canary-of-the-south"  # in every row, name and note of the other site
COMMON = {
    "KESIN_RATE_PER_S": "1000000",
    "KESIN_SIGN_IN_PER_MIN": "10000",
    "KESIN_CRON_SECRET": CRON_SECRET,
    "KESIN_SECRET_KEYS": f"first:{SECRET_KEY}",
    "KESIN_PDF_WEBHOOKS": "https://hooks[.]example[.]com/.*",
    "KESIN_PDF_WEBHOOK_SECRET": HOOK_SECRET,
}
USERS: dict[str, dict[str, Any]] = {
    "admin": {"role": "admin", "all_sites": True},
    "operator": {"role": "operator", "sites": [OWN]},
}


@dataclass
class Target:
    """The running service, the credentials of its callers, and the ids of its rows."""

    served: Served
    folder: Path
    tokens: dict[str, str] = field(default_factory=dict)  # session tokens by user
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return self.served.address

    @property
    def pid(self) -> int:
        return self.served.program.process.pid

    @property
    def secrets(self) -> list[str]:
        """What no response may contain."""
        return [*INTERNAL, self.served.key, *self.tokens.values()]

    def wire(self, source: str = "127.0.0.1") -> Wire:
        return Wire(self.address, source=source)

    def cookie(self, user: str) -> dict[str, str]:
        """The headers of a browser that shows one of our own pages."""
        return {"cookie": f"kesin_session={self.tokens[user]}", "sec-fetch-site": "same-origin"}

    def post(self, path: str, body: Any) -> Any:
        """Create something as the admin's program; the response's JSON."""
        response = self.served.client.post(path, json=body)
        assert response.is_success, response.text
        return response.json()

    def stop(self) -> str:
        """Stop it as a service manager does; its log."""
        self.served.signal(signal.SIGTERM)
        self.served.end()
        return self.served.program.rest()


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[Target]:
    """A service with accounts; its log is checked at the end."""
    with opened(folder) as store:
        accounts = Accounts(Directory(store))
        accounts.add_site(ROOT, OWN, name="North")
        accounts.add_site(ROOT, OTHER, name=f"South {CANARY}")
        for name, may in USERS.items():
            accounts.add_user(ROOT, name, PASSWORD, **may)
        tokens = {name: accounts.sign_in(name, PASSWORD, "127.0.0.1")[0] for name in USERS}
        key_id = accounts.create_key(ROOT, CANARY, ["oci:ingest"], site=OTHER)[1].id
    with Programs(folder) as programs:
        served = serve(programs, folder, "--no-workers", **{**COMMON, **settings})
        with served:
            target = Target(served, folder, tokens, {"key": key_id})
            yield target
            log = target.stop()
    assert "Traceback" not in log
    leaked = [secret for secret in (SECRET_KEY, PASSWORD, *tokens.values()) if secret in log]
    assert not leaked, "a secret is in the log"


def conversion(number: int, text: str) -> dict[str, Any]:
    """A conversion of yesterday."""
    at = datetime.fromtimestamp(wall_clock_us() / 1_000_000, UTC) - timedelta(days=1)
    return {
        "externalId": f"sale-{number}-{text}",
        "gclid": f"Cj0KCQiA_click-{number:06d}",
        "conversionName": f"Sale {text}",
        "conversionTime": at.isoformat("T", "seconds"),
        "conversionValue": 100 + number,
    }


def fill(target: Target) -> None:
    """Rows of both sites, an order, a customer and a document of somebody else."""
    for site, text in ((OWN, "own"), (OTHER, CANARY)):
        rows = [conversion(number, text) for number in range(3)]
        answer = target.post(f"/api/oci/conversions?siteId={site}", rows)
        target.ids[f"conversion of {site}"] = answer["results"][0]["id"].removeprefix("seal_")
    document = target.post("/api/queues/pdf/jobs", {"jobs": [{"payload": {"note": CANARY}, "key": CANARY}]})
    target.ids["document"] = document["jobs"][0]["id"]
    body = order(part(), order_id=CANARY, customer_snapshot_name=CANARY)
    target.ids["order"] = target.post("/jobs", body)["job"]["id"]
    target.post("/customers", {"name": CANARY, "phone": "0555 765 43 21"})
