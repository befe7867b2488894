"""Personal data is in clear only for those who may reveal it, whatever they read it through."""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote_plus

import pytest

from kesin.engine.access.masking import MASK
from kesin.store.audit_log import AuditLine
from kesin.workloads.pdf.jobs.store import PdfJobStore
from tests.tables import table
from tests.web.conftest import ROOT, World, error_of
from tests.workloads.optiplan.order_bodies import order

CLICK = "Cj0KCQiA_click-of-ayse"
OTHER = "Cj0KCQiA_other"  # the click id of another row, quoted in an error message
PHONE, NORMALISED = "0555 987 65 43", "+905559876543"
NAME = "Ayşe Yılmaz-Özgür"
EMAIL = "ayse@example.com"
PERSONAL = (CLICK, OTHER, PHONE, NORMALISED, "5559876543", NAME, EMAIL)
READERS = ("viewer", "read key")
REVEALERS = ("operator", "operate key", "read and reveal key", "admin")
FEW = ("viewer", "operator")
JOBS = ("order", "pdf", "task")


@dataclass(frozen=True)
class Shop:
    """A service with a row, an order, a customer, a PDF and a task, and the callers."""

    world: World
    who: dict[str, dict[str, str]]
    row: str
    order: str
    pdf: str
    task: str

    def get(self, path: str, who: str, **params: Any) -> Any:
        response = self.world.client.get(path, params=params or None, headers=self.who[who])
        assert response.status_code == 200, (path, who, response.text)
        return response

    def lines(self, request: Callable[[], Any]) -> list[AuditLine]:
        return self.world.said(request)


@pytest.fixture(scope="module")
def shop(shared_world: World) -> Shop:
    world = shared_world
    for role in ("viewer", "operator", "admin"):
        world.person(f"the-{role}", role, all_sites=True)
    who = {role: world.cookie(f"the-{role}") for role in ("viewer", "operator", "admin")}
    who |= {
        "read key": world.key("read"),
        "operate key": world.key("operate"),
        "read and reveal key": world.key("read", "reveal"),
        "ingest": world.key("oci:ingest", site="north"),
        "script": world.key("oci:script", site="north"),
        "optiplan": world.key("optiplan"),
    }
    [row, _] = _post_rows(world, who, sale("sale-1"), sale("sale-2", gclid=OTHER))
    exported = world.client.get(
        "/api/oci/google-ads-export?siteId=north&markAsExported=true&limit=1", headers=who["script"]
    ).json()
    assert [item["gclid"] for item in exported] == [CLICK]
    report = {
        "siteId": "north",
        "queueIds": [exported[0]["id"]],
        "errorCode": "INVALID_GCLID",
        "errorMessage": f"The click id {CLICK!r} of {EMAIL} is unknown, {OTHER} is too",
    }
    assert world.client.post("/api/oci/ack-failed", json=report, headers=who["script"]).is_success
    made = world.client.post(
        "/jobs", json=order(customer_phone=PHONE, customer_snapshot_name=NAME), headers=who["optiplan"]
    ).json()["job"]["id"]
    customer = {"name": NAME, "phone": PHONE}
    assert world.client.post("/customers", json=customer, headers=who["optiplan"]).is_success
    jobs = PdfJobStore(world.service.queues["pdf"])
    pdf = jobs.create_job("invoice", {"variables": {"buyer_line": NAME, "n": 3}}, owner="key:erp")
    task = world.job(payload={"email": EMAIL, "note": f"write to {EMAIL}", "n": 7}, key=EMAIL)
    return Shop(world, who, row, made, pdf.job_id, task)


def sale(external_id: str, **changes: Any) -> dict[str, Any]:
    row = {
        "externalId": external_id,
        "gclid": CLICK,
        "conversionName": "Phone sale",
        "conversionTime": "2023-11-01T10:00:00+03:00",
        "conversionValue": 10,
        **changes,
    }
    return {name: value for name, value in row.items() if value is not None}


def _post_rows(world: World, who: dict[str, dict[str, str]], *rows: dict[str, Any]) -> list[str]:
    response = world.client.post("/api/oci/conversions?siteId=north", json=list(rows), headers=who["ingest"])
    return [result["id"] for result in response.json()["results"]]


def hidden(text: str) -> bool:
    return not any(value in text for value in PERSONAL)


# A job


# Every kind of caller with one kind of job, and every kind of job with one caller of each kind.
LOOKS = [*(("row", who) for who in (*READERS, *REVEALERS)), *((name, who) for name in JOBS for who in FEW)]


