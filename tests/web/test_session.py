"""Signing in and out: cookies, throttling, and when a session ends."""

import asyncio
import re
from http.cookies import Morsel, SimpleCookie
from typing import Any

import pytest
from fastapi import Request

from kesin.engine.access.accounts import IDLE_S, SESSION_S
from kesin.web.auth import still_signed_in
from tests.tables import table
from tests.web.client import ADDRESS, PROXY, Client
from tests.web.conftest import PASSWORD, ROOT, SAME_ORIGIN, MakeWorld, World, by_cookie, error_of
from tests.web.dashboard.turkish import TEMPLATES

TLS = {"x-forwarded-proto": "https"}


def sign_in(client: Client, name: str = "ayse", password: str = PASSWORD, **headers: str) -> Any:
    credentials = {"name": name, "password": password}
    return client.post("/api/session", json=credentials, headers=headers)


def fill_in(client: Client, name: str = "ayse", password: str = PASSWORD, **headers: str) -> Any:
    credentials = {"name": name, "password": password}
    return client.post("/sign-in", data=credentials, headers={**SAME_ORIGIN, **headers})


def cookie_of(answer: Any) -> Morsel[str]:
    [header] = answer.headers.get_list("set-cookie")
    [morsel] = SimpleCookie(header).values()
    return morsel


def status_of(world: World, token: str) -> int:
    """200 while the session lasts, 401 afterwards."""
    return int(world.client.get("/api/session", headers=by_cookie(token)).status_code)


# Signing in


def test_the_right_password_opens_a_session(ayse):
    answer = sign_in(ayse.client)
    assert answer.status_code == 201
    assert answer.json() == {
        "name": "user:ayse",
        "grants": ["operator"],
        "all_sites": False,
        "sites": ["north"],
        "queues": [],
    }
    assert status_of(ayse, cookie_of(answer).value) == 200


def test_the_form_opens_a_session_and_shows_the_user(ayse):
    answer = fill_in(ayse.client)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard")
    shown = ayse.client.get("/sign-in", headers=by_cookie(cookie_of(answer).value))
    assert "You are signed in as ayse" in shown.text


@table("ask", [sign_in, fill_in])
def test_every_wrong_sign_in_is_answered_with_the_same_bytes(ask, ayse):
    ayse.known("off", "admin")
    ayse.accounts.set_user(ROOT, "off", disabled=True)
    answers = [
        ask(ayse.client, "ayse", "not the password"),
        ask(ayse.client, "nobody-here", PASSWORD),
        ask(ayse.client, "off", PASSWORD),
        ask(ayse.client, "off", "not the password"),
        ask(ayse.client, "<b>no name at all", PASSWORD),
    ]
    assert {one.status_code for one in answers} == {401}
    assert len({one.content for one in answers}) == 1
    assert len({tuple(sorted(set(one.headers) - {"x-request-id"})) for one in answers}) == 1
    assert not any("set-cookie" in one.headers for one in answers)


@table("body", ["name=" + "x" * 5_000, "&".join(f"f{n}=1" for n in range(11))])
def test_a_form_that_is_long_or_has_many_fields_is_too_large(body, ayse):
    response = ayse.client.post("/sign-in", content=body, headers=SAME_ORIGIN)
    assert (response.status_code, error_of(response)["code"]) == (413, "too_large")


def test_a_form_without_fields_is_a_wrong_password_and_no_name_is_shown_back(ayse):
    assert ayse.client.post("/sign-in", headers=SAME_ORIGIN).status_code == 401
    response = fill_in(ayse.client, '"><script>alert(1)</script>', "x")
    assert "alert(1)" not in response.text


# Throttling


@pytest.fixture
def throttled(make_world: MakeWorld) -> World:
    world = make_world(sign_in_per_min=10)
    world.person("ayse", "admin")
    return world


