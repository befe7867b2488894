"""Errors at their fields, alike in every form: marked, described, linked from the top."""

import re
from typing import Any

import pytest

from kesin.engine.access.commands import Commands
from kesin.foundation.problems import Invalid
from kesin.web.dashboard.forms.schema_form import SchemaForm
from kesin.web.dashboard.frame.page import field_errors
from tests.tables import table
from tests.web.conftest import PASSWORD, World

ADMIN, SHOP = "/dashboard/admin", "/dashboard/optiplan"
OCI = "/dashboard/site/north/oci-control"
GOOGLE = {
    "developer_token": "a-secret",
    "client_id": "an-id",
    "client_secret": "another-secret",
    "refresh_token": "a-third-secret",
    "customer_id": "12",
    "conversion_action_resource_name": "customers/1234567890/conversionActions/9",
}


@pytest.fixture
def world(shared_world: World) -> World:
    shared_world.known("boss", "admin", all_sites=True)
    shared_world.known("zeynep", "viewer")
    return shared_world


def post(world: World, path: str, **fields: Any) -> Any:
    return world.client.post(path, headers=world.cookie("boss"), data=fields)


@table(
    ("path", "fields", "wrong"),
    [
        (f"{ADMIN}/people", {"name": "no way", "role": "viewer"}, "name"),
        (f"{ADMIN}/people", {"name": "zeynep", "role": "viewer", "password": PASSWORD}, "name"),
        (f"{ADMIN}/people", {"name": "neu", "role": "viewer", "password": "1"}, "password"),
        (f"{ADMIN}/people", {"name": "neu", "role": "king"}, "role"),
        (f"{ADMIN}/people/zeynep", {"what": "may", "role": "king"}, "role"),
        (f"{ADMIN}/people/zeynep", {"what": "password", "password": "1"}, "password"),
        (f"{ADMIN}/people/zeynep", {"what": "disable"}, "sure"),
        (f"{ADMIN}/keys", {"name": "k", "scope": "read", "days": "9999"}, "days"),
        (f"{ADMIN}/keys", {"name": "k"}, "scope"),
        (f"{ADMIN}/keys", {"name": "k", "scope": "oci:ingest"}, "site"),
        (f"{ADMIN}/sites", {"id": "a b"}, "site"),
        (f"{ADMIN}/sites", {"id": "north"}, "site"),
        (f"{ADMIN}/sites/north", {"timezone": "Mars/Base"}, "timezone"),
        (f"{ADMIN}/sites/north", {"currency": "XXY"}, "currency"),
        (f"{OCI}/settings", {"recover_minutes": "many"}, "recover_minutes"),
        (f"{OCI}/settings", {"channel": "pigeon"}, "channel"),
        (f"{OCI}/settings", {"customer_id": "12"}, "customer_id"),
        (f"{OCI}/credentials", GOOGLE, "customer_id"),
        (f"{SHOP}/customers", {"name": "Can", "phone": "x"}, "phone"),
        (f"{SHOP}/customers", {"name": "", "phone": "0532 111 22 33"}, "name"),
        ("/dashboard/password", {"password": PASSWORD, "again": "another"}, "again"),
        ("/dashboard/password", {"current": "x", "password": "y", "again": "y"}, "current"),
    ],
)
def test_an_error_stands_at_its_field_and_the_top_links_to_it(world, path, fields, wrong):
    answer = post(world, path, **fields)
    assert answer.status_code >= 400
    text = answer.text.partition("<main")[2]
    [message] = re.findall(rf'<p class="error-text" id="e-{wrong}">(.+?)</p>', text)
    assert message
    assert text.count(f'aria-describedby="e-{wrong}') == 1
    is_group = wrong == "scope" or (wrong == "role" and "people/" in path)  # it is described only
    assert text.count('aria-invalid="true"') == (not is_group)
    assert f'<a href="#e-{wrong}">' in text.partition("data-errors")[2].partition("</div>")[0]


def test_what_was_typed_stays_but_for_secrets(world):
    site = post(world, f"{ADMIN}/sites/north", name="Kuzey", timezone="Mars/Base").text
    assert 'value="Kuzey"' in site
    assert 'value="Mars/Base"' in site
    person = post(world, f"{ADMIN}/people/zeynep", what="may", role="king", all_sites="1").text
    assert '<input type="checkbox" name="all_sites" value="1" checked>' in person
    credentials = post(world, f"{OCI}/credentials", **GOOGLE).text
    assert 'value="an-id"' in credentials
    assert 'name="customer_id" value="12"' in credentials
    assert "secret" not in re.findall(r'value="([^"]*)"', credentials)
    assert "a-third-secret" not in credentials


def test_a_problem_without_a_field_is_on_top_alone(world):
    answer = post(world, f"{ADMIN}/people/boss", what="may", role="viewer")
    assert answer.status_code == 409
    assert "you would lose your own access" in answer.text
    assert "aria-invalid" not in answer.text
    assert 'href="#e-' not in answer.text


def test_a_part_of_a_page_names_the_field_of_its_problem(world, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise Invalid("say why", details={"field": "reason"})

    monkeypatch.setattr(Commands, "pause", refuse)
    headers = world.cookie("boss") | {"hx-request": "true"}
    answer = world.client.post("/dashboard/queues/task/pause", headers=headers, data={})
    assert answer.status_code == 422
    assert '<div data-field="reason">' in answer.text


def test_errors_are_grouped_by_field():
    assert field_errors(Invalid("no")) == {}
    assert field_errors(Invalid("no", details={"field": "a"})) == {"a": ["no"]}
    rows = [{"field": "a", "message": "x"}, {"field": "a", "message": "y"}]
    assert field_errors(Invalid("no", details={"fields": rows})) == {"a": ["x", "y"]}


def test_a_field_is_called_by_the_titles_on_its_way():
    line = {"type": "object", "properties": {"unit_price": {"type": "number"}}}
    lines = {"type": "array", "title": "Lines", "title_tr": "Satırlar", "items": line}
    form = SchemaForm({"type": "object", "properties": {"lines": lines}})
    assert form.label_of("/lines/2/unit_price") == "Lines 3 · Unit price"
    assert form.label_of("/lines") == "Lines"
    assert form.label_of("/never_heard_of") == "Never heard of"
    assert form.label_of("") == ""
    assert SchemaForm(form.schema, language="tr").label_of("/lines/0") == "Satırlar 1"


def test_an_empty_text_that_may_not_be_empty_is_missing():
    text = {"type": "string"}
    properties = {"a": text, "b": text | {"minLength": 1}, "c": text | {"format": "date"}}
    form = SchemaForm({"type": "object", "properties": properties, "required": ["a", "b", "c"]})
    assert form.read({"v/a": "", "v/b": " ", "v/c": ""}) == {"a": ""}
