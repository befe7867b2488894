"""A webhook is sent whatever ends the job and whatever dies, and only to allowed addresses."""

import json
from contextlib import suppress
from urllib.parse import parse_qsl, urlsplit

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from kesin.foundation.clock import iso
from kesin.foundation.encryption import new_key
from kesin.foundation.problems import Problem
from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.pdf.errors import Gone
from kesin.workloads.pdf.jobs.store import parse_job
from kesin.workloads.pdf.lifecycle import MAX_WAIT_S, WEBHOOK_ATTEMPTS, WEBHOOK_DELAYS
from kesin.workloads.pdf.links import LinkQuery, PdfLinks
from kesin.workloads.pdf.webhooks import worker
from tests.workloads.pdf.webhook_queues import AYSE, DAY_S, MADE, OMER, WebhookQueues, opened_queues

LEASE_S = 60


# Messages


def test_the_message_of_a_finished_job_is_signed(office, receiver):
    job_id = office.new_job()
    delivery = office.subscribe(receiver, job_id)
    assert office.after(delivery) == ("waiting", None)
    assert receiver.came == []
    office.clock.advance(1)
    office.end(job_id)
    finished_at = iso(office.clock.time_us)
    office.clock.advance(1)
    assert office.after(delivery) == ("delivered", None)
    (came,) = receiver.came
    assert came.path == "/hook?of=orders"
    assert came.headers["Content-Type"] == "application/json"
    assert came.headers["User-Agent"] == "Kesin-Webhooks"
    assert came.body == {
        "type": "pdf.job.succeeded",
        "timestamp": finished_at,
        "data": {
            "job_id": job_id,
            "status": "succeeded",
            "error_code": None,
            "template_name": "invoice",
            "sha256": MADE["sha256"],
            "pages": 2,
            "bytes": 1234,
            "download_url": f"/pdf/jobs/{job_id}/download",
            "retry_count": 0,
            "finished_at": finished_at,
        },
    }
    assert came.headers["webhook-id"] == delivery
    assert Webhook(office.hooks.secret(AYSE)).verify(came.raw, came.headers) == came.body
    result = office.seen(delivery).result
    assert (result["status"], result["attempt"], sorted(result)) == (
        200, 1, ["attempt", "ms", "status"],
    )  # fmt: skip


def failed(office: WebhookQueues, job_id: str) -> None:
    office.end(job_id, "fail", error_code="TEMPLATE_ERROR", error_category="VALIDATION")


def overdue(office: WebhookQueues, _: str) -> None:
    office.clock.advance(DAY_S + 1)
    office.sweep()


def cancelled(office: WebhookQueues, job_id: str) -> None:
    office.pdf.act("cancel", actor="an operator", ids=[job_id])


def forgotten(office: WebhookQueues, job_id: str) -> None:
    overdue(office, job_id)
    office.clock.advance(8 * DAY_S)
    office.sweep()
    assert office.pdf.job(job_id) is None


def test_whatever_ends_a_job_is_sent(office, receiver):
    for ends, status, code in (
        (failed, "failed", "TEMPLATE_ERROR"),
        (overdue, "expired", None),
        (cancelled, "expired", None),
        (forgotten, "expired", None),
    ):
        job_id = office.new_job()
        delivery = office.subscribe(receiver, job_id)
        ends(office, job_id)
        office.clock.advance(1)  # between two scans
        assert office.after(delivery) == ("delivered", None), ends
        message = receiver.came[-1].body
        assert message["type"] == f"pdf.job.{status}", ends
        data = message["data"]
        assert (data["job_id"], data["status"], data["error_code"]) == (job_id, status, code)
        assert data["download_url"] is None


def test_a_failure_that_is_retried_is_no_end(small, receiver):
    job_id = small.new_job()
    delivery = small.subscribe(receiver, job_id)
    small.end(job_id, "fail", error_code="NAVIGATION_TIMEOUT", error_category="TRANSIENT")
    assert small.after(delivery) == ("waiting", None)
    small.end(job_id)
    small.clock.advance(1)
    assert small.after(delivery) == ("delivered", None)
    assert receiver.came[0].body["data"]["retry_count"] == 1


