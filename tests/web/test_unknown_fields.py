"""What a request has and nothing reads is refused by its name, in every body and every file."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kesin.web.auth import PROBES
from tests.tables import table
from tests.web.conftest import CRON_SECRET, World, error_of
from tests.workloads.optiplan.order_bodies import order, part

EXTRA = "surprise"
CRON = {"authorization": f"Bearer {CRON_SECRET}"}
# Values that the caller chooses freely: what a job, a template or a table of rules is about.
FREE = {
    "payload",
    "variables",
    "rows",
    "credentials",  # checked by name where they are sealed
    "conversion",  # and where rows are corrected
    "trimByThickness",
    "edgeMapping",
    "saw_profiles",
    "bands",
}
SALE = {
    "externalId": "sale-1",
    "gclid": "Cj0KCQiA_click",
    "conversionName": "Phone sale",
    "conversionTime": "2023-11-01T10:00:00+03:00",
    "conversionValue": 10,
}
CSV_HEAD = "externalId,gclid,conversionName,conversionTime,conversionValue"
CSV_ROW = "csv-{n},Cj0KCQiA_click,Phone sale,2023-11-01T10:00:00+03:00,10"
ROW_ID = "seal_00000000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def world(shared_world: World) -> World:
    return shared_world


@pytest.fixture(scope="module")
def admin(world: World) -> dict[str, str]:
    return world.key("admin")


def request_bodies(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                yield f"{method.upper()} {path}", content["application/json"]["schema"]


def open_objects(whole: dict[str, Any], schema: Any, at: str = "") -> Iterator[str]:
    """Where a schema takes fields that it does not name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from open_objects(whole, whole["components"]["schemas"][name], at)
        return
    for branch in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
        yield from open_objects(whole, branch, at)
    if "items" in schema:
        yield from open_objects(whole, schema["items"], f"{at}[]")
    if "properties" in schema or schema.get("type") == "object":
        named = schema.get("propertyNames", {}).get("enum")
        if schema.get("additionalProperties") is not False and not named:
            yield at or "the body"
        for name, inner in schema.get("properties", {}).items():
            if name not in FREE:
                yield from open_objects(whole, inner, f"{at}.{name}")


def test_no_body_takes_a_field_that_it_does_not_name(world: World):
    schema = world.app.openapi()
    bodies = list(request_bodies(schema))
    assert len(bodies) >= 20
    found = {name: list(open_objects(schema, body)) for name, body in bodies}
    assert {name: places for name, places in found.items() if places} == {}


BODIES: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/api/session", {"name": "ayse", "password": "x"}),
    ("POST", "/api/queues/task/jobs", {"jobs": [{"payload": 1}]}),
    ("POST", "/api/queues/task/actions", {"action": "cancel", "ids": []}),
    ("POST", "/api/queues/task/pause", {}),
    ("POST", "/api/queues/task/resume", {}),
    ("POST", "/api/oci/ack", {"siteId": "north", "queueIds": [ROW_ID]}),
    ("POST", "/api/oci/ack-failed", {"siteId": "north", "queueIds": [ROW_ID]}),
    ("POST", "/api/oci/script-heartbeat", {"siteId": "north"}),
    ("POST", "/api/oci/actions", {"siteId": "north", "actions": []}),
    ("POST", "/api/oci/reconciliation", {"siteId": "north", "zone": "UTC", "uploads": [], "attributed": []}),
    ("POST", "/api/oci/v2/verify", {"siteId": "north"}),
    ("POST", "/api/oci/conversions?siteId=north", {"conversions": []}),
    ("PUT", "/api/oci/credentials", {"siteId": "north", "credentials": {}}),
    ("POST", "/api/oci/queue-actions", {"siteId": "north", "action": "RETRY_SELECTED", "ids": [ROW_ID]}),
    ("POST", "/pdf/jobs", {"template_name": "invoice", "variables": {}}),
    ("POST", "/pdf/batches", {"template_name": "invoice", "rows": [{}]}),
    ("POST", "/pdf/templates/invoice/preview", {"variables": {}}),
    ("POST", "/jobs", order()),
    ("POST", "/orders/X-1/import/xlsx", {"customer_phone": "0555", "parts": [part()]}),
    ("POST", "/customers", {"name": "Ayşe", "phone": "05551112233"}),
    ("PUT", "/config/rules", {}),
]


