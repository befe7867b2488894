"""The queue page: what it shows, to whom, and what of it is in the address."""

import csv
import io
import re
from typing import Any

from kesin import Queue, Schedule
from kesin.engine.queue import apply_changes
from kesin.foundation.clock import datetime_of
from kesin.foundation.text import escape_cell
from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.store.directory import MetadataEntry
from kesin.store.history import TOTALS, WORKLOAD
from kesin.web.dashboard.queues import filters, page
from kesin.web.dashboard.queues.filters import MAX_IDS, PageFilter, read_filter
from tests.tables import table
from tests.web.dashboard.conftest import TaskQueue

PART = {"hx-request": "true"}
NO_JOB = "00000000-0000-7000-8000-000000000000"


def look(tasks: TaskQueue, path: str = "", who: str = "ayse", **headers: str) -> Any:
    return tasks.client.get(tasks.page + path, headers={**tasks.cookie(who), **headers})


def shown(text: str) -> list[str]:
    """The jobs of the table, as they are shown."""
    return re.findall(r'<tr id="row-([0-9a-f-]{36})"', text)


def fail(tasks: TaskQueue, site: str = "north", code: str = "BROKEN", **error: Any) -> str:
    job_id = tasks.job(site)
    [job] = tasks.task.claim("w", ids=[job_id])
    fields = {"error_category": "PERMANENT", "error_message": "it broke", **error}
    changes = [Change(job.id, job.claim_seq, error_code=code, **fields)]
    apply_changes(tasks.task, "fail", changes, actor="w")
    assert tasks.state(job_id) == "failed"
    return job_id


def test_cards_count_by_state_and_lead_to_it(tasks):
    tasks.job()
    tasks.failed()
    page = look(tasks).text
    counts = re.findall(r'id="state-(\w+)".*?data-number>(\d+)<', page, re.DOTALL)
    assert counts == [("ready", "1"), ("running", "0"), ("done", "0"), ("failed", "1")]
    assert f'href="{tasks.page}?state=failed"' in page


def test_a_selected_card_leads_back_to_all(tasks):
    page = look(tasks, "?state=failed").text
    card = re.search(r'<a id="state-failed"[^>]*>', page)
    assert card
    assert f'href="{tasks.page}"' in card[0]
    assert 'aria-current="true"' in card[0]


FILTERS = {
    "": {"ready", "south", "broken", "late"},
    "?state=failed": {"broken", "late"},
    "?state=failed&state=ready": {"ready", "south", "broken", "late"},
    "?code=BROKEN": {"broken"},
    "?category=TRANSIENT": {"late"},
    "?site=south": {"south"},
    "?text=TOO+Late": {"late"},
    "?text=order-1": {"ready"},
    "?text=nothing-like-it": set(),
    "?age=within-1h": {"south", "broken", "late"},
    "?age=before-1h": {"ready"},
    "?age=still-1h": {"ready"},
    "?state=nonsense&age=never&category=none": {"ready", "south", "broken", "late"},
}


def test_every_filter_is_in_the_address(tasks):
    late = {"error_category": "TRANSIENT", "error_message": "It came too late"}
    jobs = {"ready": tasks.job(key="order-1")}
    tasks.clock.advance(7_200)
    jobs["south"] = tasks.job("south")
    jobs["broken"] = fail(tasks)
    jobs["late"] = fail(tasks, code="LATE", **late)
    for query, expected in FILTERS.items():
        assert set(shown(look(tasks, query, **PART).text)) == {jobs[name] for name in expected}, query


def test_a_job_is_found_by_its_id(tasks):
    one, _other = tasks.job(), tasks.job()
    assert shown(look(tasks, f"?text={one}").text) == [one]
    assert shown(look(tasks, f"?ids={one},nonsense").text) == [one]


def test_a_part_comes_without_the_frame_and_a_history_request_with_it(tasks):
    tasks.job()
    part = look(tasks, "", **PART).text
    assert part.lstrip().startswith('<div id="view"')
    back = look(tasks, "", **PART, **{"hx-history-restore-request": "true"}).text
    assert back.lstrip().startswith("<!doctype html>")


def test_rows_append_page_by_page(tasks, monkeypatch):
    monkeypatch.setattr(filters, "PAGE", 2)
    jobs = [tasks.job() for _ in range(5)][::-1]
    more = f"/rows?cursor={jobs[1]}&shown=2"
    second = look(tasks, more, **PART).text
    assert shown(second) == jobs[2:4]
    assert f"cursor={jobs[3]}&amp;shown=4" in second
    last = look(tasks, f"/rows?cursor={jobs[3]}&shown=4", **PART).text
    assert shown(last) == jobs[4:]
    assert "cursor=" not in last