def test_the_end_of_a_batch_is_sent_too(small, receiver):
    for call, status, file in (("succeed", "succeeded", True), ("settle", "partial", True), ("fail", "failed", False)):
        batch = small.batches.enqueue({"template": "invoice", "rows": 3}, tenant=AYSE).id
        delivery = small.hooks.subscribe("batch", batch, AYSE, receiver.url).id
        assert small.after(delivery) == ("waiting", None)
        how = {"error_code": "EVERY_ROW_FAILED", "error_category": "PERMANENT"}
        small.end(batch, call, **(how if call == "fail" else {}))
        small.clock.advance(1)
        assert small.after(delivery) == ("delivered", None)
        message = receiver.came[-1].body
        data = message["data"]
        assert (message["type"], data["batch_id"]) == (f"pdf.batch.{status}", batch)
        assert (data["template_name"], data["rows"]) == ("invoice", 3)
        assert data["error_code"] == (None if file else "EVERY_ROW_FAILED")
        path = f"/pdf/batches/{batch}/download"
        assert data["download_url"] == (path if file else None)
        small.clock.advance(1)


def test_a_late_message_still_says_how_the_job_ended(small, receiver):
    delivery = small.ready(receiver)
    receiver.script = [500]
    small.work()
    overdue(small, delivery)  # the PDF has expired since
    assert small.after(delivery) == ("delivered", None)
    first, second = receiver.came
    assert second.raw == first.raw
    assert second.body["type"] == "pdf.job.succeeded"


def test_a_webhook_for_a_job_that_has_ended_is_sent_at_once(small, receiver):
    job_id = small.new_job()
    small.end(job_id)
    assert small.after(small.subscribe(receiver, job_id)) == ("delivered", None)


# Subscriptions


def test_job_and_webhook_are_created_together_or_not_at_all(office, receiver):
    with suppress(RuntimeError), office.pdf.store.transaction():
        office.subscribe(receiver, office.new_job())
        raise RuntimeError("the request was too much")
    assert office.queue.jobs().jobs == office.pdf.jobs().jobs == []
    with office.pdf.store.transaction():
        office.subscribe(receiver, office.new_job())
    assert len(office.queue.jobs().jobs) == len(office.pdf.jobs().jobs) == 1


def test_equal_subscriptions_are_one(office, receiver):
    job_id = office.new_job()
    first = office.subscribe(receiver, job_id)
    assert office.subscribe(receiver, job_id) == first
    other = office.hooks.subscribe("job", job_id, AYSE, f"{receiver.url}&again").id
    office.end(job_id)
    office.work()
    assert sorted(request.headers["webhook-id"] for request in receiver.came) == sorted([first, other])


def test_a_waiting_delivery_is_not_claimed_and_fails_when_its_job_never_ends(small, receiver):
    delivery = small.subscribe(receiver)
    assert small.queue.claim("anybody", limit=10) == []
    small.clock.advance(MAX_WAIT_S - 1)
    assert small.queue.claim("anybody", limit=10) == []
    assert [event.move for event in small.queue.events(delivery)] == ["enqueue"]
    small.clock.advance(2)
    assert small.after(delivery) == ("failed", "NEVER_ENDED")
    assert receiver.came == []


def test_owners_have_their_own_secrets(small, receiver):
    small.ready(receiver, AYSE)
    small.ready(receiver, OMER)
    small.work()
    for came in receiver.came:
        fits = []
        for owner in (AYSE, OMER):
            with suppress(WebhookVerificationError):
                Webhook(small.hooks.secret(owner)).verify(came.raw, came.headers)
                fits.append(owner)
        assert fits == [small.seen(came.headers["webhook-id"]).tenant]
    assert len(receiver.came) == 2


# Addresses


def test_only_addresses_on_the_list_are_allowed(small):
    for url in (
        "https://evil.example.org/hook", "http://127.0.0.1:80/elsewhere", "http://localhost/hook",
        "http://10.0.0.1/hook", "http://169.254.169.254/hook", "http://[::1]/hook",
        "ftp://hooks.example.com/x", "https://hooks.example.com@evil.example.org/x", "no url", "",
    ):  # fmt: skip
        with pytest.raises(Problem) as caught:
            small.hooks.require_allowed(url)
        assert (caught.value.status, caught.value.code) == (422, "WEBHOOK_REFUSED")
    small.hooks.require_allowed("https://hooks.example.com/pdf?of=1")


