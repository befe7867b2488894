"""Signing in and out: cookies, throttles, ends, and pages of others that would use the session."""

from __future__ import annotations

import asyncio
import re
from http.cookies import Morsel, SimpleCookie
from typing import Any

import pytest
from fastapi import Request

from kesin.engine.access.accounts import IDLE_S, SESSION_S
from kesin.web.auth import still_signed_in
from tests.web.client import ADDRESS, PROXY, Client
from tests.web.conftest import PASSWORD, ROOT, SAME_ORIGIN, MakeWorld, World, by_cookie, error_of
from tests.web.dashboard.turkish import TEMPLATES

TLS = {"x-forwarded-proto": "https"}


def sign_in(client: Client, name: str = "ayse", password: str = PASSWORD, **headers: str) -> Any:
    told = {"name": name, "password": password}
    return client.post("/api/session", json=told, headers=headers)


def fill_in(client: Client, name: str = "ayse", password: str = PASSWORD, **headers: str) -> Any:
    told = {"name": name, "password": password}
    return client.post("/sign-in", data=told, headers={**SAME_ORIGIN, **headers})


def cookie_of(answer: Any) -> Morsel[str]:
    [header] = answer.headers.get_list("set-cookie")
    [morsel] = SimpleCookie(header).values()
    return morsel


def whoever(world: World, token: str) -> int:
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
    assert whoever(ayse, cookie_of(answer).value) == 200


def test_the_form_opens_a_session_and_shows_who_came(ayse):
    answer = fill_in(ayse.client)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard")
    shown = ayse.client.get("/sign-in", headers=by_cookie(cookie_of(answer).value))
    assert "You are signed in as ayse" in shown.text


@pytest.mark.parametrize("ask", [sign_in, fill_in])
def test_every_wrong_sign_in_is_answered_with_the_same_bytes(ask, ayse):
    ayse.person("off", "admin")
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


def test_a_name_that_does_not_exist_costs_a_hash_as_well(ayse, monkeypatch):
    from kesin.foundation import passwords

    hashed: list[str] = []
    matches = passwords.password_matches

    def noted(password_hash: str, password: str) -> bool:
        hashed.append(password_hash)
        return matches(password_hash, password)

    monkeypatch.setattr(passwords, "password_matches", noted)
    sign_in(ayse.client, "nobody-here")
    assert hashed == [passwords.unmatched_hash()]


def test_the_form_never_shows_the_name_back(ayse):
    answer = fill_in(ayse.client, '"><script>alert(1)</script>', "x")
    assert "<script" not in answer.text


def test_a_form_of_many_fields_is_too_large(ayse):
    body = "&".join(f"field{n}=1" for n in range(11))
    answer = ayse.client.post("/sign-in", content=body, headers=SAME_ORIGIN)
    assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")


def test_a_long_form_is_too_large(ayse):
    answer = ayse.client.post("/sign-in", content="name=" + "x" * 5_000, headers=SAME_ORIGIN)
    assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")


def test_a_form_without_fields_is_a_wrong_password(ayse):
    assert ayse.client.post("/sign-in", headers=SAME_ORIGIN).status_code == 401


# Throttling


@pytest.fixture
def throttled(make_world: MakeWorld) -> World:
    world = make_world(sign_in_per_min=10)
    world.person("ayse", "admin")
    return world


@pytest.mark.parametrize("ask", [sign_in, fill_in])
def test_the_eleventh_try_of_an_address_in_a_minute_waits(ask, throttled):
    tries = [ask(throttled.client, f"name-{n}", "wrong").status_code for n in range(10)]
    last = ask(throttled.client, "ayse")
    assert tries == [401] * 10
    assert (last.status_code, last.headers["retry-after"]) == (429, "6")
    assert "set-cookie" not in last.headers


def test_the_eleventh_try_of_a_name_in_a_minute_waits_from_wherever_it_comes(throttled):
    tries = [
        sign_in(Client(throttled.app, address=f"192.0.2.{n}"), "ayse", "wrong").status_code
        for n in range(10)
    ]
    last = sign_in(Client(throttled.app, address="192.0.2.200"), "AYSE")
    assert tries == [401] * 10
    assert (last.status_code, last.headers["retry-after"]) == (429, "6")
    assert error_of(last)["details"] == {"retry_after_s": 6}


def test_whoever_waited_as_told_may_try_again(throttled):
    for _ in range(10):
        sign_in(throttled.client, "ayse", "wrong")
    wait_s = int(sign_in(throttled.client).headers["retry-after"])
    throttled.clock.advance(wait_s - 1)
    assert sign_in(throttled.client).status_code == 429
    throttled.clock.advance(1)
    assert sign_in(throttled.client).status_code == 201


def test_another_name_from_another_address_need_not_wait(throttled):
    throttled.person("can", "admin")
    for _ in range(11):
        sign_in(throttled.client, "ayse", "wrong")
    assert sign_in(Client(throttled.app, address="192.0.2.200"), "can").status_code == 201