def test_an_address_has_ten_tries_a_minute_for_a_name_and_thirty_for_all_names(throttled):
    ways = [sign_in, fill_in] * 5
    tries = [ask(throttled.client, "AYSE", "wrong").status_code for ask in ways]
    last = sign_in(throttled.client, "ayse")
    assert tries == [401] * 10
    assert (last.status_code, last.headers["retry-after"]) == (429, "6")
    assert "set-cookie" not in last.headers
    others = [sign_in(throttled.client, f"name-{n}", "wrong").status_code for n in range(19)]
    last = fill_in(throttled.client, "can")
    assert others == [401] * 19
    assert (last.status_code, last.headers["retry-after"]) == (429, "2")
    assert "set-cookie" not in last.headers


def test_tries_of_others_do_not_lock_a_user_out(throttled):
    for n in range(4):
        for _ in range(12):
            sign_in(Client(throttled.app, address=f"192.0.2.{n}"), "ayse", "wrong")
    assert sign_in(Client(throttled.app, address="192.0.2.200"), "ayse").status_code == 201
    last = sign_in(Client(throttled.app, address="192.0.2.3"), "ayse")
    assert (last.status_code, error_of(last)["details"]) == (429, {"retry_after_s": 6})


def test_a_throttled_sign_in_checks_no_password_and_succeeds_after_the_wait(throttled, monkeypatch):
    for _ in range(10):
        sign_in(throttled.client, "ayse", "wrong")
    with monkeypatch.context() as patch:
        patch.setattr(throttled.accounts.directory, "user", lambda _name: pytest.fail("checked"))
        wait_s = int(sign_in(throttled.client).headers["retry-after"])
    throttled.person("can", "admin")
    elsewhere = Client(throttled.app, address="192.0.2.200")
    assert sign_in(elsewhere, "can").status_code == 201  # another name from another address
    throttled.clock.advance(wait_s - 1)
    assert sign_in(throttled.client).status_code == 429
    throttled.clock.advance(1)
    assert sign_in(throttled.client).status_code == 201


def test_an_address_made_up_in_a_header_is_throttled_as_the_real_one(throttled):
    statuses = [
        sign_in(throttled.client, "name", "wrong", **{"x-forwarded-for": f"10.0.0.{n}"}).status_code for n in range(11)
    ]
    assert statuses == [401] * 10 + [429]


# Fixation


@table("ask", [sign_in, fill_in])
def test_a_planted_cookie_is_never_adopted_and_a_planted_session_ends(ask, ayse):
    ayse.known("mallory")
    for planted in ("p" * 43, ayse.token("mallory")):
        response = ask(ayse.client, **by_cookie(planted))
        assert cookie_of(response).value != planted
        assert status_of(ayse, planted) == 401


@table("ask", [sign_in, fill_in])
def test_a_new_sign_in_gets_a_new_token_and_ends_the_old_one(ask, ayse):
    old = ayse.token("ayse")
    new = cookie_of(ask(ayse.client, **by_cookie(old))).value
    assert new != old
    assert (status_of(ayse, old), status_of(ayse, new)) == (401, 200)


def test_a_wrong_password_leaves_the_session_alone(ayse):
    token = ayse.token("ayse")
    assert sign_in(ayse.client, password="wrong", **by_cookie(token)).status_code == 401
    assert status_of(ayse, token) == 200


# The cookie


@pytest.fixture
def proxied(make_world: MakeWorld) -> World:
    world = make_world(trusted_proxies=f"{PROXY}, ::1")
    world.person("ayse", "operator", sites=["north"])
    return world


def attributes(morsel: Morsel[str]) -> dict[str, Any]:
    return {name: value for name, value in morsel.items() if value not in {"", False}}


COOKIE = {"path": "/", "httponly": True, "samesite": "lax", "max-age": str(SESSION_S)}


@table("ask", [sign_in, fill_in])
def test_the_cookie_is_for_this_host_alone_no_script_reads_it_and_over_tls_it_needs_tls(ask, proxied):
    plain = cookie_of(ask(proxied.client))
    assert (plain.key, attributes(plain)) == ("kesin_session", COOKIE)
    for bound in (
        cookie_of(ask(Client(proxied.app, address=PROXY), **TLS)),
        cookie_of(ask(Client(proxied.app, scheme="https"))),
    ):
        assert bound.key == "__Host-kesin_session"
        assert attributes(bound) == {**COOKIE, "secure": True}


