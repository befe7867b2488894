"""Files and e-invoices that a request puts into its PDF."""

import base64
from typing import Any

import pikepdf

from kesin.workloads.pdf.storage.local import LocalStorage
from tests.web.conftest import error_of
from tests.workloads.pdf.einvoices.test_given_xml import BOMB, CII, GUIDELINE
from tests.workloads.pdf.front import Front, order
from tests.workloads.pdf.press import BOOK
from tests.workloads.pdf.uploads.files import active_pdf

ENGLISH = BOOK.get("invoice").sample_in("en")
ARCHIVE = {"conformance": "pdf/a-3b"}
UBL = "<Invoice xmlns='urn:x'/>"


def b64(data: bytes | str) -> str:
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


def note(name: str = "note.txt", data: bytes | str = "hello", **more: Any) -> dict[str, Any]:
    return {"name": name, "media_type": "text/plain", "data_base64": b64(data), **more}


def xml(form: str, text: str, **more: Any) -> dict[str, Any]:
    return {"format": form, "xml_base64": b64(text), **more}


def carried(front: Front, job_id: str) -> pikepdf.Pdf:
    """Render a job, and embed its files in an empty PDF as the engine would."""
    front.worker.process_job(job_id)
    finish = front.engine.printed[-1][1].finish
    assert finish is not None
    pdf = pikepdf.new()
    finish(pdf, {})
    return pdf


def test_what_is_attached_becomes_an_upload_and_is_embedded(front, me):
    stored = front.uploaded(me, b"<a/>", "application/xml")
    attached = [
        note(relationship="Source"),
        {"name": "a.xml", "media_type": "application/xml", "upload": stored},
        note("active.pdf", active_pdf(), media_type="application/pdf"),
    ]
    job_id = front.submit(me, order(attachments=attached, options=ARCHIVE))
    entries = front.seen(job_id).payload["attachments"]
    assert [sorted(entry) for entry in entries] == [["media_type", "name", "relationship", "upload"]] * 3
    assert entries[1]["upload"] == stored
    assert entries[1]["relationship"] == "Unspecified"
    body = front.get(me, job_id).json()
    assert body["attachments"][:2] == [
        {"name": "note.txt", "media_type": "text/plain", "relationship": "Source", "bytes": 5},
        {"name": "a.xml", "media_type": "application/xml", "relationship": "Unspecified", "bytes": 4},
    ]
    assert body["einvoice"] is None
    with carried(front, job_id) as pdf:
        files = {name: spec.get_file().read_bytes() for name, spec in pdf.attachments.items()}
    assert files["note.txt"] == b"hello"
    assert files["a.xml"] == b"<a/>"
    assert b"calc.exe" not in files["active.pdf"]  # cleaned, as every upload


def test_equal_requests_share_a_job_and_other_files_make_another(front, me):
    kinds: list[dict[str, Any]] = [
        {},
        {"attachments": []},
        {"attachments": [note()]},
        {"attachments": [note()]},
        {"attachments": [note(data="other")]},
        {"attachments": [note("other.txt")]},
        {"attachments": [note(relationship="Data")]},
        {"einvoice": xml("ubl", UBL)},
    ]
    assert len({front.submit(me, order("F-same", **files)) for files in kinds}) == 6


