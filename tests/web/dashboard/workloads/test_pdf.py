"""PDFs by hand: the form, the preview that only its maker sees, the jobs."""

import html
import json
import re
from typing import Any

import pytest

from kesin.foundation.encryption import new_key
from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from kesin.workloads.pdf.jobs.store import PdfJobStatus, PdfJobStore
from tests.tables import table
from tests.web.conftest import World

PAGE = "/dashboard/pdf"
INVOICE = json.loads((SHIPPED / "invoice" / "sample.json").read_text("utf-8"))
SOURCE = {"template": "invoice", "source": json.dumps(INVOICE)}


@pytest.fixture(scope="module")
def pdf(shared_world: World) -> World:
    shared_world.person("ayse", "admin", all_sites=True)
    shared_world.person("bora", "admin", all_sites=True)
    beat(shared_world)
    return shared_world


def beat(world: World) -> None:
    """A worker says that it lives."""
    Heartbeat(world.store, "one", now=world.service.queues["pdf"].now).beat()


def post(world: World, path: str, who: str = "ayse", **data: Any) -> Any:
    headers = world.cookie(who) | {"hx-request": "true"}
    return world.client.post(PAGE + path, data=data, headers=headers)


def get(world: World, path: str = "", who: str = "ayse") -> Any:
    return world.client.get(PAGE + path, headers=world.cookie(who))


def test_every_template_is_offered_with_its_sample_filled_in(pdf):
    page = get(pdf, "?template=invoice")
    assert page.status_code == 200
    for name in ("invoice", "cutting_plan", "conversion_report"):
        assert f"template={name}" in page.text
    turkish = {**pdf.cookie("ayse"), "accept-language": "tr"}
    in_turkish = pdf.client.get(f"{PAGE}?template=invoice", headers=turkish)
    for answer, title, field, number in (
        (page, "Invoice", "Issued on", "INV-2026-01234"),
        (in_turkish, "Fatura", "Düzenleme tarihi", INVOICE["number"]),
    ):
        assert f'value="{number}"' in answer.text
        assert f'<h2 id="h-values">{title}</h2>' in answer.text
        assert f">{field} <" in answer.text
    assert "frame-src 'self'" in page.headers["content-security-policy"]
    assert "script-src 'self'" in page.headers["content-security-policy"]


def test_a_template_that_is_not_there_is_not_found(pdf):
    assert get(pdf, "?template=nothing").status_code == 404
    assert post(pdf, "/preview", template="../x").status_code == 404


def test_a_preview_is_a_document_that_runs_nothing(pdf):
    assert 'data-document="/dashboard/pdf/document"' in post(pdf, "/preview", **SOURCE).text
    document = post(pdf, "/document", **SOURCE)
    assert INVOICE["number"] in document.text
    policy = document.headers["content-security-policy"]
    assert "sandbox" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'self'" in policy
    assert document.headers["x-frame-options"] == "SAMEORIGIN"
    assert document.headers["cache-control"] == "no-store"


@table("source", ["{", "[]", "null", '{"number": 1}'])
def test_values_that_will_not_do_make_no_document(pdf, source):
    answer = post(pdf, "/document", template="invoice", source=source)
    assert answer.status_code in (400, 422)
    policy = set(answer.headers["content-security-policy"].split("; "))
    assert {"default-src 'none'", "script-src 'none'", "frame-ancestors 'self'", "sandbox"} <= policy
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"].startswith("text/html")


def test_values_that_will_not_do_are_told_beside_the_last_preview(pdf):
    wrong = {**INVOICE, "issued_on": "yesterday"}
    answer = post(pdf, "/preview", template="invoice", source=json.dumps(wrong))
    assert answer.status_code == 200
    assert answer.headers["hx-retarget"] == "#pdf-problems"
    assert "/issued_on" in answer.text
    assert "cannot be read" in post(pdf, "/preview", template="invoice", source="{").text


def test_a_row_comes_and_goes_and_what_was_typed_stays(pdf):
    more = post(pdf, "/form", template="invoice", do="add:/lines", **{"v/number": "T-1"}).text
    assert 'value="T-1"' in more
    assert 'name="v/lines/0/description"' in more
    typed = {"v/number": "T-1", "v/lines/0/description": "wood", "v/lines/1/description": "glue"}
    less = post(pdf, "/form", template="invoice", do="remove:/lines/0", **typed).text
    assert 'value="glue"' in less
    assert 'value="wood"' not in less


def test_the_form_turns_into_json_and_back(pdf):
    typed = {"v/number": "T-2", "v/lines/0/quantity": "2,5"}
    source = post(pdf, "/form", template="invoice", do="json", **typed).text
    assert "&#34;number&#34;: &#34;T-2&#34;" in source
    assert "2.5" in source
    back = post(pdf, "/form", template="invoice", do="fields", source='{"number": "T-3"}').text
    assert 'value="T-3"' in back


def test_a_pdf_is_asked_for_listed_and_wanted_no_more(pdf):
    first = post(pdf, "/jobs", **SOURCE, file_name="fatura")
    assert "The PDF is queued." in first.text
    assert "position 1 in the queue" in first.text
    assert "requested before" in post(pdf, "/jobs", **SOURCE).text
    job = re.search(r"/dashboard/jobs/([0-9a-f-]{36})", first.text)
    assert job
    assert job[1] in get(pdf, "?part=jobs").text
    assert job[1] not in get(pdf, "?part=jobs", who="bora").text
    assert job[1] in get(pdf, "?part=jobs&everybody=1", who="bora").text
    assert "expired" in post(pdf, f"/jobs/{job[1]}/cancel").text


