"""Actions on many jobs: previewed exactly, reported exactly, and never done twice."""

import re
import threading
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from kesin import Queue, task_lifecycle
from kesin.engine.results import Failed
from kesin.engine.worker import Worker
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import RequestConflict
from kesin.lifecycle.moves import prioritize
from kesin.store.records import Filter
from kesin.web.dashboard.queues import actions, bulk
from kesin.web.dashboard.queues.bulk import HEARTBEAT_S, MAX_ENDED, MAX_WAITING, SILENT_S, BulkRun, BulkRuns, QueuedRun
from kesin.web.service import Service
from tests.tables import table
from tests.web.client import end_bulk_runs
from tests.web.conftest import ROOT
from tests.web.dashboard.conftest import TaskQueue

AYSE = Actor("user:ayse", frozenset({"operator"}), all_sites=True)


def send(tasks: TaskQueue, what: str, who: str = "ayse", **fields: Any) -> Any:
    headers = {**tasks.cookie(who), "hx-request": "true"}
    return tasks.client.post(f"{tasks.page}/{what}", data=fields, headers=headers)


def words(answer: Any) -> str:
    assert answer.status_code == 200, answer.text
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())


def ids(jobs: Iterable[str]) -> str:
    return ",".join(jobs)


# Before


def test_the_preview_shows_what_will_move_and_why_the_rest_is_refused(tasks):
    jobs = [tasks.failed(), tasks.failed(), tasks.job()]
    text = words(send(tasks, "sheet", call="requeue", ids=ids(jobs)))
    assert "2 will move failed 2" in text
    assert "1 will be refused already ready 1" in text
    assert "Retry 2 jobs" in text
    assert [tasks.state(one) for one in jobs] == ["failed", "failed", "ready"]


def test_a_guard_is_foreseen_too(tasks):
    claimed, free = tasks.job(queue="pdf"), tasks.job(queue="pdf")
    queue = tasks.service.queues["pdf"]
    assert any(guard.kind == "unclaimed" for guard in queue.lifecycle.actions["cancel"][0].when)
    queue.claim("w", ids=[claimed])
    headers = {**tasks.cookie("ayse"), "hx-request": "true"}
    sent = {"call": "cancel", "ids": ids([claimed, free])}
    foreseen, acted = (
        words(tasks.client.post(f"/dashboard/queues/pdf/{what}", data=sent, headers=headers))
        for what in ("sheet", "act")
    )
    assert "1 will move queued 1" in foreseen
    assert "1 will be refused already running 1" in foreseen
    assert "1 moved , 1 refused: already running" in acted


def test_all_that_match_are_counted_by_their_filter(tasks):
    tasks.failed("north")
    tasks.failed("south")
    tasks.job("south")
    text = words(send(tasks, "sheet", call="requeue", all="1", site="south"))
    assert "1 will move failed 1" in text
    assert "already ready 1" in text


def test_a_job_created_after_the_preview_is_left_alone(tasks):
    early = tasks.failed()
    sheet = send(tasks, "sheet", call="requeue", all="1", state="failed").text
    until = re.search(r'name="until" value="(\d+)"', sheet)
    assert until
    tasks.clock.advance(1)
    late = tasks.failed()
    answer = send(tasks, "act", call="requeue", all="1", state="failed", until=until[1])
    assert "Retry: 1 moved" in words(answer)
    assert (tasks.state(early), tasks.state(late)) == ("ready", "failed")


def test_an_action_that_only_marks_a_job_is_not_offered(tasks):
    page = tasks.client.get("/dashboard/queues/optiplan", headers=tasks.cookie("ayse")).text
    offered = re.findall(r"hx-vals=.{0,30}?call.{0,20}?: .{0,10}?&#34;(\w+)&#34;", page)
    assert offered == ["retry"]


def test_a_preview_without_moves_has_no_button(tasks):
    text = words(send(tasks, "sheet", call="requeue", ids=tasks.job()))
    assert "This action does not apply to any of these jobs now." in text
    assert "Retry 1 job" not in text


@table(
    ("fields", "what"),
    product(
        [
            {"call": "requeue"},
            {"call": "requeue", "ids": "nonsense"},
            {"call": "enqueue", "ids": "00000000-0000-7000-8000-000000000000"},
            {"ids": "00000000-0000-7000-8000-000000000000"},
        ],
        ["sheet", "act"],
    ),
)
def test_an_invalid_action_is_refused(what, fields, tasks):
    assert send(tasks, what, **fields).status_code == 422


