"""An app that a plug-in mounts is served as the routes of a workload are."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse

from kesin import Forbidden, NotFound, Workload, task_lifecycle
from kesin.web.app import create_app
from kesin.web.auth import service_of
from kesin.web.dependencies import SignedInActor
from kesin.web.service import Service
from tests.web.client import Client
from tests.web.conftest import World, error_of


def mounted_app() -> FastAPI:
    app = FastAPI()

    @app.get("/open")
    def anyone(request: Request) -> dict[str, Any]:
        return {"actor": request.state.actor.name, "queues": list(service_of(request).queues)}

    @app.get("/closed")
    def signed_in(actor: SignedInActor) -> str:
        return actor.name

    @app.post("/body")
    def echo(sent: dict[str, Any], actor: SignedInActor) -> dict[str, Any]:
        return {"sent": sent, "actor": actor.name}

    @app.get("/problem")
    def problem() -> None:
        raise Forbidden("not today")

    @app.get("/own-problem")
    def own_problem() -> None:
        raise NotFound("nothing here")

    @app.exception_handler(NotFound)
    def handle(_request: Request, _problem: Exception) -> JSONResponse:
        return JSONResponse("handled by the app itself", 404)

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("a bug of the plug-in")

    return app


@pytest.fixture
def client(world: World) -> Client:
    def routes(_context: object) -> APIRouter:
        router, inner = APIRouter(), APIRouter()
        inner.mount("/app", mounted_app())
        router.include_router(inner, prefix="/plugin")
        router.mount("/app", mounted_app())
        return router

    workload = Workload("other", task_lifecycle, "Other", routes=routes)
    service = Service(
        world.settings, world.store, {"other": workload}, work=False, clock=world.clock
    )
    return Client(create_app(service))


@pytest.mark.parametrize("at", ["/app", "/plugin/app"])
def test_it_answers_and_knows_who_asks(client, world, at):
    answer = client.get(f"{at}/open")
    assert (answer.status_code, answer.json()["actor"]) == (200, "nobody")
    assert "content-security-policy" in answer.headers
    answer = client.get(f"{at}/open", headers=world.key("read"))
    assert answer.json()["actor"].startswith("key:")
    assert "other" in answer.json()["queues"]
    world.known("ayse", "admin", all_sites=True)
    assert client.get(f"{at}/closed", headers=world.cookie("ayse")).json() == "user:ayse"
    assert client.get(f"{at}/nowhere").status_code == 404


def test_who_is_not_signed_in_is_refused_as_elsewhere(client):
    wrong = {"x-api-key": "no such key"}
    for answer in (
        client.get("/app/closed"),
        client.get("/app/open", headers=wrong),
        client.post("/app/body", json={}),
    ):
        assert answer.status_code == 401
        assert error_of(answer)["code"] in {"not_signed_in", "wrong_key"}


def test_a_body_is_read_within_the_limits(client, world):
    answer = client.post("/app/body", json={"n": 1}, headers=world.key("read"))
    assert (answer.status_code, answer.json()["sent"]) == (200, {"n": 1})
    large = {"text": "x" * 70_000}
    answer = client.post("/app/body", json=large, headers=world.key("read"))
    assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")


def test_a_problem_becomes_an_answer_unless_the_app_handles_it(client):
    answer = client.get("/app/problem")
    assert (answer.status_code, error_of(answer)["message"]) == (403, "not today")
    assert client.get("/app/own-problem").json() == "handled by the app itself"


def test_a_bug_of_it_is_500_and_nothing_else_fails(client):
    assert client.get("/app/broken").status_code == 500
    assert client.get("/app/open").status_code == 200
