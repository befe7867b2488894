"""Templates, webhooks of jobs, and what a request may ask for."""

from typing import Any

from kesin.workloads import pdf
from kesin.workloads.pdf.webhooks.worker import Webhooks
from tests.web.conftest import error_of
from tests.workloads.pdf.front import opened_front, order
from tests.workloads.pdf.press import BOOK, SAMPLE

# Templates


def test_a_template_is_shown_with_its_schema_and_a_sample_that_fits(front, me):
    lines = front.client.get("/pdf/templates", headers=me).json()
    assert [line["name"] for line in lines] == ["conversion_report", "cutting_plan", "invoice"]
    shown = front.client.get("/pdf/templates/invoice", headers=me).json()
    template = BOOK.get("invoice")
    assert (shown["schema"], shown["sample"]) == (template.schema, template.sample)
    assert shown["content_hash"] == template.content_hash
    assert (shown["title"], shown["schema"]["title_tr"]) == ("Invoice", "Fatura")
    for lang, sample in (("en", template.sample_in("en")), ("tr", SAMPLE), ("xx", SAMPLE)):
        answer = front.client.get(f"/pdf/templates/invoice?lang={lang}", headers=me)
        assert answer.json()["sample"] == sample
    for name in ("nothing", "..%2finvoice", "fonts"):
        assert front.client.get(f"/pdf/templates/{name}", headers=me).status_code == 404
    for name in BOOK.names:
        sample = front.client.get(f"/pdf/templates/{name}", headers=me).json()["sample"]
        assert front.post(me, {"template_name": name, "variables": sample}).status_code == 202


def test_a_preview_is_the_document_and_runs_nothing(front, me):
    evil = "<script>alert(1)</script>"
    response = front.client.post(
        "/pdf/templates/invoice/preview", json={"variables": {**SAMPLE, "number": evil}}, headers=me
    )
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert evil not in response.text
    assert "&lt;script&gt;" in response.text
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert policy.endswith("frame-ancestors 'self'; sandbox")
    assert response.headers["x-frame-options"] == "SAMEORIGIN"
    assert "x-pdf-fallback" not in response.headers


def test_a_preview_refuses_what_a_job_would_be_refused_for(front, me):
    def preview(name: str, variables: Any) -> Any:
        path = f"/pdf/templates/{name}/preview"
        return front.client.post(path, json={"variables": variables}, headers=me)

    assert preview("nothing", SAMPLE).status_code == 404
    response = preview("invoice", {})
    assert response.status_code == 422
    assert error_of(response)["details"]["fields"][0]["field"].startswith("variables/")


# Webhooks


HOOKS = {"pdf_webhooks": r"https://hooks\.example\.com/.*", "pdf_webhook_secret": "a secret of the tests"}
HOOK = "https://hooks.example.com/pdf"


def test_a_webhook_is_subscribed_with_the_job_or_there_is_no_job(request, tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("no room for subscriptions")

    with opened_front("sqlite", tmp_path, request, **HOOKS) as front:
        me, body = front.owner(), order(webhook_url=HOOK)
        refused = front.post(me, order(webhook_url="https://elsewhere.example.com/"))
        assert (refused.status_code, error_of(refused)["code"]) == (422, "WEBHOOK_REFUSED")
        [field] = error_of(refused)["details"]["fields"]
        assert field["field"] == "webhook_url"
        assert "KESIN_PDF_WEBHOOKS" in field["message"]
        with monkeypatch.context() as patch:
            patch.setattr(Webhooks, "subscribe", fail)
            assert front.post(me, body).status_code == 500
        assert front.queue.jobs().jobs == []
        job_id = front.submit(me, body)
        [delivery] = front.service.queues["pdf_webhooks"].jobs().jobs
        assert (delivery.tenant, delivery.state) == (front.name_of(me), "waiting")
        assert (delivery.dedup_key or "").startswith(f"job:{job_id}:")
        assert front.submit(me, {**body, "webhook_url": f"{HOOK}/2"}) == job_id
        assert len(front.service.queues["pdf_webhooks"].jobs().jobs) == 2


# The names of the seed, and missing libraries


def test_the_bodies_have_the_seeds_names_and_defaults():
    made = pdf.PdfRenderOptions()
    assert (made.timeout, made.fail_safe) == (60, pdf.FailSafePolicy.STRICT)
    request = pdf.PdfJobRequest(template_name="invoice", variables={})
    assert request.options is None
    assert set(pdf.PdfJobResponse.model_fields) == {"job_id", "status", "created_at"}
    assert set(pdf.PdfJobStatusResponse.model_fields) >= {
        "job_id", "status", "created_at", "started_at", "finished_at", "error_code",
        "download_url", "retry_count",
    }  # fmt: skip


def test_a_request_that_fails_for_missing_glyphs_is_not_served_by_a_pdf_that_lacks_some(own_front):
    me, body = own_front.owner(), order()
    own_front.engine.missing = ("漢",)
    job_id = own_front.done(me, body)
    assert own_front.get(me, job_id).json()["missing_glyphs"] == ["漢"]
    strict = own_front.done(me, body | {"options": {"missing_glyphs": "fail"}})
    assert own_front.get(me, strict).json()["error_code"] == "MISSING_GLYPHS"
    assert own_front.submit(me, body | {"options": {"missing_glyphs": "warn"}}) == job_id


def test_a_job_names_the_standards_it_conforms_to_and_serves_no_request_for_another(own_front):
    me, body = own_front.owner(), order()
    plain = own_front.done(me, body)
    assert own_front.get(me, plain).json()["conformance"] == []
    both = own_front.done(me, body | {"options": {"conformance": ["pdf/ua-1", "pdf/a-3a"]}})
    assert own_front.get(me, both).json()["conformance"] == ["pdf/a-3a", "pdf/ua-1"]
    _, paper, _ = own_front.engine.printed[-1]
    assert (paper.tagged, paper.conformance) == (True, ("pdf/a-3a", "pdf/ua-1"))
    turned = {"conformance": ["pdf/a-3a", "pdf/ua-1"], "tagged": True}
    assert own_front.submit(me, body | {"options": turned}) == both
    one = own_front.done(me, body | {"options": {"conformance": "pdf/a-3b"}})
    assert own_front.get(me, one).json()["conformance"] == ["pdf/a-3b"]
    assert len({plain, both, one}) == 3


def test_the_time_limit_and_the_policy_are_the_services_unless_they_are_given(request, tmp_path):
    with opened_front("sqlite", tmp_path, request, pdf_hard_timeout_s=33) as front:
        me = front.owner()
        front.done(me)
        front.done(me, order(options={"landscape": True}))
        front.done(me, order(options={"timeout": 60}))
        assert [limit_s for _, _, limit_s in front.engine.printed] == [33, 33, 60]
