"""Whatever comes between, a conversion is sent with the data that an adjustment left it."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kesin.workloads.oci import adjustments
from kesin.workloads.oci.adjustments import adjust
from kesin.workloads.oci.conversions.ingest import ingest
from tests.web.conftest import ROOT
from tests.workloads.oci.adjustments.adjusting import job, queued, row, states
from tests.workloads.oci.own_site import OwnSite

SALES = 12


def test_a_claim_between_reading_and_changing_is_found(site: OwnSite, monkeypatch: pytest.MonkeyPatch):
    """On SQLite a claim waits for the transaction; on PostgreSQL it comes between."""
    [sale] = site.enqueue()
    came: list[Any] = []
    find_siblings = adjustments.siblings
    claim = threading.Thread(target=lambda: came.extend(site.export()))

    def claimed_first(place: Any, ids: Any) -> Any:
        found = find_siblings(place, ids)
        if claim.ident is None:
            claim.start()
            if place.queue.store.__class__.__name__.startswith("Postgres"):
                claim.join()
        return found

    monkeypatch.setattr(adjustments, "siblings", claimed_first)
    [result] = adjust(site.place, [row(value=70)], actor=ROOT)
    claim.join()
    [item] = came
    assert item["conversionValue"] == (70 if result.outcome == "corrected" else 101)
    assert result.outcome in ("corrected", "waits")
    assert site.state(sale) == "PROCESSING"


def test_exports_and_adjustments_at_once_agree_on_every_sale(site: OwnSite):
    site.enqueue(SALES)
    exported: dict[str, Any] = {}

    def export() -> None:
        while len(exported) < SALES // 2:
            exported.update((one["id"], one) for one in site.export(limit=1))

    exports = threading.Thread(target=export)
    exports.start()
    numbers = range(SALES, 0, -1)  # they meet in the middle
    results = {n: adjust(site.place, [row(n, value=5)], actor=ROOT)[0] for n in numbers}
    exports.join()
    exported.update((one["id"], one) for one in site.export())
    values = {site.job(key.removeprefix("seal_")).payload["externalId"]: one["conversionValue"]
              for key, one in exported.items()}  # fmt: skip
    assert len(values) == SALES
    for n, result in results.items():
        is_local = result.outcome == "corrected"
        assert values[f"sale-{n}"] == (5 if is_local else 100 + n)
        assert states(site, [str(result.id)]) == ["COMPLETED" if is_local else "WAITING"]


def test_a_retraction_and_an_export_at_once_never_both_win(site: OwnSite):
    site.enqueue(SALES)
    exported: list[str] = []

    def export() -> None:
        for _ in range(SALES // 2):
            exported.extend(one["id"].removeprefix("seal_") for one in site.export(limit=1))

    exports = threading.Thread(target=export)
    exports.start()
    rows = [row(n, "RETRACT") for n in range(SALES, 0, -1)]
    results = [adjust(site.place, [one], actor=ROOT)[0] for one in rows]
    exports.join()
    exported += [one["id"].removeprefix("seal_") for one in site.export()]
    kept = {site.job(job_id).payload["externalId"] for job_id in exported}
    for result in results:
        assert (result.external_id in kept) == (result.outcome == "waits")


def test_two_calls_at_once_take_one_adjustment_once(site: OwnSite):
    site.claim()
    calls = [threading.Thread(target=adjust, args=(site.place, [row()]), kwargs={"actor": ROOT}) for _ in range(4)]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    [same] = site.oci.queue.notes(site.jobs()[0].id)
    assert same.kind == adjustments.NOTE
    [other] = queued(site, row(adjustmentId="a2"), outcome="waits")
    assert job(site, other).state == "WAITING"


def test_ingest_and_adjustments_of_the_same_sales_never_wait_for_each_other_in_a_ring(site: OwnSite):
    """They lock the rows in opposite orders: each call ends, and every sale is as one of them."""
    site.enqueue(SALES)
    numbers, failed = list(range(1, SALES + 1)), list[BaseException]()

    def run(call: Callable[[int], Any]) -> None:
        try:
            for n in range(6):
                call(n)
        except BaseException as problem:  # noqa: BLE001  # shown below
            failed.append(problem)

    def adjusted(n: int) -> None:
        kinds = {number: "RETRACT" if number % 3 == 0 and n == 5 else "RESTATE" for number in numbers}
        rows = [row(one, kinds[one], adjustmentId=f"a{n}") for one in reversed(numbers)]
        adjust(site.place, rows, actor=ROOT)

    def corrected(n: int) -> None:
        ingest(site.place, [site.row(one, conversionValue=n) for one in numbers], actor=ROOT)

    calls = [threading.Thread(target=run, args=(one,)) for one in (adjusted, corrected, corrected)]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert failed == []
    kept = [one.payload["externalId"] for one in site.jobs() if one.state == "QUEUED"]
    assert len(kept) == SALES - SALES // 3
