"""OCI Control as users of each role ask for it, and a site with rows for it."""

from typing import Any

from kesin.engine.queue import apply_changes
from kesin.foundation.clock import iso
from kesin.foundation.permissions import system_actor
from kesin.lifecycle.model import Change
from kesin.workloads.oci import script
from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.site import SiteContext
from tests.web.conftest import World

PAGE = "/dashboard/site/north/oci-control"
ROOT = system_actor("tests")
HTMX = {"hx-request": "true"}


class ControlPage:
    """A site with rows, and users of each role."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.context = world.service.workload_context("oci")
        world.person("can", "operator", sites=["north"])
        world.person("ece", "viewer", sites=["north"])
        world.person("ayse", "admin", all_sites=True)
        self._headers: dict[str, dict[str, str]] = {}

    def site(self, name: str = "north") -> SiteContext:
        found = self.world.accounts.find_site(name)
        assert found is not None
        return SiteContext(self.context, found)

    def rows(self, n: int, name: str = "sale", site: str = "north") -> list[str]:
        at = iso(self.world.clock.now())
        given = [
            {
                "externalId": f"{name}-{one}",
                "gclid": f"Cj0KCQiA{one:06d}abcDEF",
                "conversionName": "Sale",
                "conversionTime": at,
                "conversionValue": 10,
            }
            for one in range(n)
        ]
        return [one.id or "" for one in ingest(self.site(site), given, actor=ROOT)]

    def failed(self, n: int, code: str = "UNPARSEABLE_GCLID") -> list[str]:
        ids = self.rows(n, "bad")
        script.export(self.site(), limit=1_000, actor="tests")
        changes = [Change(one, error_code=code, error_category="VALIDATION") for one in ids]
        apply_changes(self.context.queue, "ack_failed", changes, actor="tests")
        return ids

    def forget_sessions(self) -> None:
        self._headers.clear()

    def _as(self, who: str) -> dict[str, str]:
        if who not in self._headers:
            self._headers[who] = self.world.cookie(who)
        return dict(self._headers[who])

    def get(self, path: str = "", who: str = "can", **sent: Any) -> Any:
        return self.world.client.get(PAGE + path, headers=self._as(who), **sent)

    def post(self, path: str, who: str = "can", **sent: Any) -> Any:
        return self.world.client.post(PAGE + path, headers=self._as(who) | HTMX, **sent)