def test_the_number_of_selected_rows_is_limited(tasks, monkeypatch):
    monkeypatch.setattr(actions, "MAX_SELECTED", 1)
    two = ids(f"00000000-0000-7000-8000-00000000000{n}" for n in range(2))
    assert send(tasks, "act", call="cancel", ids=two).status_code == 422


# Doing


def test_the_result_is_exact_and_leads_to_the_refused_ones(tasks):
    jobs = [tasks.failed() for _ in range(3)]
    other = tasks.job()
    answer = send(tasks, "act", call="requeue", ids=ids([*jobs, other]), reason="mended")
    assert "Retry: 3 moved , 1 refused: already ready" in words(answer)
    assert f'href="{tasks.page}?ids={other}"' in answer.text
    assert "kesin:forget" in answer.headers["hx-trigger"]
    assert "renew" in answer.headers["hx-trigger-after-swap"]
    assert {tasks.state(one) for one in jobs} == {"ready"}
    assert [event.note for event in tasks.task.events(jobs[0])][-1] == '{"reason":"mended"}'


def test_the_second_of_two_operators_is_refused_exactly(tasks):
    tasks.known("bora", "operator", all_sites=True)
    jobs = [tasks.failed() for _ in range(2)]
    sheets = [words(send(tasks, "sheet", who, call="requeue", ids=ids(jobs))) for who in ("ayse", "bora")]
    assert all("2 will move" in one for one in sheets)
    first = words(send(tasks, "act", "ayse", call="requeue", ids=ids(jobs)))
    second = words(send(tasks, "act", "bora", call="requeue", ids=ids(jobs)))
    assert "Retry: 2 moved" in first
    assert "Retry: 0 moved , 2 refused: already ready" in second
    moves = [event.move for one in jobs for event in tasks.task.events(one)]
    assert moves.count("requeue") == 2


def test_an_option_is_taken_only_where_the_call_knows_it(tasks):
    stamps = {"conversion_at": tasks.task.now()}
    job = tasks.job(queue="oci", stamps=stamps)
    queue = tasks.service.queues["oci"]
    queue.act("MARK_FAILED", actor="t", ids=[job])
    headers = {**tasks.cookie("ayse"), "hx-request": "true"}
    sent = {"call": "RESET_TO_QUEUED", "ids": job, "option": ["clearErrors", "nonsense"]}
    path = "/dashboard/queues/oci"
    assert "Clear the last error" in tasks.client.post(f"{path}/sheet", data=sent, headers=headers).text
    assert "1 moved" in words(tasks.client.post(f"{path}/act", data=sent, headers=headers))
    assert (tasks.state(job), tasks.found(job).error_code) == ("QUEUED", None)


def test_jobs_of_other_sites_are_not_there(tasks):
    tasks.known("nur", "operator", sites=["north"])
    foreign = tasks.failed("south")
    foreseen = words(send(tasks, "sheet", "nur", call="requeue", ids=foreign))
    acted = words(send(tasks, "act", "nur", call="requeue", ids=foreign))
    assert "there is no such job, or you have no access to it 1" in foreseen
    assert "0 moved , 1 refused: there is no such job, or you have no access to it" in acted
    assert tasks.state(foreign) == "failed"
    assert send(tasks, "act", "nur", call="requeue", all="1", site="south").status_code == 403
    assert "0 moved" in words(send(tasks, "act", "nur", call="requeue", all="1"))


def test_without_a_script_an_action_leads_back_to_the_page(tasks):
    sent = {"call": "requeue", "ids": tasks.failed()}
    answer = tasks.client.post(f"{tasks.page}/act", data=sent, headers=tasks.cookie("ayse"))
    assert (answer.status_code, answer.headers["location"]) == (303, tasks.page)


# Pauses


def test_a_queue_and_a_site_are_paused_with_a_reason_and_resumed(tasks):
    assert f"{tasks.name} is paused." in words(send(tasks, "pause", reason="the other side is down"))
    assert "south is paused." in words(send(tasks, "pause", site="south"))
    page = tasks.client.get(tasks.page, headers=tasks.cookie("ayse")).text
    assert "This queue is paused" in page
    assert "the other side is down" in page
    assert "south is paused" in page
    assert f"{tasks.name} has been resumed." in words(send(tasks, "resume"))
    assert f"{tasks.name} was not paused." in words(send(tasks, "resume"))
    assert [one.tenant for one in tasks.store.paused(tasks.name)] == ["south"]


