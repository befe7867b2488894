"""Pages and the routes of workloads may be loaded after the service listens."""

from dataclasses import replace
from typing import Any

import pytest
from fastapi import Depends

from kesin.web.app import create_app
from kesin.web.auth import GuardedRouter, identify
from kesin.web.routing import LateRoutes
from kesin.web.server import bind_sockets, run
from kesin.web.service import Service
from kesin.workloads import built_in
from tests.tables import table
from tests.web.client import Client
from tests.web.conftest import World

REQUESTS = [
    ("GET", "/dashboard"),
    ("GET", "/sign-in"),
    ("POST", "/health/live"),
    ("POST", "/pdf/jobs"),
    ("GET", "/api/oci/queue-stats"),
    ("GET", "/docs"),
    ("DELETE", "/jobs"),
    ("GET", "/nowhere"),
    ("GET", "/static/nothing.css"),
]


def is_late(app: Any) -> bool:
    return any(isinstance(route, LateRoutes) for route in app.routes)


def test_a_probe_is_answered_before_the_pages_are_loaded_which_make_a_service_ready(shared_world: World):
    app = create_app(shared_world.service, late=True)
    assert Client(app).get("/health/live").status_code == 200
    assert is_late(app)
    assert not hasattr(app.state, "frame")
    Client(app).get("/health/ready")
    assert not is_late(app)


@table(("method", "path"), REQUESTS)
def test_the_first_request_gets_the_answer_that_it_has_when_all_is_loaded(shared_world: World, method: str, path: str):
    late = create_app(shared_world.service, late=True)
    first, later = (Client(app).request(method, path, follow_redirects=False) for app in (late, shared_world.app))
    assert (first.status_code, first.headers.get("allow"), first.content) == (
        later.status_code,
        later.headers.get("allow"),
        later.content,
    )
    assert is_late(late) is path.startswith("/static")


def test_a_service_whose_pages_cannot_be_loaded_stops_with_the_reason(world: World):
    broken = replace(next(one for one in built_in() if one.name == "oci"), pages=lambda: "no pages")
    service = Service(world.settings, world.store, {"oci": broken}, work=False, clock=world.clock)
    app = create_app(service, late=True)
    with (
        bind_sockets("127.0.0.1", 0) as sockets,
        pytest.raises(TypeError, match="the pages of the workload oci must be a WorkloadPages"),
    ):
        run(app, service, sockets)


def test_a_guarded_router_with_dependencies_of_its_own_identifies_the_actor():
    def own() -> None: ...

    router = GuardedRouter(dependencies=[Depends(own)])
    assert [one.dependency for one in router.dependencies] == [identify, own]