@table(("method", "path", "body"), BODIES)
def test_an_unknown_field_is_named(world: World, admin: dict[str, str], method: str, path: str, body: dict[str, Any]):
    response = world.client.request(method, path, json={**body, EXTRA: 1}, headers=admin)
    assert response.status_code in {400, 422}, response.text
    assert EXTRA in json.dumps(error_of(response))


def test_a_field_inside_a_body_is_named_too(world: World, admin: dict[str, str]):
    for path, body, field in (
        ("/api/queues/task/jobs", {"jobs": [{"payload": 1, EXTRA: 1}]}, f"jobs.0.{EXTRA}"),
        ("/api/queues/task/actions", {"action": "cancel", "filter": {EXTRA: 1}}, f"filter.{EXTRA}"),
        ("/jobs", order(part(**{EXTRA: 1})), f"parts[0].{EXTRA}"),
    ):
        response = world.client.post(path, json=body, headers=admin)
        assert response.status_code == 422
        assert error_of(response)["details"]["fields"][0]["field"] == field
    correct = {"siteId": "north", "action": "CORRECT", "ids": [ROW_ID], "conversion": {EXTRA: 1}}
    response = world.client.post("/api/oci/queue-actions", json=correct, headers=admin)
    assert (response.status_code, error_of(response)["details"]) == (422, {"field": f"conversion.{EXTRA}"})


# Query parameters


def test_on_every_route_the_unknown_query_parameter_is_named_and_no_other(world: World, admin: dict[str, str]):
    missed = []
    for path, methods in world.app.openapi()["paths"].items():
        for method, operation in methods.items():
            names = [it["name"] for it in operation.get("parameters", []) if it["in"] == "query"]
            params = {**dict.fromkeys(names, "?"), EXTRA: "?"}
            filled = re.sub(r"{[^}]+}", "x", path)
            response = world.client.request(method, filled, params=params, headers=admin)
            named = method == "head" or f"unknown query parameter '{EXTRA}'" in response.text
            if response.status_code != 422 or not named:
                missed.append(path)
    assert sorted(missed) == sorted(PROBES)  # load balancers add parameters of their own


def test_a_cursor_that_no_page_gave_is_refused_and_not_taken_for_the_first_page(world: World):
    lists = [
        path
        for path, methods in world.app.openapi()["paths"].items()
        for it in methods.get("get", {}).get("parameters", [])
        if it["name"] == "cursor"
    ]
    assert len(lists) >= 5
    for who in (world.key("admin"), world.key("read"), world.key("pdf"), world.key("optiplan")):
        for path in lists:
            params = {"cursor": "abc", **({"siteId": "north"} if "oci" in path else {})}
            filled = path.replace("{queue}", "task")
            response = world.client.get(filled, params=params, headers=who)
            assert response.status_code in {422, 403}, path
            assert response.status_code == 403 or "cursor" in error_of(response)["message"]


def test_a_misspelt_parameter_of_cron_changes_nothing(world: World):
    response = world.client.post("/api/cron/oci/attempt-cap?maxAttempts=1", headers=CRON)
    assert response.status_code == 422
    assert error_of(response)["message"] == (
        "unknown query parameter 'maxAttempts'; use one of: max_attempts, min_age_minutes"
    )


def test_pages_take_any_parameter(world: World):
    world.person("ayse", "admin", all_sites=True)
    response = world.client.get(f"/dashboard?{EXTRA}=1", headers=world.cookie("ayse"))
    assert response.status_code == 200


# Conversions


def results(world: World, admin: dict[str, str], body: Any, kind: str = "application/json") -> Any:
    response = world.client.post(
        "/api/oci/conversions?siteId=north",
        content=body if isinstance(body, str) else json.dumps(body),
        headers={**admin, "content-type": kind},
    )
    assert response.status_code == 200, response.text
    return response.json()["results"]


