"""Bytes that no schema describes: damaged headers, bodies and addresses.

Each is answered with a page or in the one shape of errors, without internal details.
"""

import json
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import example
from hypothesis import strategies as st

from tests.faults.fuzz import broken, broken_text, given
from tests.tables import table
from tests.web.conftest import World
from tests.web.matrix import CREDENTIALS
from tests.web.schema_requests import leak
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
JSON = {"content-type": "application/json"}
BODY = json.dumps({"jobs": [{"payload": {"a": [1, None]}, "key": "k", "site": "north"}], "n": 1})
KINDS = ("application/json", "text/csv", "application/x-ndjson", "", "multipart/form-data")


@pytest.fixture(scope="module")
def key(shared_world: World) -> dict[str, str]:
    return shared_world.key("admin")


@pytest.fixture(scope="module")
def with_body(shared_world: World) -> list[tuple[str, str]]:
    """Every operation with a body, its path filled in."""
    ids = defaultdict(lambda: "north", queue="task", job_id=shared_world.job())
    return [
        (method, path.format_map(ids))
        for path, item in shared_world.app.openapi()["paths"].items()
        for method, operation in item.items()
        if "requestBody" in operation
    ]


def check(response: Any, status: int | None = None) -> None:
    """It is no fault of the service, and shows nothing internal."""
    assert response.status_code < 500, response.text
    assert status is None or response.status_code == status
    assert leak(response.text) is None
    if response.status_code >= 400 and response.headers["content-type"] == "application/json":
        assert response.json()["error"].keys() >= {"code", "message"}


def sendable(text: str) -> bytes:
    """As a header can hold it; the server itself refuses the rest."""
    return bytes(n for n in text.encode("utf-8", "replace") if n >= 32 and n != 127)[:8_000]


@given(data=st.data())
def test_no_header_causes_a_fault(shared_world: World, key: dict[str, str], data):
    names = data.draw(st.lists(st.sampled_from(sorted(HEADERS)), min_size=1, max_size=3, unique=True))
    headers = {} if "x-api-key" in names else dict(key)
    headers |= {name: sendable(data.draw(broken_text(HEADERS[name]))) for name in names}
    path = data.draw(st.sampled_from(PATHS))
    check(shared_world.client.get(path, headers=headers))


@given(data=st.data())
def test_no_body_causes_a_fault(shared_world: World, key: dict[str, str], with_body: list[tuple[str, str]], data):
    method, path = data.draw(st.sampled_from(with_body))
    headers = {**key, "content-type": data.draw(st.sampled_from(KINDS))}
    content = data.draw(broken(BODY.encode(), b"[]", b"{}"))
    check(shared_world.client.request(method.upper(), path, content=content, headers=headers))


@given(broken_text("/api/queues/task/jobs", "/dashboard/queues/task?state=A&age=1h", "/static/a"))
@example("/dashboard/queues/%FF%00")
@example("/api/jobs/%ED%A0%80")
def test_no_address_causes_a_fault(shared_world: World, key: dict[str, str], path: str):
    printable = "".join(sign for sign in path if sign.isprintable())
    text = printable.encode("utf-8", "replace").decode()
    try:
        response = shared_world.client.get(f"/{text.lstrip('/')}"[:2_000], headers=key)
    except ValueError:  # the client refuses to send it
        return
    check(response)


@table(
    "payload",
    [
        *("[" * depth + "]" * depth for depth in (200, 300, 900, 5_000)),
        *("1e999", "-1e999", "NaN", "Infinity", "9" * 4_000, "9" * 5_000, '"\\ud800"'),
    ],
)
def test_a_deep_or_odd_payload_is_refused_or_stored_and_shown(shared_world: World, key: dict[str, str], payload: str):
    client = shared_world.client
    body = f'{{"jobs": [{{"payload": {payload}}}]}}'.encode()
    response = client.post("/api/queues/task/jobs", content=body, headers={**key, **JSON})
    check(response)
    job = response.json()["jobs"][0]["id"] if response.status_code == 201 else None
    if job is None:  # the body is refused, or this job
        return
    for path in (f"/api/jobs/{job}", "/api/queues/task/jobs", f"/dashboard/jobs/{job}"):
        check(client.get(path, headers=key), 200)


# Requests that once caused a fault


@pytest.fixture(scope="module")
def admin(shared_world: World) -> dict[str, str]:
    """The headers of an admin's browser."""
    shared_world.known("boss", "admin")
    return shared_world.cookie("boss")


INVOICE = {"template": "invoice"}


@table(
    ("path", "fields", "status"),
    [
        ("optiplan/new/rows", {"parts/²/color": "x", "do": "add"}, 200),
        ("optiplan/new/rows", {"do": "remove:²"}, 422),
        ("pdf/form", {**INVOICE, "v/lines/²/name": "x", "do": "add:/lines"}, 200),
        ("pdf/form", {**INVOICE, "do": f"remove:/lines/{'9' * 5_000}"}, 200),
    ],
)
def test_a_row_of_a_form_without_a_valid_number(
    shared_world: World, admin: dict[str, str], path: str, fields: dict[str, str], status: int
):
    check(shared_world.client.post(f"/dashboard/{path}", data=fields, headers=admin), status)


@table("charset", ["idna", "a\0b", "punycode"])
def test_a_file_name_in_an_unknown_charset(shared_world: World, admin: dict[str, str], charset: str):
    disposition = f"form-data; name=file; filename*={charset}''%41.csv"
    body = f"--xyz\r\nContent-Disposition: {disposition}\r\n\r\nx\r\n--xyz--\r\n".encode()
    headers = {**admin, "content-type": "multipart/form-data; boundary=xyz"}
    response = shared_world.client.post("/dashboard/optiplan/import", content=body, headers=headers)
    check(response)
    assert response.status_code in {400, 422}


@table("value", ["1e999", "NaN"])
def test_a_list_with_an_invalid_number(shared_world: World, key: dict[str, str], value: str):
    rows: list[list[Any]] = [["RENK: Beyaz", "18MM 210*280"], ["", 722, 580, 4, 0, "", "", "", "", "", 4242]]
    sheet = sheet_of(rows)
    part = "xl/worksheets/sheet1.xml"
    data = part_of(sheet, part).replace(b"<v>4242</v>", f"<v>{value}</v>".encode())
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    response = shared_world.client.post(
        "/orders/S-1/import/xlsx?customer_phone=05551234567",
        content=with_part(sheet, part, data),
        headers={**key, "content-type": kind},
    )
    check(response)


def test_a_variable_whose_name_is_a_very_long_number(shared_world: World, key: dict[str, str]):
    body = {"template_name": "invoice", "variables": {"9" * 5_000: 1}}
    check(shared_world.client.post("/pdf/templates/invoice/preview", json=body, headers=key), 422)


@table(("field", "value"), [("customer_id", " - "), ("client_secret", " ")])
def test_credentials_of_nothing_but_punctuation(shared_world: World, key: dict[str, str], field: str, value: str):
    body = {"siteId": "north", "credentials": {**CREDENTIALS["credentials"], field: value}}
    response = shared_world.client.put("/api/oci/credentials", json=body, headers=key)
    check(response, 422)
    assert response.json()["error"]["details"]["field"] == field
