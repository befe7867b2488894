"""The dead-letter file: safe in a spreadsheet, and unchanged when corrected and sent back."""

import csv
import io
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kesin.store.limits import MAX_PAGE
from kesin.workloads.oci.conversions.corrections import (
    DEAD_LETTER_COLUMNS,
    _csv_text,
    dead_letter_chunks,
)
from kesin.workloads.oci.conversions.csv_cells import escape_cell
from kesin.workloads.oci.conversions.parsing import parse_body
from tests.workloads.oci import own_site
from tests.workloads.oci.own_site import OwnSite, refused, well

shared, site, neighbour = own_site.shared, own_site.site, own_site.neighbour
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def ask(site: OwnSite, **params: Any) -> Any:
    return site.client.get(
        "/api/oci/dead-letter.csv", params={"siteId": site.id, **params}, headers=site.reader
    )


def letters(site: OwnSite, **params: Any) -> list[dict[str, str]]:
    answer = ask(site, **params)
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"), newline="")))


def written(rows: list[dict[str, str]]) -> str:
    """The file as a spreadsheet saves it."""
    page = io.StringIO(newline="")
    writer = csv.DictWriter(page, DEAD_LETTER_COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    return page.getvalue()


def back(site: OwnSite, rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    return list(well(site.ingest(written(rows), "text/csv"))["results"])


# Out


def test_a_letter_says_what_was_sold_and_what_went_wrong(site: OwnSite):
    [job_id] = site.failed()
    [row] = letters(site)
    assert list(row) == list(DEAD_LETTER_COLUMNS)
    data = site.look(job_id).data
    assert row["id"] == f"seal_{job_id}"
    assert (row["externalId"], row["revision"], row["orderId"]) == ("sale-1", "1", data["orderId"])
    assert (row["gclid"], row["wbraid"]) == (data["gclid"], "")
    assert (row["conversionValue"], row["conversionTime"]) == ("101", data["conversionTime"])
    assert (row["errorCode"], row["errorCategory"]) == ("BROKEN", "VALIDATION")
    assert (row["lastError"], row["attempts"]) == ("it broke", "1")
    assert row["failedAt"] == site.shown(job_id)["failed_at"]
    assert row["whatToDo"]


def test_only_failed_rows_of_this_site_are_letters(site: OwnSite, neighbour: OwnSite):
    neighbour.failed()
    [failed] = site.failed()
    site.exported(1, first=5)
    site.queued(1, first=9)
    assert [one["id"] for one in letters(site)] == [f"seal_{failed}"]


def test_a_site_without_failures_has_a_header_alone(site: OwnSite):
    site.queued()
    assert ask(site).text == "\ufeff" + ",".join(DEAD_LETTER_COLUMNS) + "\r\n"


def test_the_advice_comes_in_either_language(site: OwnSite):
    site.failed()
    assert letters(site, lang="en")[0]["whatToDo"] != letters(site, lang="tr")[0]["whatToDo"]
    assert ask(site, lang="de").status_code == 422


def test_it_is_a_file_that_nobody_on_the_way_keeps(site: OwnSite):
    headers = ask(site).headers
    assert headers["content-type"] == "text/csv; charset=utf-8"
    assert headers["content-disposition"] == f'attachment; filename="dead-letters-{site.id}.csv"'
    assert headers["cache-control"] == "private, no-store"


def test_it_is_read_page_by_page(site: OwnSite):
    site.queued(MAX_PAGE + 5)
    site.act("MARK_FAILED", filter={})
    parts = dead_letter_chunks(site.context, site.place)
    assert isinstance(parts, Iterator)
    assert [part.count("seal_") for part in parts] == [0, MAX_PAGE, 5]


def test_every_failed_row_is_there_once(site: OwnSite):
    ids = site.queued(30)
    site.act("MARK_FAILED", filter={})
    assert sorted(one["id"] for one in letters(site)) == sorted(f"seal_{job_id}" for job_id in ids)


@pytest.mark.parametrize("scope", ["oci:script", "oci:ingest", "metrics"])
def test_whoever_may_not_read_gets_no_letters(site: OwnSite, scope: str):
    answer = site.client.get(
        f"/api/oci/dead-letter.csv?siteId={site.id}",
        headers=site.oci.key(scope, site=site.id),
    )
    assert refused(answer, 403)["details"] == {"needs": "read"}


def test_a_foreign_site_gives_no_letters(site: OwnSite, neighbour: OwnSite):
    key = site.oci.key("read", site=site.id)
    answer = site.client.get(f"/api/oci/dead-letter.csv?siteId={neighbour.id}", headers=key)
    assert answer.status_code == 403


# Formulas


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+90532", "-1+1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_begins_like_a_formula(site: OwnSite, text: str):
    site.exported(1)
    [job] = site.jobs()
    site.ack_failed([job.id], errorCode=f"{text}"[:64], errorMessage=text)
    [row] = letters(site)
    assert not [one for one in row.values() if one.startswith(FORMULAS)]


@given(st.text())
def test_no_cell_at_all_begins_like_a_formula(text: str):
    assert not escape_cell(text).startswith(FORMULAS)


@pytest.mark.parametrize("external_id", ["=1+1", "+905320000000", "-7", "@you", "'quoted", "''"])
def test_a_name_like_a_formula_comes_back_as_it_was(site: OwnSite, external_id: str):
    site.queued(1, externalId=external_id)
    [item] = site.export()
    site.ack_failed([item["id"]])
    [row] = letters(site)
    row["conversionValue"] = "7"
    [result] = back(site, [row])
    assert (result["result"], result["externalId"]) == ("corrected", external_id)


# Back


def test_a_file_that_was_mended_and_sent_back_corrects_its_rows(site: OwnSite):
    ids = site.failed(3)
    rows = letters(site)
    for row in rows[:2]:
        row["conversionValue"] = "7,50"
    results = back(site, rows)
    assert [result["result"] for result in results] == ["corrected", "corrected", "duplicate"]
    assert [result["id"] for result in results] == ids[::-1]
    assert site.states(ids) == ["FAILED", "QUEUED", "QUEUED"]
    assert {one["conversionValue"] for one in site.export()} == {7.5}


def test_a_file_sent_back_as_it_came_changes_nothing(site: OwnSite):
    site.failed(3)
    before = site.jobs()
    assert [one["result"] for one in back(site, letters(site))] == ["duplicate"] * 3
    assert site.jobs() == before


@pytest.mark.parametrize(
    ("currency", "value"), [("TRY", 0.01), ("TRY", 1234567.89), ("JPY", 1500), ("KWD", 12.345)]
)
def test_an_amount_comes_back_as_it_was(site: OwnSite, currency: str, value: float):
    site.queued(1, conversionCurrency=currency, conversionValue=value)
    [item] = site.export()
    site.ack_failed([item["id"]])
    assert back(site, letters(site))[0]["result"] == "duplicate"


def test_a_revision_comes_back_as_itself(site: OwnSite):
    [job_id] = site.exported()
    site.ack([job_id])
    site.act("ENQUEUE_FIX", [job_id])
    [item] = site.export()
    site.ack_failed([item["id"]])
    [row] = letters(site)
    row["conversionValue"] = "7"
    [result] = back(site, [row])
    assert (result["result"], result["id"]) == ("corrected", item["id"].removeprefix("seal_"))


def test_a_row_that_was_never_right_can_be_mended_too(site: OwnSite):
    bad = site.raw({**site.row(), "gclid": "not right"}, key="sale-1")
    site.export()
    [row] = letters(site)
    assert (row["gclid"], row["errorCode"]) == ("not right", "INVALID_CLICK_ID_FORMAT")
    row["gclid"] = "Cj0KCQiA_right"
    [result] = back(site, [row])
    assert (result["result"], result["id"]) == ("corrected", bad)


def test_a_letter_may_come_back_with_semicolons(site: OwnSite):
    site.failed()
    [row] = letters(site)
    row["conversionValue"] = "7,50"
    page = io.StringIO(newline="")
    writer = csv.DictWriter(page, DEAD_LETTER_COLUMNS, delimiter=";")
    writer.writeheader()
    writer.writerow(row)
    body = well(site.ingest("\ufeff" + page.getvalue(), "text/csv"))["results"]
    assert body[0]["result"] == "corrected"


@pytest.mark.parametrize("payload", [None, [], "text", {"externalId": {"a": 1}, "gclid": [1]}])
def test_whatever_a_row_holds_it_becomes_a_letter(site: OwnSite, payload: Any):
    bad = site.raw(payload)
    site.export()
    assert [one["id"] for one in letters(site)] == [f"seal_{bad}"]


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                name: st.text(st.characters(codec="utf-8"), max_size=8)
                for name in ("externalId", "gclid", "conversionName", "conversionTime")
            }
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_text_goes_out_and_comes_back(rows: list[dict[str, str]]):
    names = list(rows[0])
    page = "\ufeff" + _csv_text(
        [names, *([escape_cell(row[name]) for name in names] for row in rows)]
    )
    found = parse_body(page.encode(), "text/csv")[1]
    kept = [row for row in rows if any(escape_cell(cell).strip() for cell in row.values())]
    assert found == kept
