"""Plans compared on the page of a new order, and the order placed from one of them."""

from playwright.sync_api import expect

from tests.browser.checking import too_wide
from tests.workloads.optiplan.orders_ready import order_service

ORDER = {
    "order_id": "TRY-1",
    "customer_phone": "0532 000 00 08",
    "parts/0/material_code": "18MM 210*280",
    "parts/0/color": "Beyaz",
    "parts/0/length_cm": "72,2",
    "parts/0/width_cm": "58",
    "parts/0/quantity": "4",
}


def test_plans_are_compared_line_by_line_and_the_better_is_placed(signed_in, world):
    page = signed_in("admin")
    page.goto("/dashboard/optiplan/new")
    table = page.locator("table.tried")
    expect(table).to_be_hidden()
    for name, text in ORDER.items():
        page.locator(f'#order-form [name="{name}"]').fill(text)
    page.get_by_text("Saw, effort, rack and boards", exact=True).click()
    lines = table.locator("tbody tr")
    for n, effort in enumerate(("quick", "normal"), 1):
        page.locator("#o-effort").select_option(effort)
        page.get_by_role("button", name="Try this plan").click()
        expect(lines).to_have_count(n, timeout=60_000)
    expect(lines.locator("th")).to_have_text(["quick", "normal"])
    expect(page.locator("#planning")).to_be_hidden()
    assert not too_wide(page)
    lines.first.get_by_role("button", name="Place this order").click()
    expect(page.get_by_text("The order was created.")).to_be_visible()
    [placed] = [job.payload["order"] for job in order_service(world.service).queue.jobs().jobs]
    assert placed["effort"] == "quick"