def test_a_callers_claim_of_tls_does_not_outweigh_the_proxys_own_line(proxied):
    client = Client(proxied.app, address=PROXY)
    credentials = {"name": "ayse", "password": PASSWORD}
    lines = [("x-forwarded-proto", "https"), ("x-forwarded-proto", "http")]
    cookie = cookie_of(client.post("/api/session", json=credentials, headers=lines))
    assert cookie.key == "kesin_session"


def test_over_tls_a_cookie_that_plain_http_could_have_set_is_ignored(proxied):
    client = Client(proxied.app, address=PROXY)
    token = proxied.token("ayse")
    plain = client.get("/api/session", headers=by_cookie(token) | TLS)
    bound = client.get("/api/session", headers={"cookie": f"__Host-kesin_session={token}", **TLS})
    assert (plain.status_code, bound.status_code) == (401, 200)


# Ends


def sign_out(world: World, token: str, *, form: bool, everywhere: bool = False) -> Any:
    headers = by_cookie(token)
    if form:
        data = {"everywhere": "1"} if everywhere else {}
        return world.client.post("/sign-out", data=data, headers=headers)
    return world.client.delete("/api/session", params={"everywhere": everywhere}, headers=headers)


@table("form", [False, True])
def test_signing_out_ends_this_session_and_deletes_the_cookie(form, ayse):
    here, elsewhere = ayse.token("ayse"), ayse.token("ayse")
    response = sign_out(ayse, here, form=form)
    if form:
        assert (response.status_code, response.headers["location"]) == (303, "/sign-in")
    else:
        assert (response.status_code, response.json()) == (200, {"sessions_ended": 1})
    cookie = cookie_of(response)
    assert (cookie.key, cookie.value, cookie["max-age"]) == ("kesin_session", "", "0")
    assert (status_of(ayse, here), status_of(ayse, elsewhere)) == (401, 200)


@table("form", [False, True])
def test_signing_out_everywhere_ends_every_session_of_that_user_alone(form, ayse):
    ayse.known("can")
    tokens, other = [ayse.token("ayse") for _ in range(3)], ayse.token("can")
    response = sign_out(ayse, tokens[0], form=form, everywhere=True)
    assert form or response.json() == {"sessions_ended": 3}
    assert [status_of(ayse, token) for token in tokens] == [401] * 3
    assert status_of(ayse, other) == 200


def test_a_page_that_is_left_open_does_not_extend_a_session(ayse):
    token = ayse.token("ayse")
    actor = ayse.accounts.session_actor(token, ADDRESS)
    assert actor is not None
    ayse.clock.advance(IDLE_S - 1)
    polling = [
        ("/dashboard", {"hx-request": "true", "hx-trigger": "view"}),
        ("/api/session", {"accept": "text/event-stream"}),
    ]
    for path, headers in polling:
        answer = ayse.client.get(path, headers=by_cookie(token, **headers))
        assert answer.status_code == 200, path
    cookies = [(b"cookie", f"kesin_session={token}".encode())]
    scope = {"type": "http", "method": "GET", "scheme": "http", "app": ayse.app, "headers": cookies, "path": "/"}
    assert asyncio.run(still_signed_in(Request(scope), actor))
    ayse.clock.advance(1)
    assert not asyncio.run(still_signed_in(Request(scope), actor))
    assert status_of(ayse, token) == 401


def test_every_part_that_polls_is_known_as_one(world):
    polling = set()
    for source in TEMPLATES:
        for tag in re.findall(r"<\w+ [^\n]*?hx-trigger=\"[^\"]*\"", source.read_text("utf-8")):
            if re.search(r'hx-trigger="[^"]*(\bevery \d|\brenew\b)', tag):
                polling |= {name.group(1) for name in [re.search(r' id="([\w-]+)"', tag)] if name}
    assert polling == world.app.state.polling_elements
