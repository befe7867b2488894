"""Users change their own password on a page of the dashboard."""

from http.cookies import SimpleCookie
from typing import Any

import pytest

from kesin.foundation.problems import NotSignedIn
from tests.web.client import ADDRESS
from tests.web.conftest import PASSWORD, ROOT, World, by_cookie

NEW = "kahve4fincan-dolu"


def by_page(world: World, token: str, current: str = PASSWORD, new: str = NEW, **more: str) -> Any:
    data = {"current": current, "password": new, "again": new, **more}
    return world.client.post("/dashboard/password", data=data, headers=by_cookie(token))


def status_of(world: World, token: str) -> int:
    return int(world.client.get("/api/session", headers=by_cookie(token)).status_code)


def test_the_new_password_holds_and_the_other_sessions_of_that_user_end(ayse):
    ayse.person("can")
    here, elsewhere, others = ayse.token("ayse"), ayse.token("ayse"), ayse.token("can")
    responses: list[Any] = []
    [line] = ayse.said(lambda: responses.append(by_page(ayse, here)))
    assert (line.actor, line.action, line.target) == ("user:ayse", "user.passwd", "ayse")
    assert (line.allowed, line.address) == (True, ADDRESS)
    assert not [password for password in (NEW, PASSWORD) if password in str(line)]
    [response] = responses
    location = response.headers["location"]
    assert (response.status_code, location) == (303, "/dashboard/password?done=true")
    [cookie] = SimpleCookie(response.headers["set-cookie"]).values()
    assert [status_of(ayse, token) for token in (cookie.value, here, elsewhere, others)] == [*(200, 401, 401, 200)]
    with pytest.raises(NotSignedIn):
        ayse.accounts.sign_in("ayse", PASSWORD, ADDRESS)
    ayse.accounts.sign_in("ayse", NEW, ADDRESS)
    shown = ayse.client.get("/dashboard/password?done=true", headers=by_cookie(cookie.value))
    assert "Your password was changed" in shown.text


def test_a_wrong_current_password_changes_nothing_and_is_an_audit_line(ayse):
    token = ayse.token("ayse")
    [line] = ayse.said(lambda: by_page(ayse, token, current="not the password"))
    assert (line.action, line.target, line.allowed) == ("user.passwd", "ayse", False)
    response = by_page(ayse, token, current="not the password")
    assert response.status_code == 403
    assert "the current password is wrong" in response.text
    assert status_of(ayse, token) == 200
    ayse.accounts.sign_in("ayse", PASSWORD, ADDRESS)


@pytest.mark.parametrize(("new", "why"), [("ayse-ayse-1", "the name"), (PASSWORD, "this is the current password")])
def test_a_password_that_is_no_good_is_refused_with_the_reason(new, why, ayse):
    token = ayse.token("ayse")
    response = by_page(ayse, token, new=new)
    assert response.status_code == 422
    assert why in response.text
    ayse.accounts.sign_in("ayse", PASSWORD, ADDRESS)


def test_on_the_page_the_new_password_is_typed_twice(ayse):
    response = by_page(ayse, ayse.token("ayse"), again="kahve4fincan-bos")
    assert response.status_code == 422
    assert "the two new passwords are not the same" in response.text
    ayse.accounts.sign_in("ayse", PASSWORD, ADDRESS)


def test_guesses_of_the_current_password_are_throttled(make_world):
    world = make_world(sign_in_per_min=3)
    token = world.token(world.person("ayse"))
    statuses = [by_page(world, token, current="wrong").status_code for _ in range(4)]
    assert statuses == [403, 403, 403, 429]
    refused = by_page(world, token)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "20")


def test_a_key_has_no_password_even_beside_a_session(ayse):
    data = {"current": PASSWORD, "password": NEW, "again": NEW}
    for headers in (ayse.key("admin"), ayse.key("admin") | by_cookie(ayse.token("ayse"))):
        response = ayse.client.post("/dashboard/password", data=data, headers=headers)
        assert response.status_code == 401
        assert "sign in with a user name" in response.text
    ayse.accounts.sign_in("ayse", PASSWORD, ADDRESS)


def test_a_new_session_lasts_no_longer_than_the_one_it_replaces(ayse):
    token = ayse.token("ayse")
    [before] = ayse.accounts.directory.sessions_of("ayse")
    ayse.clock.advance(1_000)
    by_page(ayse, token)
    [after] = ayse.accounts.directory.sessions_of("ayse")
    assert after.expires_at == before.expires_at
    assert after.token_hash != before.token_hash


def test_the_menu_of_every_page_leads_there(ayse):
    page = ayse.client.get("/dashboard", headers=ayse.cookie("ayse"))
    assert 'href="/dashboard/password"' in page.text


# Easy passwords are refused wherever one is set


def test_an_admin_sets_no_easy_password_either(ayse):
    admin = ayse.cookie(ayse.person("root", "admin"))
    people = "/dashboard/admin/people"
    added = ayse.client.post(people, data={"name": "can", "role": "viewer", "password": "1234567890"}, headers=admin)
    changed = ayse.client.post(f"{people}/ayse", data={"what": "password", "password": "1234567890"}, headers=admin)
    for response in (added, changed):
        assert response.status_code == 422
        assert "this password is a simple sequence" in response.text
    assert ayse.accounts.directory.user("can") is None


def test_a_user_with_an_easy_password_of_before_can_still_sign_in(ayse, monkeypatch):
    monkeypatch.setattr("kesin.foundation.passwords.check_password", lambda *_: None)
    ayse.accounts.add_user(ROOT, "old", "1234567890")
    ayse.accounts.sign_in("old", "1234567890", ADDRESS)
