"""The routes of batches: who sees them, and what is refused."""

from typing import Any

import pytest

from tests.web.conftest import error_of
from tests.workloads.pdf.batching import BatchWorld, opened_batches, order_of

# Refusals


def test_wrong_rows_are_named_up_to_a_hundred_and_nothing_is_created(bindery):
    before = bindery.stored()
    response = bindery.post([{"name": "a"}, {"name": 5}, {"name": "c", "count": "x"}])
    error = error_of(response)
    assert (response.status_code, error["code"]) == (422, "bad_rows")
    assert error["details"]["more"] is False
    problems = [(row["row"], row["path"], row["rule"]) for row in error["details"]["problems"]]
    assert problems == [(2, "/name", "type"), (3, "/count", "type")]
    assert bindery.stored() == before
    details = error_of(bindery.post([{}] * 150))["details"]
    assert (len(details["problems"]), details["more"]) == (100, True)


def test_a_wrong_field_is_named(bindery):
    for change, field in (
        ({"rows": []}, "rows"),
        ({"rows": [{"name": "a"}] * 2_001}, "rows"),
        ({"rows": [[]]}, "rows.0"),
        ({"output": "rar"}, "output"),
        ({"options": {"timeout": 0}}, "options.timeout"),
        ({"strange": 1}, "strange"),
    ):
        response = bindery.post(**{"rows": [{"name": "a"}], **change})
        assert response.status_code == 422
        assert error_of(response)["details"]["fields"][0]["field"] == field


def test_a_merged_file_is_not_promised_to_conform(bindery):
    rows, options = [{"name": "a"}], {"conformance": "pdf/a-3b"}
    assert bindery.post(rows, options=options, output="zip").status_code == 202
    response = bindery.post(rows, options=options, output="merged")
    assert response.status_code == 422
    assert "request a zip" in error_of(response)["details"]["fields"][0]["message"]


def test_rows_are_not_promised_what_a_single_pdf_is_not(bindery):
    """The steps of a row are refused as those of a job are; a batch has no HTML in its place."""
    part, stamp = {"template": "letter", "variables": {}}, {"text": "A"}
    for asked, named in (
        ({"then": [{"append": part}], "options": {"conformance": "pdf/a-3b"}}, "then.0.append"),
        ({"then": [{"stamp": stamp}],
          "options": {"conformance": "pdf/a-3b", "engine": "weasyprint"}}, "then.0.stamp"),
        ({"options": {"fail_safe": "degrade"}}, "options.fail_safe"),
    ):  # fmt: skip
        response = bindery.post([{"name": "a"}], **asked)
        assert response.status_code == 422
        assert named in error_of(response)["details"]["fields"][0]["message"]


def test_wrong_names_and_templates_are_refused(bindery):
    for change, status, code in (
        ({"row_names": ["x", "y"]}, 422, "bad_row_names"),
        ({"row_names": ["x"], "name_field": "name"}, 422, "two_names"),
        ({"name_field": "nmae"}, 422, "bad_name_field"),
        ({"template_name": "cutting_plan"}, 400, "TEMPLATE_ERROR"),
    ):
        response = bindery.post([{"name": "a"}], **change)
        assert (response.status_code, error_of(response)["code"]) == (status, code)


def test_a_row_the_queue_could_not_keep_is_refused(bindery):
    rows = [{"name": "a"}, {"name": "b", "tags": ["x" * 300_000]}, {"name": "nul \x00"}]
    error = error_of(bindery.post(rows))["details"]["problems"]
    assert [(problem["row"], problem["rule"]) for problem in error] == [(2, "limit"), (3, "limit")]


def test_another_kind_of_body_is_refused(bindery):
    headers = {**bindery.headers, "content-type": "text/plain"}
    response = bindery.client.post("/pdf/batches", content=b"x", headers=headers)
    assert (response.status_code, error_of(response)["code"]) == (400, "unsupported_type")
    headers["content-type"] = "application/json"
    response = bindery.client.post("/pdf/batches", content=b"{", headers=headers)
    assert response.status_code == 422


def test_a_csv_file_makes_a_batch(bindery):
    response = bindery.post_csv("name;price\nAyşe;1,5\nİnci;2\n", name_field="name", output="zip")
    assert response.status_code == 202, response.text
    bindery.work()
    entries = bindery.entries(response.json()["batch_id"])
    assert list(entries)[:2] == ["0001-Ayşe.pdf", "0002-İnci.pdf"]
    error = error_of(bindery.post_csv("name,count\na,1\nb,x\n"))["details"]["problems"]
    assert [(problem["row"], problem["path"]) for problem in error] == [(2, "/count")]
    assert error_of(bindery.post_csv("name\na\n", template_name=""))["code"] == "invalid"
    assert error_of(bindery.post_csv("name\n"))["code"] == "no_rows"


# Together with others


def test_equal_requests_at_the_same_moment_create_one_batch(bindery):
    submit = bindery.batches.submit
    order = order_of(2)
    inner: list[Any] = []
    put = bindery.batches.storage.put_bytes

    def slow(*given: Any) -> None:
        put(*given)
        if not inner:
            inner.append(None)
            inner[0] = submit(order, owner="both")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bindery.batches.storage, "put_bytes", slow)
        second, is_new = submit(order, owner="both")
    assert (inner[0][0].batch_id, inner[0][1]) == (second.batch_id, True)
    assert not is_new
    folder = second.input_key.split("/")[1]
    left = {file.key.split("/")[1] for file in bindery.batches.storage.list("batches")}
    known = {bindery.batch(job.id).input_key.split("/")[1] for job in every(bindery)}
    assert folder in left
    assert left <= known


def every(bindery: BatchWorld) -> list[Any]:
    return [job for job in bindery.queue.jobs(limit=1_000).jobs if isinstance(job.payload, dict)]


def test_a_webhook_is_subscribed_with_the_batch_or_there_is_no_batch(request, tmp_path):
    settings = {"pdf_webhooks": r"https://hooks\.example\.com/.*", "pdf_webhook_secret": "a secret of the tests"}
    with opened_batches("sqlite", tmp_path, request, **settings) as bindery:
        refused = bindery.post([{"name": "a"}], webhook_url="https://elsewhere.example.com/")
        assert (refused.status_code, error_of(refused)["code"]) == (422, "WEBHOOK_REFUSED")
        assert bindery.queue.jobs().jobs == []
        batch_id = bindery.order("a", webhook_url="https://hooks.example.com/x")
        [delivery] = bindery.service.queues["pdf_webhooks"].jobs().jobs
        assert (delivery.payload["kind"], delivery.payload["subject"]) == ("batch", batch_id)
        assert delivery.tenant == bindery.batch(batch_id).owner
