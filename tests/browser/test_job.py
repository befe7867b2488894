"""A job's page and the admin's pages, as people use them."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.web.conftest import ROOT


def test_a_job_is_moved_from_its_own_page_which_tells_what_happened(signed_in, world):
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


def test_a_job_that_moves_is_seen_moving_while_its_payload_stays_open(signed_in, world):
    job_id = world.job(payload={"note": "carried"}, key="moves")
    page = signed_in("viewer")
    page.goto(f"/dashboard/jobs/{job_id}")
    world.task.claim("a-worker", ids=[job_id])
    expect(page.locator("#job-story")).to_contain_text("a-worker works on it")
    page.get_by_text("Payload").click()
    expect(page.get_by_text("carried")).to_be_visible()
    with page.expect_response(lambda one: f"/dashboard/jobs/{job_id}?seq=" in one.url):
        world.job(key="another-moves")
    expect(page.get_by_text("carried")).to_be_visible()


def test_an_admin_shows_what_is_covered_and_the_audit_log_says_so(signed_in, world):
    job_id = world.job(payload={"email": "ayse@example.com"}, key="covered")
    page = signed_in("admin")
    page.goto(f"/dashboard/jobs/{job_id}")
    expect(page.get_by_text("ayse@example.com")).to_have_count(0)
    page.get_by_role("button", name="Show everything").click()
    expect(page.get_by_text("ayse@example.com")).to_be_visible()
    page.goto("/dashboard/audit?action=job.unmask")
    expect(page.locator("tbody tr").first).to_contain_text("user:ayse")


def test_a_key_is_shown_once_and_revoked_after_a_tick(signed_in, world):
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


def test_a_person_is_kept_out_after_a_tick(signed_in, world):
    world.accounts.add_user(ROOT, "leaver", "a long enough password")
    page = signed_in("admin")
    page.goto("/dashboard/admin/people")
    page.get_by_role("link", name="leaver").click()
    page.get_by_label("Yes: leaver is signed out now").check()
    page.get_by_role("button", name="Disable").click()
    expect(page.get_by_text("may not sign in", exact=True)).to_be_visible()