def test_what_cannot_be_attached_is_refused_by_name(front, me):
    for more, field, why in (
        ({"attachments": [note("../a")]}, "attachments.0.name", ""),
        ({"attachments": [note(".hidden")]}, "attachments.0.name", ""),
        ({"attachments": [note("a\nb")]}, "attachments.0.name", ""),
        ({"attachments": [note("a" * 141)]}, "attachments.0.name", ""),
        ({"attachments": [note(media_type="text")]}, "attachments.0.media_type", ""),
        ({"attachments": [note(relationship="Child")]}, "attachments.0.relationship", ""),
        ({"attachments": [note() | {"data_base64": "aGk!"}]}, "attachments.0.data_base64", ""),
        ({"attachments": [note(upload=f"file-{'0' * 64}")]}, "attachments.0", "either"),
        ({"attachments": [{"name": "a", "media_type": "a/b"}]}, "attachments.0", "either"),
        ({"attachments": [note(str(at)) for at in range(21)]}, "attachments", ""),
        ({"attachments": [note(), note("NOTE.txt")]}, "", "the same name"),
        ({"attachments": [note("invoice.xml")], "einvoice": xml("ubl", UBL)}, "", "the same name"),
        ({"attachments": [note()], "options": {**ARCHIVE, "engine": "weasyprint"}}, "", "or attachments"),
        ({"einvoice": {"format": "ubl"}}, "einvoice", "give exactly one of"),
        ({"einvoice": xml("ubl", UBL, **{"from": "variables"})}, "einvoice", "give exactly one of"),
        ({"einvoice": {"format": "ubl", "from": "variables"}}, "einvoice", "only factur-x"),
        ({"einvoice": xml("ubl", UBL, level="basic")}, "einvoice", "only factur-x"),
        ({"einvoice": xml("factur-x", UBL, name="a.xml")}, "einvoice", "factur-x.xml"),
        ({"einvoice": {"format": "factur-x", "from": "variables", "level": "basic"}}, "einvoice", "en16931"),
        ({"einvoice": xml("factur-x", UBL)}, "", "pdf/a-3b"),
        ({"einvoice": xml("factur-x", UBL), "options": {"conformance": "pdf/ua-1"}}, "", "a-3b"),
        ({"einvoice": xml("xrechnung", UBL)}, "einvoice.format", ""),
        ({"einvoice": {"format": "ubl", "upload": f"pdf-{'0' * 64}"}}, "einvoice.upload", ""),
    ):
        response = front.post(me, order(**more))
        assert response.status_code == 422, response.text
        first = error_of(response)["details"]["fields"][0]
        assert first["field"] == field, more
        assert why in first["message"], more


def test_given_xml_that_is_no_such_invoice_is_refused_at_its_field(front, me):
    for given, code, field in (
        (xml("other", BOMB), "EINVOICE_INVALID", "einvoice/xml_base64"),
        (xml("ubl", "<Order/>"), "EINVOICE_INVALID", "einvoice/xml_base64"),
        (xml("factur-x", UBL), "EINVOICE_INVALID", "einvoice/xml_base64"),
        (xml("factur-x", CII.format("urn:none")), "EINVOICE_INVALID", "einvoice/level"),
        (xml("factur-x", CII.format(GUIDELINE), level="basic"), "EINVOICE_INVALID", "einvoice/level"),
        ({"format": "ubl", "upload": f"file-{'0' * 64}"}, "UPLOAD_NOT_FOUND", "einvoice/upload"),
    ):
        response = front.post(me, order(einvoice=given, options=ARCHIVE))
        assert (response.status_code, error_of(response)["code"]) == (422, code), given
        assert error_of(response)["details"]["fields"][0]["field"] == field, given


def test_given_xml_is_embedded_as_what_it_is(front, me):
    for given, entry in (
        (
            xml("factur-x", CII.format(GUIDELINE), level="en16931"),
            {"name": "factur-x.xml", "relationship": "Alternative", "level": "EN 16931"},
        ),
        (
            xml("factur-x", CII.format("urn:factur-x.eu:1p0:minimum")),
            {"name": "factur-x.xml", "relationship": "Data", "level": "MINIMUM"},
        ),
        (
            xml("factur-x", CII.format(f"{GUIDELINE}#compliant#urn:factur-x.eu:1p0:basic")),
            {"name": "factur-x.xml", "relationship": "Alternative", "level": "BASIC"},
        ),
        (xml("ubl", UBL), {"name": "invoice.xml", "relationship": "Alternative"}),
        (xml("ubl-tr", UBL, name="f.xml"), {"name": "f.xml", "relationship": "Source"}),
        (xml("other", "<anything/>"), {"name": "invoice.xml", "relationship": "Alternative"}),
    ):
        job_id = front.submit(me, order(einvoice=given, options=ARCHIVE))
        [kept] = front.seen(job_id).payload["attachments"]
        assert kept == {"media_type": "text/xml", "upload": kept["upload"], **entry}, given
        shown = front.get(me, job_id).json()["einvoice"]
        assert shown == {"format": given["format"], "profile": entry.get("level")}, given
        with carried(front, job_id) as pdf:
            assert pdf.attachments[entry["name"]].get_file().read_bytes() == base64.b64decode(given["xml_base64"]), (
                given
            )


