"""A batch from its rows to its file, and the result of every row."""

import csv
import io
import json
from functools import partial
from typing import Any

from kesin.workloads.pdf.batches import worker as module
from kesin.workloads.pdf.batches import worker as output_module
from kesin.workloads.pdf.batches.worker import BatchWorker
from kesin.workloads.pdf.steps import finishing
from tests.web.conftest import error_of
from tests.workloads.pdf.batching import names, one_page
from tests.workloads.pdf.paper import pages


def test_a_zip_has_a_pdf_for_each_row_and_the_results(bindery):
    batch_id = bindery.order(*names(3), name_field="name", file_name="kartlar")
    assert bindery.get(batch_id)["status"] == "queued"
    bindery.work()
    batch = bindery.get(batch_id)
    counts = [batch[name] for name in ("status", "rows", "made", "failed", "waiting")]
    assert counts == ["succeeded", 3, 3, 0, 0]
    assert batch["download_url"] == f"/pdf/batches/{batch_id}/download"
    assert batch["started_at"]
    assert batch["pages"] == 3
    entries = bindery.entries(batch_id)
    files = [f"000{number}-row {number}.pdf" for number in (1, 2, 3)]
    assert list(entries) == [*files, "results.json", "results.csv"]
    assert [pages(entries[name]) for name in files] == [[name] for name in names(3)]
    results = json.loads(entries["results.json"])
    assert [result["file"] for result in results] == files
    [header, *lines] = csv.reader(io.StringIO(entries["results.csv"].decode("utf-8-sig")))
    assert [dict(zip(header, line, strict=True))["status"] for line in lines] == ["succeeded"] * 3
    response = bindery.download(batch_id)
    assert response.headers["content-type"] == "application/zip"
    assert 'filename="kartlar.zip"' in response.headers["content-disposition"]
    assert response.headers["etag"] == f'"{batch["sha256"]}"'
    part = bindery.download(batch_id, range="bytes=0-1")
    assert (part.status_code, part.content) == (206, b"PK")
    assert bindery.download(batch_id, **{"if-none-match": response.headers["etag"]}).status_code == 304
    assert not bindery.metadata_names()


def test_an_equal_batch_is_the_same_one_and_another_order_is_not(bindery):
    batch_id = bindery.order(*names(2))
    again = bindery.post([{"name": name} for name in names(2)])
    assert (again.status_code, again.json()["batch_id"]) == (200, batch_id)
    assert bindery.order(*names(2), output="merged") != batch_id
    stranger = bindery.post([{"name": name} for name in names(2)], headers=bindery.key("pdf"))
    assert stranger.status_code == 202
    bindery.work()
    bindery.work()
    bindery.work()
    again = bindery.post([{"name": name} for name in names(2)])
    assert (again.status_code, again.json()["batch_id"]) == (200, batch_id)


def test_an_equal_batch_is_created_when_the_file_of_the_first_is_lost(bindery):
    rows = [{"name": "lost"}]
    first = bindery.order("lost")
    bindery.work()
    key = bindery.batch(first).result["artifact_key"]
    assert key is not None
    bindery.batches.storage.delete(key)
    assert bindery.download(first).status_code == 410
    second = bindery.order("lost")
    assert second != first
    assert bindery.post(rows).json()["batch_id"] == second
    bindery.work()
    assert bindery.download(second).status_code == 200
    assert bindery.post(rows).json()["batch_id"] == second


def test_equal_rows_share_a_job_like_single_requests(bindery):
    batch_id = bindery.order("a", "b", "a")
    bindery.work()
    rows = bindery.get(batch_id)["results"]
    assert rows[0]["job_id"] == rows[2]["job_id"] != rows[1]["job_id"]
    assert bindery.engine.printed == ["a", "b"]
    assert len(bindery.entries(batch_id)) == 3 + 2
    job = bindery.client.get(f"/pdf/jobs/{rows[1]['job_id']}", headers=bindery.headers).json()
    assert job["status"] == "succeeded"


# Failed rows


def test_rows_that_fail_leave_a_file_of_the_others(bindery):
    batch_id = bindery.order("a", "bad", "c")
    bindery.work()
    batch = bindery.get(batch_id)
    assert (batch["status"], batch["made"], batch["failed"]) == ("partial", 2, 1)
    assert batch["error_code"] is None
    assert [result["status"] for result in batch["results"]] == ["succeeded", "failed", "succeeded"]
    assert batch["results"][1]["error_code"] == "TEMPLATE_ERROR"
    assert batch["results"][1]["error_message"] == "so the test wants it"
    entries = bindery.entries(batch_id)
    assert list(entries)[:2] == ["0001-card.pdf", "0003-card.pdf"]
    again = bindery.post([{"name": name} for name in ("a", "bad", "c")])
    assert again.status_code == 202  # a partial file does not answer an equal request


