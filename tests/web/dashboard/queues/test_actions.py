"""Actions on many jobs: foreseen exactly, told exactly, and never twice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest

from kesin.foundation.permissions import Actor
from kesin.foundation.problems import RequestConflict
from kesin.store.records import Filter
from kesin.web.dashboard.queues import actions, bulk
from kesin.web.dashboard.queues.bulk import (
    HEARTBEAT_S,
    MAX_ENDED,
    MAX_WAITING,
    SILENT_S,
    BulkRun,
    BulkRuns,
    QueuedRun,
)
from kesin.web.service import Service
from tests.web.conftest import ROOT
from tests.web.dashboard.conftest import Desk

AYSE = Actor("user:ayse", frozenset({"operator"}), all_sites=True)


def send(desk: Desk, what: str, who: str = "ayse", **fields: Any) -> Any:
    headers = {**desk.cookie(who), "hx-request": "true"}
    return desk.client.post(f"{desk.page}/{what}", data=fields, headers=headers)


def words(answer: Any) -> str:
    assert answer.status_code == 200, answer.text
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())


def ids(jobs: Iterable[str]) -> str:
    return ",".join(jobs)


# Before


def test_the_sheet_says_what_will_move_from_where_and_what_is_refused_why(desk):
    jobs = [desk.failed(), desk.failed(), desk.job()]
    told = words(send(desk, "sheet", call="requeue", ids=ids(jobs)))
    assert "2 will move failed 2" in told
    assert "1 will be refused already ready 1" in told
    assert "Requeue 2 rows" in told
    assert [desk.state(one) for one in jobs] == ["failed", "failed", "ready"]


def test_a_guard_is_foreseen_too(desk):
    claimed, free = desk.job(queue="pdf"), desk.job(queue="pdf")
    queue = desk.service.queues["pdf"]
    order = desk.service.queues["optiplan"]
    assert any(guard.kind == "unclaimed" for guard in queue.lifecycle.actions["cancel"][0].when)
    assert order.lifecycle.actions["retry"][0].when
    queue.claim("w", ids=[claimed])
    headers = {**desk.cookie("ayse"), "hx-request": "true"}
    sent = {"call": "cancel", "ids": ids([claimed, free])}
    sheet = desk.client.post("/dashboard/queues/pdf/sheet", data=sent, headers=headers)
    foreseen = words(sheet)
    acted = words(desk.client.post("/dashboard/queues/pdf/act", data=sent, headers=headers))
    assert "1 will move queued 1" in foreseen
    assert "1 will be refused already running 1" in foreseen
    assert "1 moved , 1 refused: already running" in acted


def test_all_that_match_are_counted_by_their_filter(desk):
    desk.failed("north")
    desk.failed("south")
    desk.job("south")
    told = words(send(desk, "sheet", call="requeue", all="1", site="south"))
    assert "1 will move failed 1" in told
    assert "already ready 1" in told


def test_what_is_born_after_the_sheet_is_left_alone(desk):
    early = desk.failed()
    sheet = send(desk, "sheet", call="requeue", all="1", state="failed").text
    until = re.search(r'name="until" value="(\d+)"', sheet)
    assert until
    desk.clock.advance(1)
    late = desk.failed()
    answer = send(desk, "act", call="requeue", all="1", state="failed", until=until[1])
    assert "Requeue: 1 moved" in words(answer)
    assert (desk.state(early), desk.state(late)) == ("ready", "failed")


def test_what_only_marks_a_job_is_not_offered_here(desk):
    page = desk.client.get("/dashboard/queues/optiplan", headers=desk.cookie("ayse")).text
    offered = re.findall(r"hx-vals=.{0,30}?call.{0,20}?: .{0,10}?&#34;(\w+)&#34;", page)
    assert offered == ["approve", "retry"]


def test_a_sheet_whose_rows_cannot_move_has_no_button(desk):
    told = words(send(desk, "sheet", call="requeue", ids=desk.job()))
    assert "None of these rows can move this way now." in told
    assert "Requeue 1 row" not in told


@pytest.mark.parametrize(
    "fields",
    [
        {"call": "requeue"},
        {"call": "requeue", "ids": "nonsense"},
        {"call": "enqueue", "ids": "00000000-0000-7000-8000-000000000000"},
        {"ids": "00000000-0000-7000-8000-000000000000"},
    ],
)
@pytest.mark.parametrize("what", ["sheet", "act"])
def test_what_makes_no_sense_is_refused(what, fields, desk):
    assert send(desk, what, **fields).status_code == 422


def test_so_many_rows_are_picked_and_no_more(desk, monkeypatch):
    monkeypatch.setattr(actions, "MAX_SELECTED", 1)
    two = ids(f"00000000-0000-7000-8000-00000000000{n}" for n in range(2))
    assert send(desk, "act", call="cancel", ids=two).status_code == 422


# Doing


def test_the_result_is_exact_and_leads_to_the_refused_ones(desk):
    jobs = [desk.failed() for _ in range(3)]
    other = desk.job()
    answer = send(desk, "act", call="requeue", ids=ids([*jobs, other]), reason="mended")
    assert "Requeue: 3 moved , 1 refused: already ready" in words(answer)
    assert f'href="{desk.page}?ids={other}"' in answer.text
    assert "kesin:forget" in answer.headers["hx-trigger"]
    assert "renew" in answer.headers["hx-trigger-after-swap"]
    assert {desk.state(one) for one in jobs} == {"ready"}
    assert [event.note for event in desk.task.events(jobs[0])][-1] == '{"reason":"mended"}'


def test_the_second_of_two_operators_is_refused_exactly(desk):
    desk.known("bora", "operator", all_sites=True)
    jobs = [desk.failed() for _ in range(2)]
    sheets = [
        words(send(desk, "sheet", who, call="requeue", ids=ids(jobs))) for who in ("ayse", "bora")
    ]
    assert all("2 will move" in one for one in sheets)
    first = words(send(desk, "act", "ayse", call="requeue", ids=ids(jobs)))
    second = words(send(desk, "act", "bora", call="requeue", ids=ids(jobs)))
    assert "Requeue: 2 moved" in first
    assert "Requeue: 0 moved , 2 refused: already ready" in second
    moves = [event.move for one in jobs for event in desk.task.events(one)]
    assert moves.count("requeue") == 2


def test_an_option_is_taken_only_where_the_call_knows_it(desk):
    stamps = {"conversion_at": desk.task.now()}
    job = desk.job(queue="oci", stamps=stamps)
    queue = desk.service.queues["oci"]
    queue.act("MARK_FAILED", actor="t", ids=[job])
    headers = {**desk.cookie("ayse"), "hx-request": "true"}
    sent = {"call": "RESET_TO_QUEUED", "ids": job, "option": ["clearErrors", "nonsense"]}
    path = "/dashboard/queues/oci"
    assert (
        "Forget the last error"
        in desk.client.post(f"{path}/sheet", data=sent, headers=headers).text
    )
    assert "1 moved" in words(desk.client.post(f"{path}/act", data=sent, headers=headers))
    assert (desk.state(job), desk.found(job).error_code) == ("QUEUED", None)


def test_jobs_of_other_sites_are_not_there(desk):
    desk.known("nur", "operator", sites=["north"])
    foreign = desk.failed("south")
    foreseen = words(send(desk, "sheet", "nur", call="requeue", ids=foreign))
    acted = words(send(desk, "act", "nur", call="requeue", ids=foreign))
    assert "there is no such job for you 1" in foreseen
    assert "0 moved , 1 refused: there is no such job for you" in acted
    assert desk.state(foreign) == "failed"
    assert send(desk, "act", "nur", call="requeue", all="1", site="south").status_code == 403
    assert "0 moved" in words(send(desk, "act", "nur", call="requeue", all="1"))


def test_without_a_script_an_action_leads_back_to_the_page(desk):
    sent = {"call": "requeue", "ids": desk.failed()}
    answer = desk.client.post(f"{desk.page}/act", data=sent, headers=desk.cookie("ayse"))
    assert (answer.status_code, answer.headers["location"]) == (303, desk.page)


# Pauses


def test_a_queue_and_a_site_are_paused_with_a_reason_and_resumed(desk):
    assert f"{desk.name} is paused." in words(send(desk, "pause", reason="the other side is down"))
    assert "south is paused." in words(send(desk, "pause", site="south"))
    page = desk.client.get(desk.page, headers=desk.cookie("ayse")).text
    assert "This queue is paused" in page
    assert "the other side is down" in page
    assert "south is paused" in page
    assert f"{desk.name} runs again." in words(send(desk, "resume"))
    assert f"{desk.name} was not paused." in words(send(desk, "resume"))
    assert [one.tenant for one in desk.store.paused(desk.name)] == ["south"]


def test_only_who_has_every_site_is_offered_the_whole_queue(desk):
    desk.known("nur", "operator", sites=["north"])
    sheet = desk.client.get(f"{desk.page}/steer", headers=desk.cookie("nur")).text
    assert "The whole queue" not in sheet
    assert "<option>north</option>" in sheet


# In the background


@pytest.fixture
def many(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A few are many here."""
    monkeypatch.setattr(actions, "MAX_FOREGROUND_JOBS", 3)
    monkeypatch.setattr(bulk, "MAX_PAGE", 2)
    for _ in range(5):
        desk.failed()
    return desk


