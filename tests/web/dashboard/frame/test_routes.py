"""The frame of all pages: where it leads back to, language, theme, and what it says of trouble."""

import re

import pytest

from kesin.web.dashboard.frame.routes import MAX_FIELDS, MAX_FORM_BYTES, safe_path
from tests.tables import table
from tests.web.client import Client
from tests.web.conftest import SAME_ORIGIN, World, by_cookie

ELSEWHERE = [
    *("", "/", "/docs", "/sign-out", "dashboard", "/dashboardish"),
    *("https://evil.test/dashboard", "http:///evil.test", "//evil.test/dashboard", "///evil.test"),
    *("\\\\evil.test", "/\\evil.test/dashboard", "/dashboard\\@evil.test", "//[::1"),
    *("/\t/evil.test", "/dashboard\t", "/dashboard\r\nset-cookie: a=b", " /dashboard"),
    *("/dashboard\x00", "\x01/dashboard", "/dashboard\u2028"),
    *("javascript:alert(1)", "data:text/html,<script>"),
    *("/dashboard/../sign-out", "/dashboard/..;/sign-out"),
]


@table("text", ELSEWHERE)
def test_what_leads_elsewhere_leads_to_the_first_page(text):
    assert safe_path(text) == "/dashboard"


@table(
    "text",
    [
        "/dashboard",
        "/dashboard?state=FAILED&text=a//b",
        "/dashboard/queues/oci?text=https://example.com",
        "/dashboard/queues/oci#row",
        "/dashboard/queues/oci?text=%0d%0aset-cookie:%20a",
        "/dashboard/queues/oci?text=ışık",
    ],
)
def test_a_path_of_ours_is_kept(text):
    assert safe_path(text) == text


@pytest.fixture
def client(shared_world: World) -> Client:
    return shared_world.client


def cookies_of(answer):
    return [one.split(";")[0] for one in answer.headers.get_list("set-cookie")]


def test_language_and_theme_are_kept_in_this_browser(client):
    answer = client.post(
        "/dashboard/look",
        data={"language": "tr", "theme": "dark", "back": "/dashboard/queues/oci?state=FAILED"},
        headers=SAME_ORIGIN,
    )
    assert answer.status_code == 303
    assert answer.headers["location"] == "/dashboard/queues/oci?state=FAILED"
    assert cookies_of(answer) == ["kesin_language=tr", "kesin_theme=dark"]
    assert "samesite=lax" in answer.headers["set-cookie"].lower()


def test_after_a_choice_and_after_the_sign_in_nobody_is_sent_elsewhere(shared_world):
    shared_world.known("ayse")
    credentials = {"name": "ayse", "password": "correct-horse-battery"}
    for back in ("https://evil.test/dashboard", "//evil.test", "/dashboard\r\nset-cookie: a=b"):
        for path, fields in (
            ("/dashboard/look", {"theme": "dark", "back": back}),
            ("/sign-in", {**credentials, "next": back}),
        ):
            answer = shared_world.client.post(path, data=fields, headers=SAME_ORIGIN)
            assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard")


@table("choice", [{"language": "de"}, {"theme": "pink"}, {"language": ""}])
def test_a_choice_that_is_none_is_refused_by_a_page(choice, client):
    answer = client.post("/dashboard/look", data=choice, headers=SAME_ORIGIN)
    assert answer.status_code == 422
    assert "set-cookie" not in answer.headers
    assert answer.headers["content-type"].startswith("text/html")


