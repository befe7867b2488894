"""Failed jobs whose data was wrong are corrected on a page: copies replace them."""

import html
import re
from typing import Any

from kesin.engine.results import Failed
from kesin.engine.worker import Worker
from kesin.lifecycle.errors import Category
from kesin.web.bodies import SMALL_BODY_BYTES
from kesin.web.dashboard.queues import fix
from tests.tables import table
from tests.web.dashboard.conftest import TaskQueue


def fail(tasks: TaskQueue, *payloads: Any, category: Category = Category.VALIDATION) -> list[str]:
    ids = [tasks.job(payload=one, key=f"k{n}") for n, one in enumerate(payloads)]
    answer = Failed("BAD_ADDRESS", "no such address", category=category)
    Worker(tasks.task, lambda _job: answer).drain()
    return ids


def page(tasks: TaskQueue, who: str = "ayse", query: str = "?code=BAD_ADDRESS") -> Any:
    return tasks.client.get(f"{tasks.page}/fix{query}", headers=tasks.cookie(who))


def send(tasks: TaskQueue, ids: list[str], query: str = "", **fields: str) -> Any:
    data = {"ids": ",".join(ids), **fields}
    path = f"{tasks.page}/fix{query or '?code=BAD_ADDRESS'}"
    return tasks.client.post(path, data=data, headers=tasks.cookie("ayse"))


def copies(tasks: TaskQueue) -> list[Any]:
    return [job.payload for job in tasks.task.jobs().jobs if job.state == "ready"][::-1]


def test_each_corrected_job_is_enqueued_again_and_its_original_dismissed(tasks):
    first, second = fail(tasks, {"to": "ali@", "n": 1}, {"to": "veli@", "n": 2})
    answer = send(tasks, [first, second], **{f"{first}|to": "ali@x.org", f"{second}|to": "veli@"})
    assert "1 corrected job has been enqueued, and its original has been dismissed" in answer.text
    assert copies(tasks) == [{"to": "ali@x.org", "n": 1}]
    [copy] = [job for job in tasks.task.jobs().jobs if job.state == "ready"]
    assert copy.dedup_key == "k0"
    assert tasks.found(first).error_code == "DISMISSED"
    assert tasks.found(second).error_code == "BAD_ADDRESS"
    assert f'id="fix-{second}"' in answer.text
    assert f'id="fix-{first}"' not in answer.text


def test_a_field_that_all_jobs_share_is_corrected_once(tasks):
    ids = fail(tasks, {"to": "a", "template": "helo"}, {"to": "b", "template": "helo"})
    assert 'name="all|template"' in page(tasks).text
    assert 'name="all|to"' not in page(tasks).text
    send(tasks, ids, **{"all|template": "hello"})
    assert copies(tasks) == [{"to": "a", "template": "hello"}, {"to": "b", "template": "hello"}]


def test_a_number_stays_a_number_and_a_text_a_text(tasks):
    [job] = fail(tasks, {"n": 1, "text": "1", "tags": ["a"]})
    send(tasks, [job], **{f"{job}|n": "2", f"{job}|text": "2", f"{job}|tags": '["b"]'})
    assert copies(tasks) == [{"n": 2, "text": "2", "tags": ["b"]}]


def test_long_data_is_corrected_too(tasks):
    [job] = fail(tasks, {"to": "a", "text": "x"})
    answer = send(tasks, [job], **{f"{job}|text": "y" * SMALL_BODY_BYTES})
    assert answer.status_code == 200
    assert copies(tasks) == [{"to": "a", "text": "y" * SMALL_BODY_BYTES}]


def test_what_cannot_be_read_is_marked_and_nothing_is_enqueued(tasks):
    first, second = fail(tasks, {"n": 1}, {"n": 2})
    answer = send(tasks, [first, second], **{f"{first}|n": "one", f"{second}|n": "3"})
    assert answer.status_code == 422
    assert re.search(rf'name="{first}\|n" value="one"[^>]* aria-invalid="true"', answer.text)
    assert copies(tasks) == []