def test_a_try_that_had_to_wait_checks_no_password(throttled, monkeypatch):
    for _ in range(10):
        sign_in(throttled.client, "ayse", "wrong")
    monkeypatch.setattr(throttled.accounts.directory, "user", lambda _name: pytest.fail("asked"))
    assert sign_in(throttled.client).status_code == 429


def test_an_address_made_up_in_a_header_is_throttled_as_the_real_one(throttled):
    answers = [
        sign_in(throttled.client, f"n{n}", "wrong", **{"x-forwarded-for": f"10.0.0.{n}"})
        for n in range(11)
    ]
    assert [one.status_code for one in answers] == [401] * 10 + [429]


# Fixation


@pytest.mark.parametrize("ask", [sign_in, fill_in])
def test_a_planted_cookie_is_never_adopted(ask, ayse):
    planted = "p" * 43
    answer = ask(ayse.client, **by_cookie(planted))
    assert cookie_of(answer).value != planted
    assert whoever(ayse, planted) == 401


@pytest.mark.parametrize("ask", [sign_in, fill_in])
def test_a_new_sign_in_gets_a_new_token_and_ends_the_old_one(ask, ayse):
    old = ayse.token("ayse")
    new = cookie_of(ask(ayse.client, **by_cookie(old))).value
    assert new != old
    assert (whoever(ayse, old), whoever(ayse, new)) == (401, 200)


def test_signing_in_as_another_ends_the_session_that_was_planted(ayse):
    ayse.person("mallory")
    planted = ayse.token("mallory")
    sign_in(ayse.client, **by_cookie(planted))
    assert whoever(ayse, planted) == 401


def test_a_wrong_password_leaves_the_session_alone(ayse):
    token = ayse.token("ayse")
    assert sign_in(ayse.client, password="wrong", **by_cookie(token)).status_code == 401
    assert whoever(ayse, token) == 200


def test_the_store_keeps_only_a_hash_of_the_token(ayse):
    token = ayse.token("ayse")
    [session] = ayse.accounts.directory.sessions_of("ayse")
    assert token not in repr(session)


# The cookie


@pytest.fixture
def proxied(make_world: MakeWorld) -> World:
    world = make_world(trusted_proxies=f"{PROXY}, ::1")
    world.person("ayse", "operator", sites=["north"])
    return world


def attributes(morsel: Morsel[str]) -> dict[str, Any]:
    return {name: value for name, value in morsel.items() if value not in {"", False}}


@pytest.mark.parametrize("ask", [sign_in, fill_in])
def test_the_cookie_is_for_this_host_alone_and_no_script_reads_it(ask, ayse):
    cookie = cookie_of(ask(ayse.client))
    assert cookie.key == "kesin_session"
    assert attributes(cookie) == {
        "path": "/",
        "httponly": True,
        "samesite": "lax",
        "max-age": str(SESSION_S),
    }


@pytest.mark.parametrize("ask", [sign_in, fill_in])
def test_behind_a_trusted_proxy_with_tls_the_cookie_is_bound_to_tls(ask, proxied):
    cookie = cookie_of(ask(Client(proxied.app, address=PROXY), **TLS))
    assert cookie.key == "__Host-kesin_session"
    assert attributes(cookie) == {
        "path": "/",
        "httponly": True,
        "samesite": "lax",
        "secure": True,
        "max-age": str(SESSION_S),
    }


def test_with_tls_of_our_own_the_cookie_is_bound_to_tls(ayse):
    cookie = cookie_of(sign_in(Client(ayse.app, scheme="https")))
    assert (cookie.key, cookie["secure"]) == ("__Host-kesin_session", True)


def test_whoever_is_no_trusted_proxy_cannot_say_that_there_is_tls(proxied):
    cookie = cookie_of(sign_in(Client(proxied.app, address="198.51.100.2"), **TLS))
    assert (cookie.key, cookie["secure"]) == ("kesin_session", "")


def test_what_a_caller_says_of_tls_does_not_outweigh_the_proxys_own_line(proxied):
    client = Client(proxied.app, address=PROXY)
    told = {"name": "ayse", "password": PASSWORD}
    lines = [("x-forwarded-proto", "https"), ("x-forwarded-proto", "http")]
    cookie = cookie_of(client.post("/api/session", json=told, headers=lines))
    assert cookie.key == "kesin_session"


def test_over_tls_a_cookie_that_plain_http_could_have_set_is_nobody(proxied):
    client = Client(proxied.app, address=PROXY)
    token = proxied.token("ayse")
    plain = client.get("/api/session", headers=by_cookie(token) | TLS)
    bound = client.get("/api/session", headers={"cookie": f"__Host-kesin_session={token}", **TLS})
    assert (plain.status_code, bound.status_code) == (401, 200)


# Ends


