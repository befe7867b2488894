"""Cutting orders: holds on top, moves with a sheet, orders by form and file, customers, rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kesin.web.dashboard.order_form import MOST_ROWS, OrderForm
from kesin.workloads.optiplan.payload import read_payload
from kesin.workloads.optiplan.rules import default_rules, rules_json
from tests.web.conftest import World
from tests.workloads.optiplan.orders_ready import desk_of, held_order, planned_order

PAGE = "/dashboard/optiplan"
PART = {
    "parts/0/id": "P1",
    "parts/0/part_type": "GOVDE",
    "parts/0/material_code": "18MM 210*280",
    "parts/0/color": "Beyaz",
    "parts/0/thickness_mm": "18",
    "parts/0/length_cm": "60,5",
    "parts/0/width_cm": "40",
    "parts/0/quantity": "2",
    "parts/0/grain": "0",
    "parts/0/edge_up": "1mm",
}
HEAD = {"order_id": "W-1", "customer_phone": "0555 123 45 67"}


@pytest.fixture(scope="module")
def shop(shared_world: World) -> World:
    shared_world.person("ayse", "admin", all_sites=True)
    shared_world.person("can", "operator", all_sites=True)
    shared_world.person("ece", "viewer", all_sites=True)
    return shared_world


def get(world: World, path: str = "", who: str = "can") -> Any:
    return world.client.get(PAGE + path, headers=world.cookie(who))


def post(world: World, path: str, who: str = "can", **sent: Any) -> Any:
    return world.client.post(PAGE + path, headers=world.cookie(who), **sent)


def state(world: World, job_id: str) -> str:
    return world.state(job_id)


def test_a_held_order_stands_on_top_with_what_to_do(shop):
    job = held_order(shop.service)
    page = get(shop).text
    assert page.index(f"held-{job}") < page.index(f"order-{job}")
    assert "E_CRM_NO_MATCH" in page
    assert "add the customer" in page
    assert f"/orders/{job}/approve" in page
    viewed = get(shop, who="ece").text
    assert f"held-{job}" in viewed
    assert "/approve" not in viewed


def test_an_order_whose_xml_is_there_says_so_and_links_its_drawing(shop):
    job = planned_order(shop.service)
    page = get(shop).text
    assert "ready to approve" in page
    assert f"/jobs/{job}/plan.svg" in page


def test_approving_asks_first_and_then_moves(shop):
    job = held_order(shop.service)
    sheet = get(shop, f"/orders/{job}/approve").text
    assert "<dialog" in sheet
    assert state(shop, job) == "HOLD"
    done = post(shop, f"/orders/{job}/approve")
    assert "orders-changed" in done.headers["hx-trigger"]
    assert state(shop, job) == "NEW"
    again = post(shop, f"/orders/{job}/approve")
    assert again.status_code == 409


def test_an_order_is_cancelled_and_reissued(shop):
    job = held_order(shop.service)
    assert "FAILED" in post(shop, f"/orders/{job}/cancel").text
    assert post(shop, f"/orders/{job}/retry").status_code == 409
    assert "A new revision was made." in post(shop, f"/orders/{job}/reissue").text
    assert post(shop, f"/orders/{job}/reissue").status_code == 409


def test_who_may_only_look_moves_nothing(shop):
    job = held_order(shop.service)
    assert get(shop, f"/orders/{job}/approve", who="ece").status_code == 403
    assert post(shop, f"/orders/{job}/approve", who="ece").status_code == 403
    assert state(shop, job) == "HOLD"


def test_an_order_is_typed_and_brought_once(shop):
    first = post(shop, "/new", "ayse", data=HEAD | PART)
    assert first.status_code == 303
    assert "known" not in first.headers["location"]
    assert post(shop, "/new", "ayse", data=HEAD | PART).headers["location"].endswith("&known=1")
    made = first.headers["location"].partition("made=")[2]
    data = shop.found(made).data
    assert data["order"]["parts"][0]["length_cm"] == 60.5
    assert data["order"]["parts"][0]["edge_up"] == "1mm"
    assert "The order is on its way" in get(shop, f"?made={made}").text


def test_what_is_wrong_stands_at_its_cell_and_what_was_typed_stays(shop):
    answer = post(shop, "/new", "ayse", data=HEAD | PART | {"parts/0/quantity": "many"})
    assert answer.status_code == 422
    assert "parts[0].quantity" in answer.text
    assert 'value="many"' in answer.text
    assert 'value="W-1"' in answer.text


def test_rows_come_and_go(shop):
    more = post(shop, "/new/rows", "ayse", data=PART | {"do": "add"}).text
    assert 'name="parts/1/color" value="Beyaz"' in more
    two = PART | {"parts/1/color": "Ceviz", "do": "remove:0"}
    less = post(shop, "/new/rows", "ayse", data=two).text
    assert 'value="Ceviz"' in less
    assert 'value="Beyaz"' not in less


LIST = "18;600;400;2;0;;;;;;;\n18;700;300;1;0;;;;;;;\n"


def test_a_list_is_brought_or_refused_row_by_row(shop):
    data = {**HEAD, "order_id": "L-1", "color": "Beyaz"}
    good = post(shop, "/import", "ayse", data=data, files={"file": ("Can.csv", LIST, "text/csv")})
    assert good.status_code == 303, good.text
    bad = LIST.replace("700", "long")
    answer = post(shop, "/import", "ayse", data=data, files={"file": ("C.csv", bad, "text/csv")})
    assert answer.status_code == 422
    assert "Nothing was made" in answer.text
    assert post(shop, "/import", "ayse", data=data).status_code == 422


def test_an_operator_brings_no_orders(shop):
    assert "/dashboard/optiplan/new" not in get(shop).text
    assert get(shop, "/new").status_code == 403


def test_customers_are_kept_looked_up_and_forgotten(shop):
    sent = {"name": "Özgür", "phone": "0532 111 22 33"}
    assert post(shop, "/customers", data=sent).headers["location"].endswith("done=new")
    assert post(shop, "/customers", data=sent).headers["location"].endswith("done=renamed")
    assert "Özgür" in get(shop, "/customers").text
    assert "Özgür" in get(shop, "/customers?phone=%2B90+532+1112233").text
    assert "Nobody has this phone" in get(shop, "/customers?phone=0532+999+99+99").text
    assert post(shop, "/customers", data={"name": "", "phone": "1"}).status_code == 422
    assert post(shop, "/customers/remove", who="ece", data=sent).status_code == 403
    assert post(shop, "/customers/remove", data=sent).headers["location"].endswith("done=removed")


def test_rules_are_changed_whole_or_not_at_all(shop):
    rules = rules_json(default_rules())
    changed = {**rules, "kerf_mm": 3, "retry_count_max": 2}
    answer = post(shop, "/rules", data={"source": json.dumps(changed)})
    assert answer.headers["location"].endswith("done=kerf_mm,retry_count_max")
    assert "next start" in get(shop, "/rules?done=kerf_mm,retry_count_max").text
    assert desk_of(shop.service).workshop.rules().kerf_mm == 3
    for wrong, told in (({**rules, "kerf": 1}, "kerf"), ({**rules, "kerf_mm": 99}, "kerf_mm")):
        answer = post(shop, "/rules", data={"source": json.dumps(wrong)})
        assert (answer.status_code, told in answer.text) == (422, True)
    assert post(shop, "/rules", data={"source": "{"}).status_code == 422
    assert post(shop, "/rules", "ece", data={"source": json.dumps(rules)}).status_code == 403
    assert "machineDropFolder" in get(shop, "/rules", who="ece").text


def test_the_form_makes_the_order_that_would_be_sent():
    body = OrderForm.read(HEAD | PART | {"width_mm": "2100", "height_mm": "2800"}).body()
    order = read_payload(body)
    assert order.parts[0].quantity == 2
    assert order.plate_size is not None


def test_a_form_holds_so_many_rows_and_reads_no_other_field():
    form = OrderForm.empty()
    for _ in range(MOST_ROWS + 5):
        form = form.added()
    assert len(form.rows) == MOST_ROWS
    odd = {"parts/x/id": "1", "parts/0/secret": "1", "parts/99999/id": "1", "parts/0": "1"}
    assert OrderForm.read(odd).rows == ()
