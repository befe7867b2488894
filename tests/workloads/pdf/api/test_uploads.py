"""Files that jobs use are sent once, checked, and named by their ids."""

from tests.web.conftest import error_of
from tests.workloads.pdf.front import opened_front
from tests.workloads.pdf.uploads.files import active_pdf


def test_an_upload_is_described_and_stored_for_its_owner_or_refused(own_front):
    front, me = own_front, own_front.owner()
    for data, media_type in ((b"%PDF-1.7", "application/pdf"), (b"x", "image/png"), (b"", "")):
        response = front.upload(me, data, media_type)
        assert (response.status_code, error_of(response)["code"]) == (422, "UPLOAD_REFUSED")
    front.shelf.down = True
    response = front.upload(me, active_pdf())
    assert (response.status_code, error_of(response)["code"]) == (503, "STORAGE_DOWN")
    front.shelf.down = False
    response = front.upload(me, active_pdf())
    body = response.json()
    assert response.status_code == 201, body
    assert body["upload_id"] == f"pdf-{body['sha256']}"
    assert (body["media_type"], body["pages"]) == ("application/pdf", 1)
    assert body["expires_at"].endswith("Z")
    [file] = front.shelf.list("uploads")
    assert (body["sha256"] in file.key, file.size) == (True, body["bytes"])


def test_the_size_is_limited_by_a_setting_of_its_own(request, tmp_path):
    limits = {"body_limit": 100_000, "pdf_upload_mb": 1}
    with opened_front("sqlite", tmp_path, request, **limits) as front:
        me = front.owner()
        assert front.upload(me, b"x" * 1_000_000, "text/plain").status_code == 201
        assert front.upload(me, b"x" * 1_000_001, "text/plain").status_code == 413