def test_a_batch_without_a_rendered_row_fails(bindery):
    batch_id = bindery.order("bad 1", "bad 2")
    bindery.work()
    batch = bindery.get(batch_id)
    assert (batch["status"], batch["error_code"]) == ("failed", "EVERY_ROW_FAILED")
    assert batch["failed"] == 2
    assert [result["error_code"] for result in batch["results"]] == ["TEMPLATE_ERROR"] * 2
    refused = bindery.download(batch_id)
    assert (refused.status_code, error_of(refused)["code"]) == (409, "EVERY_ROW_FAILED")


def test_a_file_that_would_be_too_large_is_not_made(bindery, monkeypatch):
    limited = partial(output_module.open_assembly, max_bytes=1_000)
    monkeypatch.setattr(output_module, "open_assembly", limited)
    batch_id = bindery.order(*names(5))
    bindery.work()
    batch = bindery.get(batch_id)
    assert (batch["status"], batch["error_code"]) == ("failed", "TOO_LARGE")
    assert [result["status"] for result in batch["results"]] == ["succeeded"] * 5


def test_a_lost_pdf_is_rendered_again(bindery):
    batch_id = bindery.order(*names(3))
    lost: list[str] = []

    def wait(_seconds: float) -> None:
        bindery.print_all()
        if not lost:
            [job] = [job for job in bindery.pdf.jobs().jobs if "row 2" in job.payload_json][:1]
            lost.append(job.id)
            bindery.batches.storage.delete(job.result["artifact_key"])

    bindery.work(wait)
    rows = bindery.get(batch_id)["results"]
    assert bindery.get(batch_id)["status"] == "succeeded"
    assert rows[1]["job_id"] not in lost
    assert bindery.engine.printed == ["row 1", "row 2", "row 3", "row 2"]
    assert pages(bindery.entries(batch_id)["0002-card.pdf"]) == ["row 2"]


def test_a_pdf_that_is_lost_each_time_fails_its_row(bindery):
    batch_id = bindery.order("keeps", "vanishes")

    def wait(_seconds: float) -> None:
        bindery.print_all()
        for job in bindery.pdf.jobs().jobs:
            if "vanishes" in job.payload_json and job.state == "succeeded":
                bindery.batches.storage.delete(job.result["artifact_key"])

    bindery.work(wait)
    batch = bindery.get(batch_id)
    assert batch["status"] == "partial"
    assert batch["results"][1]["error_code"] == "ARTIFACT_GONE"
    assert bindery.engine.printed.count("vanishes") == 1 + module.MAX_ROW_RETRIES


def test_an_unreadable_pdf_is_a_failed_row_of_a_merged_file(bindery, monkeypatch):
    prints = {"fine": one_page("fine"), "broken": b"no PDF at all"}
    monkeypatch.setattr("tests.workloads.pdf.batching.one_page", prints.__getitem__)
    batch_id = bindery.order("fine", "broken", output="merged")
    bindery.work(lambda _seconds: bindery.print_all())
    batch = bindery.get(batch_id)
    assert (batch["status"], batch["results"][1]["error_code"]) == ("partial", "UNREADABLE")
    assert pages(bindery.download(batch_id).content) == ["fine"]


def test_a_merge_that_costs_too_much_ends_its_process_and_fails_the_batch(bindery, monkeypatch):
    small = finishing.BATCH_LIMITS._replace(memory_bytes=1)
    monkeypatch.setattr(finishing, "BATCH_LIMITS", small)
    batch_id = bindery.order("fine", "fine too", output="merged")
    bindery.work(lambda _seconds: bindery.print_all())
    batch = bindery.get(batch_id)
    assert (batch["status"], batch["error_code"]) == ("failed", "DOCUMENT_TOO_COSTLY")
    assert "more time or memory" in batch["error_message"]
    assert [row["status"] for row in batch["results"]] == ["succeeded"] * 2