def runs(desk: Desk) -> BulkRuns:
    found: BulkRuns = desk.app.state.bulk_runs
    return found


@pytest.mark.parametrize("how", [{"state": "failed"}, {"code": ""}, {"age": "within-1h"}])
def test_many_rows_move_in_the_background(how, many):
    desk = many
    ready = desk.job()
    sheet = words(send(desk, "sheet", call="requeue", all="1", **how))
    assert "5 will move failed 5" in sheet
    assert "in the background" in sheet
    answer = send(desk, "act", call="requeue", all="1", reason="mended", **how)
    assert answer.status_code == 200
    runs(desk).join(10)
    [run] = runs(desk).of(AYSE, many.name)
    assert (run.state, run.moved) == ("done", 5)
    assert run.link == ([] if "state" in how else [ready])
    told = words(desk.client.get(f"{desk.page}/runs", headers=desk.cookie("ayse")))
    assert told.startswith("Requeue: 5 moved")
    assert desk.task.stats().states["failed"] == 0
    moved = [
        line for line in desk.audit() if (line.queue, line.action) == (many.name, "queue.requeue")
    ]
    assert len(moved) == 3


def test_of_many_too_the_refusals_are_exact(many):
    for _ in range(2):
        many.failed(key="wanted")
    claimed = many.job()
    many.task.claim("w", ids=[claimed])
    told = words(send(many, "sheet", call="requeue", all="1"))
    assert "6 will move failed 6" in told
    assert "2 will be refused" in told
    assert "another job has its key 1" in told
    assert "already running 1" in told
    assert "Requeue 6 rows" in told
    send(many, "act", call="requeue", all="1")
    runs(many).join(10)
    [run] = runs(many).of(AYSE, many.name)
    assert (run.moved, sum(run.refused.values())) == (6, 2)