def test_an_e_invoice_is_made_from_the_variables_or_refused_with_its_rule(front, me):
    asked = {"einvoice": {"format": "factur-x", "from": "variables"}, "options": ARCHIVE}
    body = {"template_name": "invoice", "variables": ENGLISH, **asked}
    job_id = front.submit(me, body)
    with carried(front, job_id) as pdf:
        assert b"INV-2026-01234" in pdf.attachments["factur-x.xml"].get_file().read_bytes()
    assert front.submit(me, body) == job_id
    wrong = {**body, "variables": {**ENGLISH, "stated_total": 1}}
    response = front.post(me, wrong)
    assert (response.status_code, error_of(response)["code"]) == (422, "BR-CO-15")
    plan = BOOK.get("cutting_plan").sample
    response = front.post(me, {"template_name": "cutting_plan", "variables": plan, **asked})
    assert error_of(response)["code"] == "EINVOICE_INVALID"
    fields = {each["field"] for each in error_of(response)["details"]["fields"]}
    assert "variables/seller" in fields


def test_uploads_of_others_cannot_be_attached(front, me):
    theirs = front.uploaded(front.owner(), b"secret", "text/plain")
    body = order(attachments=[{"name": "a", "media_type": "text/plain", "upload": theirs}])
    response = front.post(me, body)
    assert error_of(response)["code"] == "UPLOAD_NOT_FOUND"
    assert error_of(response)["details"]["fields"][0]["field"] == "attachments/0/upload"


def test_files_that_are_too_large_together_are_refused(front, me, monkeypatch):
    monkeypatch.setattr("kesin.workloads.pdf.einvoices.attach.MAX_ATTACHED_BYTES", 9)
    assert front.post(me, order(attachments=[note()])).status_code == 202
    response = front.post(me, order(attachments=[note(), note("b", data="other")]))
    assert (response.status_code, error_of(response)["code"]) == (413, "too_large")


def test_an_upload_that_is_too_large_or_damaged_is_no_e_invoice(own_front, monkeypatch):
    me = own_front.owner()
    asked = {"format": "ubl", "upload": own_front.uploaded(me, UBL.encode(), "text/xml")}
    assert own_front.post(me, order(einvoice=asked)).status_code == 202
    monkeypatch.setattr("kesin.workloads.pdf.einvoices.attach.MAX_XML_BYTES", 9)
    response = own_front.post(me, order(einvoice=asked))
    assert (response.status_code, error_of(response)["code"]) == (422, "EINVOICE_INVALID")
    monkeypatch.undo()
    monkeypatch.setattr(LocalStorage, "get_bytes", lambda *_: b"damaged")
    response = own_front.post(me, order(einvoice=asked))
    assert (response.status_code, error_of(response)["code"]) == (503, "STORAGE_DOWN")


def test_a_storage_that_is_down_is_asked_again_and_a_file_that_is_gone_fails_the_job(own_front):
    me = own_front.owner()
    job_id = own_front.submit(me, order(attachments=[note()]))
    own_front.shelf.down = True
    response = own_front.post(me, order(attachments=[note()]))
    assert (response.status_code, error_of(response)["code"]) == (503, "STORAGE_DOWN")
    own_front.worker.process_job(job_id)
    assert own_front.seen(job_id).internal_code == "ARTIFACT_WRITE_FAILED"
    own_front.shelf.down = False
    for file in own_front.shelf.list("uploads"):  # now they are gone
        own_front.shelf.delete(file.key)
    own_front.worker.process_job(job_id)
    job = own_front.seen(job_id)
    assert (job.status, job.internal_code) == ("failed", "UPLOAD_GONE")
