"""Downloads: whole, in part, and from a storage that is down or has lost a file."""

from urllib.parse import unquote

import pytest

from kesin.workloads.pdf.api import download
from tests.web.conftest import error_of
from tests.workloads.pdf.front import Front, order
from tests.workloads.pdf.press import LEASE_S, TTL_S

# Fetching


def test_a_pdf_that_is_not_there_yet_is_202(front, me):
    job_id = front.submit(me)
    response = front.fetch(me, job_id)
    assert (response.status_code, response.headers["retry-after"]) == (202, "2")
    assert (response.json()["status"], response.json()["job_id"]) == ("queued", job_id)
    front.queue.claim("one", ids=[job_id])
    assert front.fetch(me, job_id).json()["status"] == "running"


def test_a_job_that_failed_tells_its_code(front, me):
    front.engine.fails("TEMPLATE_ERROR", "line 3: no such filter")
    job_id = front.done(me)
    status = front.get(me, job_id).json()
    assert (status["status"], status["error_code"]) == ("failed", "TEMPLATE_ERROR")
    assert (status["error_message"], status["download_url"]) == ("line 3: no such filter", None)
    response = front.fetch(me, job_id)
    assert (response.status_code, error_of(response)["code"]) == (409, "TEMPLATE_ERROR")
    assert error_of(response)["details"]["error_code"] == "TEMPLATE_ERROR"
    assert error_of(response)["message"] == "line 3: no such filter"


def test_an_internal_code_is_unknown_to_callers_and_has_a_message(front, me):
    job_id = front.submit(me)
    front.engine.next += [lambda: setattr(front.shelf, "down", True)] * 3
    for _ in range(3):
        front.shelf.down = False
        front.clock.advance(10)
        front.worker.process_job(job_id)
    front.shelf.down = False
    front.beat()
    assert front.seen(job_id).internal_code == "ARTIFACT_WRITE_FAILED"
    status = front.get(me, job_id).json()
    assert (status["status"], status["error_code"]) == ("failed", "UNKNOWN")
    assert status["error_message"] == "The PDF was rendered, but the storage did not accept it."
    assert status["retry_count"] == 2


def test_the_error_of_a_job_that_is_retried_is_not_shown(front, me):
    front.engine.fails("NAVIGATION_TIMEOUT")
    job_id = front.done(me)
    status = front.get(me, job_id).json()
    assert (status["status"], status["retry_count"]) == ("queued", 1)
    assert (status["error_code"], status["error_message"]) == (None, None)


def test_an_expired_pdf_is_410(own_front):
    me = own_front.owner()
    job_id = own_front.done(me)
    own_front.clock.advance(TTL_S + LEASE_S)
    own_front.jobs.cleanup_expired()
    response = own_front.fetch(me, job_id)
    assert (response.status_code, error_of(response)["code"]) == (410, "expired")
    assert own_front.get(me, job_id).json()["download_url"] is None


def test_a_file_has_the_requested_name_or_that_of_its_template(front, me):
    for file_name, saved in (
        ("Fatura 7.pdf", "Fatura 7.pdf"),
        ("fatura", "fatura.pdf"),
        ("ışık ₺.PDF", "ışık ₺.PDF"),
        ('a"b/../c\r\nx: y', "a_b_.._c_x_ y.pdf"),
        (" a. ", "a.pdf"),
    ):
        job_id = front.done(me, order(file_name=file_name))
        header = front.fetch(me, job_id).headers["content-disposition"]
        assert header.startswith('attachment; filename="')
        assert unquote(header.partition("filename*=UTF-8''")[2]) == saved
        assert front.get(me, job_id).json()["file_name"] == file_name
    for nameless in ({}, {"file_name": " "}, {"file_name": "..."}):
        job_id = front.done(me, order(**nameless))
        header = front.fetch(me, job_id).headers["content-disposition"]
        day = front.get(me, job_id).json()["created_at"][:10]
        assert f'filename="invoice-{day}-{job_id[-8:]}.pdf"' in header  # two of a minute differ


@pytest.fixture(scope="module")
def printed(front: Front) -> tuple[dict[str, str], str, bytes]:
    """An API key, a job of it, and its PDF."""
    who = front.owner()
    job_id = front.done(who)
    return who, job_id, front.fetch(who, job_id).content


def test_a_range_is_exactly_the_part(front, printed):
    who, job_id, whole = printed
    for range_, start, end in (
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        ("Bytes= 5-9 ", 5, 10),
        ("bytes=10-", 10, None),
        ("bytes=-7", -7, None),
        ("bytes=0-999999999", 0, None),
        ("bytes=-999999999", 0, None),
    ):
        response = front.fetch(who, job_id, range=range_)
        part = whole[start:end]
        first = start if start >= 0 else len(whole) + start
        assert (response.status_code, response.content) == (206, part), range_
        last = first + len(part) - 1
        assert response.headers["content-range"] == f"bytes {first}-{last}/{len(whole)}"
        assert response.headers["content-length"] == str(len(part))


