"""The host that a request names: never sent back, and checked where the settings name ours."""

from contextlib import closing

import pytest
from fastapi import APIRouter, FastAPI

from kesin.engine.workload import Workload
from kesin.foundation.settings import BadSettings, load_settings
from kesin.lifecycle.task import task_lifecycle
from kesin.store.sqlite.store import SqliteStore
from kesin.web.app import create_app
from kesin.web.service import Service
from tests.tables import table
from tests.web.client import Client
from tests.web.conftest import error_of

EVIL = {"host": "evil.example"}


@table(
    "path",
    [
        *("/api/queues/", "/api/session/", "/docs/", "/sign-in/", "/openapi.json/", "/health/live/"),
        *("/static", "/jobs/", "/pdf/jobs/", "/api/oci/queue-stats/", "/metrics/"),
    ],
)
def test_a_slash_too_many_or_too_few_is_not_found_and_redirects_nowhere(path, shared_world):
    response = shared_world.client.get(path, headers=EVIL | shared_world.key("admin"))
    assert (response.status_code, response.headers.get("location")) == (404, None)


def nested(inner: APIRouter) -> Workload:
    """A workload whose router includes this one."""

    def routes(_context: object) -> APIRouter:
        router = APIRouter()
        router.include_router(inner, prefix="/inner")
        return router

    return Workload("other", task_lifecycle, "Other", routes=routes)


def test_the_routers_of_a_workload_do_not_redirect_either(shared_world):
    inner = APIRouter()
    inner.add_api_route("/page", lambda: "here")
    workload = nested(inner)
    with closing(SqliteStore(":memory:")) as store:  # without the queues of other workloads
        service = Service(shared_world.settings, store, {"other": workload}, work=False)
        client = Client(create_app(service))
        assert client.get("/inner/page").status_code == 200
        response = client.get("/inner/page/", headers=EVIL)
        assert (response.status_code, response.headers.get("location")) == (404, None)


def test_an_app_that_a_workload_mounts_is_refused(shared_world):
    inner = APIRouter()
    inner.mount("/mounted", FastAPI())
    with closing(SqliteStore(":memory:")) as store:
        service = Service(shared_world.settings, store, {"other": nested(inner)}, work=False)
        with pytest.raises(TypeError, match="router mounts /mounted"):
            create_app(service)


@table("path", ["/", "/dashboard", "/dashboard/", "/dashboard/queues/task/", "/dashboard/nowhere/"])
def test_every_redirect_is_a_path_and_names_no_host(path, shared_world):
    response = shared_world.client.get(path, headers=EVIL)
    assert response.headers["location"].startswith("/")
    assert not response.headers["location"].startswith("//")


# KESIN_ALLOWED_HOSTS


OURS = ("kesin.example", "KESIN.example:8443", "[::1]:8000", "[::1]")
OTHERS = (
    *("evil.example", "kesin.example.evil", "", "::1"),
    *("kesin.example@evil.example", "evil.example:80:kesin.example"),
)


def test_a_request_for_another_host_is_refused(make_world):
    client = make_world(allowed_hosts="Kesin.example, [::1]").client
    for host in OURS:
        assert client.get("/health/live", headers={"host": host}).status_code == 200, host
    for host in OTHERS:
        response = client.get("/health/live", headers={"host": host})
        assert (response.status_code, error_of(response)["code"]) == (400, "wrong_host"), host
        assert "nosniff" in response.headers["x-content-type-options"]


def test_any_host_is_served_unless_the_settings_name_some(shared_world):
    assert shared_world.client.get("/health/live", headers=EVIL).status_code == 200


@table("value", ["https://kesin.example", "kesin.example:443", "a b", "*"])
def test_a_setting_that_is_no_host_name_is_refused(value, monkeypatch):
    monkeypatch.setenv("KESIN_ALLOWED_HOSTS", value)
    with pytest.raises(BadSettings, match="KESIN_ALLOWED_HOSTS"):
        load_settings()
