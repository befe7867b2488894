"""Bytes that no schema describes: headers, bodies and addresses as nobody should send them.

Whatever comes is answered, as a page or in the one shape of errors, without a word
of the inside.
"""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.faults.fuzz import broken, broken_text
from tests.web.asked import leaks
from tests.web.conftest import World
from tests.web.matrix import CREDENTIALS
from tests.workloads.optiplan.workbooks import part_of, sheet_of, with_part

HEADERS = {
    "accept": "text/html, application/json;q=0.9, */*",
    "accept-language": "tr-TR,tr;q=0.9,en;q=0.8",
    "authorization": "Bearer kesin_abcdefgh_" + "A" * 43,
    "content-length": "17",
    "content-type": "application/json; charset=utf-8",
    "cookie": "kesin_session=abc; language=tr; theme=dark",
    "forwarded": "for=192.0.2.60;proto=http",
    "host": "kesin.test:8000",
    "hx-request": "true",
    "hx-trigger": "nav",
    "if-none-match": 'W/"abc", *',
    "if-modified-since": "Wed, 21 Oct 2026 07:28:00 GMT",
    "last-event-id": "17",
    "origin": "http://kesin.test",
    "range": "bytes=0-99",
    "sec-fetch-site": "same-origin",
    "transfer-encoding": "chunked",
    "x-api-key": "kesin_abcdefgh_" + "A" * 43,
    "x-forwarded-for": "203.0.113.7, 10.0.0.1",
    "x-forwarded-proto": "https",
    "x-request-id": "abc-1",
}
PATHS = ("/api/session", "/dashboard", "/sign-in", "/static/docs.js", "/pdf/jobs")
DEEP = 900  # lists in each other: less than the language takes, more than most libraries do


@pytest.fixture(scope="module")
def admin(shared_world: World) -> dict[str, str]:
    return shared_world.key("admin")


@pytest.fixture(scope="module")
def unsafe(shared_world: World) -> list[tuple[str, str]]:
    """Every operation with a body, its path filled in."""
    job = shared_world.job()
    return [
        (
            method,
            path.replace("{queue}", "task").replace("{job_id}", job).format_map(_Anything()),
        )
        for path, item in shared_world.app.openapi()["paths"].items()
        for method, operation in item.items()
        if "requestBody" in operation
    ]


class _Anything(dict[str, str]):
    def __missing__(self, _key: str) -> str:
        return "north"


def sound(answer: Any) -> None:
    """Not our fault, and nothing of ours in it."""
    assert answer.status_code < 500, answer.text
    assert leaks(answer.text) is None
    if answer.status_code >= 400 and answer.headers["content-type"] == "application/json":
        assert answer.json()["error"].keys() >= {"code", "message"}


def plain(text: str) -> bytes:
    """As a header can hold it on the wire; the server itself refuses the rest."""
    kept = (one for one in text.encode("utf-8", "replace") if one >= 32 and one != 127)
    return bytes(kept)[:8_000]


@given(data=st.data())
def test_no_header_upsets_a_door(shared_world: World, admin: dict[str, str], data):
    names = data.draw(
        st.lists(st.sampled_from(sorted(HEADERS)), min_size=1, max_size=3, unique=True)
    )
    headers = {} if "x-api-key" in names else dict(admin)
    headers |= {one: plain(data.draw(broken_text(HEADERS[one]))) for one in names}
    path = data.draw(st.sampled_from(PATHS))
    sound(shared_world.client.get(path, headers=headers))


BODY = json.dumps({"jobs": [{"payload": {"a": [1, None]}, "key": "k", "site": "north"}], "n": 1})
KINDS = ("application/json", "text/csv", "application/x-ndjson", "", "multipart/form-data")


@given(data=st.data())
def test_no_body_upsets_a_door(
    shared_world: World, admin: dict[str, str], unsafe: list[tuple[str, str]], data
):
    method, path = data.draw(st.sampled_from(unsafe))
    headers = {**admin, "content-type": data.draw(st.sampled_from(KINDS))}
    content = data.draw(broken(BODY.encode(), b"[]", b"{}"))
    sound(shared_world.client.request(method.upper(), path, content=content, headers=headers))


@given(broken_text("/api/queues/task/jobs", "/dashboard/queues/task?state=A&age=1h", "/static/a"))
@example("/dashboard/queues/%FF%00")
@example("/api/jobs/%ED%A0%80")
def test_no_address_upsets_a_door(shared_world: World, admin: dict[str, str], path: str):
    kept = "".join(one for one in path if one.isprintable()).encode("utf-8", "replace").decode()
    with_slash = f"/{kept.lstrip('/')}"[:2_000]
    try:
        answer = shared_world.client.get(with_slash, headers=admin)
    except ValueError:  # the client knows better than to send it
        return
    sound(answer)


