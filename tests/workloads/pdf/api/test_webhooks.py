"""Owners see their own webhooks and nobody else's, and may have a failed one sent again."""

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
from tests.workloads.pdf.post_office import AYSE, OMER, PostOffice, opened_office
from tests.workloads.receiver import Receiver

NOBODYS = "00000000-0000-7000-8000-000000000000"


def who(name: str, *grants: str) -> Actor:
    return Actor(name, frozenset(grants or {"pdf"}))


class Door:
    """The routes, asked by whoever stands there."""

    def __init__(self, office: PostOffice) -> None:
        app = FastAPI()
        app.include_router(webhook_router(office.context))

        @app.middleware("http")
        async def identify(request: Request, call_next: Any) -> Any:
            request.state.actor = self.asker
            return await call_next(request)

        @app.exception_handler(Problem)
        def tell(_: Request, problem: Problem) -> JSONResponse:
            return JSONResponse(problem.body(), problem.status)

        self.asker = who(AYSE)
        self._client = TestClient(app)

    def ask(self, method: str, path: str, actor: Actor | None = None) -> tuple[int, Any, Any]:
        self.asker = actor or who(AYSE)
        answer = self._client.request(method, path)
        return answer.status_code, answer.json(), answer.headers


@pytest.fixture
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PostOffice]:
    with opened_office("sqlite", tmp_path, request) as office:
        yield office


@pytest.fixture
def door(office) -> Door:
    return Door(office)


def given_up(office: PostOffice, receiver: Receiver, owner: str = AYSE) -> str:
    delivery = office.ready(receiver, owner)
    receiver.script = [410]
    assert office.after(delivery) == ("failed", "HOOK_GONE")
    return delivery


def lines(office: PostOffice) -> list[tuple[str, str, bool]]:
    found = office.context.commands.accounts.directory.audit(limit=100)
    return [(entry.actor, entry.action, entry.allowed) for entry in found[::-1]]


def test_everybody_gets_a_secret_of_their_own_and_it_is_noted(office, door):
    answers = [door.ask("GET", "/pdf/webhooks/secret", who(one)) for one in (AYSE, OMER)]
    assert [answer[1] for answer in answers] == [
        {"secret": office.hooks.secret(o)} for o in (AYSE, OMER)
    ]
    assert answers[0][1] != answers[1][1]
    assert answers[0][2]["cache-control"] == "private, no-store"
    action = "pdf.webhook_secret"
    assert lines(office) == [(AYSE, action, True), (OMER, action, True)]


def test_where_webhooks_are_off_there_is_no_secret(request, tmp_path):
    with opened_office("sqlite", tmp_path, request, pdf_webhook_secret=None) as office:
        status, body, _ = Door(office).ask("GET", "/pdf/webhooks/secret")
        assert (status, body["error"]["code"]) == (409, "WEBHOOK_REFUSED")
        assert lines(office) == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/pdf/webhooks/secret"),
        ("GET", "/pdf/webhooks"),
        ("POST", f"/pdf/webhooks/{NOBODYS}/resend"),
    ],
)
def test_the_doors_are_for_those_who_make_pdfs(office, door, method, path):
    assert door.ask(method, path, Actor("nobody", frozenset()))[0] == 401
    assert door.ask(method, path, who("key:x", "operate"))[0] == 403
    assert [line[2] for line in lines(office)] == [False]


def test_owners_see_where_their_webhooks_are(office, door, receiver):
    receiver.script = [500]
    pending = office.ready(receiver)
    office.work()
    waiting = office.promised(receiver)
    office.promised(receiver, owner=OMER)
    status, body, _ = door.ask("GET", "/pdf/webhooks")
    assert (status, body["cursor"]) == (200, None)
    newest, oldest = body["webhooks"]
    job = office.seen(pending)
    assert oldest == {
        "id": pending,
        "kind": "job",
        "subject": job.data["subject"],
        "host": "127.0.0.1",
        "state": "pending",
        "attempts": 1,
        "next_at": iso(job.run_at),
        "error": "HOOK_BAD_ANSWER",
        "error_message": "it answered 500",
    }
    assert (newest["id"], newest["state"], newest["next_at"]) == (waiting, "waiting", None)


def test_a_long_list_comes_in_pages(office, door, receiver):
    job_id = office.asked()
    wanted = [
        office.hooks.subscribe("job", job_id, AYSE, f"{receiver.url}{number}").id
        for number in range(PAGE_SIZE + 1)
    ]
    first = door.ask("GET", "/pdf/webhooks")[1]
    rest = door.ask("GET", f"/pdf/webhooks?cursor={first['cursor']}")[1]
    assert [webhook["id"] for webhook in first["webhooks"] + rest["webhooks"]] == wanted[::-1]
    assert (len(rest["webhooks"]), rest["cursor"]) == (1, None)
    assert door.ask("GET", "/pdf/webhooks?cursor=x")[0] == 422


def test_what_is_no_promise_of_ours_is_shown_as_it_is(office, door):
    office.queue.enqueue(["by hand"], tenant=AYSE)
    (body,) = door.ask("GET", "/pdf/webhooks")[1]["webhooks"]
    assert (body["kind"], body["subject"], body["host"]) == (None, None, None)


@pytest.mark.parametrize("actor", [who(AYSE), who("user:root", "admin")], ids=["owner", "admin"])
def test_a_failed_one_is_sent_again_by_its_owner_or_an_admin(office, door, receiver, actor):
    delivery = given_up(office, receiver)
    status, body, _ = door.ask("POST", f"/pdf/webhooks/{delivery}/resend", actor)
    assert (status, body["id"], body["state"]) == (200, delivery, "pending")
    assert office.after(delivery) == ("delivered", None)
    first, second = receiver.came
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert lines(office) == [(actor.name, "pdf.webhook_resend", True)]


def test_another_owners_webhook_is_not_there(office, door, receiver):
    delivery = given_up(office, receiver)
    for actor, one in ((who(OMER), delivery), (who(AYSE), NOBODYS), (who(AYSE), "nonsense")):
        assert door.ask("POST", f"/pdf/webhooks/{one}/resend", actor)[0] == 404
    assert office.seen(delivery).state == "failed"


def test_a_job_of_another_queue_is_no_webhook(office, door):
    assert door.ask("POST", f"/pdf/webhooks/{office.asked()}/resend")[0] == 404


def test_only_a_failed_one_is_sent_again(office, door, receiver):
    waiting = office.promised(receiver)
    done = office.ready(receiver)
    office.work()
    for delivery in (waiting, done):
        status, body, _ = door.ask("POST", f"/pdf/webhooks/{delivery}/resend")
        assert (status, body["error"]["code"]) == (409, "WEBHOOK_NOT_FAILED")
    assert len(receiver.came) == 1


def test_one_that_was_promised_anew_meanwhile_is_not_sent_twice(office, door, receiver):
    delivery = given_up(office, receiver)
    again = office.promised(receiver, office.seen(delivery).data["subject"])
    assert again != delivery
    assert door.ask("POST", f"/pdf/webhooks/{delivery}/resend")[0] == 409
