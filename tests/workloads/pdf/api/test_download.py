"""A PDF is fetched whole, in part or not at all; and away is not the same as gone."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from kesin.workloads.pdf.api import download
from tests.web.conftest import error_of
from tests.workloads.pdf.front import (
    AT_ONCE,
    Front,
    at_once,
    one_new,
    order,
)
from tests.workloads.pdf.press import LEASE_S, TTL_S

# Fetching


def test_a_pdf_that_is_not_there_yet_is_202(front, me):
    job_id = front.asked(me)
    answer = front.fetch(me, job_id)
    assert (answer.status_code, answer.headers["retry-after"]) == (202, "2")
    assert (answer.json()["status"], answer.json()["job_id"]) == ("queued", job_id)
    front.queue.claim("one", ids=[job_id])
    assert front.fetch(me, job_id).json()["status"] == "running"


def test_a_job_that_failed_tells_its_code(front, me):
    front.engine.fails("TEMPLATE_ERROR", "line 3: no such filter")
    job_id = front.done(me)
    status = front.get(me, job_id).json()
    assert (status["status"], status["error_code"]) == ("failed", "TEMPLATE_ERROR")
    assert (status["error_message"], status["download_url"]) == ("line 3: no such filter", None)
    answer = front.fetch(me, job_id)
    assert (answer.status_code, error_of(answer)["code"]) == (409, "TEMPLATE_ERROR")
    assert error_of(answer)["details"]["error_code"] == "TEMPLATE_ERROR"


def test_a_code_of_our_own_is_unknown_outside_and_told_in_words(front, me):
    job_id = front.asked(me)
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
    assert status["error_message"] == "The PDF was made, and the storage did not take it."
    assert status["retry_count"] == 2


def test_an_error_of_a_job_that_is_tried_again_is_not_its_last_word(front, me):
    front.engine.fails("NAVIGATION_TIMEOUT")
    job_id = front.done(me)
    status = front.get(me, job_id).json()
    assert (status["status"], status["retry_count"]) == ("queued", 1)
    assert (status["error_code"], status["error_message"]) == (None, None)


def test_a_pdf_whose_time_is_over_is_410(own_front):
    me = own_front.owner()
    job_id = own_front.done(me)
    own_front.clock.advance(TTL_S + LEASE_S)
    own_front.jobs.cleanup_expired()
    answer = own_front.fetch(me, job_id)
    assert (answer.status_code, error_of(answer)["code"]) == (410, "expired")
    assert own_front.get(me, job_id).json()["download_url"] is None


@pytest.mark.parametrize(
    ("given_name", "saved"),
    [
        ("Fatura 7.pdf", "Fatura 7.pdf"),
        ("fatura", "fatura.pdf"),
        ("ışık ₺.PDF", "ışık ₺.PDF"),
        ('a"b/../c\r\nx: y', "a_b_.._c_x_ y.pdf"),
        (" a. ", "a.pdf"),
    ],
)
def test_it_is_saved_under_the_name_that_was_asked_for(front, me, given_name, saved):
    job_id = front.done(me, order(file_name=given_name))
    header = front.fetch(me, job_id).headers["content-disposition"]
    assert header.startswith('attachment; filename="')
    assert unquote(header.partition("filename*=UTF-8''")[2]) == saved
    assert front.get(me, job_id).json()["file_name"] == given_name


@pytest.mark.parametrize("given", [{}, {"file_name": " "}, {"file_name": "..."}])
def test_without_a_name_it_has_the_templates(front, me, given):
    job_id = front.done(me, order(**given))
    header = front.fetch(me, job_id).headers["content-disposition"]
    assert f'filename="invoice-{job_id[:8]}.pdf"' in header


@pytest.fixture(scope="module")
def printed(front: Front) -> tuple[dict[str, str], str, bytes]:
    """Somebody, a job of his, and its PDF."""
    who = front.owner()
    job_id = front.done(who)
    return who, job_id, front.fetch(who, job_id).content


@pytest.mark.parametrize(
    ("range_", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        ("Bytes= 5-9 ", 5, 10),
        ("bytes=10-", 10, None),
        ("bytes=-7", -7, None),
        ("bytes=0-999999999", 0, None),
        ("bytes=-999999999", 0, None),
    ],
)
def test_a_part_is_exactly_the_part(front, printed, range_, start, end):
    who, job_id, whole = printed
    answer = front.fetch(who, job_id, range=range_)
    part = whole[start:end]
    first = start if start >= 0 else len(whole) + start
    assert (answer.status_code, answer.content) == (206, part)
    assert answer.headers["content-range"] == (
        f"bytes {first}-{first + len(part) - 1}/{len(whole)}"
    )
    assert answer.headers["content-length"] == str(len(part))


@pytest.mark.parametrize(
    "range_",
    ["bytes=0-1,5-9", "bytes=9-5", "bytes=-", "bytes=a-b", "lines=0-5", "bytes", "bytes=1-2-3"],
)
def test_a_range_we_do_not_give_is_the_whole(front, printed, range_):
    who, job_id, whole = printed
    answer = front.fetch(who, job_id, range=range_)
    assert (answer.status_code, answer.content) == (200, whole)
    assert "content-range" not in answer.headers


@pytest.mark.parametrize("range_", ["bytes=999999999-", "bytes=-0", "bytes=999999999-9999999999"])
def test_a_part_beyond_the_end_is_416(front, printed, range_):
    who, job_id, whole = printed
    answer = front.fetch(who, job_id, range=range_)
    assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{len(whole)}")
    error_of(answer)


def test_a_part_of_another_version_is_the_whole(front, printed):
    who, job_id, whole = printed
    etag = front.fetch(who, job_id).headers["etag"]
    same = front.fetch(who, job_id, range="bytes=0-4", if_range=etag)
    assert (same.status_code, same.content) == (206, whole[:5])
    for other in ('"else"', f"W/{etag}", "Wed, 21 Oct 2026 07:28:00 GMT"):
        answer = front.fetch(who, job_id, range="bytes=0-4", if_range=other)
        assert (answer.status_code, answer.content) == (200, whole), other


@pytest.mark.parametrize("mark", ["{}", "W/{}", '"x", {}', "*"])
def test_who_has_it_already_is_told_so(front, printed, mark):
    who, job_id, _ = printed
    etag = front.fetch(who, job_id).headers["etag"]
    answer = front.fetch(who, job_id, if_none_match=mark.format(etag), range="bytes=0-4")
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert front.fetch(who, job_id, if_none_match='"x"').status_code == 200


def test_a_look_at_the_head_reads_no_byte(front, printed):
    who, job_id, whole = printed
    answer = front.client.head(f"/pdf/jobs/{job_id}/download", headers=who)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(whole))
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["cache-control"].startswith("private")


@pytest.mark.parametrize("range_", ["bytes=0-4", "bytes=999999999-"])
def test_a_look_at_the_head_is_at_the_whole(front, printed, range_):
    who, job_id, whole = printed
    answer = front.client.head(f"/pdf/jobs/{job_id}/download", headers={**who, "range": range_})
    assert (answer.status_code, answer.headers["content-length"]) == (200, str(len(whole)))
    assert "content-range" not in answer.headers  # ranges are GET's alone: RFC 9110, 14.2


def test_a_large_pdf_comes_in_pieces_and_whole(front, printed, monkeypatch):
    who, job_id, whole = printed
    monkeypatch.setattr(download, "CHUNK_BYTES", 1_000)
    answer = front.fetch(who, job_id)
    assert (answer.content, answer.headers["content-length"]) == (whole, str(len(whole)))
    assert front.fetch(who, job_id, range="bytes=10-4999").content == whole[10:5_000]


# Storage that is away, and storage that is empty


def test_a_storage_that_is_down_has_lost_nothing(front, me, request):
    body = order()
    job_id = front.done(me, body)
    request.addfinalizer(lambda: setattr(front.shelf, "down", False))
    front.shelf.down = True
    answer = front.fetch(me, job_id)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "15")
    assert error_of(answer)["code"] == "STORAGE_DOWN"
    assert "switched off" not in answer.text
    again = front.post(me, body)
    assert (again.status_code, again.json()["job_id"]) == (200, job_id)
    assert front.get(me, job_id).json()["status"] == "succeeded"
    front.shelf.down = False
    assert front.fetch(me, job_id).status_code == 200


def test_a_pdf_that_is_gone_is_made_anew_for_who_asks_again(front, me):
    body = order()
    old = front.done(me, body)
    front.burn(old)
    answer = front.fetch(me, old)
    assert (answer.status_code, error_of(answer)["code"]) == (410, "ARTIFACT_GONE")
    assert front.seen(old).status == "succeeded"
    again = front.post(me, body)
    assert again.status_code == 202
    assert front.moves(old)[-1] == "artifact_gone"
    assert front.seen(old).status == "expired"
    front.worker.process_job(again.json()["job_id"])
    assert front.fetch(me, again.json()["job_id"]).status_code == 200


def test_of_many_who_ask_for_a_pdf_that_is_gone_all_get_the_same_new_job(each_front):
    front, me, body = each_front, each_front.owner(), order()
    old = front.done(me, body)
    front.burn(old)
    new = one_new(at_once([lambda: front.post(me, body)] * AT_ONCE))
    assert new != old
    assert (front.moves(old).count("artifact_gone"), front.moves(new)) == (1, ["enqueue"])


def test_a_pdf_that_is_gone_stays_known_while_nobody_can_make_it_anew(own_front):
    me, body = own_front.owner(), order()
    old = own_front.done(me, body)
    own_front.burn(old)
    own_front.clock.advance(60)
    assert own_front.post(me, body).status_code == 503
    assert own_front.seen(old).status == "succeeded"