def test_only_a_user_of_every_site_can_pause_the_whole_queue(tasks):
    tasks.known("nur", "operator", sites=["north"])
    sheet = tasks.client.get(f"{tasks.page}/steer", headers=tasks.cookie("nur")).text
    assert "The whole queue" not in sheet
    assert "<option>north</option>" in sheet


# In the background


@pytest.fixture
def many(tasks: TaskQueue, monkeypatch: pytest.MonkeyPatch) -> TaskQueue:
    """Five failed jobs, and limits that make them many."""
    monkeypatch.setattr(actions, "MAX_FOREGROUND_JOBS", 3)
    monkeypatch.setattr(bulk, "MAX_PAGE", 2)
    for _ in range(5):
        tasks.failed()
    return tasks


def runs(tasks: TaskQueue) -> BulkRuns:
    bulk_runs: BulkRuns = tasks.app.state.bulk_runs
    return bulk_runs


@pytest.mark.parametrize("how", [{"state": "failed"}, {"code": ""}, {"age": "within-1h"}])
def test_many_rows_move_in_the_background(how, many):
    tasks = many
    ready = tasks.job()
    sheet = words(send(tasks, "sheet", call="requeue", all="1", **how))
    assert "5 will move failed 5" in sheet
    assert "in the background" in sheet
    answer = send(tasks, "act", call="requeue", all="1", reason="mended", **how)
    assert answer.status_code == 200
    end_bulk_runs(runs(tasks))
    [run] = runs(tasks).of(AYSE, many.name)
    assert (run.state, run.moved) == ("done", 5)
    assert run.link == ([] if "state" in how else [ready])
    panel = tasks.client.get(f"{tasks.page}/runs", headers=tasks.cookie("ayse"))
    assert words(panel).startswith("Retry: 5 moved")
    assert "hx-get" not in panel.text  # it is polled no more, and a late answer still replaces it
    assert 'hx-swap="morph:outerHTML" hx-target="this"' in panel.text
    assert tasks.task.stats().states["failed"] == 0
    moved = [line for line in tasks.audit() if (line.queue, line.action) == (many.name, "queue.requeue")]
    assert len(moved) == 3


def test_the_refusals_of_a_background_run_are_exact(many):
    for _ in range(2):
        many.failed(key="wanted")
    claimed = many.job()
    many.task.claim("w", ids=[claimed])
    text = words(send(many, "sheet", call="requeue", all="1"))
    assert "6 will move failed 6" in text
    assert "2 will be refused" in text
    assert "another job has its key 1" in text
    assert "already running 1" in text
    assert "Retry 6 jobs" in text
    send(many, "act", call="requeue", all="1")
    end_bulk_runs(runs(many))
    [run] = runs(many).of(AYSE, many.name)
    assert (run.moved, sum(run.refused.values())) == (6, 2)


def test_runs_are_shown_only_to_the_user_who_started_them(many):
    send(many, "act", call="requeue", all="1", state="failed")
    end_bulk_runs(runs(many))
    many.known("bora", "operator", all_sites=True)
    assert words(many.client.get(f"{many.page}/runs", headers=many.cookie("bora"))) == ""


def run_to_end(tasks: TaskQueue, who: Actor = AYSE) -> BulkRun:
    bulk_runs = BulkRuns(tasks.service)
    bulk_runs.start(who, tasks.name, "requeue", Filter(), 5)
    end_bulk_runs(bulk_runs)
    [run] = bulk_runs.of(who, tasks.name)
    return run


def test_a_run_ends_with_the_permissions_of_its_user(many):
    many.known("deniz", "operator", all_sites=True)
    many.accounts.set_user(ROOT, "deniz", disabled=True)
    run = run_to_end(many, Actor("user:deniz", frozenset({"operator"}), all_sites=True))
    assert (run.state, run.done) == ("stopped", 0)
    assert many.task.stats().states["failed"] == 5


def test_a_refused_run_has_the_reason(many):
    run = run_to_end(many, Actor("key:x", frozenset({"operate"})))
    assert (run.state, run.why) == ("failed", f"there is no queue {many.name!r}, or you have no access to it")


