"""The API for orders and customers: every request of the seed, every rejection with its code."""

import json
from typing import Any

import pytest

from kesin.engine.access.masking import MASK
from kesin.workloads.optiplan.api import routes as api
from tests.web.conftest import ROOT, error_of
from tests.workloads.optiplan.floor import NO_JOB, PHONE, Floor, any_order
from tests.workloads.optiplan.order_bodies import part
from tests.workloads.optiplan.workbooks import sheet_of

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
FIELDS = {
    "waiting_for",
    *("id", "order_id", "state", "error_code", "error_message", "retry_count", "opti_mode"),
    *("revision", "next_run_at", "manual_trigger_approved", "created_at", "updated_at", "payload"),
    *("ready_to_approve", "advice"),
}
LIST: list[list[Any]] = [
    ["18MM", "210*280"],
    ["RENK: Beyaz"],
    ["", 722, 580, 6, 1, "x", "", "", "", "", "", "yan"],
    ["", 600, 495, 4, 0, "", "", "", "", "", "", "raf"],
]


def fields_of(answer: Any) -> dict[str, str]:
    """The fields an E_VALIDATION names."""
    assert answer.status_code == 422, answer.text
    error = error_of(answer)
    assert error["code"] == "E_VALIDATION"
    return {field["field"]: field["message"] for field in error["details"]["fields"]}


# New orders


def test_an_order_becomes_a_job(floor: Floor):
    body = any_order(parts=[part(edge_up="1mm")], customer_snapshot_name="Ayşe")
    answer = floor.post(body)
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "private, no-store"
    job = answer.json()["job"]
    assert job.keys() == FIELDS
    assert job["payload"] == body
    assert (job["state"], job["opti_mode"], job["revision"]) == ("NEW", "A", 1)
    assert (job["manual_trigger_approved"], job["retry_count"]) == (0, 0)
    assert (job["error_code"], job["advice"], job["ready_to_approve"]) == (None, None, False)
    assert job["waiting_for"]["what"] == "runner"


def test_the_same_order_again_finds_its_job_however_it_is_spelled(floor: Floor):
    body = any_order(parts=[part(thickness_mm=18, width_cm=58)])
    first = floor.post(body)
    turned = {name: body[name] for name in reversed(body)}
    [only] = body["parts"]
    turned["parts"] = [{name: only[name] for name in reversed(only)}]
    turned["parts"][0] |= {"thickness_mm": 18.0, "width_cm": 5.8e1, "edge_up": None}
    again = floor.post(turned)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["job"]["id"] == first.json()["job"]["id"]
    assert floor.event_types(first.json()["job"]["id"]) == ["JOB_CREATED", "JOB_DEDUP"]


def test_every_bad_field_is_named_and_nothing_is_created(floor: Floor):
    before = len(floor.get("/jobs", limit=500).json()["jobs"])
    body = {"parts": [{"id": "p1"}, part(width_cm=0)], "opti_mode": "D", "what": 1}
    fields = fields_of(floor.post(body))
    names = {"order_id", "customer_phone", "opti_mode", "what", "parts[0].color"}
    assert {*names, "parts[0].grain", "parts[1].width_cm"} <= set(fields)
    assert fields["what"] == "is not a known field"
    assert len(floor.get("/jobs", limit=500).json()["jobs"]) == before


def test_a_failed_order_is_retried_after_a_pause(own_floor: Floor):
    floor = own_floor
    job_id = floor.timed_out()
    assert floor.act(job_id, "retry").json() == {"success": True, "retry_count": 1}
    assert floor.details(job_id, "JOB_RETRY_SCHEDULED")["backoff_minutes"] == 1
    floor.later(60)
    assert floor.job_body(job_id)["state"] == "OPTI_RUNNING"  # the approval stands
    for action in ("retry", "reissue"):
        refused = floor.act(job_id, action)
        assert (refused.status_code, error_of(refused)["code"]) == (409, "E_JOB_NOT_FAILED")