def test_runs_are_shown_to_whoever_began_them(many):
    desk = many
    send(desk, "act", call="requeue", all="1", state="failed")
    runs(desk).join(10)
    desk.known("bora", "operator", all_sites=True)
    assert words(desk.client.get(f"{desk.page}/runs", headers=desk.cookie("bora"))) == ""


def test_a_run_ends_when_the_rights_of_its_owner_do(many):
    desk = many
    gone = Actor("user:deniz", frozenset({"operator"}), all_sites=True)
    desk.known("deniz", "operator", all_sites=True)
    desk.accounts.set_user(ROOT, "deniz", disabled=True)
    made = BulkRuns(desk.service)
    made.start(gone, many.name, "requeue", Filter(), 5)
    made.join(10)
    [run] = made.of(gone, many.name)
    assert (run.state, run.done) == ("stopped", 0)
    assert desk.task.stats().states["failed"] == 5


def test_a_run_that_is_refused_says_why(many):
    made = BulkRuns(many.service)
    nobody = Actor("key:x", frozenset({"operate"}))
    made.start(nobody, many.name, "requeue", Filter(), 5)
    made.join(10)
    [run] = made.of(nobody, many.name)
    assert (run.state, run.why) == ("failed", f"there is no queue {many.name!r} for you")


def test_a_run_whose_process_went_away_is_told_as_stopped(many):
    desk = many
    made = BulkRuns(desk.service)
    made._save(AYSE, BulkRun("1", many.name, "requeue", 5, "running", done=2))
    assert made.of(AYSE, many.name)[0].active
    desk.clock.advance(SILENT_S + 1)
    page = desk.client.get(desk.page, headers=desk.cookie("ayse")).text
    assert "stopped after 2 of 5 rows" in page
    desk.clock.advance(bulk.SHOWN_S)
    assert made.of(AYSE, many.name) == []


def test_a_service_that_stops_ends_its_runs_between_batches(many, monkeypatch):
    monkeypatch.setattr(Service, "stopping", property(lambda _self: True))
    made = BulkRuns(many.service)
    made.start(AYSE, many.name, "requeue", Filter(), 5)
    made.join(10)
    assert made.of(AYSE, many.name)[0].state == "stopped"


def test_so_many_runs_wait_and_so_many_are_kept(many, monkeypatch):
    monkeypatch.setattr(BulkRuns, "_work", lambda _self: None)
    made = BulkRuns(many.service)
    for _ in range(MAX_WAITING):
        made.start(AYSE, many.name, "requeue", Filter(), 5)
    assert [one.state for one in made.of(AYSE, many.name)] == ["waiting"] * MAX_WAITING
    with pytest.raises(RequestConflict, match="waiting already"):
        made.start(AYSE, many.name, "requeue", Filter(), 5)
    assert all(isinstance(one, QueuedRun) for one in made._waiting)
    for order in made._waiting:
        made._end(order, "done", "")
    assert [one.state for one in made.of(AYSE, many.name)] == ["done"] * MAX_ENDED


def test_a_run_that_waits_behind_another_is_no_stopped_one(many, monkeypatch):
    monkeypatch.setattr(BulkRuns, "_work", lambda _self: None)
    made = BulkRuns(many.service)
    for _ in range(2):
        made.start(AYSE, many.name, "requeue", Filter(), 5)
    many.clock.advance(HEARTBEAT_S)
    made._execute(made._waiting.popleft())
    many.clock.advance(SILENT_S)
    assert [one.state for one in made.of(AYSE, many.name)] == ["waiting", "done"]
    many.clock.advance(1)
    assert [one.state for one in made.of(AYSE, many.name)] == ["stopped", "done"]
