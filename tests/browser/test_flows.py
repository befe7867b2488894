"""What people do with queues and jobs, and what is around every page."""

from __future__ import annotations

import itertools
import re
import threading

from playwright.sync_api import Page, Route, expect

from kesin.engine.queue import apply_changes
from kesin.foundation.permissions import Actor
from kesin.lifecycle.model import Change
from kesin.web.dashboard.queues import actions, bulk, filters
from kesin.web.dashboard.queues.bulk import BulkRuns
from tests.browser.served import PATIENCE_S
from tests.web.conftest import PASSWORD, ROOT, World

TASKS = "/dashboard/queues/task"
# Renew the page as soon as it is filtered, when a renewal could undo it.
RENEW_AT_ONCE = """() => {
  const renew = () => {
    if (!location.search) return;
    removeEventListener("htmx:afterSwap", renew);
    setTimeout(() => htmx.trigger("#view", "renew"));
  };
  addEventListener("htmx:afterSwap", renew);
}"""


def failed(world: World, n: int, code: str) -> list[str]:
    """Tasks that failed with this code."""
    ids = [world.job(key=f"{code}-{number}") for number in range(n)]
    changes = [
        Change(job.id, job.claim_seq, code, "VALIDATION", f"{code} it was")
        for job in world.task.claim("tests", limit=n, ids=ids)
    ]
    outcomes = apply_changes(world.task, "fail", changes, actor="tests")
    assert {outcome.result for outcome in outcomes} == {"moved"}
    return ids


def row(page: Page, job_id: str):
    return page.locator(f"#row-{job_id}")


def offer(page: Page, name: str):
    return page.locator("[data-bar]").get_by_role("button", name=name, exact=True)


def dialog_button(page: Page, name: str):
    """The button of a dialog that does it; it shows how many jobs."""
    return page.get_by_role("dialog").get_by_role("button", name=name, exact=True)


# Reading


def test_a_click_on_a_state_filters_and_the_back_button_undoes_it(signed_in, world):
    [bad] = failed(world, 1, "CLICKED")
    good = world.job(key="clicked-good")
    page = signed_in("viewer")
    page.goto(TASKS)
    expect(row(page, good)).to_be_visible()
    page.evaluate(RENEW_AT_ONCE)
    with page.expect_response(re.compile(r"/renewal\?state=failed")):
        page.locator("#state-failed").click()
    expect(page).to_have_url(re.compile(r"\?state=failed$"))
    expect(row(page, good)).to_have_count(0)
    expect(row(page, bad)).to_be_visible()
    page.go_back()
    expect(page).to_have_url(re.compile(f"{TASKS}$"))
    expect(row(page, good)).to_be_visible()


def test_a_job_changes_live_and_unfolded_parts_stay_open(signed_in, world):
    job = world.job(key="read-live")
    page = signed_in("operator")
    page.goto(f"/dashboard/jobs/{job}")
    page.locator("details.fold summary").first.click()
    unfolded = page.locator("details.fold").first
    expect(unfolded).to_have_attribute("open", "")
    larger = page.get_by_role("button", name="Enlarge")
    larger.focus()
    badge = page.locator("#nav a[href='/dashboard/queues/task'] .badge")
    before = int(badge.inner_text()) if badge.count() else 0
    [claim] = world.task.claim("w1", ids=[job])
    expect(page.locator("#job-head .chip")).to_contain_text("running")
    expect(page.locator("#job-facts")).to_contain_text("w1")
    expect(page.locator("#job-next")).to_contain_text("Running on w1")
    changes = [Change(job, claim.claim_seq, error_code="LIVE")]
    apply_changes(world.task, "fail", changes, actor="w1")
    expect(page.locator("#job-head .chip")).to_contain_text("failed")
    expect(page.locator(".timeline")).to_contain_text("LIVE")
    expect(badge).to_have_text(str(before + 1))
    expect(unfolded).to_have_attribute("open", "")
    expect(larger).to_be_focused()
    picture = page.locator("#picture-larger")
    assert not picture.evaluate("one => one.matches(':popover-open')")
    larger.press("Enter")
    expect(picture.locator("svg")).to_be_in_viewport()
    assert picture.evaluate("one => one.matches(':popover-open')")
    page.keyboard.press("Escape")
    assert not picture.evaluate("one => one.matches(':popover-open')")


def test_progress_is_live_though_nothing_moves(signed_in, world):
    [job] = world.task.claim("tests", ids=[world.job()])
    claim = (job.id, job.token)

    def say(share: float, message: str) -> None:
        world.store.report_progress("task", claim, share, message, now=world.task.now())

    say(0.4, "page 12 of 30")
    page = signed_in()
    page.goto(f"/dashboard/jobs/{job.id}")
    bar = page.get_by_role("progressbar", name="Progress")
    expect(bar).to_have_attribute("value", "0.4")
    say(0.8, "page 24 of 30")
    expect(page.get_by_text("page 24 of 30")).to_be_visible()
    expect(bar).to_have_attribute("value", "0.8")


def test_a_page_polls_while_its_stream_is_cut(signed_in, world, watcher):
    watcher.expects(r"ERR_FAILED|/events")
    page = signed_in("operator")
    page.route("**/api/queues/*/events", lambda route: route.abort())
    job = world.job(key="cut-off")
    page.goto(f"/dashboard/jobs/{job}")
    world.task.act("cancel", actor="user:ece", ids=[job])
    expect(page.locator("#job-head .chip")).to_contain_text("failed")


