"""Pages of others that would use a session: no unsafe door opens to them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.client import ADDRESS, HOST
from tests.web.conftest import PASSWORD, World, by_cookie, error_of
from tests.web.matrix import doors
from tests.web.test_session import sign_in, whoever

SAFE = {"GET", "HEAD", "OPTIONS"}

# One place decides for all doors: these are tried at each of them, the others at some.
AT_EVERY_DOOR = {"cross-site", "another origin", "neither"}
COMES_FROM: dict[str, tuple[dict[str, str], bool]] = {
    "same-origin": ({"sec-fetch-site": "same-origin"}, True),
    "same-site": ({"sec-fetch-site": "same-site"}, False),
    "cross-site": ({"sec-fetch-site": "cross-site"}, False),
    "none": ({"sec-fetch-site": "none"}, False),
    "unheard of": ({"sec-fetch-site": "SAME-ORIGIN, cross-site"}, False),
    "cross-site with our origin": (
        {"sec-fetch-site": "cross-site", "origin": f"http://{HOST}"},
        False,
    ),
    "our origin": ({"origin": f"http://{HOST}"}, True),
    "another origin": ({"origin": "http://evil.test"}, False),
    "another port": ({"origin": f"http://{HOST}:8080"}, False),
    "a name that ends alike": ({"origin": f"http://evil.{HOST}"}, False),
    "a name that begins alike": ({"origin": f"http://{HOST}.evil.test"}, False),
    "ours as a user name": ({"origin": f"http://{HOST}@evil.test"}, False),
    "null": ({"origin": "null"}, False),
    "no address": ({"origin": "http://[::1"}, False),
    "empty": ({"origin": ""}, False),
    "neither": ({}, False),
}
AT_NORTH = {"siteId": "north"}
# What is sent to each unsafe door, and what it answers when it is let.
UNSAFE: dict[tuple[str, str], tuple[dict[str, Any], int]] = {
    ("POST", "/api/session"): ({"json": {"name": "ayse", "password": PASSWORD}}, 201),
    ("DELETE", "/api/session"): ({}, 200),
    ("POST", "/sign-in"): ({"data": {"name": "ayse", "password": PASSWORD}}, 303),
    ("POST", "/sign-out"): ({}, 303),
    ("POST", "/dashboard/jobs/{job_id}/unmask"): ({}, 404),
    ("POST", "/dashboard/admin/people"): ({}, 422),
    ("POST", "/dashboard/admin/people/{name}"): ({}, 404),
    ("POST", "/dashboard/admin/keys"): ({}, 422),
    ("POST", "/dashboard/admin/keys/{key_id}"): ({}, 404),
    ("POST", "/dashboard/admin/sites"): ({}, 422),
    ("POST", "/dashboard/admin/sites/{site_id}"): ({}, 404),
    ("POST", "/dashboard/site/{site_id}/oci-control/preview"): ({}, 404),
    ("POST", "/dashboard/site/{site_id}/oci-control/actions"): ({}, 404),
    ("POST", "/dashboard/site/{site_id}/oci-control/pause"): ({}, 404),
    ("POST", "/dashboard/site/{site_id}/oci-control/dismiss"): ({}, 404),
    ("POST", "/dashboard/site/{site_id}/oci-control/settings"): ({}, 404),
    ("POST", "/dashboard/site/{site_id}/oci-control/credentials"): ({}, 404),
    ("POST", "/dashboard/site/{site_id}/oci-control/check"): ({}, 404),
    ("POST", "/dashboard/site/{site_id}/oci-control/fixes"): ({}, 422),
    ("POST", "/dashboard/pdf/form"): ({}, 404),
    ("POST", "/dashboard/pdf/preview"): ({}, 404),
    ("POST", "/dashboard/pdf/jobs"): ({}, 404),
    ("POST", "/dashboard/pdf/jobs/{job_id}/cancel"): ({}, 404),
    ("POST", "/dashboard/optiplan/new"): ({}, 422),
    ("POST", "/dashboard/optiplan/new/rows"): ({}, 422),
    ("POST", "/dashboard/optiplan/import"): ({}, 422),
    ("POST", "/dashboard/optiplan/orders/{job_id}/{action}"): ({}, 422),
    ("POST", "/dashboard/optiplan/customers"): ({}, 400),
    ("POST", "/dashboard/optiplan/customers/remove"): ({}, 400),
    ("POST", "/dashboard/optiplan/rules"): ({}, 422),
    ("POST", "/dashboard/optiplan/rules/form"): ({}, 422),
    ("POST", "/dashboard/look"): ({}, 303),
    ("POST", "/dashboard/queues/{queue}/sheet"): ({"data": {"call": "cancel"}}, 422),
    ("POST", "/dashboard/queues/{queue}/act"): ({"data": {"call": "cancel"}}, 422),
    ("POST", "/dashboard/queues/{queue}/pause"): ({}, 303),
    ("POST", "/dashboard/queues/{queue}/resume"): ({}, 303),
    ("POST", "/api/queues/{queue}/jobs"): ({"json": {"jobs": [{"payload": 1}]}}, 201),
    ("POST", "/api/queues/{queue}/actions"): ({"json": {"action": "cancel", "ids": []}}, 200),
    ("POST", "/api/queues/{queue}/pause"): ({"json": {}}, 200),
    ("POST", "/api/queues/{queue}/resume"): ({"json": {}}, 200),
    ("POST", "/api/oci/conversions"): ({"params": AT_NORTH, "json": []}, 200),
    ("POST", "/api/oci/ack"): ({"json": {**AT_NORTH, "queueIds": []}}, 200),
    ("POST", "/api/oci/ack-failed"): ({"json": {**AT_NORTH, "queueIds": []}}, 200),
    ("POST", "/api/oci/script-heartbeat"): ({"json": AT_NORTH}, 200),
    ("POST", "/api/oci/v2/verify"): ({"json": AT_NORTH}, 403),  # never by cookie, as all below
    ("POST", "/api/oci/queue-actions"): (
        {"json": {**AT_NORTH, "action": "RETRY_SELECTED", "filter": {}}},
        200,
    ),
    ("PUT", "/api/oci/credentials"): ({"json": {**AT_NORTH, "credentials": {}}}, 422),
    ("DELETE", "/api/oci/credentials"): ({"params": AT_NORTH}, 404),
    ("POST", "/api/oci/credentials/check"): ({"params": AT_NORTH}, 200),
    ("POST", "/api/cron/oci/recover-processing"): ({}, 403),
    ("POST", "/api/cron/oci/attempt-cap"): ({}, 403),
    ("POST", "/api/cron/oci/process-offline-conversions"): ({}, 403),
    ("POST", "/api/cron/sweep"): ({}, 403),
    ("POST", "/jobs"): ({"json": {}}, 422),
    ("POST", "/orders/{order_id}/import/xlsx"): ({"json": {}}, 422),
    ("POST", "/jobs/{job_id}/approve"): ({}, 404),
    ("POST", "/jobs/{job_id}/retry"): ({}, 404),
    ("POST", "/jobs/{job_id}/reissue"): ({}, 404),
    ("POST", "/jobs/{job_id}/cancel"): ({}, 404),
    ("POST", "/customers"): ({"json": {"name": "Can", "phone": "1"}}, 201),
    ("PUT", "/config/rules"): ({"json": {}}, 422),
    ("POST", "/pdf/jobs"): ({"json": {"template_name": "nothing", "variables": {}}}, 400),
    ("DELETE", "/pdf/jobs/{job_id}"): ({}, 404),
    ("POST", "/pdf/templates/{name}/preview"): ({"json": {"variables": {}}}, 404),
    ("POST", "/pdf/batches"): ({"json": {"template_name": "nothing", "rows": [{}]}}, 400),
    ("DELETE", "/pdf/batches/{batch_id}"): ({}, 404),
    ("POST", "/pdf/webhooks/{webhook_id}/resend"): ({}, 404),
}


def unsafe_doors(world: World) -> set[tuple[str, str]]:
    return {door for door in doors(world.app) if door[0] not in SAFE}


def test_every_unsafe_door_is_tried_from_other_pages(world):
    assert unsafe_doors(world) == UNSAFE.keys()


@pytest.mark.parametrize("came", COMES_FROM)
def test_a_session_cookie_changes_something_only_from_a_page_of_ours(came, world):
    world.person("ayse", "admin")
    headers, let = COMES_FROM[came]
    every = 1 if let or came in AT_EVERY_DOOR else 9
    for (method, path), (sent, status) in list(UNSAFE.items())[::every]:
        token = world.token("ayse")
        answer = world.client.request(
            method,
            path.replace("{queue}", "task"),
            headers={"cookie": f"kesin_session={token}", **headers},
            **sent,
        )
        assert answer.status_code == (status if let else 403), (method, path)
        if not let:
            told = answer.text if path.startswith("/dashboard") else error_of(answer)["code"]
            assert "cross_site" in told, (method, path)
            assert whoever(world, token) == 200, (method, path)
    if not let:
        assert world.task.jobs().jobs == []
        assert world.store.paused("task") == []


@pytest.mark.parametrize("came", [one for one, (_, let) in COMES_FROM.items() if not let])
def test_another_page_cannot_sign_a_browser_in(came, shared_world):
    shared_world.known("ayse")
    headers, _ = COMES_FROM[came]
    form = {"name": "ayse", "password": PASSWORD}
    answer = shared_world.client.post("/sign-in", data=form, headers=headers)
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


@pytest.mark.parametrize(
    "came", [one for one, (_, let) in COMES_FROM.items() if not let and one != "neither"]
)
def test_another_page_cannot_sign_a_browser_in_by_the_api(came, shared_world):
    shared_world.known("ayse")
    headers, _ = COMES_FROM[came]
    answer = sign_in(shared_world.client, **headers)
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


def test_a_program_without_cookies_need_not_say_where_it_comes_from(ayse):
    assert sign_in(ayse.client).status_code == 201


def test_a_key_need_not_say_where_it_comes_from(world):
    answer = world.client.post("/api/queues/task/pause", json={}, headers=world.key("operate"))
    assert answer.status_code == 200


def test_a_cookie_alone_reads_from_anywhere(ayse):
    headers = by_cookie(ayse.token("ayse"), **{"sec-fetch-site": "cross-site"})
    assert ayse.client.get("/api/session", headers=headers).status_code == 200


def test_a_form_body_is_no_json(world):
    world.person("ayse", "admin")
    answer = world.client.post(
        "/api/queues/task/pause",
        content="{}",
        headers=world.cookie("ayse") | {"content-type": "text/plain"},
    )
    assert answer.status_code == 422
    assert world.store.paused("task") == []


def test_no_other_site_may_read_an_answer(ayse):
    headers = by_cookie(ayse.token("ayse"), origin="http://evil.test")
    answer = ayse.client.get("/api/session", headers=headers)
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_the_session_remembers_where_it_was_opened(ayse):
    sign_in(ayse.client)
    [session] = ayse.accounts.directory.sessions_of("ayse")
    assert session.address == ADDRESS