def test_a_body_that_is_no_order_is_refused(floor: Floor):
    for content, kind in (
        (b"{", "application/json"),
        (b"\xff\xfe", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"[]", "application/json"),
        (b"", "application/json"),
        (b"{}", "text/plain"),
        (b"a=1", "application/x-www-form-urlencoded"),
        (b'{"order_id": NaN}', "application/json"),
    ):
        answer = floor.client.post("/jobs", content=content, headers=floor.maker | {"content-type": kind})
        assert fields_of(answer), content[:20]


def test_an_order_too_large_to_keep_is_refused_in_words(floor: Floor):
    many = [part(id=f"{n:04}", desc1="ş" * 250, iidesc="ş" * 250) for n in range(500)]
    answer = floor.post(any_order(parts=many))
    assert (answer.status_code, error_of(answer)["code"]) == (422, "E_VALIDATION")
    assert "bytes" in error_of(answer)["message"]


# Lists


def imported(floor: Floor, content: Any, kind: str = XLSX, **params: Any) -> Any:
    order_id = params.pop("order_id", None) or any_order()["order_id"]
    return floor.client.post(
        f"/orders/{order_id}/import/xlsx",
        content=content,
        params={"customer_phone": PHONE, **params},
        headers=floor.maker | {"content-type": kind},
    )


def test_a_list_as_xlsx_becomes_an_order_once(floor: Floor):
    named = {"order_id": "X-1", "file_name": "Ayşe Yılmaz.xlsx"}
    answer, again = (imported(floor, sheet_of(LIST), **named) for _ in range(2))
    assert (answer.status_code, again.status_code) == (201, 200)
    payload = answer.json()["job"]["payload"]
    assert (payload["order_id"], payload["customer_phone"]) == ("X-1", PHONE)
    assert payload["customer_snapshot_name"] == "Ayşe Yılmaz"
    assert [(part["length_cm"], part["quantity"]) for part in payload["parts"]] == [(72.2, 6), (60, 4)]
    assert payload["parts"][0]["edge_up"] == "1mm"


def test_a_list_as_csv_becomes_an_order_and_what_it_does_not_say_may_stand_in_the_query(floor: Floor):
    text = "\n".join(";".join(map(str, [*row, *[""] * 12][:12])) for row in LIST)
    answer = imported(floor, text.encode(), "text/csv; charset=utf-8", opti_mode="C")
    assert answer.status_code == 201
    assert answer.json()["job"]["opti_mode"] == "C"
    assert imported(floor, text.encode(), "application/octet-stream").status_code == 201
    answer = imported(floor, sheet_of(LIST[2:]), color="Meşe", thickness_mm="18", material_code="M18")
    assert answer.status_code == 201
    first_part = answer.json()["job"]["payload"]["parts"][0]
    assert (first_part["color"], first_part["thickness_mm"], first_part["material_code"]) == ("Meşe", 18, "M18")


def test_a_tick_means_a_band_of_the_workshop(floor: Floor, rules: dict[str, Any]):
    rules["edgeMapping"] = {"Bant Yok": None, "ABS": 0.8}
    floor.client.put("/config/rules", json=rules, headers=floor.operator)
    answer = imported(floor, sheet_of(LIST))
    assert answer.json()["job"]["payload"]["parts"][0]["edge_up"] == "ABS"


def test_every_bad_row_is_reported_and_nothing_is_made(floor: Floor):
    before = len(floor.get("/jobs", limit=500).json()["jobs"])
    bad = [*LIST, ["", 600, "wide", 4], ["", -5, 100, 1], ["", 100, 100, 1.5]]
    answer = imported(floor, sheet_of(bad))
    assert (answer.status_code, error_of(answer)["code"]) == (422, "E_VALIDATION")
    rows = error_of(answer)["details"]["rows"]
    assert [(row["row"], row["column"]) for row in rows] == [(5, "C"), (6, "B"), (7, "D")]
    assert len(floor.get("/jobs", limit=500).json()["jobs"]) == before


