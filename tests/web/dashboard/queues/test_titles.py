"""Titles of jobs in lists, and what a search finds for whom."""

import re
from dataclasses import replace
from typing import Any

import pytest

from kesin import Queue, Schedule
from kesin.engine.access import masking
from kesin.engine.access.masking import MASK
from kesin.store.records import Filter, Listing
from tests.web.conftest import ROOT
from tests.web.dashboard.conftest import TaskQueue
from tests.web.dashboard.queues.test_page import fail, look, shown

LISTING = Listing("{to} · {order.number}", ("to", "order.number"))


@pytest.fixture
def mails(tasks: TaskQueue) -> TaskQueue:
    tasks.store.write_listing(tasks.name, LISTING)
    return tasks


def mail(mails: TaskQueue, to: Any, number: str = "", site: str = "north", **how: Any) -> str:
    return mails.job(site, payload={"to": to, "order": {"number": number}}, **how)


def search(tasks: TaskQueue, text: str, who: str = "ayse") -> list[str]:
    return shown(tasks.client.get(tasks.page, params={"text": text}, headers=tasks.cookie(who)).text)


def listed(tasks: TaskQueue, who: str = "ayse", **params: Any) -> list[dict[str, Any]]:
    path = f"/api/queues/{tasks.name}/jobs"
    response = tasks.client.get(path, params=params, headers=tasks.cookie(who))
    assert response.status_code == 200, response.text
    return list(response.json()["jobs"])


def test_a_row_shows_the_title_and_below_it_the_key_or_the_id(mails):
    keyed, plain = mail(mails, "Ada <b>", "42", key="k-1"), mail(mails, "Alan", key="Alan")
    bare = mails.job(payload=[])
    page = look(mails).text
    cells = re.findall(r'<td class="job">(.*?)</td>', page)
    assert [re.sub(r"<[^>]+>", "|", cell) for cell in cells] == [
        f"|…{bare[-12:]}|",
        f"|Alan||…{plain[-12:]}|",
        "|Ada &lt;b&gt; · 42||k-1|",
    ]
    assert 'aria-label="Alan"' in page
    head = mails.client.get(f"/dashboard/jobs/{keyed}", headers=mails.cookie("ayse")).text
    assert "<h1 title=" in head
    assert "Ada &lt;b&gt; · 42</h1>" in head
    assert 'mono">k-1</span>' in head


def test_a_title_of_another_program_shows_at_once(tasks):
    job_id = tasks.job(payload={"to": "Ada"})
    assert f"…{job_id[-12:]}</a>" in look(tasks).text
    tasks.store.write_listing(tasks.name, Listing("{to}"))
    assert ">Ada</a>" in look(tasks).text


def test_a_text_is_an_id_then_a_key_then_a_field_then_a_title_then_an_error(mails):
    by_key = mail(mails, "Grace", key="ada")
    by_field = mail(mails, "Ada Lovelace", "2026-0042")
    by_error = fail(mails, error_message="ada is unknown, the quay too")
    assert search(mails, by_field.upper()) == [by_field]
    assert search(mails, "ada") == [by_key]
    assert search(mails, "ADA L") == search(mails, "lovelace") == search(mails, "0042") == [by_field]
    assert search(mails, "quay") == search(mails, "ada is") == [by_error]
    assert search(mails, "nothing like it") == []


def test_a_title_is_found_where_no_field_is_searchable(tasks):
    tasks.store.write_listing(tasks.name, Listing("Mail to {to}"))
    ada, _alan = tasks.job(payload={"to": "Ada"}), tasks.job(payload={"to": "Alan"})
    assert search(tasks, "mail to ad") == search(tasks, "ada") == [ada]
    page = look(tasks, "?text=ada&state=failed").text
    assert shown(page) == []
    assert "1 of 1 jobs" in look(tasks, "?text=ada").text


def test_the_field_says_what_can_be_searched(mails):
    words = "Search to, order.number, a title, a key, an id or an error…"
    assert f'placeholder="{words}"' in look(mails).text
    mails.store.write_listing(mails.name, Listing())
    assert 'placeholder="Search a title, a key, an id or an error…"' in look(mails).text


def test_a_search_finds_only_jobs_of_the_users_sites(mails):
    mails.known("north-only", "viewer", sites=["north"])
    mine, other = mail(mails, "Ada", "7"), mail(mails, "Ada", "8", site="south")
    assert search(mails, "ada") == [other, mine]
    assert search(mails, "ada", "north-only") == [mine]
    assert search(mails, "8", "north-only") == search(mails, other, "north-only") == []
    assert [job["id"] for job in listed(mails, "north-only", text="ada")] == [mine]


