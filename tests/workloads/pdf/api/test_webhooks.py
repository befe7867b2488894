"""The routes of webhooks: each owner sees its own and may resend one that failed."""

import warnings
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
def routes(small) -> Routes:
    return Routes(small)


def given_up(small: WebhookQueues, receiver: Receiver, owner: str = AYSE) -> str:
    delivery = small.ready(receiver, owner)
    receiver.script = [410]
    assert small.after(delivery) == ("failed", "HOOK_GONE")
    return delivery


def lines(small: WebhookQueues) -> list[tuple[str, str, bool]]:
    entries = small.context.commands.accounts.directory.audit(limit=100)
    return [(entry.actor, entry.action, entry.allowed) for entry in entries[::-1]]


def test_each_owner_gets_its_own_secret_and_an_audit_line(small, routes):
    responses = [routes.request("GET", "/pdf/webhooks/secret", who(owner)) for owner in (AYSE, OMER)]
    bodies = [body for _, body, _ in responses]
    assert bodies == [{"secret": small.hooks.secret(owner)} for owner in (AYSE, OMER)]
    assert bodies[0] != bodies[1]
    assert responses[0][2]["cache-control"] == "private, no-store"
    action = "pdf.webhook_secret"
    assert lines(small) == [(AYSE, action, True), (OMER, action, True)]


def test_without_webhooks_there_is_no_secret(request, tmp_path):
    with opened_queues("sqlite", tmp_path, request, pdf_webhook_secret=None) as small:
        status, body, _ = Routes(small).request("GET", "/pdf/webhooks/secret")
        assert (status, body["error"]["code"]) == (409, "WEBHOOK_REFUSED")
        assert lines(small) == []


def test_owners_see_the_state_of_their_webhooks(small, routes, receiver):
    receiver.script = [500]
    pending = small.ready(receiver)
    small.work()
    waiting = small.subscribe(receiver)
    small.subscribe(receiver, owner=OMER)
    status, body, _ = routes.request("GET", "/pdf/webhooks")
    assert (status, body["cursor"]) == (200, None)
    newest, oldest = body["webhooks"]
    job = small.seen(pending)
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


def test_a_long_list_comes_in_pages(small, routes, receiver):
    job_id = small.new_job()
    expected = [
        small.hooks.subscribe("job", job_id, AYSE, f"{receiver.url}{number}").id for number in range(PAGE_SIZE + 1)
    ]
    first = routes.request("GET", "/pdf/webhooks")[1]
    rest = routes.request("GET", f"/pdf/webhooks?cursor={first['cursor']}")[1]
    assert [webhook["id"] for webhook in first["webhooks"] + rest["webhooks"]] == expected[::-1]
    assert (len(rest["webhooks"]), rest["cursor"]) == (1, None)
    assert routes.request("GET", "/pdf/webhooks?cursor=x")[0] == 422


def test_a_job_enqueued_by_hand_is_shown(small, routes):
    small.queue.enqueue(["by hand"], tenant=AYSE)
    (body,) = routes.request("GET", "/pdf/webhooks")[1]["webhooks"]
    assert (body["kind"], body["subject"], body["host"]) == (None, None, None)


def test_a_failed_one_is_sent_again_by_its_owner_or_an_admin(small, routes, receiver):
    for actor in (who(AYSE), who("user:root", "admin")):
        delivery = given_up(small, receiver)
        status, body, _ = routes.request("POST", f"/pdf/webhooks/{delivery}/resend", actor)
        assert (status, body["id"], body["state"]) == (200, delivery, "pending")
        assert small.after(delivery) == ("delivered", None)
        first, second = receiver.came[-2:]
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert lines(small)[-1] == (actor.name, "pdf.webhook_resend", True)


def test_only_a_webhook_of_the_owner_is_found(small, routes, receiver):
    delivery = given_up(small, receiver)
    for actor, webhook_id in (
        (who(OMER), delivery),
        (who(AYSE), NOBODYS),
        (who(AYSE), "nonsense"),
        (who(AYSE), small.new_job()),  # a job of another queue
    ):
        assert routes.request("POST", f"/pdf/webhooks/{webhook_id}/resend", actor)[0] == 404
    assert small.seen(delivery).state == "failed"


def test_only_a_failed_one_is_sent_again(small, routes, receiver):
    waiting = small.subscribe(receiver)
    done = small.ready(receiver)
    small.work()
    for delivery in (waiting, done):
        status, body, _ = routes.request("POST", f"/pdf/webhooks/{delivery}/resend")
        assert (status, body["error"]["code"]) == (409, "WEBHOOK_NOT_FAILED")
    assert len(receiver.came) == 1


def test_a_webhook_subscribed_again_meanwhile_is_not_resent(small, routes, receiver):
    delivery = given_up(small, receiver)
    again = small.subscribe(receiver, small.seen(delivery).payload["subject"])
    assert again != delivery
    assert routes.request("POST", f"/pdf/webhooks/{delivery}/resend")[0] == 409