@table(("name", "who"), LOOKS)
def test_a_job_is_in_clear_for_those_who_may_reveal_and_each_look_is_a_line(shop: Shop, name: str, who: str):
    job_id = getattr(shop, name)
    responses: list[Any] = []
    lines = shop.lines(lambda: responses.append(shop.get(f"/api/jobs/{job_id}", who)))
    body = responses[0].json()
    if who in READERS:
        assert hidden(responses[0].text)
        assert MASK in responses[0].text
        assert lines == []
    else:
        assert any(value in responses[0].text for value in PERSONAL)
        assert [(line.action, line.target, line.allowed) for line in lines] == [("job.reveal", job_id, True)]
    assert body["job"]["id"] == job_id


def test_the_shape_of_a_masked_job_stays(shop: Shop):
    masked = shop.get(f"/api/jobs/{shop.row}", "viewer").json()
    clear = shop.get(f"/api/jobs/{shop.row}", "operator").json()
    assert masked["payload"] == {**clear["payload"], "gclid": f"{MASK}{CLICK[-4:]}"}
    assert (
        masked["job"]["error_message"] == f"The click id '{MASK}{CLICK[-4:]}' of {MASK} is unknown, {MASK}ther is too"
    )
    assert [event["move"] for event in masked["events"]] == [event["move"] for event in clear["events"]]


# Lists and searches


def test_no_list_shows_personal_data_to_readers(shop: Shop):
    shown = []
    for path in (
        "/api/queues/oci/jobs",
        "/api/queues/task/jobs",
        "/api/queues/optiplan/jobs",
        "/api/oci/queue-rows?siteId=north",
        "/api/oci/google-ads-export?siteId=north",
        "/jobs",
        "/customers",
        "/dashboard/queues/oci",
        "/dashboard/queues/task",
        "/dashboard/queues/optiplan",
        "/dashboard/queues/task/rows.csv",
        "/dashboard/queues/oci/rows.csv",
        "/dashboard/site/north/oci-control",
        "/dashboard/site/north/oci-control/export",
        "/api/oci/dead-letter.csv?siteId=north",
        "/dashboard/optiplan",
        "/dashboard/optiplan/customers",
        "/dashboard",
    ):
        who = "viewer" if path.startswith("/dashboard") else "read key"
        if not hidden(shop.get(path, who).text):
            shown.append(path)
    assert shown == []


@table(("name", "who"), [("row", "admin"), *((name, who) for name in ("row", *JOBS) for who in FEW)])
def test_the_page_of_a_job_is_masked_until_it_is_unmasked(shop: Shop, name: str, who: str):
    path = f"/dashboard/jobs/{getattr(shop, name)}"
    masked = shop.get(path, who).text
    assert hidden(masked)
    assert ("/unmask" in masked) == (who != "viewer")
    response = shop.world.client.post(f"{path}/unmask", headers=shop.who[who])
    assert response.status_code == (403 if who == "viewer" else 200)
    assert hidden(response.text) == (who == "viewer")


def test_an_order_its_history_and_its_customer_are_masked_for_readers(shop: Shop):
    for path in (f"/jobs/{shop.order}", "/customers"):
        masked = shop.get(path, "read key").text
        assert hidden(masked)
        assert MASK in masked
        for who in ("optiplan", "operate key"):
            assert NAME in shop.get(path, who).text
    assert shop.get(f"/jobs/{shop.order}", "read key").json()["job"]["payload"]["parts"]


def test_only_operators_leave_lines_when_they_read_orders_and_customers(shop: Shop):
    def actions(path: str, who: str) -> list[str]:
        return [line.action for line in shop.lines(lambda: shop.get(path, who))]

    lookup = f"/customers/lookup?phone={PHONE}"
    expected = {
        f"/jobs/{shop.order}": "job.reveal",
        "/jobs": "queue.reveal",
        "/customers": "optiplan.customers",
        lookup: "optiplan.customers",
    }
    for path, action in expected.items():
        assert actions(path, "operate key") == [action]
        assert actions(path, "optiplan") == []
        assert actions(path, "read key") == []


def test_a_page_that_refreshes_itself_is_one_look(shop: Shop):
    shop.world.person("the-second", "operator", all_sites=True)
    headers = shop.world.cookie("the-second")

    def look() -> list[str]:
        path = "/dashboard/optiplan?part=orders"
        return [line.action for line in shop.lines(lambda: shop.world.client.get(path, headers=headers))]

    assert look() == ["queue.reveal"]
    assert look() == []
    shop.world.clock.advance(600)
    assert look() == ["queue.reveal"]


