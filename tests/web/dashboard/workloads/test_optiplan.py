"""Cutting orders: holds on top, moves with a sheet, orders by form and file, customers."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kesin.workloads.optiplan.orders.payload import read_payload
from kesin.workloads.optiplan.pages import orders
from kesin.workloads.optiplan.pages.job_panel import deliveries
from kesin.workloads.optiplan.pages.new_order import OrderForm
from kesin.workloads.optiplan.pipeline.delivery import Delivery, DeliveryFile
from tests.web.conftest import World
from tests.web.dashboard.workloads.orders_page import PAGE, get, post
from tests.workloads.optiplan.orders_ready import held_order, order_service, planned_order

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


def state(world: World, job_id: str) -> str:
    return world.state(job_id)


def test_a_held_order_stands_on_top_with_what_to_do(shop):
    job = held_order(shop.service)
    for part in ({}, {"hx-request": "true"}):  # also when the page renews itself
        story = shop.client.get(f"/dashboard/jobs/{job}", headers=shop.cookie("can") | part).text
        head = story[story.index('id="job-head"') :].partition("</div>")[0]
        assert f'href="/dashboard/optiplan#held-{job}"' in head
        assert story.count("/dashboard/optiplan#") == 1
    page = get(shop).text
    assert page.index(f"held-{job}") < page.index(f"row-{job}")
    assert "E_CRM_NO_MATCH" in page
    assert "add the customer" in page
    assert f"/orders/{job}/approve" in page
    turkish = {**shop.cookie("can"), "accept-language": "tr"}
    for path in (PAGE, f"/dashboard/jobs/{job}"):
        told = shop.client.get(path, headers=turkish).text
        assert "telefon numarasıyla kayıtlı müşteri yok" in told
        assert "no customer has the phone" not in told
        assert "message_parts" not in told
    events = shop.client.get(f"/api/jobs/{job}", headers=shop.cookie("can"))
    assert "message_parts" not in events.text
    assert "phone_normalized" in events.text
    viewed = get(shop, who="ece").text
    assert f"held-{job}" in viewed
    assert "/approve" not in viewed
    assert "#k-name" not in viewed


def card(world: World, job: str) -> str:
    page = get(world).text
    return page[page.index(f'id="held-{job}"') :].partition("</article>")[0]


def test_a_hold_for_an_unknown_customer_is_mended_before_it_is_approved(shop):
    job = held_order(shop.service, customer_phone="0532 777 00 07", customer_snapshot_name="Işıl")
    before = card(shop, job)
    way = f"/dashboard/jobs/{job}"
    assert f'class="button first" href="{way}#k-name"' in before
    assert 'class="button" hx-get' in before  # approving is still offered, and says what it does
    assert "held again immediately" in get(shop, f"/orders/{job}/approve").text
    page = shop.client.get(way, headers=shop.cookie("can")).text
    assert re.search(r'id="k-name"[^>]+name="name"[^>]+value="Işıl"', page)
    assert re.search(r'name="phone"[^>]+value="0532 777 00 07"', page)
    viewed = shop.client.get(way, headers=shop.cookie("ece")).text
    assert "0532 777 00 07" not in viewed
    assert 'name="phone"' not in viewed
    sent = {"name": "Işıl", "phone": "0532 777 00 07"}
    assert post(shop, f"/orders/{job}/customer", data={**sent, "name": ""}).status_code == 422
    answer = post(shop, f"/orders/{job}/customer", data=sent)
    assert answer.headers["location"] == way
    after = card(shop, job)
    assert "#k-name" not in after
    assert 'class="button first" hx-get' in after
    assert "is known now" in after
    for contradiction in ("E_CRM_NO_MATCH", "no customer has the phone"):
        assert contradiction in before
        assert contradiction not in after
    assert "is known now" not in before
    sheet = get(shop, f"/orders/{job}/approve").text
    assert "held again immediately" not in sheet
    assert "is known now" in sheet


def test_deliveries_are_told_in_words(shop):
    job = planned_order(shop.service)
    desk = order_service(shop.service)
    dossier = desk._progress_store.read(job)
    dossier.deliveries = [
        {"delivery": Delivery(n, (DeliveryFile(Path("a"), f"cut-{n}.xml", "0" * 64),)).as_json(), "state": state}
        for n, state in enumerate(("withdrawn", "refused", "open"), 1)
    ]
    desk._progress_store.write(job, dossier)
    headers = {**shop.cookie("can"), "accept-language": "tr"}
    page = shop.client.get(f"/dashboard/jobs/{job}", headers=headers).text
    lines = re.findall(r'<li><span class="n">(\d)</span> (.*?) <span class="mono muted">(.*?)</', page)
    assert lines == [
        ("3", "testereyi bekliyor", "cut-3.xml"),
        ("2", "testere reddetti", "cut-2.xml"),
        ("1", "geri alındı", "cut-1.xml"),
    ]
    order = desk.queue.job(job)
    assert order is not None
    english: Any = SimpleNamespace(say=str)
    [last, *_] = deliveries(english, order._replace(state="DONE"), dossier.deliveries)
    assert last["state"] == "taken by the saw"


def test_an_order_whose_xml_is_there_says_so_and_links_its_drawing(shop):
    job = planned_order(shop.service)
    page = get(shop).text
    assert "ready to approve" in page
    assert f"/jobs/{job}/plan.svg" in page


def test_the_export_folder_is_listed_once_for_all_who_ask_soon(shop, monkeypatch):
    job = shop.found(planned_order(shop.service))
    desk, now = order_service(shop.service), [0.0]
    monkeypatch.setattr(orders, "time", SimpleNamespace(monotonic=lambda: now[0]))
    folder = desk.workshop.paths().export_folder
    files = sorted(folder.glob(f"{job.id}*.xml"))
    assert (bool(files), orders.is_ready(desk, job)) == (True, True)
    for one in files:
        one.rename(one.with_suffix(".away"))
    assert orders.is_ready(desk, job)
    now[0] = orders.FOLDER_CACHE_S
    assert not orders.is_ready(desk, job)


def test_an_orders_page_is_called_by_its_number_and_when_revealed_by_its_customer(shop):
    sent = HEAD | PART | {"order_id": "N-7", "customer_snapshot_name": "Özgür <b>"}
    made = post(shop, "/new", "ayse", data=sent).headers["location"].partition("made=")[2]
    path, operator = f"/dashboard/jobs/{made}", shop.cookie("can")
    assert f'title="{made}">N-7</h1>' in shop.client.get(path, headers=operator).text
    page = shop.client.post(f"{path}/unmask", headers=operator).text
    assert f'title="{made}">Özgür &lt;b&gt; · N-7</h1>' in page
    assert f'<span class="muted mono">…{made[-8:]}</span>' in page


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
    assert "Reissued as revision 2." in post(shop, f"/orders/{job}/reissue").text
    assert post(shop, f"/orders/{job}/reissue").status_code == 409


def test_an_order_is_typed_and_brought_once(shop):
    first = post(shop, "/new", "ayse", data=HEAD | PART)
    assert first.status_code == 303
    assert "known" not in first.headers["location"]
    assert post(shop, "/new", "ayse", data=HEAD | PART).headers["location"].endswith("&known=1")
    made = first.headers["location"].partition("made=")[2]
    data = shop.found(made).payload
    assert data["order"]["parts"][0]["length_cm"] == 60.5
    assert data["order"]["parts"][0]["edge_up"] == "1mm"
    assert "The order was created" in get(shop, f"?made={made}").text


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
    assert "No order was created" in answer.text
    assert post(shop, "/import", "ayse", data=data).status_code == 422


def test_an_operator_brings_no_orders(shop):
    page = get(shop).text
    assert "/dashboard/optiplan/new" not in page
    assert "Orders are created by admins" in page
    assert get(shop, "/new").status_code == 403
    assert "Orders are created by admins" not in get(shop, who="ayse").text


def test_customers_are_kept_looked_up_and_forgotten(shop):
    sent = {"name": "Özgür", "phone": "0532 111 22 33"}
    assert post(shop, "/customers", data=sent).headers["location"].endswith("done=new")
    assert post(shop, "/customers", data=sent).headers["location"].endswith("done=renamed")
    assert "Özgür" in get(shop, "/customers").text
    assert "Özgür" in get(shop, "/customers?phone=%2B90+532+1112233").text
    assert "No customer has this name" in get(shop, "/customers?phone=0532+999+99+99").text
    assert post(shop, "/customers", data={"name": "", "phone": "1"}).status_code == 422
    assert post(shop, "/customers/remove", who="ece", data=sent).status_code == 403
    assert post(shop, "/customers/remove", data=sent).headers["location"].endswith("done=removed")


def test_the_form_makes_the_order_that_would_be_sent():
    form = OrderForm.read(HEAD | PART | {"width_mm": "2100", "height_mm": "2800"})
    order = read_payload(form.body())
    assert (order.parts[0].quantity, order.plate_size is None) == (2, False)