@table("form", ["one", "list", "wrapped", "ndjson"])
def test_a_row_with_an_unknown_field_is_rejected_and_sinks_no_other(world: World, admin: dict[str, str], form: str):
    bad = {**SALE, "externalId": f"bad-{form}", EXTRA: 1}
    good = {**SALE, "externalId": f"good-{form}"}
    if form == "one":
        rows = results(world, admin, bad)
    elif form == "ndjson":
        text = "\n".join(map(json.dumps, (bad, good)))
        rows = results(world, admin, text, "application/x-ndjson")
    else:
        rows = results(world, admin, [bad, good] if form == "list" else {"conversions": [bad, good]})
    first = rows[0]
    assert (first["result"], first["code"], first["field"], first["externalId"]) == (
        "rejected",
        "UNKNOWN_FIELD",
        EXTRA,
        f"bad-{form}",
    )
    assert [row["result"] for row in rows[1:]] == ["queued"] * (form != "one")


def test_what_our_own_files_have_is_known(world: World, admin: dict[str, str]):
    exported = {"id": ROW_ID, "orderId": "k1", "errorCode": "X", "whatToDo": "", "attempts": "1"}
    [row] = results(world, admin, [{**SALE, **exported, "externalId": "own", "revision": 1}])
    assert row["result"] == "queued"
    [row] = results(world, admin, {"siteId": "north", **SALE, "externalId": "with-site"})
    assert row["result"] == "queued"


# Files


def post_csv(world: World, admin: dict[str, str], text: str, query: str = "") -> Any:
    path = f"/api/oci/conversions?siteId=north{query}"
    return world.client.post(path, content=text, headers={**admin, "content-type": "text/csv"})


def test_unknown_columns_are_named_and_ignored_only_by_name(world: World, admin: dict[str, str]):
    text = f"{CSV_HEAD},CRM note,Agent\n{CSV_ROW.format(n=1)},x,y\n"
    refused = post_csv(world, admin, text)
    assert refused.status_code == 400
    assert error_of(refused)["code"] == "unknown_columns"
    assert error_of(refused)["details"] == {"columns": ["CRM note", "Agent"]}
    partly = post_csv(world, admin, text, "&ignoreColumns=crm%20note")
    assert error_of(partly)["details"] == {"columns": ["Agent"]}
    for n, query in enumerate(("&ignoreColumns=CRM note, agent", "&ignoreColumns=CRM note&ignoreColumns=Agent"), 10):
        taken = post_csv(world, admin, text.replace("csv-1", f"csv-{n}"), query)
        assert [row["result"] for row in taken.json()["results"]] == ["queued"]


def test_a_known_column_is_read_even_if_it_may_be_ignored(world: World, admin: dict[str, str]):
    text = f"{CSV_HEAD}\n{CSV_ROW.format(n=20)}\n"
    [row] = post_csv(world, admin, text, "&ignoreColumns=gclid").json()["results"]
    assert row["result"] == "queued"
    assert world.found(row["id"]).payload["gclid"] == "Cj0KCQiA_click"


def test_the_form_for_mended_rows_takes_the_names_too(world: World):
    world.person("mender", "operator", all_sites=True)
    text = f"{CSV_HEAD},Agent\n{CSV_ROW.format(n=99)},y\n"

    def send(**fields: str) -> Any:
        return world.client.post(
            "/dashboard/site/north/oci-control/fixes",
            files={"file": ("mended.csv", text, "text/csv")},
            data=fields,
            headers=world.cookie("mender"),
        )

    assert "&#39;Agent&#39;" in send().text
    assert send(ignoreColumns="Agent").status_code == 200
    page = world.client.get("/dashboard/site/north/oci-control", headers=world.cookie("mender"))
    assert 'name="ignoreColumns"' in page.text


def test_a_batch_of_pdfs_names_columns_that_its_template_does_not_know(world: World, admin: dict[str, str]):
    def send(query: str = "") -> Any:
        return world.client.post(
            f"/pdf/batches?template_name=invoice{query}",
            content=f"buyer.name,{EXTRA},buyer.{EXTRA}\nAyşe,x,y\n",
            headers={**admin, "content-type": "text/csv"},
        )

    refused = send()
    assert refused.status_code == 422
    assert error_of(refused)["details"] == {"columns": [EXTRA, f"buyer.{EXTRA}"]}
    ignored = error_of(send(f"&ignoreColumns={EXTRA},buyer.{EXTRA}"))
    assert ignored["code"] == "bad_rows"  # what is left lacks most of an invoice
    assert EXTRA not in json.dumps(ignored)
