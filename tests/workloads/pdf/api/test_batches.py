"""The doors of batches: who sees what, and what is not taken."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.conftest import error_of
from tests.workloads.pdf.batching import Bindery, names, opened_bindery, order_of

# Whose it is


def test_a_batch_is_its_owners_alone(bindery):
    batch_id = bindery.order("a")
    path = f"/pdf/batches/{batch_id}"
    stranger = bindery.key("pdf")
    for method, where in (
        ("GET", path),
        ("GET", f"{path}/download"),
        ("HEAD", f"{path}/download"),
        ("DELETE", path),
        ("GET", "/pdf/batches/nonsense"),
    ):
        assert bindery.client.request(method, where, headers=stranger).status_code == 404
    assert bindery.client.get("/pdf/batches", headers=stranger).json()["batches"] == []
    boss = bindery.key("admin")
    assert bindery.get(batch_id, headers=boss)["batch_id"] == batch_id
    mine = bindery.client.get("/pdf/batches?status=queued&limit=1", headers=bindery.headers)
    assert [batch["batch_id"] for batch in mine.json()["batches"]] == [batch_id]
    assert bindery.client.delete(path, headers=boss).status_code == 200


def test_a_list_goes_on_where_it_ended(bindery):
    wanted = [bindery.order(name) for name in names(3)]
    found: list[str] = []
    cursor: str | None = None
    while True:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = bindery.client.get("/pdf/batches", params=query, headers=bindery.headers).json()
        found += [batch["batch_id"] for batch in page["batches"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert found == wanted[::-1]
    for wanted_id in wanted:
        bindery.delete(wanted_id)


# What is not taken


def test_a_wrong_row_is_named_and_nothing_is_made(bindery):
    before = bindery.stored()
    answer = bindery.post([{"name": "a"}, {"name": 5}, {"name": "c", "count": "x"}])
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (422, "bad_rows")
    assert error["details"]["more"] is False
    found = [
        (problem["row"], problem["path"], problem["rule"])
        for problem in error["details"]["problems"]
    ]
    assert found == [(2, "/name", "type"), (3, "/count", "type")]
    assert bindery.stored() == before


def test_only_the_first_hundred_problems_are_told(bindery):
    answer = bindery.post([{}] * 150)
    details = error_of(answer)["details"]
    assert (len(details["problems"]), details["more"]) == (100, True)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rows": []}, "rows"),
        ({"rows": [{"name": "a"}] * 2_001}, "rows"),
        ({"rows": [[]]}, "rows.0"),
        ({"output": "rar"}, "output"),
        ({"options": {"timeout": 0}}, "options.timeout"),
        ({"strange": 1}, "strange"),
    ],
)
def test_what_makes_no_sense_is_named(change, field, bindery):
    answer = bindery.post(**{"rows": [{"name": "a"}], **change})
    assert answer.status_code == 422
    assert error_of(answer)["details"]["fields"][0]["field"] == field


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"row_names": ["x", "y"]}, "bad_row_names"),
        ({"row_names": ["x"], "name_field": "name"}, "two_names"),
        ({"name_field": "nmae"}, "bad_name_field"),
    ],
)
def test_names_that_fit_no_row_are_refused(change, code, bindery):
    answer = bindery.post([{"name": "a"}], **change)
    assert (answer.status_code, error_of(answer)["code"]) == (422, code)


def test_a_template_that_may_not_be_used_is_refused(bindery):
    answer = bindery.post([{"name": "a"}], template_name="cutting_plan")
    assert (answer.status_code, error_of(answer)["code"]) == (400, "TEMPLATE_ERROR")


def test_a_row_the_queue_could_not_keep_is_refused(bindery):
    rows = [{"name": "a"}, {"name": "b", "tags": ["x" * 300_000]}, {"name": "nul \x00"}]
    error = error_of(bindery.post(rows))["details"]["problems"]
    assert [(problem["row"], problem["rule"]) for problem in error] == [(2, "limit"), (3, "limit")]


def test_another_kind_of_body_is_refused(bindery):
    headers = {**bindery.headers, "content-type": "text/plain"}
    answer = bindery.client.post("/pdf/batches", content=b"x", headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "unsupported_type")
    headers["content-type"] = "application/json"
    answer = bindery.client.post("/pdf/batches", content=b"{", headers=headers)
    assert answer.status_code == 422


def test_a_csv_file_makes_a_batch(bindery):
    answer = bindery.post_csv("name;price\nAyşe;1,5\nİnci;2\n", name_field="name", output="zip")
    assert answer.status_code == 202, answer.text
    bindery.work()
    entries = bindery.entries(answer.json()["batch_id"])
    assert list(entries)[:2] == ["0001-Ayşe.pdf", "0002-İnci.pdf"]
    error = error_of(bindery.post_csv("name,count\na,1\nb,x\n"))["details"]["problems"]
    assert [(problem["row"], problem["path"]) for problem in error] == [(2, "/count")]
    assert error_of(bindery.post_csv("name\na\n", template_name=""))["code"] == "invalid"
    assert error_of(bindery.post_csv("name\n"))["code"] == "no_rows"


# Together with others


def test_two_who_ask_at_the_same_moment_get_one_batch(bindery):
    ask = bindery.batches.submit
    order = order_of(2)
    inner: list[Any] = []
    put = bindery.batches.storage.put_bytes

    def slow(*given: Any) -> None:
        put(*given)
        if not inner:
            inner.append(None)
            inner[0] = ask(order, owner="both")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bindery.batches.storage, "put_bytes", slow)
        second = ask(order, owner="both")
    assert inner[0].new
    assert not second.new
    assert second.batch.batch_id == inner[0].batch.batch_id
    folder = second.batch.input_key.split("/")[1]
    left = {file.key.split("/")[1] for file in bindery.batches.storage.list("batches")}
    known = {bindery.batch(job.id).input_key.split("/")[1] for job in every(bindery)}
    assert folder in left
    assert left <= known


def every(bindery: Bindery) -> list[Any]:
    return [job for job in bindery.queue.jobs(limit=1_000).jobs if isinstance(job.data, dict)]


def test_a_webhook_is_promised_with_the_batch_or_nothing_is(request, tmp_path):
    settings = {
        "pdf_webhooks": r"https://hooks\.example\.com/.*",
        "pdf_webhook_secret": "a secret of the tests",
    }
    with opened_bindery("sqlite", tmp_path, request, **settings) as bindery:
        refused = bindery.post([{"name": "a"}], webhook_url="https://elsewhere.example.com/")
        assert error_of(refused)["code"] == "WEBHOOK_REFUSED"
        assert bindery.queue.jobs().jobs == []
        batch_id = bindery.order("a", webhook_url="https://hooks.example.com/x")
        [promise] = bindery.service.queues["pdf_webhooks"].jobs().jobs
        assert (promise.data["kind"], promise.data["subject"]) == ("batch", batch_id)
        assert promise.tenant == bindery.batch(batch_id).owner