@pytest.mark.parametrize("settings", [{"pdf_webhooks": ""}, {"pdf_webhooks": " "}, {"pdf_webhook_secret": None}])
def test_without_a_list_or_a_secret_webhooks_are_off(request, tmp_path, receiver, settings):
    with opened_queues("sqlite", tmp_path, request, **settings) as office:
        for status, call in (
            (422, lambda: office.hooks.require_allowed(receiver.url)),
            (409, lambda: office.hooks.secret(AYSE)),
        ):
            with pytest.raises(Problem, match="off") as caught:
                call()
            assert (caught.value.status, caught.value.code) == (status, "WEBHOOK_REFUSED")
        assert office.after(office.ready(receiver)) == ("failed", "HOOK_REFUSED")
    assert receiver.came == []


def test_a_list_that_covers_private_networks_by_chance_opens_none(request, tmp_path):
    with opened_queues("sqlite", tmp_path, request, pdf_webhooks=r"http://[^/]+/.*") as office:
        office.hooks.require_allowed("http://example.com/x")
        for host in ("127.0.0.1", "localhost", "10.1.2.3", "[::1]", "nas"):
            with pytest.raises(Problem):
                office.hooks.require_allowed(f"http://{host}/x")


def test_an_address_taken_off_the_list_gets_nothing(request, tmp_path, receiver):
    with opened_queues("sqlite", tmp_path, request) as office:
        delivery = office.ready(receiver)
    with opened_queues("sqlite", tmp_path, request, pdf_webhooks="https://x.example/.*") as office:
        assert office.after(delivery) == ("failed", "HOOK_REFUSED")
    assert receiver.came == []


# Retries


def test_a_delivery_is_retried_and_then_fails(office, receiver):
    delivery = office.ready(receiver)
    receiver.script = [500, 404, 302, 503, 400, 401, 599, 500, 500]
    pauses = []
    for tried in range(1, WEBHOOK_ATTEMPTS):
        assert office.after(delivery) == ("pending", "HOOK_BAD_ANSWER")
        job = office.seen(delivery)
        assert job.attempt_count == len(receiver.came) == tried
        assert job.run_at is not None
        pauses.append((job.run_at - office.clock.time_us) / SECOND_US)
        office.clock.advance(pauses[-1] - 0.001)
        office.work()
        assert len(receiver.came) == tried  # not a moment too early
        office.clock.advance(0.002)
    assert all(
        delay <= pause <= delay + WEBHOOK_DELAYS.jitter_s
        for delay, pause in zip(WEBHOOK_DELAYS.delays_s, pauses, strict=True)
    )
    assert office.after(delivery) == ("failed", "HOOK_BAD_ANSWER")
    office.clock.advance(DAY_S)
    office.work()
    assert len(receiver.came) == WEBHOOK_ATTEMPTS
    assert {request.headers["webhook-id"] for request in receiver.came} == {delivery}
    assert {request.raw for request in receiver.came} == {receiver.came[0].raw}
    stamps = [int(request.headers["webhook-timestamp"]) for request in receiver.came]
    assert stamps == sorted(set(stamps))


def test_a_receiver_may_request_a_longer_pause_and_not_a_shorter(small, receiver):
    for pause, waits_s in (
        ("120", 120), ("999999", 3_600), ("1", None), ("0", None), ("tomorrow", None), ("-5", None),
    ):  # fmt: skip
        delivery = small.ready(receiver)
        receiver.script = [(429, {"Retry-After": pause})]
        assert small.after(delivery) == ("pending", "HOOK_BAD_ANSWER")
        run_at = small.seen(delivery).run_at
        assert run_at is not None
        waited_s = (run_at - small.clock.time_us) / SECOND_US
        assert waited_s == waits_s if waits_s else 5 <= waited_s <= 10
        small.clock.advance(waited_s)
        assert small.after(delivery) == ("delivered", None)