def test_a_session_that_ends_while_a_dialog_is_open_leads_back_to_the_rows(signed_in, world, watcher):
    watcher.expects(r"status of 401|/events|htmx:responseError|Response Status Error Code 401")
    [bad] = failed(world, 1, "SHEET_OPEN")
    page = signed_in("operator", name="slow")
    page.goto(f"{TASKS}?code=SHEET_OPEN")
    row(page, bad).locator("input").check()
    offer(page, "Retry").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("too late")

    def end_first(route: Route) -> None:  # sooner, the page might leave before the click
        world.accounts.end_sessions(ROOT, "slow")
        route.continue_()

    page.route("**/queues/task/act", end_first)
    page.get_by_role("dialog").get_by_role("button", name="Retry 1 job").click()
    expect(page.get_by_text("Your session has ended")).to_be_visible()
    assert world.state(bad) == "failed"
    page.get_by_label("Name").fill("slow")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(re.compile(r"\?code=SHEET_OPEN$"))
    expect(row(page, bad)).to_be_visible()


# Acting


def test_an_action_is_left_with_escape_or_previewed_done_and_reported(signed_in, world, watcher):
    """An error is shown in the dialog, where what was typed stays."""
    watcher.expects(r"status of (403|422)|htmx:responseError|Response Status Error Code")
    ids = failed(world, 3, "FORESEEN")
    page = signed_in("operator")
    page.goto(f"{TASKS}?code=FORESEEN")
    for job_id in ids[:2]:
        row(page, job_id).locator("input").check()
    dialog = page.get_by_role("dialog")
    offer(page, "Retry").click()
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(row(page, ids[0]).locator("input")).to_be_checked()
    offer(page, "Retry").click()
    expect(dialog).to_contain_text("2 will move")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    assert {world.state(one) for one in ids} == {"failed"}  # nothing moved yet
    page.keyboard.type("mended")
    call = dialog.locator("input[name=call]")
    call.evaluate("field => { field.value = 'explode' }")
    dialog_button(page, "Retry 2 jobs").click()
    alert = dialog.get_by_role("alert")
    expect(alert).to_contain_text("The action failed")
    expect(alert).to_contain_text("explode")
    assert alert.evaluate(
        "one => { const at = one.getBoundingClientRect();"
        " return one.contains(document.elementFromPoint(at.x + 20, at.y + at.height / 2)) }"
    )
    expect(dialog.get_by_label("Reason")).to_have_value("mended")
    call.evaluate("field => { field.value = 'requeue' }")
    dialog_button(page, "Retry 2 jobs").click()
    expect(page.locator("#result")).to_contain_text("Retry: 2 moved")
    expect(dialog).to_have_count(0)
    assert [world.state(one) for one in ids] == ["ready", "ready", "failed"]
    expect(page.locator("[data-bar]")).to_be_hidden()


def test_many_rows_move_in_the_background_and_the_page_shows_progress(signed_in, world, monkeypatch):
    monkeypatch.setattr(filters, "PAGE", 3)
    monkeypatch.setattr(actions, "MAX_FOREGROUND_JOBS", 3)
    monkeypatch.setattr(bulk, "MAX_PAGE", 2)
    looks, seen, still = itertools.count(1), threading.Event(), BulkRuns._still_permitted

    def patient(runs: BulkRuns, actor: Actor) -> bool:
        return (next(looks) != 2 or seen.wait(PATIENCE_S)) and still(runs, actor)

    monkeypatch.setattr(BulkRuns, "_still_permitted", patient)
    ids = failed(world, 5, "MANY")
    page = signed_in("operator")
    page.goto(f"{TASKS}?state=failed&code=MANY")
    page.get_by_label("Select every row shown").check()
    page.locator("[data-pick-matching]").click()
    offer(page, "Retry").click()
    expect(page.get_by_role("dialog")).to_contain_text("in the background")
    dialog_button(page, "Retry 5 jobs").click()
    run = page.get_by_role("region", name="Retry", exact=True)
    expect(run).to_contain_text("Retry: 2 of 5 jobs")
    expect(run.get_by_role("progressbar")).to_have_attribute("value", "40")
    seen.set()
    expect(run).to_contain_text("Retry: 5 moved")
    expect(run.get_by_role("progressbar")).to_have_count(0)
    assert {world.state(one) for one in ids} == {"ready"}


# Preferences


def test_language_and_theme_change_in_place_and_are_remembered(signed_in, world):
    page = signed_in("operator")
    page.goto(f"{TASKS}?state=failed")
    page.get_by_role("button", name="TR", exact=True).click()
    expect(page).to_have_url(re.compile(r"\?state=failed$"))
    expect(page.locator("html")).to_have_attribute("lang", "tr")
    expect(page.get_by_role("link", name="Genel bakış")).to_be_visible()
    page.locator("button[name=theme]").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 18, 23)"
    page.goto("/dashboard")
    expect(page.locator("html")).to_have_attribute("lang", "tr")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


# Around every page


def test_a_page_shows_its_age_and_switches_to_another_site(signed_in, world):
    world.job("north", key="framed")
    page = signed_in("viewer")
    page.goto("/dashboard/queues/task")
    expect(page.locator("[data-fresh]")).to_have_text(re.compile(r"^live · \d+ s ago$"))
    page.locator("header .switch summary").click()
    page.locator("header .switch a", has_text="north").first.click()
    expect(page).to_have_url(re.compile(r"queues/task\?site=north$"))
    expect(page.locator("h1")).to_have_text(re.compile(r"^task · North|^task · north"))
    page.locator("#f-site").select_option("")
    expect(page.locator("h1")).to_have_text("task")
    expect(page).to_have_title("task · Kesin")
    expect(page.locator("header .switch summary")).to_contain_text("all sites")