def test_an_unsupported_range_is_the_whole_and_one_beyond_the_end_is_416(front, printed):
    who, job_id, whole = printed
    for range_ in (
        "bytes=0-1,5-9", "bytes=9-5", "bytes=-", "bytes=a-b", "lines=0-5", "bytes", "bytes=1-2-3",
    ):  # fmt: skip
        response = front.fetch(who, job_id, range=range_)
        assert (response.status_code, response.content) == (200, whole), range_
        assert "content-range" not in response.headers
    for range_ in ("bytes=999999999-", "bytes=-0", "bytes=999999999-9999999999"):
        response = front.fetch(who, job_id, range=range_)
        assert response.status_code == 416, range_
        assert response.headers["content-range"] == f"bytes */{len(whole)}"
        error_of(response)


def test_a_part_of_another_version_is_the_whole(front, printed):
    who, job_id, whole = printed
    etag = front.fetch(who, job_id).headers["etag"]
    same = front.fetch(who, job_id, range="bytes=0-4", if_range=etag)
    assert (same.status_code, same.content) == (206, whole[:5])
    for other in ('"else"', f"W/{etag}", "Wed, 21 Oct 2026 07:28:00 GMT"):
        response = front.fetch(who, job_id, range="bytes=0-4", if_range=other)
        assert (response.status_code, response.content) == (200, whole), other


def test_a_known_etag_is_304(front, printed):
    who, job_id, _ = printed
    etag = front.fetch(who, job_id).headers["etag"]
    for mark in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        response = front.fetch(who, job_id, if_none_match=mark, range="bytes=0-4")
        assert (response.status_code, response.content) == (304, b""), mark
        assert response.headers["etag"] == etag
    assert front.fetch(who, job_id, if_none_match='"x"').status_code == 200


def test_a_head_request_is_about_the_whole_and_reads_no_byte(front, printed):
    for range_ in (None, "bytes=0-4", "bytes=999999999-"):
        who, job_id, whole = printed
        headers = {**who, "range": range_} if range_ else who
        response = front.client.head(f"/pdf/jobs/{job_id}/download", headers=headers)
        assert (response.status_code, response.content) == (200, b""), range_
        assert response.headers["content-length"] == str(len(whole)), range_
        assert response.headers["accept-ranges"] == "bytes", range_
        assert response.headers["cache-control"].startswith("private"), range_
        assert "content-range" not in response.headers  # ranges are GET's alone: RFC 9110, 14.2


def test_a_large_pdf_comes_in_pieces_and_whole(front, printed, monkeypatch):
    who, job_id, whole = printed
    monkeypatch.setattr(download, "CHUNK_BYTES", 1_000)
    response = front.fetch(who, job_id)
    assert (response.content, response.headers["content-length"]) == (whole, str(len(whole)))
    assert front.fetch(who, job_id, range="bytes=10-4999").content == whole[10:5_000]


# Storage that is down, and lost files


def test_a_storage_that_is_down_has_lost_nothing(front, me, request):
    body = order()
    job_id = front.done(me, body)
    request.addfinalizer(lambda: setattr(front.shelf, "down", False))
    front.shelf.down = True
    response = front.fetch(me, job_id)
    assert (response.status_code, response.headers["retry-after"]) == (503, "15")
    assert error_of(response)["code"] == "STORAGE_DOWN"
    assert "switched off" not in response.text
    again = front.post(me, body)
    assert (again.status_code, again.json()["job_id"]) == (200, job_id)
    assert front.get(me, job_id).json()["status"] == "succeeded"
    front.shelf.down = False
    assert front.fetch(me, job_id).status_code == 200


def test_a_lost_pdf_is_rendered_again_for_the_next_request(front, me):
    body = order()
    old = front.done(me, body)
    front.burn(old)
    response = front.fetch(me, old)
    assert (response.status_code, error_of(response)["code"]) == (410, "ARTIFACT_GONE")
    assert front.seen(old).status == "succeeded"
    again = front.post(me, body)
    assert again.status_code == 202
    assert front.moves(old)[-1] == "artifact_gone"
    assert front.seen(old).status == "expired"
    front.worker.process_job(again.json()["job_id"])
    assert front.fetch(me, again.json()["job_id"]).status_code == 200


def test_a_job_with_a_lost_pdf_stays_while_no_worker_can_render_it(own_front):
    me, body = own_front.owner(), order()
    old = own_front.done(me, body)
    own_front.burn(old)
    own_front.clock.advance(60)
    assert own_front.post(me, body).status_code == 503
    assert own_front.seen(old).status == "succeeded"