def test_the_cursor_of_masked_customers_tells_no_phone(shop: Shop):
    for number in range(3):
        phone = f"055512300{number:02d}"
        shop.world.client.post("/customers", json={"name": f"N{number}", "phone": phone}, headers=shop.who["optiplan"])
    seen, cursor, pages = 0, None, 0
    while pages == 0 or cursor:
        params = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        body = shop.get("/customers", "viewer", **params).json()
        seen, cursor, pages = seen + len(body["customers"]), body["next_cursor"], pages + 1
        assert "555" not in (cursor or "")
    assert (seen, pages) == (4, 2)


@table(
    ("path", "params"),
    [
        ("/api/oci/queue-rows", {"q": CLICK, "siteId": "north"}),
        ("/api/queues/oci/jobs", {"text": EMAIL}),
        ("/api/queues/oci/jobs", {"text": f"{OTHER} is"}),
        ("/api/queues/task/jobs", {"key": EMAIL, "site": "north"}),
        ("/customers/lookup", {"phone": PHONE}),
    ],
)
def test_what_is_masked_is_not_found_by_it(shop: Shop, path: str, params: dict[str, str]):
    for who in ("read key", "operate key"):
        body = shop.get(path, who, **params).json()
        found = body.get("rows") or body.get("jobs") or [one for one in [body.get("customer")] if one]
        assert len(found) == (who == "operate key")
        assert who == "operate key" or not body.get("cursor")


@table(
    ("path", "name", "masked", "found"),
    [
        ("/dashboard/site/north/oci-control", "q", CLICK, "row"),
        ("/dashboard/queues/oci", "text", OTHER, "row"),
        ("/dashboard/queues/oci", "text", EMAIL, "row"),
        ("/dashboard/queues/oci/rows.csv", "text", OTHER, "row"),
        ("/dashboard/queues/task", "text", EMAIL, "task"),
        ("/dashboard/queues/optiplan", "text", NAME, "order"),
        ("/dashboard/optiplan", "text", NAME, "order"),
        ("/dashboard/queues/pdf", "text", NAME, "pdf"),
        ("/dashboard/jump", "q", NAME, "order"),
        ("/dashboard/jump", "q", EMAIL, "task"),
    ],
)
def test_a_page_says_of_a_masked_value_what_it_says_of_one_that_is_not_there(
    shop: Shop, path: str, name: str, masked: str, found: str
):
    absent = "".join(chr(ord(char) + 1) if char in "aeioC5" else char for char in masked)
    assert absent != masked

    def ask(text: str, who: str) -> str:
        headers = {**shop.who[who], "x-request-id": "same", "hx-request": "true"}
        answer = shop.world.client.get(path, params={name: text}, headers=headers)
        assert answer.status_code == 200
        return str(answer.text).replace(quote_plus(text), "-").replace(escape(text), "-")

    assert ask(masked, "viewer") == ask(absent, "viewer")
    assert getattr(shop, found).removeprefix("seal_") in ask(masked, "operator")


def test_what_is_shown_is_still_found_and_a_page_is_filled_up(shop: Shop):
    """Matches in masked text neither shorten a page nor end it."""
    world, queue = shop.world, shop.world.service.queues["oci"]
    texts = [f"refused {EMAIL}", "refused again", f"for refused{EMAIL}", "refused: last"]
    wanted = "refused"
    for number, text in enumerate(texts):
        [job_id] = _post_rows(world, shop.who, sale(f"text-{number}", gclid=f"click-{number}00"))
        queue.act("MARK_FAILED", actor="tests", ids=[job_id], reason=text)
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        params = {"text": wanted, "limit": 2, **({"cursor": cursor} if cursor else {})}
        body = shop.get("/api/queues/oci/jobs", "viewer", **params).json()
        found += [job["error_message"] for job in body["jobs"]]
        cursor, pages = body["cursor"], pages + 1
    # The address begins with "refused" in the third: there it is a part of what is masked.
    assert found == ["refused: last", "refused again", f"refused {MASK}"]
    assert pages == 2


# Files


def columns(text: str) -> list[str]:
    return next(csv.reader(io.StringIO(text.removeprefix("\ufeff"))))


