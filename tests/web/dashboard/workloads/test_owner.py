"""The workshop owner's path: a held order, its customer and its plan; failed orders; customers."""

import re
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.engine.worker import Worker
from kesin.foundation.permissions import system_actor
from kesin.lifecycle.failures import decided_codes
from kesin.store.records import Filter
from kesin.workloads.optiplan.customers import Customer, means
from kesin.workloads.optiplan.pages.setup import PAGE_CUSTOMERS
from kesin.workloads.optiplan.pipeline.runner import Runner
from tests.tables import table
from tests.web.conftest import World
from tests.workloads.optiplan.orders_ready import held_order, order_service, planned_order

ROOT = system_actor("tests")
PART = {"hx-request": "true"}
SAVE = "/dashboard/optiplan/customers"


@pytest.fixture
def shop(shared_world: World) -> World:
    shared_world.known("can", "operator", all_sites=True)
    shared_world.known("ece", "viewer", all_sites=True)
    return shared_world


def work(world: World) -> None:
    service = order_service(world.service)
    Worker(service.queue, Runner(service.workshop, service.queue).__call__, batch=1).drain()


def approvals(world: World, job: str) -> int:
    events = order_service(world.service).queue.events(job)
    return sum(event.move == "approve" for event in events)


def failed_now(queue: Queue) -> list[str]:
    decided = decided_codes(queue.lifecycle)
    failed = queue.jobs(Filter(states=("FAILED",))).jobs
    return [job.id for job in failed if job.error_code not in decided]


def customer(world: World, phone: str) -> str | None:
    found = order_service(world.service).look_up_customer(ROOT, phone)[1]
    return found.name if found else None


def save(world: World, job: str, phone: str, who: Any = "can", **sent: str) -> Any:
    headers = who if isinstance(who, dict) else world.cookie(who)
    path, data = f"/dashboard/optiplan/orders/{job}/customer", {"name": "Işıl", "phone": phone}
    return world.client.post(path, data=data | sent, headers=headers | PART)


def page_of(world: World, job: str, who: Any = "can") -> str:
    headers = who if isinstance(who, dict) else world.cookie(who)
    return world.client.get(f"/dashboard/jobs/{job}", headers=headers).text


def test_the_customer_is_added_and_the_order_approved_in_one_step(shop):
    phone = "0532 401 00 01"
    job = held_order(shop.service, customer_phone=phone, customer_snapshot_name="Işıl")
    page = page_of(shop, job)
    assert "This order is waiting for you" in page
    assert "Why it stopped" not in page  # the card says it, once
    assert page.count("No customer has this order&#39;s phone number") == 1
    lines = shop.said(lambda: save(shop, job, phone, approve="1"))
    done = [(line.action, line.allowed) for line in lines if line.actor == "user:can"]
    assert ("optiplan.customer", True) in done
    assert ("queue.approve", True) in done
    assert (shop.state(job), customer(shop, phone)) == ("NEW", "Işıl")


def test_a_second_click_changes_nothing(shop):
    phone = "0532 401 00 02"
    job = held_order(shop.service, customer_phone=phone)
    assert "Customer added and order approved, now NEW." in save(shop, job, phone, approve="1").text
    again = save(shop, job, phone, approve="1")
    assert (again.status_code, approvals(shop, job)) == (200, 1)
    assert "kesin:forget" in again.headers["hx-trigger"]


def test_an_order_that_is_held_for_something_else_by_now_is_not_approved_by_a_late_click(shop):
    phone = "0532 401 00 03"
    job = held_order(shop.service, customer_phone=phone, opti_mode="C")
    save(shop, job, phone, approve="1")
    work(shop)
    assert shop.found(job).error_code == "E_OPERATOR_TRIGGER_REQUIRED"
    assert save(shop, job, phone, approve="1").status_code == 200
    assert (shop.state(job), approvals(shop, job)) == ("HOLD", 1)


def test_an_order_that_was_cancelled_meanwhile_is_said_and_no_customer_added(shop):
    phone = "0532 401 00 04"
    job = held_order(shop.service, customer_phone=phone)
    order_service(shop.service).cancel(ROOT, job)
    answer = save(shop, job, phone, approve="1")
    assert answer.status_code == 409
    assert "the order is FAILED now: nothing was changed" in answer.text
    assert customer(shop, phone) is None


def test_a_customer_with_another_phone_does_not_approve_the_order(shop):
    phone, other = "0532 401 00 05", "0532 401 00 06"
    job = held_order(shop.service, customer_phone=phone)
    answer = save(shop, job, other, approve="1")
    assert (answer.status_code, shop.state(job)) == (422, "HOLD")
    assert "would be held again" in answer.text
    assert customer(shop, other) is None
    assert save(shop, job, phone, approve="1", name="").status_code == 422


def test_a_customer_may_be_added_only_and_then_nothing_contradicts_it(shop):
    phone = "0532 401 00 07"
    job = held_order(shop.service, customer_phone=phone)
    assert "The order can be approved now." in save(shop, job, phone, only="1").text
    assert (shop.state(job), customer(shop, phone)) == ("HOLD", "Işıl")
    page = page_of(shop, job)
    card = page[page.index('id="waits-title"') :].partition("</section>")[0]
    assert "is known now" in card
    assert "E_CRM_NO_MATCH" not in card
    assert "No customer has" not in page[: page.index('id="story-title"')]
    assert 'id="k-name"' not in page


