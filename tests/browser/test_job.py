"""A job's page and the admin's pages, as people use them."""

from __future__ import annotations

from playwright.sync_api import expect


def test_a_job_is_moved_from_its_own_page_which_shows_the_result(signed_in, world):
    job_id = world.failed(key="moved-here")
    page = signed_in("operator")
    page.goto(f"/dashboard/jobs/{job_id}")
    expect(page.locator("#job-story")).to_contain_text("It waits for a person")
    page.locator("#job-head").get_by_role("button", name="Requeue", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the printer is back")
    dialog.get_by_role("button", name="Requeue 1 row").click()
    expect(page.locator("#result")).to_contain_text("1 moved")
    expect(page.locator("#job-head")).to_contain_text("ready")
    expect(page.locator("#job-story li").first).to_contain_text("the printer is back")
    expect(page.locator("#job-picture .picture .state.here")).to_have_attribute(
        "data-state", "ready"
    )


def test_an_admin_unmasks_a_payload_and_the_audit_log_has_it(signed_in, world):
    job_id = world.job(payload={"email": "ayse@example.com"}, key="covered")
    page = signed_in("admin")
    page.goto(f"/dashboard/jobs/{job_id}")
    expect(page.get_by_text("ayse@example.com")).to_have_count(0)
    page.get_by_role("button", name="Show everything").click()
    expect(page.get_by_text("ayse@example.com")).to_be_visible()
    page.goto("/dashboard/audit?action=job.unmask")
    expect(page.locator("tbody tr").first).to_contain_text("user:ayse")


def test_a_key_is_shown_once_and_revoked_with_the_confirmation(signed_in, world):
    page = signed_in("admin")
    page.goto("/dashboard/admin/keys")
    page.get_by_label("Name").fill("till")
    page.get_by_label("read look at jobs").check()
    page.get_by_role("button", name="Make the key").click()
    key = page.locator("code.once").inner_text()
    assert world.accounts.key_actor(key, "") is not None
    page.get_by_role("link", name="till", exact=True).click()
    page.get_by_label("It cannot be undone").check()
    page.get_by_role("button", name="Revoke the key").click()
    expect(page.locator("tr", has_text="till")).to_contain_text("revoked")
    assert world.accounts.key_actor(key, "") is None