@table("who", ["read key", "read and reveal key"])
def test_dead_letters_have_click_ids_for_those_who_may_reveal(shop: Shop, who: str):
    texts: list[str] = []
    path = "/api/oci/dead-letter.csv?siteId=north"
    [line] = shop.lines(lambda: texts.append(shop.get(path, who, siteId="north").text))
    revealed = who in REVEALERS
    assert (line.action, line.site, line.details) == (
        "oci.dead_letters",
        "north",
        f'{{"revealed":{str(revealed).lower()}}}',
    )
    assert ({"gclid", "wbraid", "gbraid"} <= set(columns(texts[0]))) == revealed
    assert (CLICK in texts[0]) == revealed
    assert "externalId" in columns(texts[0])


def test_a_file_without_click_ids_corrects_rows_and_keeps_theirs(shop: Shop):
    world = shop.world
    [job_id] = _post_rows(world, shop.who, sale("keeps-its-click", gclid="Cj0KCQiA_kept"))
    world.service.queues["oci"].act("MARK_FAILED", actor="tests", ids=[job_id], category="VALIDATION")
    text = shop.get("/api/oci/dead-letter.csv", "viewer", siteId="north").text
    rows = [
        row
        for row in csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
        if row["externalId"] == "keeps-its-click"
    ]
    assert len(rows) == 1
    mended = io.StringIO()
    writer = csv.DictWriter(mended, rows[0].keys())
    writer.writeheader()
    writer.writerow({**rows[0], "conversionValue": "77"})
    response = world.client.post(
        "/dashboard/site/north/oci-control/fixes",
        files={"file": ("mended.csv", mended.getvalue(), "text/csv")},
        headers=shop.who["operator"],
    )
    assert response.status_code == 200, response.text
    payload = world.found(job_id).payload
    assert (payload["gclid"], payload["conversionValue"]) == ("Cj0KCQiA_kept", 77)


def test_exports_and_previews_of_click_ids_are_lines(shop: Shop):
    path = "/api/oci/google-ads-export?siteId=north"
    for who, action in (("script", "oci.preview"), ("operator", "oci.preview"), ("viewer", None)):
        responses: list[Any] = []
        lines = shop.lines(
            lambda who=who, responses=responses: responses.append(  # type: ignore[misc]
                shop.world.client.get(path, headers=shop.who[who])
            )
        )
        assert responses[0].json()["counts"]["queued"] >= 1
        assert [line.action for line in lines] == ([action] if action else [])
        assert ("Cj0KCQiA_other" in responses[0].text) == (action is not None)
    [line] = shop.lines(lambda: shop.world.client.get(f"{path}&markAsExported=true", headers=shop.who["script"]))
    assert (line.action, line.site) == ("oci.export", "north")


def test_a_csv_of_jobs_is_a_line(shop: Shop):
    [line] = shop.lines(lambda: shop.get("/dashboard/queues/task/rows.csv", "viewer"))
    assert (line.action, line.queue) == ("queue.export", "task")


# Masked values that come back


def test_a_masked_value_is_refused_by_the_name_of_its_field(shop: Shop):
    masked = f"{MASK}1234"
    post = shop.world.client.post
    for field in ("gclid", "externalId", "conversionName"):
        row = sale("masked", **{field: masked})
        response = post("/api/oci/conversions?siteId=north", json=[row, sale("good")], headers=shop.who["ingest"])
        refused, taken = response.json()["results"]
        assert (refused["result"], refused["code"], refused["field"]) == ("rejected", "MASKED_VALUE", field)
        assert taken["result"] in {"queued", "duplicate"}
    for changes, field in (
        ({"customer_phone": masked}, "customer_phone"),
        ({"customer_snapshot_name": masked}, "customer_snapshot_name"),
    ):
        response = post("/jobs", json=order(**changes), headers=shop.who["optiplan"])
        assert response.status_code == 422
        assert error_of(response)["details"]["fields"][0]["field"] == field
    response = post("/customers", json={"name": masked, "phone": PHONE}, headers=shop.who["optiplan"])
    assert error_of(response)["details"]["fields"][0]["field"] == "name"
    response = post(
        "/api/queues/task/jobs",
        json={"jobs": [{"payload": {"n": [{"phone": masked}]}}]},
        headers=shop.world.key("admin"),
    )
    assert response.status_code == 422
    assert error_of(response)["code"] == "masked_value"
    assert error_of(response)["details"]["field"] == "jobs[0].payload.n[0].phone"


def test_the_command_layer_masks_for_plug_ins_too(shop: Shop):
    commands = shop.world.service.commands
    assert hidden(str(commands.job(ROOT, shop.row)))  # in clear only where it is asked for
    assert hidden(str(commands.find(ROOT, "oci", [shop.row])))
