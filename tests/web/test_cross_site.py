"""Pages of other sites that would use a session: no route with an effect answers them."""

import itertools
from typing import Any

import pytest

from tests.tables import table
from tests.web.client import ADDRESS, HOST, Client
from tests.web.conftest import PASSWORD, World, by_cookie, error_of
from tests.web.matrix import all_routes
from tests.web.test_session import sign_in, status_of

SAFE = {"GET", "HEAD", "OPTIONS"}
OURS = {"same-origin": {"sec-fetch-site": "same-origin"}, "our origin": {"origin": f"http://{HOST}"}}
FOREIGN = {
    "same-site": {"sec-fetch-site": "same-site"},
    "cross-site": {"sec-fetch-site": "cross-site"},
    "none": {"sec-fetch-site": "none"},
    "unheard of": {"sec-fetch-site": "SAME-ORIGIN, cross-site"},
    "cross-site with our origin": {"sec-fetch-site": "cross-site", "origin": f"http://{HOST}"},
    "another origin": {"origin": "http://evil.test"},
    "another port": {"origin": f"http://{HOST}:8080"},
    "a name that ends alike": {"origin": f"http://evil.{HOST}"},
    "a name that begins alike": {"origin": f"http://{HOST}.evil.test"},
    "ours as a user name": {"origin": f"http://{HOST}@evil.test"},
    "null": {"origin": "null"},
    "no address": {"origin": "http://[::1"},
    "empty": {"origin": ""},
}
CREDENTIALS = {"name": "ayse", "password": PASSWORD}
BODIES: dict[str, dict[str, Any]] = {"/api/session": {"json": CREDENTIALS}, "/sign-in": {"data": CREDENTIALS}}


@pytest.fixture
def admin(shared_world: World) -> dict[str, str]:
    """The cookie of an admin, without a word of where a request comes from."""
    shared_world.known("ayse", "admin")
    return {"cookie": f"kesin_session={shared_world.token('ayse')}"}


def test_no_unsafe_route_takes_a_session_cookie_from_another_page(shared_world, admin):
    """The matrix sends the same with ``sec-fetch-site: same-origin``, and each route answers."""
    unsafe = sorted(route for route in all_routes(shared_world.app) if route[0] not in SAFE)
    assert len(unsafe) > 60
    pages = itertools.cycle([{}, FOREIGN["cross-site"], FOREIGN["another origin"]])
    for (method, path), came in zip(unsafe, pages, strict=False):
        sent = BODIES.get(path, {})
        path_of_task = path.replace("{queue}", "task")
        headers = {**admin, **came}
        response = shared_world.client.request(method, path_of_task, headers=headers, **sent)
        assert response.status_code == 403, (method, path)
        page = path.startswith("/dashboard")
        code = response.text if page else error_of(response)["code"]
        assert "cross_site" in code, (method, path)
    token = admin["cookie"].partition("=")[2]
    assert status_of(shared_world, token) == 200
    assert shared_world.task.jobs().jobs == []
    assert shared_world.store.paused("task") == []


@table("came", [*OURS, *FOREIGN, "neither"])
def test_a_session_cookie_has_an_effect_only_from_our_own_page(came, shared_world, admin):
    headers = admin | (OURS | FOREIGN).get(came, {})
    response = shared_world.client.post("/api/queues/task/resume", json={}, headers=headers)
    assert response.status_code == (200 if came in OURS else 403)


@table(("scheme", "status"), [("https", 201), ("http", 403)])
def test_over_tls_a_page_without_tls_is_another_page(scheme, status, ayse):
    client = Client(ayse.app, scheme="https")
    assert sign_in(client, origin=f"{scheme}://{HOST}").status_code == status


@table("came", [*FOREIGN, "neither"])
def test_another_page_cannot_sign_a_browser_in(came, shared_world):
    shared_world.known("ayse", "admin")
    headers, client = FOREIGN.get(came, {}), shared_world.client
    responses = [client.post("/sign-in", data=CREDENTIALS, headers=headers)]
    if came != "neither":  # a program without cookies need not say where it comes from
        responses.append(sign_in(client, **headers))
    for response in responses:
        assert (response.status_code, "set-cookie" in response.headers) == (403, False)


def test_without_a_cookie_nobody_need_say_where_a_request_comes_from(ayse):
    assert sign_in(ayse.client).status_code == 201
    [session] = ayse.accounts.directory.sessions_of("ayse")
    assert session.address == ADDRESS
    response = ayse.client.post("/api/queues/task/pause", json={}, headers=ayse.key("operate"))
    assert response.status_code == 200


def test_a_cookie_reads_from_anywhere_and_no_other_site_sees_the_response(ayse):
    for came in (FOREIGN["cross-site"], FOREIGN["another origin"]):
        headers = by_cookie(ayse.token("ayse"), **came)
        response = ayse.client.get("/api/session", headers=headers)
        assert response.status_code == 200
        assert not [name for name in response.headers if name.startswith("access-control-")]


def test_the_body_of_a_plain_form_is_not_taken_for_json(world):
    world.person("ayse", "admin")
    response = world.client.post(
        "/api/queues/task/pause", content="{}", headers=world.cookie("ayse") | {"content-type": "text/plain"}
    )
    assert response.status_code == 422
    assert world.store.paused("task") == []