def test_a_longer_page_stays_long_when_it_renews(tasks):
    jobs = [tasks.job() for _ in range(120)][::-1]
    assert shown(look(tasks, "", **PART).text) == jobs[:50]
    assert shown(look(tasks, "?rows=100", **PART).text) == jobs[:100]
    assert "50 of 120 jobs" in look(tasks).text
    assert look(tasks, "?rows=-3&cursor=no").status_code == 200


def test_an_empty_queue_and_an_empty_answer_say_so(tasks):
    assert "This queue is empty" in look(tasks).text
    assert "No job matches" in look(tasks, "?code=X").text


def test_schedules_are_listed_with_their_next_tick_and_last_job(tasks):
    assert "table-wrap schedules" not in look(tasks).text
    nightly = Schedule("nightly", "0 3 * * *", {}, "Europe/Istanbul", tenant="north")
    task = tasks.task
    Queue(task.name, task.lifecycle, task.store, clock=task.clock, schedules=[nightly])
    [made] = task.enqueue_many([nightly.job_at(nightly.latest(task.now(), 1)[0])])
    page = look(tasks).text
    assert re.search(r"nightly.*?<code>0 3 \* \* \*</code> Europe/Istanbul", page, re.DOTALL)
    assert f'<a href="/dashboard/jobs/{made.id}" title="{made.id}">nightly@' in page
    next_at = nightly.next_after(task.now())
    assert next_at > task.now()
    shown_next = re.search(r"Europe/Istanbul</td>\s*<td>(<time.*?</time>)", page, re.DOTALL)
    assert shown_next
    assert f'datetime="{datetime_of(next_at).isoformat()}"' in shown_next[1]
    assert tasks.client.get(f"/dashboard/jobs/{made.id}", headers=tasks.cookie("ayse")).is_success


def test_texts_of_users_are_escaped(tasks):
    fail(tasks, code="<b>x", error_message='"><script>alert(1)</script>')
    tasks.job(key="<i>key")
    page = look(tasks).text
    assert "<script>alert" not in page
    assert "<b>x" not in page
    assert "<i>key" not in page


def test_a_viewer_is_offered_no_action(tasks):
    tasks.job()
    tasks.known("vera", "viewer", all_sites=True)
    page = look(tasks, who="vera").text
    assert "data-pick" not in page
    assert "data-bar" not in page
    assert "Pause…" not in page
    assert "data-pick" in look(tasks).text


def test_jobs_of_other_sites_are_not_shown(tasks):
    mine, foreign = tasks.job("north"), tasks.job("south", key="canary")
    fail(tasks, "south", code="CANARY")
    tasks.task.pause(actor="canary", tenant="south", reason="canary")
    tasks.known("nur", "operator", sites=["north"])
    nur = {**tasks.cookie("nur"), "x-request-id": "same", "hx-request": "true"}

    def ask(query: str) -> str:
        return str(tasks.client.get(tasks.page + query, headers=nur).text)

    for name, there in (("text", "canary"), ("ids", foreign), ("text", foreign)):
        nowhere = NO_JOB if there == foreign else "nobody"
        assert ask(f"?{name}={there}").replace(there, nowhere) == ask(f"?{name}={nowhere}")
    everything = ask("") + tasks.client.get(f"{tasks.page}/rows.csv", headers=nur).text
    assert shown(everything) == [mine]
    assert "canary" not in everything.casefold()
    assert look(tasks, "?site=south", who="nur").status_code == 403


def test_failures_are_counted_by_code_and_lead_to_their_rows(tasks):
    for code in ("A", "B", "B"):
        fail(tasks, code=code)
    page = look(tasks).text
    panel = page[page.index('id="failures"') : page.index('class="charts"')]
    assert re.findall(r'code=(\w)" hx-get', panel) == ["B", "A"]
    assert "3 need you" in panel
    assert re.findall(r"(\d) in the last hour", panel) == ["2", "1"]
    [codes] = re.findall(r'<select id="f-code".*?</select>', page, re.DOTALL)
    assert re.findall(r"<option[^>]*>([^<]+)</option>", codes) == ["Any code", "B (2)", "A (1)"]


def test_throughput_is_shown_only_to_users_of_every_site(tasks):
    now = tasks.task.now()
    notes = f'[[{now - 3_600_000_000}, {{"done": -7}}]]'
    tasks.accounts.directory.put_metadata(MetadataEntry(WORKLOAD, tasks.name, TOTALS, notes, now))
    assert 'Throughput <span class="n">7 done</span>' in look(tasks).text
    tasks.known("nur", "operator", sites=["north"])
    assert "Throughput" not in look(tasks, who="nur").text