def test_who_has_one_right_gets_one_button(shop):
    phone = "0532 401 00 08"
    job = held_order(shop.service, customer_phone=phone, customer_snapshot_name="Nur")
    both, one = page_of(shop, job), shop.key("read", "optiplan")
    assert "Add customer and approve" in both
    assert "Add customer only" in both
    program = page_of(shop, job, one)
    assert "Add customer and approve" not in program
    assert "Add customer only" in program
    viewed = page_of(shop, job, "ece")
    assert "Add customer" not in viewed
    assert "This order is waiting for an operator" in viewed
    for who, status in ((one, 403), ("ece", 403)):
        assert save(shop, job, phone, who, approve="1").status_code == status
    assert (shop.state(job), customer(shop, phone)) == ("HOLD", None)
    assert save(shop, job, phone, one, only="1").status_code == 200
    assert (shop.state(job), customer(shop, phone)) == ("HOLD", "Işıl")


def test_the_customer_of_a_held_order_is_seen_in_clear_with_an_audit_line(shop):
    job = held_order(shop.service, customer_phone="0532 401 00 09", customer_snapshot_name="Nur")
    lines = shop.said(lambda: page_of(shop, job))
    assert [line.target for line in lines if line.action == "job.reveal"] == [job]
    lines = shop.said(lambda: page_of(shop, job, "ece"))
    assert [line.action for line in lines] == ["session.start"]


def test_a_failed_order_waits_with_what_happened_and_what_helps(shop):
    service = order_service(shop.service)
    service.add_customer(ROOT, "Ayşe", "0532 401 00 10")
    job = service.queue.enqueue({"order": {"order_id": "F-1"}, "mode": "A"}, tenant="default").id
    work(shop)
    assert shop.state(job) == "FAILED"
    page = shop.client.get("/dashboard/optiplan", headers=shop.cookie("can")).text
    card = page[page.index(f'id="held-{job}"') :].partition("</article>")[0]
    assert "FAILED" in card
    assert f'class="button first" hx-get="/dashboard/optiplan/orders/{job}/retry"' in card
    assert "<strong>" in card
    assert "This order is waiting for you" in page_of(shop, job)
    assert failed_now(service.queue) == [job]
    service.queue.act("reissue", actor="tests", ids=[job])
    assert failed_now(service.queue) == []  # the new revision is counted, where it fails too
    page = shop.client.get("/dashboard/optiplan", headers=shop.cookie("can")).text
    assert f'id="held-{job}"' not in page
    assert "Why it stopped" in page_of(shop, job)


def test_a_plan_of_another_program_is_not_offered_to_print(shop):
    job = planned_order(shop.service)
    assert "Print the plan" in page_of(shop, job)
    service = order_service(shop.service)
    for name in service.progress(shop.found(job)).xml:
        file = service.workshop.paths().export_folder / name
        file.write_text("<Solutions><Solution/></Solutions>")
    page = page_of(shop, job)
    assert "plan.pdf" not in page
    assert "Another program made this plan" in page


def test_customers_come_by_pages_and_are_found_by_name_and_phone(shop):
    service = order_service(shop.service)
    for n in range(PAGE_CUSTOMERS + 5):
        service.add_customer(ROOT, f"Çınar {n}", f"0533 900 {n:04d}")

    def listed(path: str, who: str = "can") -> list[str]:
        page = shop.client.get(path, headers=shop.cookie(who)).text
        phones = re.findall(r'<td class="mono">([^<]+)</td>', page)
        more = re.search(r'class="more" href="([^"]+)"', page)
        following = more[1].replace("&amp;", "&") if more else ""
        return [*phones, *(listed(following, who) if following else ())]

    first = shop.client.get(SAVE, headers=shop.cookie("can")).text
    assert first.count('<td class="mono">') == PAGE_CUSTOMERS
    every = listed(SAVE)
    assert (len(every), every) == (len(set(every)), sorted(every))
    assert len(listed(SAVE, "ece")) == len(every)
    assert len(listed(f"{SAVE}?phone=cinar")) == PAGE_CUSTOMERS + 5
    assert listed(f"{SAVE}?phone=0533 900 0007") == ["+905339000007"]
    assert listed(f"{SAVE}?phone=9000007") == ["+905339000007"]
    assert listed(f"{SAVE}?phone=cinar", "ece") == []


@table(
    ("text", "meant"),
    [
        *[("özgür", True), ("usta", True), ("Ozg", True), ("zgür", False), ("33", False)],
        *[("0532 111", True), ("+90 (0) 532 111 22 33", True), ("2233", True), ("0555", False)],
    ],
)
def test_whom_a_text_means(text, meant):
    assert means(text)(Customer("Özgür Usta", "+905321112233")) == meant


def test_an_order_between_two_looks_says_what_it_waits_for(world):
    world.known("can", "operator", all_sites=True)
    job = planned_order(world.service)
    facts = re.search(r'<section[^>]*id="job-facts".*?</section>', page_of(world, job), re.DOTALL)
    assert facts
    assert "Finished" not in facts[0]  # it is held
    order_service(world.service).approve(ROOT, job, confirmed=True)
    for _ in range(3):
        work(world)
        world.clock.advance(31)
    assert world.state(job) == "XML_READY"
    work(world)  # the saw has not taken its files
    text = re.sub(r"<[^>]+>|\s+", " ", page_of(world, job))
    assert re.search(r"It is waiting for: +the saw to take its files\. +Checked again at", text)
    assert "Retries automatically" not in text
