"""The dead-letter file: safe in a spreadsheet, and unchanged when corrected and sent back."""

import csv
import io
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.foundation.text import escape_cell
from kesin.workloads.common import stores
from kesin.workloads.oci.conversions.corrections import DEAD_LETTER_COLUMNS, dead_letter_pages
from tests.web.conftest import ROOT
from tests.workloads.oci.own_site import OwnSite, bare, ok, seals

FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def download(site: OwnSite, **params: Any) -> Any:
    params = {"siteId": site.id, **params}
    return site.request("GET", "dead-letter.csv", site.operator, params=params)


def letters(site: OwnSite, **params: Any) -> list[dict[str, str]]:
    response = download(site, **params)
    assert response.status_code == 200, response.text
    return list(csv.DictReader(io.StringIO(response.content.decode("utf-8-sig"), newline="")))


def send_back(site: OwnSite, rows: list[dict[str, str]], delimiter: str = ",", mark: str = "") -> list[dict[str, Any]]:
    """Post the file as a spreadsheet saves it; returns the results."""
    page = io.StringIO(newline="")
    writer = csv.DictWriter(page, DEAD_LETTER_COLUMNS, delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return list(ok(site.ingest(mark + page.getvalue(), "text/csv"))["results"])


# Out


def test_a_letter_holds_the_conversion_and_its_error(site: OwnSite):
    [job_id] = site.fail()
    headers = download(site, code="BROKEN", lang="en").headers
    assert headers["content-type"] == "text/csv; charset=utf-8"
    assert headers["content-disposition"] == f'attachment; filename="dead-letters-{site.id}.csv"'
    assert headers["cache-control"] == "private, no-store"
    assert letters(site, code="OTHER") == []
    [row] = letters(site, code="BROKEN")
    assert list(row) == list(DEAD_LETTER_COLUMNS)
    assert row["whatToDo"] != letters(site, lang="tr")[0]["whatToDo"]
    assert download(site, lang="de").status_code == 422
    payload = site.job(job_id).payload
    assert row.pop("whatToDo")
    expected = {name: payload[name] for name in ("orderId", "gclid", "conversionTime")} | {
        "id": f"seal_{job_id}",
        "externalId": "sale-1",
        "revision": "1",
        "wbraid": "",
        "conversionValue": "101",
        "errorCode": "BROKEN",
        "errorCategory": "VALIDATION",
        "lastError": "it broke",
        "attempts": "1",
        "failedAt": site.row_of(job_id)["failed_at"],
    }
    assert {name: row[name] for name in expected} == expected


def test_only_failed_rows_of_this_site_are_letters(site: OwnSite, neighbour: OwnSite):
    assert download(site).text == "\ufeff" + ",".join(DEAD_LETTER_COLUMNS) + "\r\n"
    neighbour.fail()
    [failed] = site.fail()
    site.claim(1, first=5)
    site.enqueue(1, first=9)
    assert [row["id"] for row in letters(site)] == [f"seal_{failed}"]


def test_every_failed_row_is_there_once_page_by_page(site: OwnSite, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stores, "MAX_PAGE", 20)
    ids = site.enqueue(25)
    site.act("MARK_FAILED", filter={}, all=True)
    pages = dead_letter_pages(site.place, ROOT)
    assert isinstance(pages, Iterator)
    assert [str(page).count("seal_") for page in pages] == [0, 20, 5]
    assert sorted(row["id"] for row in letters(site)) == sorted(seals(ids))


def test_any_stored_row_becomes_a_letter(site: OwnSite):
    payloads: list[Any] = [None, [], "text", {"externalId": {"a": 1}, "gclid": [1]}]
    bad = [site.enqueue_raw(payload) for payload in payloads]
    site.export()
    assert sorted(row["id"] for row in letters(site)) == sorted(seals(bad))


# Formulas


def test_no_cell_begins_like_a_formula(site: OwnSite):
    texts = ["=HYPERLINK(1)", "+90532", "-1+1", "@SUM(A1)", "\t=1", "\r=1"]
    for text, job_id in zip(texts, site.claim(len(texts)), strict=True):
        site.ack_failed([job_id], errorCode=text, errorMessage=text)
    rows = letters(site)
    assert len(rows) == len(texts)
    assert not [cell for row in rows for cell in row.values() if cell.startswith(FORMULAS)]


@settings(max_examples=25)
@given(st.text())
def test_no_cell_at_all_begins_like_a_formula(text: str):
    assert not escape_cell(text).startswith(FORMULAS)


def test_an_external_id_like_a_formula_comes_back_unchanged(site: OwnSite):
    names = ["=1+1", "+905320000000", "-7", "@you", "'quoted", "''"]
    site.post([site.row(n, externalId=name) for n, name in enumerate(names)])
    site.ack_failed(bare(site.export()))
    results = send_back(site, [row | {"conversionValue": "7"} for row in letters(site)])
    assert {result["result"] for result in results} == {"corrected"}
    assert sorted(result["externalId"] for result in results) == sorted(names)


# Back


def test_a_file_that_was_mended_and_sent_back_corrects_its_rows(site: OwnSite):
    ids = site.fail(3)
    rows = letters(site)
    for row in rows[:2]:
        row["conversionValue"] = "7,50"
    results = send_back(site, rows, delimiter=";", mark="\ufeff")
    assert [result["result"] for result in results] == ["corrected", "corrected", "duplicate"]
    assert [result["id"] for result in results] == ids[::-1]
    assert site.states(ids) == ["FAILED", "QUEUED", "QUEUED"]
    assert {item["conversionValue"] for item in site.export()} == {7.5}


def test_a_file_sent_back_unchanged_changes_nothing(site: OwnSite):
    amounts = [("TRY", 0.01), ("TRY", 1234567.89), ("JPY", 1500), ("KWD", 12.345)]
    for n, (currency, value) in enumerate(amounts):
        site.enqueue(1, first=n, conversionCurrency=currency, conversionValue=value)
    site.ack_failed(bare(site.export()))
    before = site.jobs()
    results = send_back(site, letters(site))
    assert [result["result"] for result in results] == ["duplicate"] * len(amounts)
    assert site.jobs() == before


def test_a_revision_comes_back_as_itself(site: OwnSite):
    site.act("ENQUEUE_FIX", [site.row_in("COMPLETED")])
    [second] = bare(site.export())
    site.ack_failed([second])
    [row] = letters(site)
    [result] = send_back(site, [row | {"conversionValue": "7"}])
    assert (result["result"], result["id"]) == ("corrected", second)


def test_a_row_that_was_never_valid_can_be_mended_too(site: OwnSite):
    bad = site.enqueue_raw({**site.row(), "gclid": "not right"}, key="sale-1")
    site.export()
    [row] = letters(site)
    assert (row["gclid"], row["errorCode"]) == ("not right", "INVALID_CLICK_ID_FORMAT")
    [result] = send_back(site, [row | {"gclid": "Cj0KCQiA_right"}])
    assert (result["result"], result["id"]) == ("corrected", bad)
