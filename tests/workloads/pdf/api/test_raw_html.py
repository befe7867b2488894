"""HTML in place of a template: who may send it, what is refused, and what becomes of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kesin.workloads.pdf.jobs.store import pdf_title
from tests.web.conftest import error_of
from tests.workloads.pdf.documents import text
from tests.workloads.pdf.front import Front, opened_front, order
from tests.workloads.pdf.press import BOOK, TTL_S
from tests.workloads.pdf.uploads.files import new_pdf

PAGE = "<!doctype html><title>Teklif  ğ\n 7</title><p>Işık ₺"
# 400 million pixels in a few bytes.
LARGE_PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAATiAAAE4gCAAAAAAAAAAA"


def html(text: str = PAGE, **more: Any) -> dict[str, Any]:
    return {"source": {"html": text}, **more}


@pytest.fixture
def writer(front: Front) -> dict[str, str]:
    """A key that may send HTML."""
    return front.key("pdf", "pdf:html")


@pytest.fixture
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Front]:
    with opened_front("sqlite", tmp_path, request, pdf_html_kb=300, pdf_body_kb=2) as front:
        yield front


def fields_of(response: Any) -> list[str]:
    return [each["field"] for each in error_of(response)["details"]["fields"]]


def test_html_is_printed_in_a_page_of_its_own(front, writer):
    front.engine.printed.clear()
    job_id = front.done(writer, html())
    [(printed, paper, _)] = front.engine.printed
    assert (printed, paper.own_page) == (PAGE, True)
    body = front.get(writer, job_id).json()
    assert (body["status"], body["template_name"], body["warnings"]) == (
        "succeeded", "", ["a warning"],
    )  # fmt: skip
    saved = front.fetch(writer, job_id).headers["content-disposition"]
    assert f'filename="document-{body["created_at"][:10]}-{job_id[-8:]}.pdf"' in saved
    front.done(writer, order())
    assert front.engine.printed[-1][1].own_page is False


def test_equal_html_shares_a_job_and_other_html_or_another_owner_does_not(front, writer):
    first = front.post(writer, html("<p>same"))
    again = front.post(writer, html("<p>same"))
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["job_id"] == again.json()["job_id"]
    for who, body in (
        (writer, html("<p>same ")),
        (writer, html("<p>same", options={"landscape": True})),
        (front.key("pdf", "pdf:html"), html("<p>same")),
    ):
        assert front.post(who, body).status_code == 202


def test_the_job_is_small_and_holds_no_html(front, writer):
    job_id = front.submit(writer, html(PAGE + "x" * 200_000))
    job = front.found(job_id)
    assert len(job.payload_json) < 1_000
    assert front.seen(job_id).payload.keys() == {"engine", "paper", "html"}
    assert "own_page" not in front.seen(job_id).payload["paper"]


def test_a_list_has_the_title_of_the_html_unless_it_is_masked(front, writer):
    payload = front.found(front.submit(writer, html())).payload
    assert pdf_title(payload) == "Teklif ğ 7"
    assert pdf_title(front.found(front.submit(writer, html("<p>x"))).payload) == "HTML"
    masked = front.service.commands.masking("pdf").job(front.found(front.submit(writer, html())))
    assert pdf_title(masked.payload) == "HTML"
    page = front.client.get("/dashboard/pdf?everybody=1", headers=front.cookie(front.known("b", "admin")))
    assert page.status_code == 200
    assert ">HTML<" in page.text


def test_html_needs_its_own_scope_beside_that_of_pdfs(front, me):
    response = front.post(me, html())
    assert response.status_code == 403
    assert error_of(response)["details"] == {"needs": "pdf:html"}
    assert front.post(front.key("pdf:html"), html()).status_code == 403
    assert front.post(front.key("admin"), html()).status_code == 202


def test_what_leads_to_another_page_is_refused_by_name(front, writer):
    for body, named in (
        ("<META http-equiv=' refresh' content='0;url=x'>", '<meta http-equiv="refresh">'),
        ("<base href='https://example.com/'>", "<base>"),
        ("<p><IFRAME srcdoc='x'></IFRAME>", "<iframe>"),
        ("<frameset><frame src=x></frameset>", "<frame>"),
        ("<object data=x></object>", "<object>"),
        ("<noscript><embed src=x></noscript>", "<embed>"),
        ("<!--><iframe>-->", "<iframe>"),
        ("<style></style/><iframe>", "<iframe>"),
        ("<template><iframe></iframe></template>", "<iframe>"),
    ):
        response = front.post(writer, html(body))
        assert (response.status_code, error_of(response)["code"]) == (422, "HTML_REFUSED"), body
        assert fields_of(response) == ["source.html"], body
        assert error_of(response)["message"] == f"{named} is not allowed in HTML", body
    body = "<!-- <iframe> --><textarea><object></textarea><p title='<base>'>&lt;embed><meta name=refresh>"
    assert front.post(writer, html(body)).status_code == 202  # text about elements is no element


def test_a_request_has_a_template_or_html_and_what_is_wrong_is_named(front, writer):
    for body, fields in (
        ({"options": None}, ["template_name", "variables"]),
        ({"template_name": "invoice"}, ["variables"]),
        ({"source": None, "variables": {}}, ["template_name"]),
        (html(variables={}), ["variables"]),
        (html(template_name="invoice"), ["template_name"]),
        ({"source": {}}, ["source.html"]),
        ({"source": {"html": ""}}, ["source.html"]),
        ({"source": {"html": "a\0b"}}, ["source.html"]),
        ({"source": {"url": "https://example.com"}}, ["source.html", "source.url"]),
    ):
        response = front.post(writer, body)
        assert (response.status_code, fields_of(response)) == (422, fields), body


def test_pictures_are_measured_and_costly_html_is_stopped(front, writer, monkeypatch):
    response = front.post(writer, html(f"<img src='{LARGE_PICTURE}'>"))
    assert (response.status_code, error_of(response)["code"]) == (422, "PICTURES_TOO_LARGE")
    assert fields_of(response) == ["source.html"]
    monkeypatch.setattr(BOOK, "limits", BOOK.limits._replace(cpu_s=0.01))
    response = front.post(writer, html("<b><i>" * 100_000))
    assert (response.status_code, error_of(response)["code"]) == (422, "TEMPLATE_TOO_COSTLY")


def test_hostile_html_costs_little(front, writer):
    for bomb in ("<div>", "<b><i>", "<table><a>", "&amp;", "<!--", "<p a=1 b=2>"):
        assert front.post(writer, html(bomb * (1_000_000 // len(bomb)))).status_code == 202, bomb


def test_html_and_variables_have_limits_of_their_own(small):
    who = small.key("pdf", "pdf:html")
    assert small.post(who, html("x" * 299_000)).status_code == 202
    response = small.post(who, html("x" * 307_200))
    assert (response.status_code, error_of(response)["code"]) == (413, "too_large")
    assert small.post(who, order("x" * 100)).status_code in {202, 422}
    large = order("x" * 2_048)
    for sent in ({"json": large}, {"content": iter([json.dumps(large).encode()])}):
        headers = {**who, "content-type": "application/json"}
        response = small.client.post("/pdf/jobs", headers=headers, **sent)
        assert response.status_code == 413
        assert "2048" in error_of(response)["message"]


def test_html_is_never_sent_back_in_place_of_a_pdf(small):
    small.clock.advance(60)  # no heartbeat
    who = small.key("pdf", "pdf:html")
    response = small.post(who, html(options={"fail_safe": "degrade"}))
    assert response.status_code == 422
    assert "HTML cannot replace a PDF that has source" in error_of(response)["message"]
    response = small.post(who, html())
    assert (response.status_code, error_of(response)["code"]) == (503, "PDF_RENDER_UNAVAILABLE")


def test_html_that_is_gone_fails_and_a_storage_that_is_down_is_tried_again(small):
    who = small.key("pdf", "pdf:html")
    small.shelf.down = True
    response = small.post(who, html())
    assert (response.status_code, error_of(response)["code"]) == (503, "STORAGE_DOWN")
    assert small.queue.stats().total == 0
    small.shelf.down = False
    job_id = small.submit(who, html())
    small.shelf.down = True
    small.worker.process_job(job_id)
    small.shelf.down = False
    assert small.seen(job_id).status == "queued"
    [stored] = [file.key for file in small.shelf.list("uploads")]
    assert small.shelf.get_bytes(stored) == PAGE.encode()
    small.shelf.delete(stored)
    small.worker.process_job(job_id)
    assert (small.seen(job_id).status, small.seen(job_id).internal_code) == ("failed", "UPLOAD_GONE")
    assert small.get(who, job_id).json()["error_code"] == "TEMPLATE_ERROR"


def test_an_expired_job_of_html_is_made_again_while_its_html_is_there(small):
    who, name = small.key("pdf", "pdf:html"), small.known("boss", "admin")
    job_id = small.done(who, html())
    small.clock.advance(TTL_S + 60)
    small.jobs.cleanup_expired()
    small.beat()
    boss, again = small.cookie(name), f"/dashboard/pdf/jobs/{job_id}/again"
    assert small.client.get(f"/dashboard/jobs/{job_id}", headers=boss).status_code == 200
    assert small.client.post(again, headers=boss).status_code == 200
    [new] = [each for each in small.queue.jobs().jobs if each.id != job_id]
    small.worker.process_job(new.id)
    assert small.get(who, new.id).json()["status"] == "succeeded"
    small.clock.advance(TTL_S + 60)
    small.jobs.cleanup_expired()
    small.beat()
    boss = small.cookie(name)
    for file in list(small.shelf.list("uploads")):
        small.shelf.delete(file.key)
    assert small.client.post(again, headers=boss).status_code == 400


def test_html_is_printed_by_real_engines_with_steps_and_uploaded_parts(small, chromium, weasyprint):
    who = small.key("pdf", "pdf:html")
    steps = [{"append": {"upload": small.uploaded(who, new_pdf())}}, {"stamp": {"text": "TASLAK"}}]
    for engine in (chromium, weasyprint):
        small.worker._engines.clear()
        small.engine = engine
        job_id = small.done(who, html(PAGE + engine.name, then=steps))
        assert small.get(who, job_id).json()["pages"] == 2
        assert f"Işık ₺{engine.name}" in text(small.fetch(who, job_id).content)