def test_the_page_speaks_turkish(tasks):
    tasks.failed()
    page = look(tasks, **{"accept-language": "tr"}).text
    assert "Hatalar" in page
    assert "Eşleşenlerin tümünü seç" in page


# The file


def cells(text: str) -> list[list[str]]:
    assert text[0] == "\ufeff"
    return list(csv.reader(io.StringIO(text[1:])))


def test_the_csv_file_has_what_matches(tasks):
    broken = fail(tasks)
    tasks.job()
    answer = look(tasks, "/rows.csv?state=failed")
    head, *rows = cells(answer.text)
    assert head == list(page.CSV_COLUMNS)
    assert [row[0] for row in rows] == [broken]
    assert answer.headers["content-disposition"] == f'attachment; filename="{tasks.name}.csv"'


def test_a_csv_file_that_is_cut_has_a_note(tasks, monkeypatch):
    monkeypatch.setattr(page, "MAX_CSV_ROWS", 2)
    monkeypatch.setattr(page, "MAX_PAGE", 1)
    for _ in range(3):
        tasks.job()
    _, *rows = cells(look(tasks, "/rows.csv").text)
    assert len(rows) == 3
    assert rows[-1] == ["There are more rows: narrow the filter to export the rest."]


@table("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_no_cell_is_a_formula(start):
    assert escape_cell(f"{start}cmd|' /C calc'!A0").startswith("'")
    assert f";{start}1" not in escape_cell(f"a;{start}1") or start in "\t\r\n"


# Reading an address


def test_an_address_reads_back_as_it_was_written(tasks):
    wanted = PageFilter(("failed", "ready"), "A B&C", "AUTH", "north", "still-1h", "ü=%", "oldest")
    query: dict[str, list[str]] = {}
    for name, value in wanted.pairs():
        query.setdefault(name, []).append(value)
    assert read_filter(query, tasks.task.lifecycle) == wanted


def test_an_address_holds_so_many_ids(tasks):
    ids = ",".join(f"00000000-0000-7000-8000-{n:012x}" for n in range(MAX_IDS + 5))
    assert len(read_filter({"ids": [ids]}, tasks.task.lifecycle).ids) == MAX_IDS


# Limits


def limits(tasks: TaskQueue, who: str = "ayse", **rules: Any) -> str:
    """What the page says of the limits of a queue that three jobs of each site are due in."""
    queues, name = tasks.service.queues, f"{tasks.name}-limited"
    queues[name] = Queue(name, task_lifecycle(**rules), tasks.store, clock=tasks.clock)
    for site in ("north", "south"):
        for n in range(3):
            queues[name].enqueue(n, tenant=site)
    queues[name].claim("w", limit=6)
    text = tasks.client.get(f"/dashboard/queues/{name}", headers=tasks.cookie(who)).text
    del queues[name]
    found = re.search(r'<dl class="strip limits".*?</dl>', text, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", found[0]).split()) if found else ""


def test_tenants_of_a_queue_of_no_workload_are_shown_where_they_tell_something(tasks):
    def shown(path: str) -> str:
        return str(tasks.client.get(path, headers=tasks.cookie("ayse")).text)

    usual = tasks.job("default")
    for path in (tasks.page, f"/dashboard/jobs/{usual}"):
        assert "Tenant<" not in shown(path)
        assert ">default<" not in shown(path)
    other = tasks.job("north")
    for path in (tasks.page, f"/dashboard/jobs/{other}"):
        assert "Tenant<" in shown(path)
        assert ">Site<" not in shown(path)
        assert ">north<" in shown(path)


def test_a_queue_without_limits_shows_none(tasks):
    assert limits(tasks) == ""


def test_slots_in_use_are_counted(tasks):
    assert limits(tasks, concurrency=4) == "running 4 of 4 slots in use"


def test_of_slots_per_site_the_fullest_are_shown(tasks, monkeypatch):
    monkeypatch.setattr(page, "MAX_FULLEST_SHOWN", 1)
    said = limits(tasks, concurrency=2, per="tenant")
    assert said == "running north: 2 of 2 slots in use and 1 more"


def test_who_sees_one_site_is_told_of_its_jobs_alone(tasks):
    tasks.known("ece", "viewer", sites=["north"])
    assert limits(tasks, "ece", concurrency=4) == "running your jobs use 2 of 4 slots"


def test_the_rate_is_said_in_words(tasks):
    said = "Rate job starts per tenant: at most 5 in 60 secs north: 2 of 5 may start now"
    assert limits(tasks, rate=(5, 60)) == f"{said} south: 2 of 5 may start now"


def test_of_a_rate_only_the_sites_that_a_user_sees_are_named(tasks):
    tasks.known("ece", "viewer", sites=["north"])
    assert limits(tasks, "ece", rate=(5, 60)).endswith("60 secs north: 2 of 5 may start now")
