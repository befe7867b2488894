"""A queue's list holds still while it is renewed, says how many match, and goes both ways."""

import re
from typing import Any

import pytest

from kesin.engine.access.accounts import IDLE_S
from kesin.engine.access.listing import in_trouble
from kesin.engine.queue import apply_changes
from kesin.lifecycle.failures import failure_states, ready_states
from kesin.lifecycle.model import Change
from kesin.store.records import Filter
from kesin.web.dashboard.queues import filters, listing
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from tests.web.dashboard.conftest import TaskQueue
from tests.web.dashboard.queues.test_page import fail, look, shown

PART = {"hx-request": "true"}
NO_JOB = "00000000-0000-7000-8000-000000000000"


def renew(tasks: TaskQueue, ids: list[str], query: str = "", cursor: str = "", who: str = "ayse") -> str:
    headers = {**tasks.cookie(who), **PART}
    sent = {"ids": ",".join(ids), "cursor": cursor}
    answer = tasks.client.post(f"{tasks.page}/renewal{query}", headers=headers, data=sent)
    assert answer.status_code == 200
    text: str = answer.text
    return text


def news(text: str) -> str:
    """What the button on top of the list says; empty if there is none."""
    [place] = re.findall(r'<div id="list-news" role="status">(.*?)</div>', text, re.DOTALL)
    return " ".join(re.sub("<[^>]*>", "", place).split())


def count(text: str) -> str:
    [place] = re.findall(r'id="list-count">(.*?)</p>', text)
    return str(place)


def stale(text: str) -> list[str]:
    return re.findall(r'<tr id="row-([0-9a-f-]{36})" class="stale"', text)


def row_of(text: str, job: str) -> str:
    [row] = re.findall(rf'<tr id="row-{job}".*?</tr>', text, re.DOTALL)
    return str(row)


# Rows hold still


def test_a_renewal_shows_the_same_rows_as_they_are_now_and_counts_the_new_ones(tasks):
    jobs = [tasks.job() for _ in range(3)][::-1]
    late = [tasks.job() for _ in range(2)]
    tasks.task.act("cancel", actor="user:ece", ids=[jobs[1]])
    text = renew(tasks, jobs)
    assert shown(text) == jobs
    assert "failed" in row_of(text, jobs[1])
    assert news(text) == "2 new"
    assert f'hx-get="{tasks.page}?rows=5"' in text
    assert shown(look(tasks, "?rows=5", **PART).text) == [*late[::-1], *jobs]
    assert count(text) == "3 of 5 jobs"


def test_what_no_longer_matches_stays_with_its_new_state(tasks):
    jobs = [fail(tasks) for _ in range(3)][::-1]
    tasks.task.act("requeue", actor="user:ece", ids=[jobs[1]])
    text = renew(tasks, jobs, "?state=failed")
    assert shown(text) == jobs
    assert stale(text) == [jobs[1]]
    assert "ready" in row_of(text, jobs[1])
    assert count(text) == "2 of 2 jobs · 1 no longer match"
    assert news(text) == ""
    assert shown(look(tasks, "?state=failed", **PART).text) == [jobs[0], jobs[2]]


def test_a_deleted_job_keeps_its_place_and_so_does_one_that_the_user_may_not_see(tasks):
    mine, other = tasks.job("north"), tasks.job("south")
    tasks.known("noor", "viewer", sites=["north"])
    text = renew(tasks, [other, mine, NO_JOB], who="noor")
    assert shown(text) == [other, mine, NO_JOB]
    assert stale(text) == [other, NO_JOB]
    assert "Deleted" in row_of(text, NO_JOB)
    assert "ready" not in row_of(text, other)
    assert "Deleted" in row_of(text, other), "as if it did not exist"
    assert news(text) == ""