def test_a_damaged_pdf_is_rendered_again(bindery):
    batch_id = bindery.order("fine", "spoilt", output="merged")
    spoilt: list[str] = []

    def wait(_seconds: float) -> None:
        bindery.print_all()
        if not spoilt:
            [job] = [job for job in bindery.pdf.jobs().jobs if "spoilt" in job.payload_json]
            spoilt.append(job.id)
            (bindery.folder / job.result["artifact_key"]).write_bytes(one_page("wrong"))

    bindery.work(wait)
    batch = bindery.get(batch_id)
    assert (batch["status"], batch["results"][1]["job_id"] in spoilt) == ("succeeded", False)
    response = bindery.download(batch_id)
    assert (response.headers["content-type"], pages(response.content)) == ("application/pdf", ["fine", "spoilt"])
    assert bindery.engine.printed == ["fine", "spoilt", "spoilt"]


def test_lost_or_damaged_rows_and_results_are_not_used(bindery):
    def damage(batch_id, which):
        stored = bindery.batches.get(batch_id)
        path = bindery.folder / (stored.result.get(which) or stored.input_key)
        data = path.read_bytes()
        path.write_bytes(data[:20] + b"\0" + data[21:])

    lost, batch_id = bindery.order("lost"), bindery.order("a", "b")
    bindery.batches.storage.delete(bindery.batch(lost).input_key)
    damage(batch_id, "input_key")
    bindery.work()
    bindery.work()
    assert [bindery.get(each)["error_code"] for each in (lost, batch_id)] == ["ROWS_MISSING"] * 2
    batch_id = bindery.order("c", "d")
    bindery.work()
    assert len(bindery.get(batch_id)["results"]) == 2
    damage(batch_id, "results_key")
    assert bindery.get(batch_id)["results"] == []


def test_a_cancelled_row_stays_cancelled(bindery):
    batch_id = bindery.order("a", "b")

    def wait(_seconds: float) -> None:
        jobs = [job for job in bindery.pdf.peek(limit=10) if '"b"' in job.payload_json]
        bindery.pdf.act("cancel", actor="tests", ids=[job.id for job in jobs])
        bindery.print_all()

    bindery.work(wait)
    batch = bindery.get(batch_id)
    assert (batch["status"], batch["results"][1]["error_code"]) == ("partial", "CANCELLED")


def test_rows_that_wait_until_they_expire_fail_the_batch(bindery):
    batch_id = bindery.order("a", "b")

    def wait(_seconds: float) -> None:
        bindery.clock.advance(86_401)
        bindery.sweep("expire")

    bindery.work(wait)  # no claim lasts more than a day: it is released
    assert bindery.get(batch_id)["status"] == "queued"
    bindery.work()
    batch = bindery.get(batch_id)
    assert (batch["status"], batch["error_code"]) == ("failed", "EVERY_ROW_FAILED")
    assert {result["error_code"] for result in batch["results"]} == {"EXPIRED"}


# The queue of rows


def test_rows_are_enqueued_as_the_queue_allows_and_never_refused(bindery, monkeypatch):
    monkeypatch.setattr(module, "MAX_ROWS_IN_QUEUE", 6)
    monkeypatch.setattr(module, "REFILL_BELOW", 3)
    batch_id = bindery.order(*names(20))
    queued: list[int] = []

    def wait(_seconds: float) -> None:
        queued.append(len(bindery.pdf.peek(limit=100)))
        bindery.print_all(most=2)

    bindery.work(wait)
    assert bindery.get(batch_id)["made"] == 20
    assert max(queued) == 6
    assert bindery.engine.printed == names(20)


def test_a_batch_waits_for_a_full_queue_and_takes_turns_with_other_jobs(bindery):
    others = [{"variables": {"name": f"other {n}"}} for n in range(8)]
    for other in others:
        bindery.batches.jobs.create_job("card", other, owner="somebody")
    batch_id = bindery.order(*names(3))
    seen: list[set[str]] = []

    def wait(_seconds: float) -> None:
        seen.append({job.tenant for job in bindery.pdf.peek(limit=100)})
        bindery.print_all(most=3)

    bindery.work(wait, max_queued=10)  # eight are waiting: no row goes in before one is gone
    assert seen[0] == {"somebody"}
    assert bindery.get(batch_id)["made"] == 3
    bindery.print_all()  # the others took turns with the rows of the batch
    assert len(bindery.engine.printed) == len(others) + 3


def test_progress_is_shown_while_a_batch_runs(bindery, monkeypatch):
    monkeypatch.setattr(module, "MAX_ROWS_IN_QUEUE", 3)
    monkeypatch.setattr(module, "REFILL_BELOW", 2)
    batch_id = bindery.order("a", "bad", *names(4))
    seen: list[dict[str, Any]] = []

    def wait(_seconds: float) -> None:
        seen.append(bindery.get(batch_id))
        bindery.print_all(most=2)

    bindery.work(wait)
    first, second = seen[:2]
    assert (first["status"], first["made"], first["waiting"]) == ("running", 0, 6)
    assert [result["status"] for result in first["results"]] == ["queued"] * 3 + ["waiting"] * 3
    assert (second["made"], second["failed"], second["waiting"]) == (1, 1, 4)
    rows = second["results"]
    assert [row["status"] for row in rows[:3]] == ["succeeded", "failed", "queued"]
    assert rows[0]["pages"] == 1
    assert rows[1]["error_code"] == "TEMPLATE_ERROR"
    assert bindery.download(batch_id).status_code == 200