def test_another_sites_page_chooses_nothing(client):
    answer = client.post("/dashboard/look", data={"theme": "dark"}, headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_a_form_has_a_size(client):
    wide = {"back": "x" * MAX_FORM_BYTES}
    many = {str(n): "" for n in range(MAX_FIELDS + 1)}
    for fields in (wide, many):
        answer = client.post("/dashboard/look", data=fields, headers=SAME_ORIGIN)
        assert answer.status_code == 413


def test_nobody_is_sent_to_the_sign_in_and_back_afterwards(client):
    answer = client.get("/dashboard?state=FAILED&text=a b")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=/dashboard%3Fstate%3DFAILED%26text%3Da%2520b"
    page = client.get(answer.headers["location"])
    assert 'name="next" value="/dashboard?state=FAILED&amp;text=a%20b"' in page.text


def test_a_part_of_a_page_sends_the_whole_page_to_the_sign_in(client):
    asked = {"hx-request": "true", "hx-current-url": "http://kesin.test/dashboard/queues/oci?a=b"}
    answer = client.get("/dashboard", headers=asked)
    assert answer.status_code == 204
    assert answer.headers["hx-redirect"] == "/sign-in?next=/dashboard/queues/oci%3Fa%3Db"


def test_a_theme_nobody_knows_is_the_systems(shared_world):
    token = shared_world.token(shared_world.known("ece"))
    headers = {"cookie": f'kesin_session={token}; kesin_theme="><script>'}
    page = shared_world.client.get("/dashboard", headers=headers)
    assert 'data-theme="auto"' in page.text
    assert '"><script>' not in page.text


def test_pages_are_kept_by_nobody(shared_world):
    page = shared_world.client.get("/dashboard", headers=shared_world.cookie(shared_world.known("ece")))
    assert page.headers["cache-control"] == "no-store"
    assert {"Cookie", "HX-Request"} <= set(page.headers["vary"].split(", "))


def test_trouble_is_a_page_with_a_way_back_and_a_number_to_ask_by(shared_world):
    headers = shared_world.cookie(shared_world.known("ece"))
    page = shared_world.client.get("/dashboard/queues/nothing", headers=headers)
    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["x-request-id"] in page.text
    assert 'href="/dashboard"' in page.text


def test_trouble_within_a_part_is_a_line(shared_world):
    headers = {**shared_world.cookie(shared_world.known("ece")), "hx-request": "true"}
    page = shared_world.client.get("/dashboard/queues/nothing", headers=headers)
    assert page.status_code == 404
    assert "<html" not in page.text
    assert 'role="alert"' in page.text


def test_the_navigation_by_itself_is_that_of_the_page_it_belongs_to(world):
    world.person("ayse", "operator", all_sites=True)
    headers = by_cookie(world.token("ayse"))
    part = world.client.get("/dashboard/nav?at=/dashboard/queues/task", headers=headers).text
    assert 'href="/dashboard/queues/task" aria-current="page"' in part
    assert 'class="badge"' not in part
    world.broken()
    part = world.client.get("/dashboard/nav?at=/dashboard/queues/task", headers=headers).text
    assert part.count('class="badge"') == 1
    assert "1 needs you" in part
    page = world.client.get("/dashboard/queues/task", headers=headers).text
    part = world.client.get("/dashboard/nav?at=/dashboard/queues/task", headers=headers).text
    assert part.strip() in page


def badge(world: World, name: str, queue: str = "task") -> str:
    """The number of the badge, with a mark if some of it is new to this user."""
    nav = world.client.get("/dashboard/nav", headers=world.cookie(name)).text
    line = nav.partition(f'href="/dashboard/queues/{queue}"')[2].partition("</a>")[0]
    found = re.search(r'class="badge( seen)?"[^>]*>(\d+)<', line)
    return "" if found is None else found[2] + ("" if found[1] else "!")


def test_the_badge_counts_what_needs_a_person_and_is_loud_for_what_is_new(world):
    world.person("ayse", "operator", all_sites=True)
    world.person("ece", sites=["south"])
    for site in ("north", "north", "south"):
        world.broken(site)
    assert (badge(world, "ayse"), badge(world, "ece")) == ("3!", "1!")
    for elsewhere in ("?site=south", "?state=done"):  # the failures of north are not there
        world.client.get(f"/dashboard/queues/task{elsewhere}", headers=world.cookie("ayse"))
    assert badge(world, "ayse") == "3!"
    world.client.get("/dashboard/queues/task", headers=world.cookie("ayse"))
    assert (badge(world, "ayse"), badge(world, "ece")) == ("3", "1!")
    world.clock.advance(1)
    world.broken("north")
    assert (badge(world, "ayse"), badge(world, "ece")) == ("4!", "1!")
    by_itself = world.cookie("ayse") | {"hx-request": "true"}
    world.client.get("/dashboard/queues/task", headers=by_itself)
    assert badge(world, "ayse") == "4!"  # no person opened that
    world.client.get("/dashboard/queues/task", headers=world.cookie("ayse"))
    world.job()
    world.task.claim("gone", lease_seconds=5)
    world.clock.advance(6)
    assert badge(world, "ayse") == "5!"  # and one is stuck


def test_what_an_operator_ended_is_not_in_the_badge(world):
    world.person("ayse", "operator", all_sites=True)
    world.failed()
    assert badge(world, "ayse") == ""


def test_a_trade_stands_together_and_a_phone_shows_first_what_calls(world):
    world.person("ayse", "admin")
    world.broken()
    nav = world.client.get("/dashboard/nav?at=/dashboard/workers", headers=world.cookie("ayse")).text
    lines = re.findall(r'<a href="([^"]+)"[^>]*class="([^"]*)"', nav)
    paths = [path for path, _ in lines]
    at = paths.index("/dashboard/queues/oci")
    assert paths[at + 1 : at + 4] == [
        *("/dashboard/queues/oci_adjustments", "/dashboard/oci"),
        "/dashboard/site/north/oci-control",
    ]
    at = paths.index("/dashboard/queues/optiplan")
    assert paths[at + 1] == "/dashboard/optiplan"
    looks = dict(lines)
    assert looks["/dashboard/optiplan"] == "under rest"
    assert looks["/dashboard/queues/task"] == "calls in-bar"
    assert looks["/dashboard"] == "in-bar"
    assert sum("in-bar" in look for look in looks.values()) == 4
    assert 'aria-expanded="false"' in nav


def test_the_header_leads_from_site_to_site(world):
    world.person("ayse", "operator", all_sites=True)
    world.person("ece", sites=["south"])

    def ways(path: str, name: str = "ayse") -> list[str]:
        page = world.client.get(path, headers=world.cookie(name)).text
        header = page.partition("<header")[2].partition("</header>")[0]
        found = re.findall(r'<a href="(/dashboard/[^"]+)"', header)
        return [way for way in found if way != "/dashboard/password"]

    queue, control = "/dashboard/queues/task", "/dashboard/site/{}/oci-control"
    assert ways(queue) == [queue, f"{queue}?site=north", f"{queue}?site=south"]
    assert ways("/dashboard") == [control.format("north"), control.format("south")]
    assert ways(control.format("north") + "/settings")[1] == control.format("south") + "/settings"
    assert ways("/dashboard/queues/pdf") == []  # its rows are of no site
    assert ways(queue, "ece") == []
    page = world.client.get(f"{queue}?site=south", headers=world.cookie("ayse")).text
    assert "<title>task · south · Kesin</title>" in page
    alone = world.client.get(queue, headers=world.cookie("ece")).text
    assert "<title>task · south · Kesin</title>" in alone