def test_a_job_that_comes_into_the_filter_from_below_counts_as_new(tasks):
    old = tasks.job()
    jobs = [fail(tasks) for _ in range(3)][::-1]
    assert news(renew(tasks, jobs, "?state=failed")) == ""
    tasks.task.act("cancel", actor="user:ece", ids=[old])
    assert news(renew(tasks, jobs, "?state=failed")) == "1 new"
    text = renew(tasks, jobs, "?state=failed", cursor=jobs[-1])
    assert news(text) == "", "it is behind the end of what is shown"
    assert f'data-cursor="{jobs[-1]}"' in text


@pytest.mark.parametrize("query", ["?code=BROKEN", "?text=broke", "?category=PERMANENT"])
def test_news_of_a_search_are_counted(tasks, query):
    jobs = [fail(tasks)]
    tasks.job()
    assert news(renew(tasks, jobs, query)) == ""
    fail(tasks)
    fail(tasks, code="OTHER", error_category="TRANSIENT", error_message="it is late")
    assert news(renew(tasks, jobs, query)) == "1 new"


def test_an_empty_list_fills_by_itself(tasks):
    job = tasks.job()
    text = renew(tasks, [])
    assert shown(text) == [job]
    assert count(text) == "1 of 1 jobs"


def test_a_renewal_says_nothing_of_the_frame(tasks):
    job = tasks.job()
    text = renew(tasks, [job])
    assert text.lstrip().startswith('<div id="view"')
    assert "<title>" not in text
    assert 'id="switch"' not in text


def test_a_list_that_is_left_open_does_not_extend_a_session(tasks):
    job, headers = tasks.job(), {**tasks.cookie("ayse"), **PART, "hx-trigger": "view"}
    for seconds, status in ((IDLE_S - 1, 200), (1, 204)):  # 204 leads to the sign-in page
        tasks.clock.advance(seconds)
        sent = {"headers": headers, "data": {"ids": job}}
        assert tasks.client.post(f"{tasks.page}/renewal", **sent).status_code == status


# How many match


def test_the_count_is_exact_up_to_its_bound(tasks, monkeypatch):
    jobs = [fail(tasks) for _ in range(52)]
    assert count(look(tasks).text) == "50 of 52 jobs"
    assert count(look(tasks, "?code=BROKEN").text) == "50 of 52 jobs"
    assert 'data-matching="52"' in look(tasks, "?code=BROKEN").text
    monkeypatch.setattr(listing, "MAX_EXAMINED", 51)
    text = look(tasks, "?code=BROKEN").text
    assert count(text) == "50 of more than 50 jobs"
    assert 'data-matching="50+"' in text
    assert count(look(tasks).text) == "50 of 52 jobs", "the counters need no count"
    assert count(look(tasks, f"?code=BROKEN&ids={jobs[0]}").text) == "1 of 1 jobs"
    assert "new" not in news(look(tasks, "?code=BROKEN").text)


def test_a_search_in_what_is_masked_is_not_counted(tasks):
    """The number would tell a viewer whether a masked text is there."""
    tasks.known("ece", "viewer", all_sites=True)
    message = "no click has the id Cj0KCQjw8p2MBhCiARIsADDUFVHVOKVZ-a1B2c3D4e5F6"
    jobs = [fail(tasks, error_message=message) for _ in range(52)]
    for who, total in (("ayse", "52"), ("ece", "more than 50")):
        assert count(look(tasks, "?text=no+click", who).text) == f"50 of {total} jobs"
        found = shown(look(tasks, "?text=Cj0KCQjw8p2MBhCiARIsADDUFVH", who).text)
        assert found == (jobs[:1:-1] if who == "ayse" else [])
    text = renew(tasks, jobs[:1], "?text=no+click", who="ece")
    assert news(text) == "More than 50 new"


# Codes


def test_the_code_filter_lists_the_codes_that_occur_with_their_counts(tasks):
    fail(tasks, code="RARE")
    for _ in range(2):
        fail(tasks, code="COMMON")
    text = look(tasks, "?code=CHOSEN").text
    [options] = re.findall(r'<select id="f-code".*?</select>', text, re.DOTALL)
    listed = re.findall(r'<option value="(\w+)"( selected)?>([^<]*)<', options)
    assert listed == [("COMMON", "", "COMMON (2)"), ("RARE", "", "RARE (1)"), ("CHOSEN", " selected", "CHOSEN (0)")]


