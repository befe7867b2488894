"""The pages of an adjustment and of its conversion lead to each other and say what comes next."""

from typing import Any

from kesin.foundation.clock import iso
from kesin.workloads.oci import script
from kesin.workloads.oci.adjustments import adjust
from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.site import SiteContext
from kesin.workloads.oci.uploader import AdjustmentUploader
from tests.web.conftest import ROOT, World
from tests.web.dashboard.jobs.test_page import CONVERSION, read


def place(world: World) -> SiteContext:
    found = world.accounts.find_site("north")
    assert found is not None
    return SiteContext(world.service.workload_context("oci"), found)


def sold(world: World, name: str) -> str:
    row = {**CONVERSION, "externalId": name, "conversionTime": iso(world.clock.now())}
    [sale] = ingest(place(world), [row], actor=ROOT)
    return str(sale.id)


def adjusted(world: World, name: str, **fields: Any) -> str:
    row = {"externalId": name, "adjustmentId": "return-1", **fields}
    [result] = adjust(place(world), [row], actor=ROOT)
    assert result.result == "queued", result
    return str(result.id)


def test_it_says_what_it_waits_for_and_where_the_conversion_is(world: World):
    sale = sold(world, "returned")
    [item] = [one for one in script.export(place(world), limit=1_000, actor="tests") if sale in one["id"]]
    made = adjusted(world, "returned", type="RETRACT")
    page = read(world, made)
    assert "returned · RETRACT" in page
    assert "It is waiting until Google has the conversion." in page
    assert f'href="/dashboard/jobs/{sale}"' in page
    assert f'href="/dashboard/jobs/{made}"' in read(world, sale)
    script.ack(place(world), [item["id"]], actor="tests")
    assert "earlier adjustments and uploads of the sale have ended" in read(world, made)
    world.clock.advance(3_600)
    AdjustmentUploader(world.service.workload_context("oci_adjustments"), {}).run_once()
    page = read(world, made)
    assert "It is waiting for an operator" in page
    assert "/api/oci/adjustments.csv?siteId=north" in page


def test_one_that_was_settled_here_says_that_nothing_was_sent(world: World):
    sale = sold(world, "restated")
    made = adjusted(world, "restated", type="RESTATE", value=7, currency="EUR")
    page = read(world, made)
    assert "restated · 7 EUR" in page
    assert "Nothing was sent" in page
    assert "restated · 7 EUR" in read(world, sale)
