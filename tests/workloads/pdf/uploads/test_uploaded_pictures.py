"""Pictures that variables name by the id of their upload."""

import base64
import json
from typing import Any

from kesin.lifecycle.budget import HOUR_S
from kesin.workloads.pdf.uploads import store
from tests.web.conftest import error_of
from tests.workloads.pdf.documents import PICTURE
from tests.workloads.pdf.front import Front, order
from tests.workloads.pdf.listener import PIXEL
from tests.workloads.pdf.press import SAMPLE

GIF = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def upload(front: Front, who: dict[str, str], data: bytes = PIXEL, kind: str = "image/png") -> str:
    return f"upload:{front.uploaded(who, data, kind)}"


def with_logo(logo: str) -> dict[str, Any]:
    body = order()
    body["variables"]["logo"] = logo
    return body


def problem_of(response: Any) -> tuple[int, str, str]:
    error = error_of(response)
    return response.status_code, error["code"], error["details"]["fields"][0]["field"]


def test_a_picture_is_printed_and_the_job_holds_its_id_only(front, me):
    logo = upload(front, me)
    job_id = front.done(me, with_logo(logo))
    assert front.get(me, job_id).json()["status"] == "succeeded"
    assert PICTURE in front.engine.printed[-1][0]
    assert front.seen(job_id).payload["variables"]["logo"] == logo


def test_a_preview_shows_the_picture(front, me):
    body = {"variables": with_logo(upload(front, me))["variables"]}
    response = front.client.post("/pdf/templates/invoice/preview", json=body, headers=me)
    assert response.status_code == 200
    assert PICTURE in response.text
    boss = front.cookie(front.known("boss", "admin"))
    mine = upload(front, boss)
    fields = {"template": "invoice", "source": json.dumps({**SAMPLE, "logo": mine}), "do": "json"}
    shown = front.client.post("/dashboard/pdf/document", data=fields, headers=boss)
    assert PICTURE in shown.text
    not_mine = upload(front, me, base64.b64decode(GIF), "image/gif")
    fields["source"] = json.dumps({**SAMPLE, "logo": not_mine})
    refused = front.client.post("/dashboard/pdf/jobs", data=fields, headers=boss)
    assert refused.status_code == 422
    assert "upload the file again" in refused.text


def test_a_degraded_answer_shows_the_picture(own_front):
    me = own_front.owner()
    logo = upload(own_front, me)
    own_front.clock.advance(60)  # no heartbeat
    response = own_front.post(me, {**with_logo(logo), "options": {"fail_safe": "degrade"}})
    assert (response.status_code, response.headers["x-pdf-fallback"]) == (200, "html")
    assert PICTURE in response.text


def test_an_upload_of_another_owner_or_an_old_one_does_not_exist(own_front):
    me = own_front.owner()
    logo = upload(own_front, me)
    gone = (422, "UPLOAD_NOT_FOUND", "variables/logo")
    assert problem_of(own_front.post(own_front.owner(), with_logo(logo))) == gone
    assert problem_of(own_front.post(me, with_logo(f"upload:file-{'0' * 64}"))) == gone
    assert own_front.post(me, with_logo(logo)).status_code == 202
    own_front.shelf.down = True  # then it cannot be looked up
    assert own_front.post(me, with_logo(logo)).status_code == 503
    own_front.shelf.down = False
    own_front.clock.advance(24 * HOUR_S)
    own_front.beat()
    assert problem_of(own_front.post(me, with_logo(logo))) == gone


def test_only_a_picture_may_be_named_and_only_in_whole_texts(front, me):
    for data in (b"no picture", b"<svg/>"):
        named = upload(front, me, data, "text/plain")
        status, _, field = problem_of(front.post(me, with_logo(named)))
        assert (status, field) == (422, "variables/logo")
    logo = upload(front, me)
    for text in (f" {logo}", f"{logo}\n", logo.replace("file-", "pdf-"), logo.upper()):
        body = order()
        body["variables"]["notes"] = text
        front.done(me, body)
        assert PICTURE not in front.engine.printed[-1][0]


def test_so_many_and_so_large_pictures_are_refused_by_path(front, me, monkeypatch):
    logo = upload(front, me)
    monkeypatch.setattr(store, "MAX_HTML_BYTES", len(PICTURE) - 1)
    assert problem_of(front.post(me, with_logo(logo)))[2] == "variables/logo"
    monkeypatch.undo()
    monkeypatch.setattr(store, "MAX_PICTURES", 1)
    body = with_logo(logo)
    body["variables"]["notes"] = upload(front, me, base64.b64decode(GIF), "image/gif")
    assert problem_of(front.post(me, body))[0] == 422
    body["variables"]["notes"] = logo
    assert front.post(me, body).status_code == 202


def test_rows_of_a_batch_name_pictures(front, me):
    logo = upload(front, me)
    rows = [{**SAMPLE, "number": f"B-{n}", "logo": logo} for n in range(3)]
    body = {"template_name": "invoice", "rows": rows}
    sent = front.client.post("/pdf/batches", json=body, headers=me)
    assert sent.status_code == 202, sent.text
    rows[1]["logo"] = f"upload:file-{'0' * 64}"
    sent = front.client.post("/pdf/batches", json=body, headers=me)
    [problem] = error_of(sent)["details"]["problems"]
    assert (problem["row"], problem["path"], problem["rule"]) == (2, "/logo", "upload")
