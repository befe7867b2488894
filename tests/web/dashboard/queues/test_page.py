"""The queue page: what it shows, to whom, and what of it is in the address."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest

from kesin.lifecycle.model import Change
from kesin.store.directory import MetadataEntry
from kesin.web.dashboard.queues import csv_export, filters
from kesin.web.dashboard.queues.charts import WORKLOAD
from kesin.web.dashboard.queues.csv_export import escape_formula
from kesin.web.dashboard.queues.filters import MAX_IDS, PageFilter, read_filter
from tests.web.dashboard.conftest import Desk

PART = {"hx-request": "true"}
NO_JOB = "00000000-0000-7000-8000-000000000000"


def look(desk: Desk, path: str = "", who: str = "ayse", **headers: str) -> Any:
    return desk.client.get(desk.page + path, headers={**desk.cookie(who), **headers})


def shown(text: str) -> list[str]:
    """The jobs of the table, as they are shown."""
    return re.findall(r'<tr id="row-([0-9a-f-]{36})"', text)


def fail(desk: Desk, site: str = "north", code: str = "BROKEN", **error: Any) -> str:
    job_id = desk.job(site)
    [job] = desk.task.claim("w", ids=[job_id])
    told = {"error_category": "PERMANENT", "error_message": "it broke", **error}
    call = dict(desk.task.lifecycle.errors.moves)
    failing = next(name for verdict, name in call.items() if verdict.value == "fail")
    desk.task.apply(failing, [Change(job.id, job.claim_seq, error_code=code, **told)], actor="w")
    assert desk.state(job_id) == "failed"
    return job_id


def test_cards_count_by_state_and_lead_to_it(desk):
    desk.job()
    desk.failed()
    page = look(desk).text
    counts = re.findall(r'id="state-(\w+)".*?data-number>(\d+)<', page, re.DOTALL)
    assert counts == [("ready", "1"), ("running", "0"), ("done", "0"), ("failed", "1")]
    assert f'href="{desk.page}?state=failed"' in page


def test_a_card_that_is_chosen_leads_back_to_all(desk):
    page = look(desk, "?state=failed").text
    card = re.search(r'<a id="state-failed"[^>]*>', page)
    assert card
    assert f'href="{desk.page}"' in card[0]
    assert 'aria-current="true"' in card[0]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {"ready", "south", "broken", "late"}),
        ("?state=failed", {"broken", "late"}),
        ("?state=failed&state=ready", {"ready", "south", "broken", "late"}),
        ("?code=BROKEN", {"broken"}),
        ("?category=TRANSIENT", {"late"}),
        ("?site=south", {"south"}),
        ("?text=TOO+Late", {"late"}),
        ("?text=order-1", {"ready"}),
        ("?text=nothing-like-it", set()),
        ("?age=within-1h", {"south", "broken", "late"}),
        ("?age=before-1h", {"ready"}),
        ("?age=still-1h", {"ready"}),
        ("?state=nonsense&age=never&category=none", {"ready", "south", "broken", "late"}),
    ],
)
def test_every_filter_is_in_the_address(query, found, desk):
    jobs = {"ready": desk.job(key="order-1")}
    desk.clock.advance(7_200)
    jobs |= {
        "south": desk.job("south"),
        "broken": fail(desk),
        "late": fail(
            desk, code="LATE", error_category="TRANSIENT", error_message="It came too late"
        ),
    }
    assert set(shown(look(desk, query).text)) == {jobs[one] for one in found}


def test_a_job_is_found_by_its_id(desk):
    one, _other = desk.job(), desk.job()
    assert shown(look(desk, f"?text={one}").text) == [one]
    assert shown(look(desk, f"?ids={one},nonsense").text) == [one]


def test_a_part_is_asked_for_without_the_frame_and_going_back_with_it(desk):
    desk.job()
    part = look(desk, "", **PART).text
    assert part.lstrip().startswith('<div id="view"')
    back = look(desk, "", **PART, **{"hx-history-restore-request": "true"}).text
    assert back.lstrip().startswith("<!doctype html>")


def test_rows_append_page_by_page(desk, monkeypatch):
    monkeypatch.setattr(filters.read_page, "__kwdefaults__", {"limit": 2, "cursor": None})
    jobs = [desk.job() for _ in range(5)][::-1]
    more = f"/rows?cursor={jobs[1]}&shown=2"
    second = look(desk, more, **PART).text
    assert shown(second) == jobs[2:4]
    assert f"cursor={jobs[3]}&amp;shown=4" in second
    last = look(desk, f"/rows?cursor={jobs[3]}&shown=4", **PART).text
    assert shown(last) == jobs[4:]
    assert "cursor=" not in last


def test_a_page_that_was_made_longer_stays_long_when_it_renews(desk):
    jobs = [desk.job() for _ in range(120)][::-1]
    assert shown(look(desk, "", **PART).text) == jobs[:50]
    assert shown(look(desk, "?rows=100", **PART).text) == jobs[:100]
    assert "50 of 120 rows" in look(desk).text
    assert look(desk, "?rows=-3&cursor=no").status_code == 200


def test_a_search_that_is_not_counted_says_that_there_is_more(desk):
    for _ in range(51):
        fail(desk)
    assert "50 of 50+ rows" in look(desk, "?code=BROKEN").text
    assert "50 of 51 rows" in look(desk, "?state=failed").text


def test_an_empty_queue_and_an_empty_answer_say_so(desk):
    assert "This queue is empty" in look(desk).text
    assert "No job matches" in look(desk, "?code=X").text


def test_what_others_wrote_is_never_markup(desk):
    fail(desk, code="<b>x", error_message='"><script>alert(1)</script>')
    desk.job(key="<i>key")
    page = look(desk).text
    assert "<script>alert" not in page
    assert "<b>x" not in page
    assert "<i>key" not in page


def test_personal_data_in_a_message_is_covered(desk):
    fail(desk, error_message="no such customer: can@example.com")
    assert "can@example.com" not in look(desk).text
    assert "can@example.com" not in look(desk, "/rows.csv").text


def test_who_may_only_look_is_offered_nothing(desk):
    desk.job()
    desk.known("vera", "viewer", all_sites=True)
    page = look(desk, who="vera").text
    assert "data-pick" not in page
    assert "data-bar" not in page
    assert "Pause…" not in page
    assert "data-pick" in look(desk).text


def test_rows_of_other_sites_are_not_there(desk):
    mine, foreign = desk.job("north"), desk.job("south", key="canary")
    fail(desk, "south", code="CANARY")
    desk.task.pause(actor="canary", tenant="south", reason="canary")
    desk.known("nur", "operator", sites=["north"])
    nur = {**desk.cookie("nur"), "x-request-id": "same", "hx-request": "true"}

    def ask(query: str) -> str:
        return str(desk.client.get(desk.page + query, headers=nur).text)

    for name, there in (("text", "canary"), ("ids", foreign), ("text", foreign)):
        nowhere = NO_JOB if there == foreign else "nobody"
        assert ask(f"?{name}={there}").replace(there, nowhere) == ask(f"?{name}={nowhere}")
    everything = ask("") + desk.client.get(f"{desk.page}/rows.csv", headers=nur).text
    assert shown(everything) == [mine]
    assert "canary" not in everything.casefold()
    assert look(desk, "?site=south", who="nur").status_code == 403


def test_failures_are_told_by_code_and_lead_to_their_rows(desk):
    for code in ("A", "B", "B"):
        fail(desk, code=code)
    page = look(desk).text
    charts = page[page.index('class="charts"') : page.index('id="filters"')]
    assert re.findall(r'\?code=(\w)" hx-get', charts) == ["B", "A"]


def test_throughput_is_of_the_whole_queue_and_for_those_who_see_it_whole(desk):
    now = desk.task.now()
    notes = f"[[{now - 3_600_000_000}, -7, 0]]"
    desk.accounts.directory.put_metadata(MetadataEntry(WORKLOAD, "", desk.name, notes, now))
    assert 'Throughput, 24 h <span class="n">7</span>' in look(desk).text
    desk.known("nur", "operator", sites=["north"])
    assert "Throughput" not in look(desk, who="nur").text


def test_the_page_speaks_turkish(desk):
    desk.failed()
    page = look(desk, **{"accept-language": "tr"}).text
    assert "Koda göre hatalar" in page
    assert "Eşleşenlerin tümünü seç" in page


# The file


def cells(text: str) -> list[list[str]]:
    assert text[0] == "\ufeff"
    return list(csv.reader(io.StringIO(text[1:])))


def test_the_file_holds_what_matches(desk):
    broken = fail(desk)
    desk.job()
    answer = look(desk, "/rows.csv?state=failed")
    head, *rows = cells(answer.text)
    assert tuple(head) == csv_export.COLUMNS
    assert [row[0] for row in rows] == [broken]
    assert answer.headers["content-disposition"] == f'attachment; filename="{desk.name}.csv"'


def test_a_file_that_is_cut_says_so(desk, monkeypatch):
    monkeypatch.setattr(csv_export, "MAX_ROWS", 2)
    monkeypatch.setattr(csv_export, "MAX_PAGE", 1)
    for _ in range(3):
        desk.job()
    _, *rows = cells(look(desk, "/rows.csv").text)
    assert len(rows) == 3
    assert rows[-1] == ["There are more rows: narrow the filter to export the rest."]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_no_cell_is_a_formula(start):
    assert escape_formula(f"{start}cmd|' /C calc'!A0").startswith("'")
    assert f";{start}1" not in escape_formula(f"a;{start}1") or start in "\t\r\n"


# Reading an address


def test_an_address_reads_back_as_it_was_written(desk):
    wanted = PageFilter(("failed", "ready"), "A B&C", "AUTH", "north", "still-1h", "ü=%", ())
    asked: dict[str, list[str]] = {}
    for name, value in wanted.pairs():
        asked.setdefault(name, []).append(value)
    assert read_filter(asked, desk.task.lifecycle) == wanted


def test_an_address_holds_so_many_ids(desk):
    ids = ",".join(f"00000000-0000-7000-8000-{n:012x}" for n in range(MAX_IDS + 5))
    assert len(read_filter({"ids": [ids]}, desk.task.lifecycle).ids) == MAX_IDS
