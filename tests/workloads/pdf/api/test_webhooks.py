"""The routes of webhooks: each owner sees its own and may resend one that failed."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

with warnings.catch_warnings():  # it asks for httpx2 and works with httpx
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

from kesin.foundation.clock import iso
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Problem
from kesin.workloads.pdf.api.webhooks import PAGE_SIZE, webhook_router
from kesin.workloads.pdf.services import PdfServiceLoader
from tests.workloads.pdf.webhook_queues import AYSE, OMER, WebhookQueues, opened_queues
from tests.workloads.receiver import Receiver

NOBODYS = "00000000-0000-7000-8000-000000000000"


def who(name: str, *grants: str) -> Actor:
    return Actor(name, frozenset(grants or {"pdf"}))


class Routes:
    """The routes, requested by any actor."""

    def __init__(self, office: WebhookQueues) -> None:
        app = FastAPI()
        app.include_router(webhook_router(PdfServiceLoader(office.context)))

        @app.middleware("http")
        async def identify(request: Request, call_next: Any) -> Any:
            request.state.actor = self.actor
            return await call_next(request)

        @app.exception_handler(Problem)
        def tell(_: Request, problem: Problem) -> JSONResponse:
            return JSONResponse(problem.body(), problem.status)

        self.actor = who(AYSE)
        self._client = TestClient(app)

    def request(self, method: str, path: str, actor: Actor | None = None) -> tuple[int, Any, Any]:
        self.actor = actor or who(AYSE)
        response = self._client.request(method, path)
        return response.status_code, response.json(), response.headers


@pytest.fixture
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WebhookQueues]:
    with opened_queues("sqlite", tmp_path, request) as office:
        yield office


@pytest.fixture
def routes(office) -> Routes:
    return Routes(office)


def given_up(office: WebhookQueues, receiver: Receiver, owner: str = AYSE) -> str:
    delivery = office.ready(receiver, owner)
    receiver.script = [410]
    assert office.after(delivery) == ("failed", "HOOK_GONE")
    return delivery


def lines(office: WebhookQueues) -> list[tuple[str, str, bool]]:
    entries = office.context.commands.accounts.directory.audit(limit=100)
    return [(entry.actor, entry.action, entry.allowed) for entry in entries[::-1]]


def test_each_owner_gets_its_own_secret_and_an_audit_line(office, routes):
    responses = [routes.request("GET", "/pdf/webhooks/secret", who(owner)) for owner in (AYSE, OMER)]
    bodies = [body for _, body, _ in responses]
    assert bodies == [{"secret": office.hooks.secret(owner)} for owner in (AYSE, OMER)]
    assert bodies[0] != bodies[1]
    assert responses[0][2]["cache-control"] == "private, no-store"
    action = "pdf.webhook_secret"
    assert lines(office) == [(AYSE, action, True), (OMER, action, True)]


def test_without_webhooks_there_is_no_secret(request, tmp_path):
    with opened_queues("sqlite", tmp_path, request, pdf_webhook_secret=None) as office:
        status, body, _ = Routes(office).request("GET", "/pdf/webhooks/secret")
        assert (status, body["error"]["code"]) == (409, "WEBHOOK_REFUSED")
        assert lines(office) == []


def test_owners_see_the_state_of_their_webhooks(office, routes, receiver):
    receiver.script = [500]
    pending = office.ready(receiver)
    office.work()
    waiting = office.subscribe(receiver)
    office.subscribe(receiver, owner=OMER)
    status, body, _ = routes.request("GET", "/pdf/webhooks")
    assert (status, body["cursor"]) == (200, None)
    newest, oldest = body["webhooks"]
    job = office.seen(pending)
    assert oldest == {
        "id": pending,
        "kind": "job",
        "subject": job.payload["subject"],
        "host": "127.0.0.1",
        "state": "pending",
        "attempts": 1,
        "next_at": iso(job.run_at),
        "error": "HOOK_BAD_ANSWER",
        "error_message": "it returned 500",
    }
    assert (newest["id"], newest["state"], newest["next_at"]) == (waiting, "waiting", None)


def test_a_long_list_comes_in_pages(office, routes, receiver):
    job_id = office.new_job()
    expected = [
        office.hooks.subscribe("job", job_id, AYSE, f"{receiver.url}{number}").id for number in range(PAGE_SIZE + 1)
    ]
    first = routes.request("GET", "/pdf/webhooks")[1]
    rest = routes.request("GET", f"/pdf/webhooks?cursor={first['cursor']}")[1]
    assert [webhook["id"] for webhook in first["webhooks"] + rest["webhooks"]] == expected[::-1]
    assert (len(rest["webhooks"]), rest["cursor"]) == (1, None)
    assert routes.request("GET", "/pdf/webhooks?cursor=x")[0] == 422


def test_a_job_enqueued_by_hand_is_shown(office, routes):
    office.queue.enqueue(["by hand"], tenant=AYSE)
    (body,) = routes.request("GET", "/pdf/webhooks")[1]["webhooks"]
    assert (body["kind"], body["subject"], body["host"]) == (None, None, None)


@pytest.mark.parametrize("actor", [who(AYSE), who("user:root", "admin")], ids=["owner", "admin"])
def test_a_failed_one_is_sent_again_by_its_owner_or_an_admin(office, routes, receiver, actor):
    delivery = given_up(office, receiver)
    status, body, _ = routes.request("POST", f"/pdf/webhooks/{delivery}/resend", actor)
    assert (status, body["id"], body["state"]) == (200, delivery, "pending")
    assert office.after(delivery) == ("delivered", None)
    first, second = receiver.came
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert lines(office) == [(actor.name, "pdf.webhook_resend", True)]


def test_only_a_webhook_of_the_owner_is_found(office, routes, receiver):
    delivery = given_up(office, receiver)
    for actor, webhook_id in (
        (who(OMER), delivery),
        (who(AYSE), NOBODYS),
        (who(AYSE), "nonsense"),
        (who(AYSE), office.new_job()),  # a job of another queue
    ):
        assert routes.request("POST", f"/pdf/webhooks/{webhook_id}/resend", actor)[0] == 404
    assert office.seen(delivery).state == "failed"


def test_only_a_failed_one_is_sent_again(office, routes, receiver):
    waiting = office.subscribe(receiver)
    done = office.ready(receiver)
    office.work()
    for delivery in (waiting, done):
        status, body, _ = routes.request("POST", f"/pdf/webhooks/{delivery}/resend")
        assert (status, body["error"]["code"]) == (409, "WEBHOOK_NOT_FAILED")
    assert len(receiver.came) == 1


def test_a_webhook_subscribed_again_meanwhile_is_not_resent(office, routes, receiver):
    delivery = given_up(office, receiver)
    again = office.subscribe(receiver, office.seen(delivery).payload["subject"])
    assert again != delivery
    assert routes.request("POST", f"/pdf/webhooks/{delivery}/resend")[0] == 409
