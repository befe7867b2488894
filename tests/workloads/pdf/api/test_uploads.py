"""Files that jobs use are sent once, checked, and named by their ids."""

from tests.web.conftest import error_of
from tests.workloads.pdf.front import opened_front
from tests.workloads.pdf.uploads.files import active_pdf, new_pdf


def test_an_upload_is_described_and_stored_for_its_owner(front, me):
    response = front.upload(me, active_pdf())
    body = response.json()
    assert response.status_code == 201, body
    assert body["upload_id"] == f"pdf-{body['sha256']}"
    assert (body["media_type"], body["pages"]) == ("application/pdf", 1)
    assert body["expires_at"].endswith("Z")
    assert [file.size for file in front.shelf.list("uploads") if body["sha256"] in file.key] == [body["bytes"]]


def test_files_that_cannot_be_used_are_refused(front, me):
    for data, media_type in ((b"%PDF-1.7", "application/pdf"), (b"x", "image/png"), (b"", "")):
        response = front.upload(me, data, media_type)
        assert (response.status_code, error_of(response)["code"]) == (422, "UPLOAD_REFUSED")


def test_the_size_is_limited_by_a_setting_of_its_own(request, tmp_path):
    limits = {"body_limit": 100_000, "pdf_upload_mb": 1}
    with opened_front("sqlite", tmp_path, request, **limits) as front:
        me = front.owner()
        assert front.upload(me, b"x" * 1_000_000, "text/plain").status_code == 201
        assert front.upload(me, b"x" * 1_000_001, "text/plain").status_code == 413


def test_nothing_is_stored_while_the_storage_is_down(own_front):
    me = own_front.owner()
    own_front.shelf.down = True
    response = own_front.upload(me, new_pdf())
    assert (response.status_code, error_of(response)["code"]) == (503, "STORAGE_DOWN")