def test_signing_out_ends_this_session_and_takes_the_cookie_back(ayse):
    here, elsewhere = ayse.token("ayse"), ayse.token("ayse")
    answer = ayse.client.delete("/api/session", headers=by_cookie(here))
    assert (answer.status_code, answer.json()) == (200, {"sessions_ended": 1})
    cookie = cookie_of(answer)
    assert (cookie.key, cookie.value, cookie["max-age"]) == ("kesin_session", "", "0")
    assert (whoever(ayse, here), whoever(ayse, elsewhere)) == (401, 200)


def test_signing_out_everywhere_ends_every_session_of_that_person_alone(ayse):
    ayse.person("can")
    mine, others = [ayse.token("ayse") for _ in range(3)], ayse.token("can")
    answer = ayse.client.delete("/api/session?everywhere=true", headers=by_cookie(mine[0]))
    assert answer.json() == {"sessions_ended": 3}
    assert [whoever(ayse, one) for one in mine] == [401] * 3
    assert whoever(ayse, others) == 200


def test_the_sign_out_button_ends_this_session(ayse):
    here, elsewhere = ayse.token("ayse"), ayse.token("ayse")
    answer = ayse.client.post("/sign-out", headers=by_cookie(here))
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    assert cookie_of(answer)["max-age"] == "0"
    assert (whoever(ayse, here), whoever(ayse, elsewhere)) == (401, 200)


def test_the_sign_out_everywhere_button_ends_them_all(ayse):
    mine = [ayse.token("ayse") for _ in range(2)]
    ayse.client.post("/sign-out", data={"everywhere": "1"}, headers=by_cookie(mine[0]))
    assert [whoever(ayse, one) for one in mine] == [401] * 2


def test_a_session_ends_eight_hours_after_the_sign_in_however_busy(ayse):
    token = ayse.token("ayse")
    for _ in range(2 * SESSION_S // IDLE_S - 1):
        ayse.clock.advance(IDLE_S / 2)
        assert whoever(ayse, token) == 200
    ayse.clock.advance(IDLE_S / 2 - 1)
    assert whoever(ayse, token) == 200
    ayse.clock.advance(1)
    assert whoever(ayse, token) == 401


def test_a_session_nobody_uses_ends_after_an_hour(ayse):
    used, left = ayse.token("ayse"), ayse.token("ayse")
    ayse.clock.advance(IDLE_S - 1)
    assert whoever(ayse, used) == 200
    ayse.clock.advance(1)
    assert (whoever(ayse, used), whoever(ayse, left)) == (200, 401)


def test_a_page_that_is_left_open_keeps_no_session_alive(ayse):
    token = ayse.token("ayse")
    actor = ayse.accounts.session_actor(token, ADDRESS)
    assert actor is not None
    ayse.clock.advance(IDLE_S - 1)
    by_the_clock = [
        ("/dashboard", {"hx-request": "true", "hx-trigger": "cards"}),
        ("/api/session", {"accept": "text/event-stream"}),
    ]
    for path, headers in by_the_clock:
        answer = ayse.client.get(path, headers=by_cookie(token, **headers))
        assert answer.status_code == 200, path
    told = [(b"cookie", f"kesin_session={token}".encode())]
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "app": ayse.app,
        "headers": told,
        "path": "/",
    }
    assert asyncio.run(still_signed_in(Request(scope), actor))
    ayse.clock.advance(1)
    assert not asyncio.run(still_signed_in(Request(scope), actor))
    assert whoever(ayse, token) == 401


def test_every_part_that_asks_by_the_clock_is_known_as_one(world):
    found = set()
    for source in TEMPLATES:
        for tag in re.findall(r"<\w+ [^\n]*?hx-trigger=\"[^\"]*\"", source.read_text("utf-8")):
            if re.search(r'hx-trigger="[^"]*(\bevery \d|\brenew\b)', tag):
                found |= {name.group(1) for name in [re.search(r' id="([\w-]+)"', tag)] if name}
    assert found == world.app.state.polling_elements


@pytest.mark.parametrize(
    "change",
    [
        lambda accounts: accounts.set_password(ROOT, "ayse", "another-password"),
        lambda accounts: accounts.set_user(ROOT, "ayse", role="viewer"),
        lambda accounts: accounts.set_user(ROOT, "ayse", sites=["south"]),
        lambda accounts: accounts.set_user(ROOT, "ayse", disabled=True),
        lambda accounts: accounts.end_sessions(ROOT, "ayse"),
    ],
    ids=["password", "role", "sites", "disabled", "signed out by an admin"],
)
def test_a_changed_person_has_to_sign_in_again(change, ayse):
    ayse.person("can")
    mine, others = ayse.token("ayse"), ayse.token("can")
    change(ayse.accounts)
    assert (whoever(ayse, mine), whoever(ayse, others)) == (401, 200)


def test_an_old_password_opens_nothing(ayse):
    ayse.accounts.set_password(ROOT, "ayse", "another-password")
    assert sign_in(ayse.client).status_code == 401
    assert sign_in(ayse.client, password="another-password").status_code == 201