def test_the_warnings_of_a_pdf_are_on_its_page_and_in_the_list(pdf):
    jobs = PdfJobStore(pdf.service.queues["pdf"])
    job = jobs.create_job("invoice", {"variables": {}}, owner="ayse")
    jobs.update_status(job.job_id, PdfJobStatus.RUNNING)
    result = {"artifact_key": "pdfs/x/1.pdf", "warnings": ["missing glyph: 漢 (U+6F22)"]}
    jobs.update_status(job.job_id, PdfJobStatus.SUCCEEDED, **result)
    assert "missing glyph: 漢 (U+6F22)" in get(pdf, "?part=jobs&everybody=1").text
    address, turkish = f"/dashboard/jobs/{job.job_id}", {"accept-language": "tr"}
    page = pdf.client.get(address, headers=pdf.cookie("ayse") | turkish).text
    assert "bu yüzden boş kutu olarak basıldı: 漢 (U+6F22)" in page


def test_the_page_of_a_job_lists_its_files_and_steps_without_secrets(pdf):
    file = {"name": "terms.txt", "media_type": "text/plain", "relationship": "Supplement"}
    then = [{"stamp": {"text": "TASLAK", "angle": 45}}, {"encrypt": {"mac": "c0ffee", "allow": []}}]
    payload = {"variables": {}, "attachments": [{**file, "upload": "file-1"}], "then": then}
    metadata = {"sizes": [12_345], "einvoice": "ubl-tr"}
    jobs = PdfJobStore(pdf.service.queues["pdf"])
    job = jobs.create_job("invoice", payload, owner="user:ayse", metadata=metadata)
    address, turkish = f"/dashboard/jobs/{job.job_id}", {"accept-language": "tr"}
    page = pdf.client.get(address, headers=pdf.cookie("ayse") | turkish).text
    panel = page[page.index('aria-labelledby="paper-title"') :].partition("</section>")[0]
    for text in (
        "terms.txt",
        "text/plain · Supplement · 12.345 bayt",
        "ubl-tr",
        "angle: 45 · text: TASLAK",
        "allow: –",
    ):
        assert text in panel
    assert "Şifrele" in panel
    assert "c0ffee" not in panel
    assert "terms.txt" not in pdf.client.get(address, headers=pdf.cookie("bora")).text


def test_a_link_is_created_on_the_page_of_a_job_and_shown_once(make_world):
    world = make_world(secret_keys=new_key())
    for name in ("ayse", "bora"):
        world.person(name, "admin", all_sites=True)
    beat(world)
    jobs = PdfJobStore(world.service.queues["pdf"])
    job_id = jobs.create_job("invoice", {"variables": {}}, owner="user:ayse").job_id
    assert post(world, f"/jobs/{job_id}/links").status_code == 409
    jobs.update_status(job_id, PdfJobStatus.RUNNING)
    jobs.update_status(job_id, PdfJobStatus.SUCCEEDED, artifact_key="pdfs/x/1.pdf")
    page = world.client.get(f"/dashboard/jobs/{job_id}", headers=world.cookie("ayse")).text
    assert f'hx-get="{PAGE}/jobs/{job_id}/links"' in page
    assert 'id="new-link"' not in get(world, f"/jobs/{job_id}/links").text
    wrong = post(world, f"/jobs/{job_id}/links", expires_in="3600", max_downloads="0")
    assert (wrong.status_code, "greater than" in wrong.text) == (422, True)
    made = post(world, f"/jobs/{job_id}/links", expires_in="86400", max_downloads="3")
    address = re.search(r'id="new-link">([^<]+)<', made.text)
    assert address
    path = "/" + html.unescape(address[1]).split("/", 3)[3]
    assert path.startswith(f"/pdf/links/{job_id}?e=")
    assert world.client.get(path).status_code == 410  # it is valid, but its PDF is not there
    listed = get(world, f"/jobs/{job_id}/links").text
    assert "3 / 3" in listed
    assert "/pdf/links/" not in listed
    assert [line.action for line in world.audit() if line.target == job_id] == ["pdf.link"]
    unlimited = post(world, f"/jobs/{job_id}/links", expires_in="3600", max_downloads="")
    assert 'id="new-link"' in unlimited.text
    world.person("ece", "viewer", all_sites=True)
    assert get(world, f"/jobs/{job_id}/links", who="ece").status_code == 403


def test_an_admin_without_pdfs_is_told_how_many_all_users_have(pdf):
    pdf.person("cem", "admin", all_sites=True)
    jobs = PdfJobStore(pdf.service.queues["pdf"])
    jobs.create_job("invoice", {"variables": {"number": "of another"}}, owner="ayse")
    mine = get(pdf, "?part=jobs", who="cem").text
    number = jobs.queue.stats().total
    link = f"{PAGE}?everybody=1#pdf-jobs\">All users' PDFs: {number}</a>"
    assert "You have no PDFs" in mine
    assert link in mine
    assert "No PDFs yet" not in mine
    assert link not in get(pdf, "?part=jobs&everybody=1", who="cem").text


def test_while_nothing_renders_that_is_told(pdf):
    pdf.clock.advance(60)
    answer = post(pdf, "/jobs", template="invoice", source=json.dumps({**INVOICE, "number": "Z"}))
    assert answer.status_code == 503
    assert "no PDF worker is running" in answer.text
    beat(pdf)


def test_who_may_not_make_pdfs_is_not_offered_the_page(pdf):
    pdf.person("ece", "viewer", all_sites=True)
    assert get(pdf, who="ece").status_code == 403
    page = pdf.client.get("/dashboard", headers=pdf.cookie("ece"))
    assert 'href="/dashboard/pdf"' not in page.text