def test_a_viewer_finds_nothing_by_what_is_masked(mails):
    mails.known("sees-all", "viewer", all_sites=True)
    job_id = mail(mails, "ada@example.com", "42")
    assert search(mails, "ada") == search(mails, "example") == [job_id]
    assert search(mails, "ada", "sees-all") == search(mails, "example", "sees-all") == []
    assert search(mails, "42", "sees-all") == [job_id]
    page = look(mails, who="sees-all").text
    assert ">42</a>" in page, "a masked value tells nothing"
    assert MASK not in page
    assert "ada@" not in page
    assert "ada@" not in look(mails).text  # lists mask for everybody


def test_a_masked_title_or_key_gives_way_to_the_id(mails):
    mails.known("sees-all", "viewer", all_sites=True)
    job_id = mail(mails, "ada@example.com", key="ada@example.com")
    page = look(mails, who="sees-all").text
    assert f'class="mono" href="/dashboard/jobs/{job_id}" title="{job_id}">…{job_id[-12:]}</a>' in page
    assert f'aria-label="{job_id}"' in look(mails).text
    assert MASK not in page
    job_page = mails.client.get(f"/dashboard/jobs/{job_id}", headers=mails.cookie("sees-all")).text
    [head] = re.findall(r"<h1.*?</h1>", job_page)
    assert f">…{job_id[-8:]}</h1>" in head


def test_the_last_job_of_a_schedule_has_its_title_with_the_id(mails):
    task, mails_of = mails.task, {"to": "Ada", "order": {"number": "42"}}
    nightly = Schedule("nightly", "0 3 * * *", mails_of, tenant="north")
    Queue(task.name, task.lifecycle, task.store, clock=task.clock, schedules=[nightly])
    [made] = task.enqueue_many([nightly.job_at(nightly.latest(task.now(), 1)[0])])
    page = look(mails).text
    [table] = re.findall(r'<div class="table-wrap schedules">.*?</table>', page, re.DOTALL)
    assert f'<a href="/dashboard/jobs/{made.id}" title="{made.id}">Ada · 42</a>' in table
    assert f"…{made.id[-12:]}</span>" in table


def test_the_api_has_titles_and_searches_alike(mails):
    job_id = mail(mails, "Ada Lovelace", "42")
    untitled = mails.job(payload={})
    titles = {job["id"]: job["title"] for job in listed(mails)}
    assert titles == {job_id: "Ada Lovelace · 42", untitled: None}
    for text in ("love", "42", job_id, "ada lovelace 42"):
        assert [job["id"] for job in listed(mails, text=text)] == [job_id], text
    assert listed(mails, text=job_id, state="failed") == listed(mails, text="zzz") == []
    whole = mails.client.get(f"/api/jobs/{job_id}", headers=mails.cookie("ayse")).json()
    assert whole["job"]["title"] == "Ada Lovelace · 42"


def test_an_action_moves_what_its_text_finds(mails):
    ids = [mail(mails, f"Ada {n}") for n in range(3)]
    other = mail(mails, "Alan")

    def act(text: str, **more: Any) -> Any:
        body = {"action": "cancel", "filter": {"text": text}, **more}
        path = f"/api/queues/{mails.name}/actions"
        return mails.client.post(path, json=body, headers=mails.cookie("ayse")).json()

    assert act("ada", dry_run=True)["moved"] == 3
    assert act(ids[0])["moved"] == 1
    assert act("ada")["moved"] == 2
    assert mails.state(other) == "ready"
    assert {mails.state(job_id) for job_id in ids} != {"ready"}


def test_what_is_masked_by_its_shape_is_neither_found_nor_counted_without_reveal(mails):
    mail(mails, "ada@example.com")
    mails.known("nur", "viewer", all_sites=True)
    assert search(mails, "ada", who="nur") == []
    assert len(search(mails, "ada")) == 1  # an operator may reveal it
    viewer = replace(ROOT, grants=frozenset({"read"}))
    where, commands = Filter(search="ada"), mails.service.commands
    assert commands.count(viewer, mails.name, where, limit=9) == (0, False)
    assert commands.count(ROOT, mails.name, where, limit=9) == (1, True)


def test_many_masked_matches_look_like_none(mails, monkeypatch):
    """A page without rows that leads on would tell that there are matches."""
    monkeypatch.setattr(masking, "_MAX_MORE_PAGES", 1)
    mails.known("sees-all", "viewer", all_sites=True)
    for n in range(5):
        fail(mails, error_message=f"no mailbox ada{n}@example.com")
    path, headers = f"/api/queues/{mails.name}/jobs", mails.cookie("sees-all")
    for text in ("example", "nothing-like-it"):
        params = {"text": text, "limit": 1}
        body = mails.client.get(path, params=params, headers=headers).json()
        assert (body["jobs"], body["cursor"]) == ([], None), text