def test_a_pause_requested_at_the_last_attempt_ends_it(small, receiver):
    delivery = small.ready(receiver)
    receiver.script = [500] * (WEBHOOK_ATTEMPTS - 1) + [(503, {"Retry-After": "3600"})]
    for _ in range(WEBHOOK_ATTEMPTS):
        small.work()
        small.clock.advance(DAY_S)
    assert small.after(delivery) == ("failed", "HOOK_BAD_ANSWER")
    assert len(receiver.came) == WEBHOOK_ATTEMPTS


def test_a_receiver_that_is_gone_gets_no_retry_and_a_redirect_is_not_followed(small, receiver):
    gone = small.ready(receiver)
    receiver.script = [410]
    assert small.after(gone) == ("failed", "HOOK_GONE")
    moved = small.ready(receiver)
    receiver.script = [(302, {"Location": f"{receiver.url}&there"})]
    assert small.after(moved) == ("pending", "HOOK_BAD_ANSWER")
    assert [request.path for request in receiver.came] == ["/hook?of=orders"] * 2


def test_after_a_worker_dies_the_message_is_sent_again_with_the_same_id(office, receiver):
    delivery = office.ready(receiver)
    dying = office.sender()
    dying.scan()
    claimed = office.queue.claim("who dies", limit=5)
    dying.send(claimed)  # it came, and nobody wrote it down
    assert office.after(delivery) == ("sending", None)
    office.clock.advance(LEASE_S + 1)
    office.sweep()
    assert office.after(delivery) == ("delivered", None)
    first, second = receiver.came
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == delivery
    assert first.raw == second.raw
    assert office.seen(delivery).result["attempt"] == 2


def test_a_broken_delivery_does_not_stop_the_others(small, receiver, monkeypatch):
    strange = small.queue.enqueue({"kind": "joke"}, tenant=AYSE).id
    waiting = small.queue.enqueue(["a joke"], tenant=AYSE, delay_s=MAX_WAIT_S).id
    broken, good = small.ready(receiver), small.ready(receiver)
    job_id = small.seen(broken).payload["subject"]
    build = worker.build_message

    def message(subscription, *how):
        if subscription.subject == job_id:
            raise ZeroDivisionError
        return build(subscription, *how)

    monkeypatch.setattr(worker, "build_message", message)
    small.work()
    assert small.seen(strange).error_code == "SUBJECT_GONE"
    assert small.seen(waiting).error_code == "SUBJECT_GONE"
    assert small.seen(broken).error_code == "ZeroDivisionError"
    assert small.seen(broken).state == "pending"
    assert small.seen(good).state == "delivered"
    assert [request.headers["webhook-id"] for request in receiver.came] == [good]


def test_neither_address_nor_message_is_logged(small, receiver, said):
    receiver.script = [500]
    for _ in range(3):
        small.ready(receiver)
    small.work()
    shown = json.dumps(said, default=str)
    assert "webhook_tried" in shown
    for private in ("orders", "127.0.0.1", "invoice", str(MADE["sha256"]), "whsec"):
        assert private not in shown


def test_a_message_has_a_link_that_opens_the_pdf_if_it_was_asked_for(request, tmp_path, receiver):
    keys = {"secret_keys": new_key("one"), "public_url": "https://pdf.example.com"}
    with opened_queues("sqlite", tmp_path, request, **keys) as office:
        job_id = office.new_job()
        delivery = office.hooks.subscribe("job", job_id, AYSE, receiver.url, 600).id
        office.end(job_id)
        receiver.script = [500, 200]
        office.work()
        office.clock.advance(DAY_S)
        assert office.after(delivery) == ("delivered", None)
        first, second = (came.body["data"]["link"] for came in receiver.came)
        assert first == second  # the same at every attempt
        url = urlsplit(first["url"])
        assert (url.netloc, url.path) == ("pdf.example.com", f"/pdf/links/{job_id}")
        links = PdfLinks(office.context.settings, office.pdf)
        query, job = LinkQuery(**dict(parse_qsl(url.query))), office.pdf.job(job_id)
        assert job is not None
        assert int(query.e) * SECOND_US <= (job.finished_at or 0) + 601 * SECOND_US
        with pytest.raises(Gone):  # a day late
            links.require_valid(parse_job(job), query)