def test_the_store_is_closed_after_the_run_that_a_stop_ends(make_world, monkeypatch):
    world, begun = make_world(), threading.Event()
    still_at_work: list[bool] = []

    def wait_for_the_stop(_self: BulkRuns, _order: object) -> None:
        begun.set()
        assert world.service._stopping.wait(10)

    monkeypatch.setattr(BulkRuns, "_execute", wait_for_the_stop)
    bulk_runs = BulkRuns(world.service)
    bulk_runs.start(ROOT, "task", "requeue", Filter(), 5)
    assert begun.wait(10)
    monkeypatch.setattr(world.service.store, "close", lambda: still_at_work.append(bulk_runs._thread is not None))
    world.service.stop()
    assert still_at_work == [False]


def test_a_stop_of_the_service_ends_its_runs_between_batches(many, monkeypatch):
    monkeypatch.setattr(Service, "stopping", property(lambda _self: True))
    assert run_to_end(many).state == "stopped"


def test_a_run_of_a_lost_process_is_shown_as_stopped(many):
    tasks = many
    made = BulkRuns(tasks.service)
    made._save(AYSE, BulkRun("1", many.name, "requeue", 5, "running", done=2))
    assert made.of(AYSE, many.name)[0].active
    tasks.clock.advance(SILENT_S + 1)
    page = tasks.client.get(tasks.page, headers=tasks.cookie("ayse")).text
    assert "stopped after 2 of 5 jobs" in page
    tasks.clock.advance(bulk.SHOWN_S)
    assert made.of(AYSE, many.name) == []


def test_the_numbers_of_waiting_and_of_ended_runs_are_limited(many, monkeypatch):
    monkeypatch.setattr(BulkRuns, "_work", lambda _self: None)
    made = BulkRuns(many.service)
    for _ in range(MAX_WAITING):
        made.start(AYSE, many.name, "requeue", Filter(), 5)
    assert [one.state for one in made.of(AYSE, many.name)] == ["waiting"] * MAX_WAITING
    with pytest.raises(RequestConflict, match="already waiting"):
        made.start(AYSE, many.name, "requeue", Filter(), 5)
    assert all(isinstance(one, QueuedRun) for one in made._waiting)
    for order in made._waiting:
        made._end(order, "done", "")
    assert [one.state for one in made.of(AYSE, many.name)] == ["done"] * MAX_ENDED


def test_a_run_that_waits_behind_another_is_not_stopped(many, monkeypatch):
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


# A priority


@pytest.fixture
def prior(tasks: TaskQueue) -> TaskQueue:
    """The queue of tasks with an action that sets the priority."""
    rules = task_lifecycle()
    rules = replace(rules, moves=(*rules.moves, prioritize(("ready", "failed"))))
    tasks.service.queues[tasks.name] = Queue(tasks.name, rules, tasks.store, clock=tasks.clock)
    return tasks


def test_an_action_that_sets_the_priority_asks_which(prior):
    job = prior.job()
    page = prior.client.get(f"/dashboard/jobs/{job}", headers=prior.cookie("ayse")).text
    assert "Set priority" in page
    sheet = send(prior, "sheet", call="prioritize", ids=job)
    assert re.findall(r'<option value="(-?\d)"', sheet.text) == ["2", "1", "0", "-1"]
    assert "Set the priority of 1 job" in words(sheet)
    assert "1 moved" in words(send(prior, "act", call="prioritize", ids=job, priority="2"))
    assert prior.found(job).priority == 2


@table("fields", [{}, {"priority": "3"}, {"priority": "x"}])
def test_a_form_without_a_priority_is_refused_by_its_name(fields, prior):
    job = prior.job()
    answer = send(prior, "act", call="prioritize", ids=job, **fields)
    assert (answer.status_code, "priority must be -1, 0, 1 or 2" in answer.text) == (422, True)
    assert prior.found(job).seq == 1


def test_a_failed_job_is_not_helped_or_ended_by_another_priority(prior):
    job = prior.job()
    Worker(prior.task, lambda _job: Failed("BAD", "it was", category="AUTH")).drain()
    page = prior.client.get(f"/dashboard/jobs/{job}", headers=prior.cookie("ayse")).text
    kinds = re.findall(r'class="button([^"]*)"[^>]*>(Retry|Set priority)<', page)
    assert kinds == [(" first", "Retry"), ("", "Set priority")]