@pytest.mark.parametrize("depth", [200, 300, DEEP, 5_000])
def test_a_payload_that_lies_deep_is_kept_and_shown_or_refused(
    shared_world: World, admin: dict[str, str], depth: int
):
    client = shared_world.client
    body = b'{"jobs": [{"payload": ' + b"[" * depth + b"]" * depth + b"}]}"
    kind = {"content-type": "application/json"}
    answer = client.post("/api/queues/task/jobs", content=body, headers={**admin, **kind})
    sound(answer)
    if answer.status_code != 201:
        return
    job = answer.json()["jobs"][0]["id"]
    for path in (f"/api/jobs/{job}", "/api/queues/task/jobs", f"/dashboard/jobs/{job}"):
        shown = client.get(path, headers=admin)
        sound(shown)
        assert shown.status_code == 200


@pytest.mark.parametrize(
    "payload", ["1e999", "-1e999", "NaN", "Infinity", "9" * 4_000, "9" * 5_000, '"\\ud800"']
)
def test_a_payload_that_is_no_json_of_everybody_is_kept_and_shown_or_refused(
    shared_world: World, admin: dict[str, str], payload: str
):
    client = shared_world.client
    body = f'{{"jobs": [{{"payload": {payload}}}]}}'.encode()
    kind = {"content-type": "application/json"}
    answer = client.post("/api/queues/task/jobs", content=body, headers={**admin, **kind})
    sound(answer)
    if answer.status_code == 201:
        job = answer.json()["jobs"][0]["id"]
        sound(client.get(f"/api/jobs/{job}", headers=admin))
        sound(client.get(f"/dashboard/jobs/{job}", headers=admin))


# What was found: the request that was answered with 500, and how it is answered now.


@pytest.fixture(scope="module")
def boss(shared_world: World) -> dict[str, str]:
    """The headers of an admin's browser."""
    shared_world.known("boss", "admin")
    return shared_world.cookie("boss")


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/dashboard/optiplan/new/rows", {"parts/²/color": "x", "do": "add"}, 200),
        ("/dashboard/optiplan/new/rows", {"do": "remove:²"}, 422),
        (
            "/dashboard/pdf/form",
            {"template": "invoice", "v/lines/²/name": "x", "do": "add:/lines"},
            200,
        ),
        ("/dashboard/pdf/form", {"template": "invoice", "do": f"remove:/lines/{'9' * 5_000}"}, 200),
    ],
)
def test_a_row_of_a_form_whose_number_is_none(
    shared_world: World, boss: dict[str, str], path: str, fields: dict[str, str], status: int
):
    answer = shared_world.client.post(path, data=fields, headers=boss)
    sound(answer)
    assert answer.status_code == status


@pytest.mark.parametrize("charset", ["idna", "a%00b", "punycode"])
def test_a_file_whose_name_is_in_no_alphabet(
    shared_world: World, boss: dict[str, str], charset: str
):
    named = f"form-data; name=file; filename*={charset.replace('%00', chr(0))}''%41.csv"
    body = f"--xyz\r\nContent-Disposition: {named}\r\n\r\nx\r\n--xyz--\r\n".encode()
    kind = {"content-type": "multipart/form-data; boundary=xyz"}
    path = "/dashboard/optiplan/import"
    answer = shared_world.client.post(path, content=body, headers={**boss, **kind})
    sound(answer)
    assert answer.status_code in {400, 422}


@pytest.mark.parametrize("value", ["1e999", "NaN"])
def test_a_list_with_a_number_that_is_none(shared_world: World, admin: dict[str, str], value: str):
    rows = [["RENK: Beyaz", "18MM 210*280"], ["", 722, 580, 4, 0, "", "", "", "", "", 4242]]
    sheet = sheet_of(rows)
    part = "xl/worksheets/sheet1.xml"
    data = part_of(sheet, part).replace(b"<v>4242</v>", f"<v>{value}</v>".encode())
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    answer = shared_world.client.post(
        "/orders/S-1/import/xlsx?customer_phone=05551234567",
        content=with_part(sheet, part, data),
        headers={**admin, "content-type": kind},
    )
    sound(answer)


def test_a_variable_whose_name_is_a_very_long_number(shared_world: World, admin: dict[str, str]):
    body = {"template_name": "invoice", "variables": {"9" * 5_000: 1}}
    answer = shared_world.client.post("/pdf/templates/invoice/preview", json=body, headers=admin)
    sound(answer)
    assert answer.status_code == 422


@pytest.mark.parametrize(("field", "value"), [("customer_id", " - "), ("client_secret", " ")])
def test_credentials_of_nothing_but_signs(
    shared_world: World, admin: dict[str, str], field: str, value: str
):
    told = {"siteId": "north", "credentials": {**CREDENTIALS["credentials"], field: value}}
    answer = shared_world.client.put("/api/oci/credentials", json=told, headers=admin)
    sound(answer)
    assert answer.status_code == 422
    assert answer.json()["error"]["details"]["field"] == field