def test_a_list_that_cannot_be_read_or_has_no_phone_is_refused(floor: Floor):
    for content, kind in ((b"", XLSX), (b"PK\x03\x04broken", XLSX), (b"just text", "text/csv")):
        answer = imported(floor, content, kind)
        assert (answer.status_code, error_of(answer)["code"]) == (422, "E_VALIDATION")
        assert error_of(answer)["details"]["rows"][0]["row"] == 0
    answer = imported(floor, b"<order/>", "application/xml")
    assert "application/json" in fields_of(answer)["order"]
    answer = floor.client.post(
        "/orders/X-3/import/xlsx", content=sheet_of(LIST), headers=floor.maker | {"content-type": XLSX}
    )
    assert (answer.status_code, error_of(answer)["code"]) == (400, "E_PHONE_REQUIRED")


def test_the_import_takes_json_under_the_id_of_the_address(floor: Floor):
    body = any_order()
    named = floor.client.post(f"/orders/{body['order_id']}/import/xlsx", json=body, headers=floor.maker)
    del body["order_id"]
    bare = floor.client.post("/orders/X-9/import/xlsx", json=body, headers=floor.maker)
    assert (named.status_code, bare.status_code) == (201, 201)
    assert bare.json()["job"]["order_id"] == "X-9"
    other = floor.client.post("/orders/X-9/import/xlsx", json={**body, "order_id": "X-8"}, headers=floor.maker)
    assert "order_id" in fields_of(other)


# Jobs