def test_results_come_in_pages(bindery):
    batch_id = bindery.order(*names(5))
    running = bindery.get(batch_id, offset=3, limit=10)["results"]
    assert [result["row"] for result in running] == [4, 5]
    bindery.work()
    page = bindery.get(batch_id, offset=1, limit=2)["results"]
    assert [result["row"] for result in page] == [2, 3]
    assert bindery.get(batch_id, offset=5)["results"] == []
    assert bindery.get(batch_id, limit=0)["results"] == []


# Cancelling


def test_a_waiting_batch_is_cancelled_at_once(bindery):
    batch_id = bindery.order("a")
    lines = bindery.said(lambda: bindery.delete(batch_id))
    assert [(line.action, line.target) for line in lines] == [("pdf.cancel_batch", batch_id)]
    batch = bindery.delete(batch_id)  # again is the same
    assert (batch.status_code, batch.json()["status"]) == (200, "expired")
    assert batch.json()["error_code"] == "CANCELLED"
    bindery.work()
    assert bindery.engine.printed == []
    assert bindery.download(batch_id).status_code == 410


def test_a_running_batch_stops_and_its_waiting_rows_with_it(bindery):
    batch_id = bindery.order("a", "b", "c")
    job = bindery.found(batch_id)
    payload = {**job.payload["options"]["payload"], "variables": {"name": "b"}}
    before = bindery.batches.jobs.create_job("card", payload, owner=job.tenant)

    def wait(_seconds: float) -> None:
        assert len(bindery.pdf.peek(limit=10)) == 3
        response = bindery.delete(batch_id)
        assert (response.status_code, response.json()["cancel_asked"]) == (200, True)
        assert bindery.delete(batch_id).status_code == 200

    bindery.work(wait)
    assert bindery.get(batch_id)["status"] == "expired"
    assert bindery.get(batch_id)["error_code"] == "CANCELLED"
    assert [job.id for job in bindery.pdf.peek(limit=10)] == [before.job_id]
    assert not bindery.metadata_names()


def test_a_row_of_two_batches_is_rendered_for_the_one_that_goes_on(bindery):
    first, second = bindery.order("a", "b"), bindery.order("b", "c")

    stop_while_rows_wait(bindery, after_s=1)  # so that the second is next
    assert len(bindery.pdf.peek(limit=10)) == 2

    def wait(_seconds: float) -> None:
        if bindery.get(first)["status"] == "queued":
            bindery.delete(first)
        else:
            bindery.print_all()

    bindery.work(wait)
    assert bindery.get(first)["status"] == "expired"
    assert bindery.get(second)["status"] == "succeeded"
    assert bindery.engine.printed == ["c", "b"]


def test_a_finished_batch_is_not_cancelled(bindery):
    batch_id = bindery.order("a")
    bindery.work()
    response = bindery.delete(batch_id)
    assert (response.status_code, error_of(response)["details"]) == (409, {"status": "succeeded"})


def stop_while_rows_wait(bindery, after_s: float = 0) -> None:
    """A worker that enqueues the rows of the next batch, and stops."""

    def stop(_seconds: float) -> None:
        bindery.clock.advance(after_s)
        worker.stop()

    worker: BatchWorker = bindery.worker(stop)
    worker.run_once()


def test_a_batch_is_released_when_its_worker_stops(bindery):
    batch_id = bindery.order(*names(3))
    stop_while_rows_wait(bindery)
    assert bindery.get(batch_id)["status"] == "queued"
    assert bindery.found(batch_id).attempts_left == 5
    bindery.work()
    assert bindery.get(batch_id)["status"] == "succeeded"
    assert bindery.engine.printed == names(3)


def test_a_cancelled_batch_that_was_released_cancels_its_rows(bindery):
    batch_id = bindery.order(*names(3))
    stop_while_rows_wait(bindery)
    assert len(bindery.pdf.peek(limit=10)) == 3
    bindery.delete(batch_id)
    assert bindery.pdf.peek(limit=10) == []
    assert not bindery.metadata_names()