def test_a_missing_field_is_added_in_the_json_of_the_job(tasks):
    [job] = fail(tasks, {"to": "a"})
    assert f'name="{job}"' in page(tasks, query="?code=BAD_ADDRESS&json=1").text
    send(tasks, [job], query="?json=1", **{job: '{"to": "a", "lang": "tr"}'})
    assert copies(tasks) == [{"to": "a", "lang": "tr"}]


def test_without_a_change_nothing_is_enqueued(tasks):
    [job] = fail(tasks, {"to": "a"})
    answer = send(tasks, [job], **{f"{job}|to": "a"})
    assert answer.status_code == 422
    assert "Nothing was changed" in answer.text
    assert copies(tasks) == []


def test_sent_twice_it_is_done_once(tasks):
    [job] = fail(tasks, {"to": "a"})
    for _ in range(2):
        send(tasks, [job], **{f"{job}|to": "b"})
    assert copies(tasks) == [{"to": "b"}]


def test_a_copy_whose_key_is_taken_is_refused_and_its_original_stays(tasks):
    [job] = fail(tasks, {"to": "a"})
    tasks.job(payload={"to": "other"}, key="k0")
    answer = send(tasks, [job], **{f"{job}|to": "b"})
    assert "another job has its key" in answer.text
    assert copies(tasks) == [{"to": "other"}]
    assert tasks.found(job).error_code == "BAD_ADDRESS"


def test_older_jobs_than_the_page_shows_are_corrected_too(tasks, monkeypatch):
    monkeypatch.setattr(fix, "MAX_JOBS", 2)
    oldest, *_ = fail(tasks, {"to": "a"}, {"to": "b"}, {"to": "c"})
    text = page(tasks).text
    assert "This page shows 2 jobs at a time, newest first." in text
    [older] = re.findall(r'href="[^"?]*(\?[^"]*)">Older jobs<', text)
    older = html.unescape(older)
    text = page(tasks, query=older).text
    assert re.findall(r'id="fix-([^"]+)"', text) == [oldest]
    assert f'href="{tasks.page}/fix?code=BAD_ADDRESS">Newest jobs<' in text
    send(tasks, [oldest], query=older, **{f"{oldest}|to": "a@x.org"})
    assert copies(tasks) == [{"to": "a@x.org"}]


def test_the_look_and_the_correction_are_in_the_audit_log(tasks):
    [job] = fail(tasks, {"email": "ali@x"})
    assert "queue.reveal" in {line.action for line in tasks.said(lambda: page(tasks))}
    lines = tasks.said(lambda: send(tasks, [job], reason="typo", **{f"{job}|email": "ali@x.org"}))
    [line] = [line for line in lines if line.action == "queue.correct"]
    assert line.details == '{"enqueued":1,"reason":"typo"}'


@table("queue", ["oci", "pdf", "oci_adjustments"])
def test_jobs_of_a_workload_with_its_own_api_are_corrected_there(tasks, queue):
    path = f"/dashboard/queues/{queue}/fix"
    answer = tasks.client.get(path, headers=tasks.cookie("ayse"))
    assert answer.status_code == 422
    assert "use its page, API or command" in answer.text


def test_the_page_of_a_job_offers_the_correction_and_warns_of_a_futile_retry(tasks):
    [job] = fail(tasks, {"to": "a"})
    text = tasks.client.get(f"/dashboard/jobs/{job}", headers=tasks.cookie("ayse")).text
    assert re.search(rf'class="button first" href="{tasks.page}/fix\?ids={job}">Fix data<', text)
    assert "It will fail until its data is fixed." in text


def test_an_error_that_is_not_of_the_data_is_not_corrected(tasks):
    [job] = fail(tasks, {"to": "a"}, category=Category.PERMANENT)
    assert f"fix-{job}" not in page(tasks).text
    assert "Fix data" not in tasks.client.get(f"/dashboard/jobs/{job}", headers=tasks.cookie("ayse")).text