def test_jobs_are_listed_newest_first_in_pages_of_so_many_jobs_or_bytes(
    own_floor: Floor, monkeypatch: pytest.MonkeyPatch
):
    ids = [own_floor.new() for _ in range(5)][::-1]
    first = own_floor.get("/jobs", limit=2).json()
    second = own_floor.get("/jobs", limit=2, cursor=first["next_cursor"]).json()
    third = own_floor.get("/jobs", limit=2, cursor=second["next_cursor"]).json()
    pages = [first, second, third]
    assert [job["id"] for page in pages for job in page["jobs"]] == ids
    assert third["next_cursor"] is None
    assert len(own_floor.get("/jobs").json()["jobs"]) == 5
    size = max(len(job.payload_json) for job in own_floor.queue.jobs().jobs)
    monkeypatch.setattr(api, "MAX_PAGE_BYTES", size * 3 // 2)
    page = own_floor.get("/jobs").json()
    assert [job["id"] for job in page["jobs"]] == ids[:1]
    rest = own_floor.get("/jobs", cursor=page["next_cursor"]).json()
    assert rest["jobs"][0]["id"] == ids[1]


def test_jobs_are_found_by_state_and_by_order(each_floor: Floor):
    floor = each_floor
    held = floor.unknown()
    order_id = f'S "quoted" 50% {floor.job_body(held)["order_id"]}'
    waiting = floor.new(order_id=order_id)
    assert held in [job["id"] for job in floor.get("/jobs", state="HOLD").json()["jobs"]]
    assert waiting not in [job["id"] for job in floor.get("/jobs", state="HOLD").json()["jobs"]]
    jobs = floor.get("/jobs", order_id=order_id).json()["jobs"]
    assert [job["id"] for job in jobs] == [waiting]
    assert floor.get("/jobs", order_id=order_id[:-1]).json()["jobs"] == []
    assert floor.get("/jobs", order_id=order_id, state="HOLD").json()["jobs"] == []


def test_a_bad_filter_is_refused_by_name(floor: Floor):
    bad: list[dict[str, Any]] = [{"state": "LOST"}, {"limit": 0}, {"limit": 501}, {"limit": "x"}, {"cursor": "next"}]
    for params in bad:
        assert fields_of(floor.get("/jobs", **params)).keys() == params.keys()


def test_a_job_is_reported_with_its_history_and_advice(floor: Floor):
    job_id = floor.unknown()
    body = floor.get(f"/jobs/{job_id}").json()
    job, audit = body["job"], body["audit"]
    assert (job["state"], job["error_code"], job["next_run_at"]) == ("HOLD", "E_CRM_NO_MATCH", None)
    assert "müşteri" in job["advice"]["tr"]["means"]
    assert [line["event_type"] for line in audit] == ["JOB_CREATED", "STATE_HOLD"]
    assert [line["id"] for line in audit] == [1, 2]
    assert {line["job_id"] for line in audit} == {job_id}
    assert json.loads(audit[1]["details_json"])["errorCode"] == "E_CRM_NO_MATCH"


def test_no_such_job_is_404(floor: Floor):
    responses = [floor.get(f"/jobs/{job_id}") for job_id in (NO_JOB, "nothing", "x" * 500, "%00")]
    responses += [floor.act(NO_JOB, what) for what in ("approve", "retry", "reissue", "cancel")]
    responses += [floor.get(f"/jobs/{NO_JOB}/{what}") for what in ("xml", "plan.svg", "plan.pdf")]
    refusals = {(response.status_code, error_of(response)["code"]) for response in responses}
    assert refusals == {(404, "E_JOB_NOT_FOUND")}


def test_a_job_that_carries_no_order_is_reported_without_one(floor: Floor):
    payloads: list[Any] = [{"n": 1}, [], "text", None, {"order": {"parts": []}}]
    for payload in payloads:
        job = floor.job_body(floor.job("default", queue="optiplan", payload=payload))
        assert (job["order_id"], job["payload"], job["opti_mode"]) == (None, None, None)
    assert floor.get("/jobs").status_code == 200


# Operators


def test_an_order_held_for_a_person_is_approved_and_a_failed_one_reissued_once(floor: Floor):
    job_id = floor.unknown()
    answer = floor.act(job_id, "approve")
    assert (answer.status_code, answer.json()["success"]) == (200, True)
    job = answer.json()["job"]
    assert (job["state"], job["error_code"], job["manual_trigger_approved"]) == ("NEW", None, 0)
    assert floor.details(job_id, "HOLD_APPROVED")["mode_c_approved"] is False
    again = floor.act(job_id, "approve")
    assert (again.status_code, error_of(again)["code"]) == (409, "E_JOB_NOT_IN_HOLD")
    floor.act(job_id, "cancel")
    answer = floor.act(job_id, "reissue")
    assert (answer.status_code, answer.json()["success"]) == (201, True)
    job = answer.json()["job"]
    assert (job["state"], job["revision"]) == ("NEW", 2)
    assert job["payload"] == floor.job_body(job_id)["payload"]
    for what in ("reissue", "retry"):
        refused = floor.act(job_id, what)
        assert (refused.status_code, error_of(refused)["code"]) == (409, "E_REISSUED")


def test_a_held_order_whose_xml_has_appeared_says_so(floor: Floor):
    job_id = floor.held()
    assert floor.job_body(job_id)["error_code"] == "E_OPERATOR_TRIGGER_REQUIRED"
    assert floor.job_body(job_id)["ready_to_approve"] is False
    [xml] = floor.plan(job_id)
    assert floor.job_body(job_id)["ready_to_approve"] is True
    listed = floor.get("/jobs", order_id=floor.job_body(job_id)["order_id"]).json()["jobs"]
    assert listed[0]["ready_to_approve"] is True
    assert floor.act(job_id, "approve").json()["job"]["manual_trigger_approved"] == 1
    xml.unlink()


def test_an_order_without_its_xml_is_approved_only_if_confirmed(floor: Floor):
    job_id = floor.held()
    for answer in (floor.act(job_id, "approve"), floor.act(job_id, "approve", confirm=False)):
        refusal = (answer.status_code, error_of(answer)["code"])
        assert refusal == (409, "E_OPERATOR_TRIGGER_REQUIRED")
    assert floor.act(job_id, "approve", confirm=1).status_code == 422
    body = {"action": "approve", "ids": [job_id]}
    answer = floor.client.post("/api/queues/optiplan/actions", json=body, headers=floor.operator)
    assert (answer.status_code, error_of(answer)["code"]) == (422, "needs_workload")
    assert floor.state(job_id) == "HOLD"
    assert floor.act(job_id, "approve", confirm=True).status_code == 200
    assert floor.state(job_id) == "NEW"


def test_a_waiting_order_is_cancelled_and_one_in_a_runners_hand_is_asked_to_stop(floor: Floor):
    job_id = floor.new()
    answer = floor.act(job_id, "cancel")
    assert (answer.status_code, answer.json()["cancelled"]) == (200, True)
    assert floor.job_body(job_id)["error_code"] == "E_CANCELLED"
    again = floor.act(job_id, "cancel")
    assert (again.status_code, error_of(again)["code"]) == (409, "E_JOB_NOT_CANCELLABLE")
    job_id = floor.new()
    floor.claim(job_id)
    answer = floor.act(job_id, "cancel")
    assert (answer.status_code, answer.json()["cancelled"]) == (202, False)
    assert floor.act(job_id, "cancel").status_code == 202
    assert floor.event_types(job_id)[-1] == "CANCEL_REQUESTED"


# Customers


def test_customers_are_saved_looked_up_and_listed_in_pages(own_floor: Floor):
    floor = own_floor
    given = {"name": "  Ayşe <b>Yılmaz</b> ", "phone": "0 (555) 123-45-67"}
    answer = floor.client.post("/customers", json=given, headers=floor.maker)
    customer = {"name": "Ayşe <b>Yılmaz</b>", "phone": PHONE}
    assert (answer.status_code, answer.json()) == (201, {"success": True, "customer": customer})
    renamed = floor.client.post("/customers", json={"name": "Ayşe", "phone": "00905551234567"}, headers=floor.operator)
    assert renamed.status_code == 200
    body = floor.get("/customers/lookup", phone="+90 555 123 45 67").json()
    customer = {"name": "Ayşe", "phone": PHONE}
    assert body == {"success": True, "phone_normalized": PHONE, "customer": customer}
    nobody = floor.get("/customers/lookup", phone="0555 000 00 00").json()
    assert (nobody["phone_normalized"], nobody["customer"]) == ("+905550000000", None)
    assert floor.get("/customers").json() == {"customers": [customer], "next_cursor": None}
    for n in range(4):
        floor.orders.add_customer(ROOT, f"c{n}", f"055500000{n:02}")
    first = floor.get("/customers", limit=3).json()
    second = floor.get("/customers", limit=3, cursor=first["next_cursor"]).json()
    names = [customer["name"] for page in (first, second) for customer in page["customers"]]
    assert names == ["c0", "c1", "c2", "c3", "Ayşe"]
    assert second["next_cursor"] is None


def test_a_lookup_needs_a_phone(floor: Floor):
    answers = [floor.get("/customers/lookup"), *(floor.get("/customers/lookup", phone=text) for text in ("", "none"))]
    refusals = {(answer.status_code, error_of(answer)["code"]) for answer in answers}
    assert refusals == {(400, "E_PHONE_REQUIRED")}


def test_a_bad_customer_is_refused(floor: Floor):
    bad: list[tuple[Any, int, str]] = [
        ({"name": "Ayşe"}, 422, "E_VALIDATION"),
        ({"name": "Ayşe", "phone": 5551234567}, 422, "E_VALIDATION"),
        ({"name": "Ayşe", "phone": PHONE, "mail": "a@b"}, 422, "E_VALIDATION"),
        ({"name": " ", "phone": PHONE}, 422, "E_VALIDATION"),
        ({"name": "x" * 101, "phone": PHONE}, 422, "E_VALIDATION"),
        ({"name": "a\nb", "phone": PHONE}, 422, "E_VALIDATION"),
        ({"name": "Ayşe", "phone": "none"}, 400, "E_PHONE_REQUIRED"),
        ([], 422, "E_VALIDATION"),
    ]
    for body, status, code in bad:
        answer = floor.client.post("/customers", json=body, headers=floor.maker)
        assert (answer.status_code, error_of(answer)["code"]) == (status, code), body


def test_a_new_customer_is_a_line_of_the_audit_log(floor: Floor):
    lines = floor.said(
        lambda: floor.client.post("/customers", json={"name": "Can", "phone": "05321112233"}, headers=floor.maker)
    )
    assert [(line.action, line.target) for line in lines] == [("optiplan.customer", f"{MASK}2233")]
