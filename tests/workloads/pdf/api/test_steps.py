"""Steps after printing: parts, stamp, metadata and encryption, in one order."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pikepdf
import pytest

from kesin.foundation.permissions import Actor
from kesin.foundation.problems import RequestConflict
from kesin.store.metadata import metadata_for
from kesin.workloads.pdf.cleanup import tend_jobs
from kesin.workloads.pdf.jobs.store import PASSWORDS
from kesin.workloads.pdf.jobs.submit import repeat_request
from kesin.workloads.pdf.services import PdfServiceLoader
from kesin.workloads.pdf.steps import finishing
from tests.web.conftest import error_of
from tests.workloads.pdf.batching import one_page
from tests.workloads.pdf.front import Front, opened_front, order
from tests.workloads.pdf.paper import pages
from tests.workloads.pdf.press import SAMPLE
from tests.workloads.pdf.uploads.files import new_pdf

KEYS = f"first:{'A' * 43}"
LOCK: dict[str, Any] = {"user_password": "gizli parola", "owner_password": "usta"}
MISSING = f"pdf-{'0' * 64}"


@pytest.fixture(scope="module", params=["sqlite", "postgres", "redis"])
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("steps")
    with opened_front(request.param, folder, request, secret_keys=KEYS) as front:
        yield readable(front)


@pytest.fixture(scope="module")
def sealed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("sealed")
    with opened_front("sqlite", folder, request, secret_keys=KEYS) as front:
        yield readable(front)


def readable(front: Front) -> Front:
    """Let the worker print PDFs that can be read: the number of the invoice."""
    render = front.engine.render

    def print_number(html: str, *given: Any, **how: Any) -> Any:
        number = html.partition("F-")[2].partition("<")[0]
        return replace(render(html, *given, **how), pdf=one_page(f"F-{number}"))

    front.engine.render = print_number  # type: ignore[method-assign]
    return front


def secrets(front: Front) -> list[str]:
    return [entry.name for entry in metadata_for(front.queue.store).metadata_entries(PASSWORDS)]


def texts(front: Front, who: dict[str, str], job_id: str, password: str = "") -> list[str]:
    response = front.fetch(who, job_id)
    assert response.status_code == 200, response.text
    with pikepdf.open(io.BytesIO(response.content), password=password) as pdf:
        out = io.BytesIO()
        pdf.save(out)
    return pages(out.getvalue())


def wrong(front: Front, then: Any, **more: Any) -> Any:
    response = front.post(front.boss, order(then=then, **more))
    assert response.status_code == 422, response.text
    return error_of(response)


def test_a_wrong_step_is_refused_by_name(front):
    for then, why in (
        ([{}], "a step must be one of"),
        ([{"stamp": {"text": "A"}, "metadata": {"title": "B"}}], "a step must be one of"),
        ([{"stamp": {"text": " "}}], "then.0.stamp.text"),
        ([{"stamp": {"text": "漢"}}], "then.0.stamp.text"),
        ([{"stamp": {"text": "A", "opacity": 2}}], "then.0.stamp.opacity"),
        ([{"stamp": {"text": "A", "angle": 91}}], "then.0.stamp.angle"),
        ([{"metadata": {"producer": "me"}}], "then.0.metadata.producer"),
        ([{"metadata": {"title": ""}}], "then.0.metadata.title"),
        ([{"encrypt": {}}], "give a user_password"),
        ([{"encrypt": {"user_password": ""}}], "then.0.encrypt.user_password"),
        ([{"encrypt": {"user_password": "ş" * 128}}], "then.0.encrypt.user_password"),
        ([{"encrypt": {"user_password": "a", "allow": []}}], "allow needs an owner_password"),
        ([{"encrypt": {**LOCK, "allow": ["fly"]}}], "then.0.encrypt.allow.0"),
        ([{"append": {"upload": "file-" + "0" * 64}}], "then.0.append"),
        ([{"append": {"template": "invoice"}}], "then.0.append"),
        ([{"sign": {}}], "then.0.sign"),
        ([{"stamp": {"text": "A"}}, {"append": {"upload": MISSING}}], "then.1.append is out of order"),
        ([{"encrypt": LOCK}, {"metadata": {"title": "A"}}], "then.1.metadata is out of order"),
        ([{"stamp": {"text": "A"}}] * 2, "then.1.stamp is out of order"),
        ([{"append": {"upload": MISSING}}] * 11, "at most 10 parts"),
    ):
        refused = json.dumps(wrong(front, then), ensure_ascii=False)
        assert why in refused, why
        assert "gizli" not in refused, why


def test_without_a_key_ring_passwords_are_refused_at_their_step(front):
    refused = wrong(front, [{"metadata": {"title": "A"}}, {"encrypt": LOCK}])
    assert refused["code"] == "NO_SECRET_KEYS"
    assert refused["details"]["fields"][0]["field"] == "then/1/encrypt"


def test_a_part_must_be_an_upload_or_a_template_that_the_owner_may_use(front, me):
    theirs = front.uploaded(front.owner(), new_pdf())
    for upload_id in (theirs, MISSING):
        response = front.post(me, order(then=[{"append": {"upload": upload_id}}]))
        error = error_of(response)
        assert (response.status_code, error["code"]) == (422, "UPLOAD_NOT_FOUND")
        assert error["details"]["fields"][0]["field"] == "then/0/append/upload"
    part = {"template": "invoice", "variables": {**SAMPLE, "number": 7}}
    error = error_of(front.post(me, order(then=[{"prepend": part}])))
    assert error["details"]["fields"][0]["field"] == "then/0/prepend/variables/number"
    part = {"template": "nothing", "variables": {}}
    assert front.post(me, order(then=[{"append": part}])).status_code == 400


def test_parts_come_in_the_order_in_which_they_are_added(sealed):
    me = sealed.owner()
    ours = {"template": "invoice", "variables": {**SAMPLE, "number": "F-second"}}
    then: list[dict[str, Any]] = [
        {"append": {"upload": sealed.uploaded(me, one_page("terms"))}},
        {"prepend": {"upload": sealed.uploaded(me, one_page("cover"))}},
        {"append": {"template": "invoice", "variables": ours["variables"]}},
        {"prepend": {"upload": sealed.uploaded(me, one_page("first"))}},
        {"stamp": {"text": "TASLAK"}},
        {"metadata": {"title": "Hepsi", "keywords": "a, b"}},
    ]
    job_id = sealed.done(me, order("F-main", then=then))
    assert texts(sealed, me, job_id) == ["first", "cover", "F-main", "terms", "F-second"]
    body = sealed.get(me, job_id).json()
    assert (body["pages"], body["reproducible"], body["warnings"]) == (5, True, ["a warning"] * 2)
    shown = [*then[:2], {"append": {"template": "invoice"}}, *then[3:]]
    assert body["then"] == [*shown[:4], {"stamp": {**then[4]["stamp"], "opacity": 0.15, "angle": 45}}, then[5]]
    with pikepdf.open(io.BytesIO(sealed.fetch(me, job_id).content)) as pdf:
        assert str(pdf.docinfo["/Title"]) == "Hepsi"
        assert all("/KesinStamp" in page.resources.XObject for page in pdf.pages)


def test_equal_steps_share_a_job_and_any_other_step_makes_another(sealed):
    me, number = sealed.owner(), "F-equal"
    several: list[list[dict[str, Any]]] = [
        [],
        [{"stamp": {"text": "A"}}],
        [{"stamp": {"text": "A", "angle": 0}}],
        [{"metadata": {"title": "A"}}],
        [{"encrypt": LOCK}],
        [{"encrypt": {**LOCK, "user_password": "another"}}],
        [{"encrypt": {**LOCK, "allow": ["print"]}}],
    ]
    jobs = [sealed.submit(me, order(number, then=then)) for then in several]
    assert len(set(jobs)) == len(jobs)
    assert [sealed.submit(me, order(number, then=then)) for then in several] == jobs
    assert sealed.submit(me, order(number)) == jobs[0]
    for job_id in jobs:
        sealed.cancel(me, job_id)


def test_an_encrypted_pdf_opens_with_its_passwords_alone(sealed):
    me = sealed.owner()
    job_id = sealed.done(me, order(then=[{"encrypt": {**LOCK, "allow": ["print", "copy"]}}]))
    data = sealed.fetch(me, job_id).content
    with pytest.raises(pikepdf.PasswordError):
        pikepdf.open(io.BytesIO(data))
    with pikepdf.open(io.BytesIO(data), password="gizli parola") as pdf:
        assert (pdf.encryption.R, pdf.encryption.bits) == (6, 256)
        assert pdf.allow.print_highres
        assert pdf.allow.extract
        assert not pdf.allow.modify_annotation
        assert not pdf.allow.modify_other
        assert not pdf.owner_password_matched
    assert pikepdf.open(io.BytesIO(data), password="usta").owner_password_matched
    body = sealed.get(me, job_id).json()
    assert body["reproducible"] is False
    assert body["then"] == [{"encrypt": {"allow": ["copy", "print"]}}]


def test_one_password_opens_everything_if_it_is_the_only_one(sealed):
    me = sealed.owner()
    job_id = sealed.done(me, order(then=[{"encrypt": {"user_password": "gizli"}}]))
    data = sealed.fetch(me, job_id).content
    for empty in ("", "usta"):
        with pytest.raises(pikepdf.PasswordError):
            pikepdf.open(io.BytesIO(data), password=empty)
    assert pikepdf.open(io.BytesIO(data), password="gizli").allow.modify_other


def test_passwords_are_kept_until_the_job_ends_and_nowhere_else(each, caplog):
    me = each.owner()
    body = order(then=[{"encrypt": LOCK}])
    job_id = each.submit(me, body)
    assert secrets(each) == [job_id]
    assert each.submit(me, body) == job_id
    stored = each.queue.job(job_id)
    events = [str(event) for event in each.queue.events(job_id)]
    row = metadata_for(each.queue.store).metadata_entry(PASSWORDS, "", job_id)
    for text in (str(stored), *events, each.get(me, job_id).text, str(row), caplog.text):
        assert "gizli" not in text
        assert "usta" not in text
    each.worker.process_job(job_id)
    assert texts(each, me, job_id, "usta")
    assert secrets(each) == []


def test_passwords_go_with_a_job_that_fails_or_is_cancelled(each):
    me = each.owner()
    body = order(then=[{"encrypt": LOCK}])
    job_id = each.submit(me, body)
    each.engine.fails("NAVIGATION_TIMEOUT")
    each.worker.process_job(job_id)
    assert (each.seen(job_id).status, secrets(each)) == ("queued", [job_id])  # it is retried
    each.engine.fails("TEMPLATE_ERROR")
    each.clock.advance(60)
    each.beat()
    each.worker.process_job(job_id)
    assert (each.seen(job_id).status, secrets(each)) == ("failed", [])
    again = each.submit(me, body)
    assert secrets(each) == [again]
    assert each.cancel(me, again).status_code == 200
    assert secrets(each) == []


def test_a_request_that_is_not_enqueued_leaves_no_password(each, monkeypatch):
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("after the job")

    me = each.owner()
    monkeypatch.setattr("kesin.workloads.pdf.jobs.submit._follow_up", fails)
    assert each.post(me, order(then=[{"encrypt": LOCK}])).status_code == 500
    assert secrets(each) == []


def test_passwords_of_jobs_that_ended_in_another_way_go_soon_after(each):
    me = each.owner()
    job_id = each.submit(me, order(then=[{"encrypt": LOCK}]))
    each.jobs.put_passwords("gone", {"owner": "x"}, each.worker._ring)
    tend_jobs(each.service.workload_context("pdf"))
    assert secrets(each) == [job_id]
    each.queue.act("cancel", actor="an operator", ids=[job_id])
    tend_jobs(each.service.workload_context("pdf"))
    assert secrets(each) == []


def test_a_job_without_its_passwords_fails_and_says_so(sealed):
    me = sealed.owner()
    job_id = sealed.submit(me, order(then=[{"encrypt": LOCK}]))
    sealed.jobs.forget_passwords([job_id])
    sealed.worker.process_job(job_id)
    body = sealed.get(me, job_id).json()
    assert (body["status"], body["error_code"]) == ("failed", "PASSWORD_GONE")
    assert "send the request again" in body["error_message"]


def test_a_job_with_passwords_is_not_made_again_without_them(sealed):
    me = sealed.owner()
    job_id = sealed.done(me, order(then=[{"encrypt": LOCK}]))
    services = PdfServiceLoader(sealed.service.workload_context("pdf")).services
    with pytest.raises(RequestConflict) as refused:
        repeat_request(services, sealed.seen(job_id), Actor("me", frozenset({"pdf"})))
    assert refused.value.code == "PASSWORD_GONE"


def test_an_upload_that_vanished_fails_its_job_and_a_silent_storage_is_asked_again(sealed):
    me = sealed.owner()
    upload_id = sealed.uploaded(me, one_page("soon gone"))
    body = order(then=[{"append": {"upload": upload_id}}])
    job_id = sealed.submit(me, body)
    sealed.shelf.down = True
    assert sealed.post(me, order(then=body["then"])).status_code == 503
    sealed.worker.process_job(job_id)
    sealed.shelf.down = False
    assert sealed.seen(job_id).status == "queued"
    for file in sealed.shelf.list("uploads"):
        sealed.shelf.delete(file.key)
    sealed.worker.process_job(job_id)
    job = sealed.seen(job_id)
    assert (job.status, job.internal_code) == ("failed", "UPLOAD_GONE")


def test_an_upload_that_costs_too_much_fails_its_job_by_name_and_the_next_one_succeeds(sealed, monkeypatch):
    me = sealed.owner()
    then = [{"append": {"upload": sealed.uploaded(me, one_page("costly"))}}]
    with monkeypatch.context() as patched:
        patched.setattr(finishing, "LIMITS", finishing.LIMITS._replace(memory_bytes=1))
        job = sealed.seen(sealed.done(me, order(then=then)))
    assert (job.status, job.error_code) == ("failed", "TEMPLATE_ERROR")
    assert job.internal_code == "DOCUMENT_TOO_COSTLY"
    assert texts(sealed, me, sealed.done(me, order("F-next", then=then))) == ["F-next", "costly"]


def test_weasyprint_that_was_fallen_back_to_fails_a_marked_archive(sealed, monkeypatch):
    me = sealed.owner()
    monkeypatch.setattr(sealed.engine, "name", "weasyprint")
    file = {"name": "note.txt", "media_type": "text/plain", "data_base64": "aGVsbG8="}
    for marks in ({"then": [{"stamp": {"text": "A"}}]}, {"attachments": [file]}):
        job_id = sealed.done(me, order(**marks, options={"conformance": "pdf/a-3b"}))
        body = sealed.get(me, job_id).json()
        assert (body["error_code"], "WeasyPrint" in body["error_message"]) == ("NOT_CONFORMING", True), marks


def test_an_archive_is_marked_before_it_is_checked(sealed):
    me, options = sealed.owner(), {"conformance": "pdf/a-3b"}
    then = [{"stamp": {"text": "A"}}, {"metadata": {"title": "B"}}]
    job_id = sealed.done(me, order(then=then, options=options))
    paper = sealed.engine.printed[-1][1]
    with pikepdf.open(io.BytesIO(new_pdf())) as pdf:
        paper.finish(pdf, information := {"/Title": "A"})
        assert "/KesinStamp" in pdf.pages[0].resources.XObject
    assert information == {"/Title": "B"}
    assert sealed.seen(job_id).status == "succeeded"


def test_requests_without_steps_keep_the_keys_that_they_had(front, me):
    payload = front.seen(front.submit(me)).payload
    assert payload.keys() == {"variables", "engine", "paper", "template_hash"}
    assert not {"finish", "then", "conformance"} & payload["paper"].keys()