def test_a_code_lists_the_jobs_that_are_counted_with_it(either_world):
    """A job that runs again has only an old error; a state that is named lists it."""
    task = either_world.task
    either_world.known("ayse", "operator", all_sites=True)
    jobs = [either_world.job() for _ in range(4)]
    for action, ids in {"retry": jobs[:2], "fail": jobs[2:]}.items():
        for job in task.claim("w", limit=4, ids=ids):
            change = Change(job.id, job.claim_seq, error_code="LATE", error_category="TRANSIENT")
            apply_changes(task, action, [change], actor="w")
    either_world.clock.advance(7_200)
    [again] = task.claim("w", ids=jobs[:1])
    assert again.error_code == "LATE"

    def ask(query: str) -> str:
        headers = either_world.cookie("ayse")
        return str(either_world.client.get(f"/dashboard/queues/task{query}", headers=headers).text)

    for query in ("?code=LATE", "?category=TRANSIENT", "?code=LATE&site=north"):
        text = ask(query)
        assert "LATE (3)" in text
        assert count(text) == "3 of 3 jobs"
        assert shown(text) == jobs[:0:-1]
    assert shown(ask("?code=LATE&state=running")) == jobs[:1]
    assert shown(ask("?code=LATE&state=ready")) == jobs[1:2]


def test_where_claims_keep_the_state_a_code_lists_only_what_no_worker_has():
    lifecycle = optiplan_lifecycle()
    found = in_trouble(lifecycle, Filter(codes=("E_CANCELLED",)))
    assert set(found.states) == {*failure_states(lifecycle), *ready_states(lifecycle)}
    assert found.unclaimed
    for where in (Filter(states=("HOLD",), codes=("E",)), Filter(states=("NEW", "DONE")), Filter()):
        assert in_trouble(lifecycle, where) == where


# Order


def test_the_order_is_in_the_address_and_pages_go_on_in_it(tasks, monkeypatch):
    jobs = [tasks.job() for _ in range(5)]
    monkeypatch.setattr(filters, "PAGE", 2)
    text = look(tasks, "?order=oldest&site=north").text
    assert shown(text) == jobs[:2]
    more = re.search(r'hx-get="[^"]*/rows(\?[^"]*)"', text)
    assert more
    following = look(tasks, f"/rows{more[1].replace('&amp;', '&')}", **PART).text
    assert shown(following)[:2] == jobs[2:4]
    assert 'aria-sort="ascending"' in text
    assert f'hx-get="{tasks.page}?site=north"' in text, "the head leads back"
    assert '<input type="hidden" name="order" value="oldest">' in text
    newest = look(tasks, "?order=nonsense").text
    assert shown(newest) == jobs[:2:-1]
    assert 'aria-sort="descending"' in newest
    assert f'hx-get="{tasks.page}?order=oldest"' in newest
    oldest = look(tasks, "?order=oldest").text
    assert '<a class="button fit"' not in oldest, "an order is no filter to clear"


def test_named_jobs_and_the_export_are_in_that_order_too(tasks):
    jobs = [tasks.job() for _ in range(3)]
    named = f"?order=oldest&ids={','.join(jobs)}"
    assert shown(look(tasks, named).text) == jobs
    lines: Any = look(tasks, "/rows.csv?order=oldest").text.splitlines()
    assert [line[:36] for line in lines[1:]] == jobs


def test_behind_the_end_of_the_oldest_nothing_is_new(tasks):
    jobs = [tasks.job() for _ in range(4)]
    tasks.job()
    assert news(renew(tasks, jobs[:2], "?order=oldest", cursor=jobs[1])) == ""
    assert news(renew(tasks, jobs, "?order=oldest")) == "1 new"
