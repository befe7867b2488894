"""What operators do all day with a queue, as they do it."""

from __future__ import annotations

import itertools
import re
import threading
from decimal import Decimal

import pytest
from playwright.sync_api import Page, Route, expect

from kesin.foundation.permissions import Actor
from kesin.lifecycle.model import Change
from kesin.web.dashboard.queues import actions, bulk
from kesin.web.dashboard.queues import page as queue_page
from kesin.web.dashboard.queues.bulk import BulkRuns
from tests.browser.furniture import conversions
from tests.browser.served import PATIENCE_S
from tests.web.conftest import PASSWORD, ROOT, World
from tests.workloads.optiplan.orders_ready import order_service

TASKS = "/dashboard/queues/task"


def failed(world: World, n: int, code: str) -> list[str]:
    """So many tasks that failed like this."""
    ids = [world.job(key=f"{code}-{number}") for number in range(n)]
    why = {"error_code": code, "error_category": "VALIDATION", "error_message": f"{code} it was"}
    claims = world.task.claim("tests", limit=n, ids=ids)
    changes = [Change(one.id, one.claim_seq, **why) for one in claims]
    assert {one.result for one in world.task.apply("fail", changes, actor="tests")} == {"moved"}
    return ids


def row(page: Page, job_id: str):
    return page.locator(f"#row-{job_id}")


def offer(page: Page, name: str):
    return page.locator("[data-bar]").get_by_role("button", name=name, exact=True)


@pytest.fixture
def sheet_button():
    """The one button of a sheet that does it; it says how many."""

    def find(page: Page, name: str):
        return page.get_by_role("dialog").get_by_role("button", name=name, exact=True)

    return find


# Looking


def test_a_click_on_a_state_filters_and_the_way_back_is_the_browsers(signed_in, world):
    [bad] = failed(world, 1, "CLICKED")
    good = world.job(key="clicked-good")
    page = signed_in("viewer")
    page.goto(TASKS)
    expect(row(page, good)).to_be_visible()
    page.locator("#state-failed").click()
    expect(page).to_have_url(re.compile(r"\?state=failed$"))
    expect(row(page, good)).to_have_count(0)
    expect(row(page, bad)).to_be_visible()
    page.go_back()
    expect(page).to_have_url(re.compile(f"{TASKS}$"))
    expect(row(page, good)).to_be_visible()


def test_a_search_narrows_as_it_is_typed_and_can_be_sent_to_a_colleague(signed_in, world):
    [wanted] = failed(world, 1, "WANTED")
    [other] = failed(world, 1, "OTHER")
    page = signed_in("viewer")
    page.goto(TASKS)
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("WANTED-0")
    expect(page).to_have_url(re.compile("text=WANTED-0"))
    expect(row(page, other)).to_have_count(0)
    colleague = signed_in("viewer", name="colleague")
    colleague.goto(page.url)
    expect(row(colleague, wanted)).to_be_visible()
    expect(row(colleague, other)).to_have_count(0)
    expect(colleague.get_by_role("searchbox")).to_have_value("WANTED-0")


def test_older_rows_are_added_below_and_stay_when_the_page_is_renewed(
    signed_in, world, monkeypatch
):
    monkeypatch.setattr(queue_page, "PAGE", 3)
    failed(world, 5, "PAGED")
    page = signed_in("viewer")
    page.goto(f"{TASKS}?code=PAGED")
    rows = page.locator("tr[id^=row-]")
    expect(rows).to_have_count(3)
    first = rows.first.get_attribute("id")
    page.get_by_role("link", name="Show 3 more").click()
    expect(rows).to_have_count(5)
    assert rows.first.get_attribute("id") == first
    assert len(set(rows.evaluate_all("all => all.map(one => one.id)"))) == 5
    expect(page.get_by_role("link", name="Show 3 more")).to_have_count(0)
    with page.expect_response(re.compile("rows=5")):
        world.job(key="while-paged")
    expect(rows).to_have_count(5)


def test_nothing_is_offered_to_whoever_may_only_look(signed_in, world):
    [bad] = failed(world, 1, "LOOKED_AT")
    page = signed_in("viewer")
    page.goto(TASKS)
    expect(row(page, bad)).to_be_visible()
    expect(page.locator("input[data-pick]")).to_have_count(0)
    expect(page.locator("[data-bar]")).to_have_count(0)
    page.goto(f"/dashboard/jobs/{bad}")
    expect(page.locator("#job-head .actions")).to_have_count(0)


def test_rows_move_while_somebody_looks_and_the_selection_stays(signed_in, world):
    [chosen] = failed(world, 1, "CHOSEN")
    waiting = world.job(key="it-moves")
    page = signed_in("operator")
    page.goto(TASKS)
    row(page, chosen).locator("input").check()
    expect(page.locator("[data-picked]")).to_have_text("1")
    late = world.job(key="comes-late")
    world.task.act("cancel", actor="user:ece", ids=[waiting])
    expect(row(page, late)).to_be_visible()
    expect(row(page, waiting)).to_contain_text("failed")
    expect(row(page, chosen).locator("input")).to_be_checked()
    expect(page.locator("[data-picked]")).to_have_text("1")


def test_a_row_that_somebody_writes_about_is_not_taken_from_under_the_fingers(signed_in, world):
    """A half-typed search survives the renewal of the page around it."""
    failed(world, 1, "TYPED")
    page = signed_in("operator")
    page.goto(TASKS)
    page.get_by_role("combobox", name="Error code").focus()
    page.locator("#f-text").focus()
    with page.expect_response(re.compile(f"{TASKS}(\\?|$)")):
        world.job(key="while-typing")
    page.keyboard.type("TYP")
    expect(page.locator("#f-text")).to_have_value("TYP")


def test_a_job_moves_while_somebody_reads_it_and_what_was_unfolded_stays(signed_in, world):
    job = world.job(key="read-live")
    page = signed_in("operator")
    page.goto(f"/dashboard/jobs/{job}")
    page.locator("details.fold summary").first.click()
    unfolded = page.locator("details.fold").first
    expect(unfolded).to_have_attribute("open", "")
    larger = page.get_by_role("button", name="Larger")
    larger.focus()
    badge = page.locator("#nav a[href='/dashboard/queues/task'] .badge")
    before = int(badge.inner_text()) if badge.count() else 0
    [claim] = world.task.claim("w1", ids=[job])
    expect(page.locator("#job-head .chip")).to_contain_text("running")
    expect(page.locator("#job-facts")).to_contain_text("w1")
    world.task.apply("fail", [Change(job, claim.claim_seq, error_code="LIVE")], actor="w1")
    expect(page.locator("#job-head .chip")).to_contain_text("failed")
    expect(page.locator(".timeline")).to_contain_text("LIVE")
    expect(badge).to_have_text(str(before + 1))
    expect(unfolded).to_have_attribute("open", "")
    expect(larger).to_be_focused()


def test_a_sites_rows_come_while_somebody_types(signed_in, world):
    world.site("lively")
    page = signed_in("operator")
    page.goto("/dashboard/site/lively/oci-control")
    page.locator("#fix-reason").evaluate("one => { one.closest('details').open = true }")
    page.locator("#fix-reason").press_sequentially("half a sen")
    conversions(world, site="lively")
    expect(page.locator("tr[id^=row-]").first).to_be_visible()
    page.keyboard.type("tence")
    expect(page.locator("#fix-reason")).to_have_value("half a sentence")
    expect(page.locator("details.mend")).to_have_attribute("open", "")


def test_a_page_follows_by_the_clock_while_its_stream_is_cut(signed_in, world, watcher):
    watcher.expects(r"ERR_FAILED|/events")
    page = signed_in("operator")
    page.route("**/api/queues/*/events", lambda route: route.abort())
    job = world.job(key="cut-off")
    page.goto(f"/dashboard/jobs/{job}")
    world.task.act("cancel", actor="user:ece", ids=[job])
    expect(page.locator("#job-head .chip")).to_contain_text("failed")


def test_a_session_ended_elsewhere_is_noticed_though_nothing_moves(signed_in, world):
    page = signed_in("operator", name="leaver")
    with page.expect_response(re.compile("/api/queues/task/events")):
        page.goto(f"/dashboard/jobs/{world.job(key='leaving')}")
    token = world.token("leaver")
    who = world.accounts.session_actor(token, "")
    assert who is not None
    world.accounts.sign_out(who, token, everywhere=True)
    expect(page.get_by_role("status")).to_contain_text("Your session has ended")


def test_a_session_that_ends_while_a_sheet_is_open_leads_back_to_the_rows(
    signed_in, world, watcher
):
    watcher.expects(r"status of 401|/events|htmx:responseError|Response Status Error Code 401")
    [bad] = failed(world, 1, "SHEET_OPEN")
    page = signed_in("operator", name="slow")
    page.goto(f"{TASKS}?code=SHEET_OPEN")
    row(page, bad).locator("input").check()
    offer(page, "Requeue").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("too late")

    def end_first(route: Route) -> None:  # sooner, the page might leave before the click
        world.accounts.end_sessions(ROOT, "slow")
        route.continue_()

    page.route("**/queues/task/act", end_first)
    page.get_by_role("dialog").get_by_role("button", name="Requeue 1 row").click()
    expect(page.get_by_role("status")).to_contain_text("Your session has ended")
    assert world.state(bad) == "failed"
    page.get_by_label("Name").fill("slow")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(re.compile(r"\?code=SHEET_OPEN$"))
    expect(row(page, bad)).to_be_visible()


# Acting


def test_an_action_is_foreseen_done_and_told_exactly(signed_in, world, sheet_button):
    ids = failed(world, 3, "FORESEEN")
    page = signed_in("operator")
    page.goto(f"{TASKS}?code=FORESEEN")
    for job_id in ids[:2]:
        row(page, job_id).locator("input").check()
    offer(page, "Requeue").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 will move")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    assert {world.state(one) for one in ids} == {"failed"}  # nothing moved yet
    page.keyboard.type("the street is open again")
    sheet_button(page, "Requeue 2 rows").click()
    expect(page.locator("#result")).to_contain_text("Requeue: 2 moved")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert [world.state(one) for one in ids] == ["ready", "ready", "failed"]
    expect(page.locator("[data-bar]")).to_be_hidden()
    page.goto(f"/dashboard/jobs/{ids[0]}")
    expect(page.locator(".timeline")).to_contain_text("the street is open again")
    expect(page.locator(".timeline")).to_contain_text("can")


def test_a_sheet_can_be_left_by_the_keyboard_and_nothing_happened(signed_in, world):
    [bad] = failed(world, 1, "LEFT")
    page = signed_in("operator")
    page.goto(f"{TASKS}?code=LEFT")
    row(page, bad).locator("input").check()
    offer(page, "Requeue").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(row(page, bad).locator("input")).to_be_checked()
    assert world.state(bad) == "failed"


def test_what_goes_wrong_is_said_in_the_sheet_and_what_was_typed_stays(
    signed_in, world, watcher, sheet_button
):
    watcher.expects(r"status of (403|422)|htmx:responseError|Response Status Error Code")
    [bad] = failed(world, 1, "IN_SHEET")
    page = signed_in("operator", name="demoted")
    page.goto(f"{TASKS}?code=IN_SHEET")
    row(page, bad).locator("input").check()
    offer(page, "Requeue").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("mended")
    dialog.locator("input[name=call]").evaluate("field => { field.value = 'explode' }")
    sheet_button(page, "Requeue 1 row").click()
    alert = dialog.get_by_role("alert")
    expect(alert).to_contain_text("That did not work")
    expect(alert).to_contain_text("explode")
    assert alert.evaluate(
        "one => { const at = one.getBoundingClientRect();"
        " return one.contains(document.elementFromPoint(at.x + 20, at.y + at.height / 2)) }"
    )
    expect(dialog.get_by_label("Reason")).to_have_value("mended")
    dialog.locator("input[name=call]").evaluate("field => { field.value = 'requeue' }")
    sheet_button(page, "Requeue 1 row").click()
    expect(page.locator("#result")).to_contain_text("Requeue: 1 moved")
    assert world.state(bad) == "ready"


def test_all_that_match_are_more_than_are_shown(signed_in, world, sheet_button):
    ids = failed(world, 60, "EVERY")
    [other] = failed(world, 1, "ANOTHER")
    page = signed_in("operator")
    page.goto(f"{TASKS}?state=failed&code=EVERY")
    expect(page.locator("tr[id^=row-]")).to_have_count(50)
    page.get_by_label("Select every row shown").check()
    expect(page.locator("[data-picked]")).to_have_text("50")
    page.locator("[data-pick-matching]").click()
    expect(page.locator("[data-bar]")).to_contain_text("All that match are selected")
    offer(page, "Requeue").click()
    sheet_button(page, "Requeue 60 rows").click()
    expect(page.locator("#result")).to_contain_text("Requeue: 60 moved")
    assert {world.state(one) for one in ids} == {"ready"}
    assert world.state(other) == "failed"


def test_many_rows_move_in_the_background_and_the_page_says_how_far(
    signed_in, world, sheet_button, monkeypatch
):
    monkeypatch.setattr(queue_page, "PAGE", 3)
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
    offer(page, "Requeue").click()
    expect(page.get_by_role("dialog")).to_contain_text("in the background")
    sheet_button(page, "Requeue 5 rows").click()
    run = page.get_by_role("region", name="Requeue")
    expect(run).to_contain_text("Requeue: 2 of 5 rows")
    expect(run.get_by_role("progressbar")).to_have_attribute("value", "40")
    seen.set()
    expect(run).to_contain_text("Requeue: 5 moved")
    expect(run.get_by_role("progressbar")).to_have_count(0)
    assert {world.state(one) for one in ids} == {"ready"}


def test_two_operators_on_the_same_rows_are_told_what_each_of_them_moved(
    signed_in, world, sheet_button
):
    ids = failed(world, 3, "SHARED")
    pages = [signed_in("operator", name=name) for name in ("first", "second")]
    for page in pages:
        page.goto(f"{TASKS}?code=SHARED")
        page.get_by_label("Select every row shown").check()
        offer(page, "Requeue").click()
        expect(page.get_by_role("dialog")).to_contain_text("3 will move")
    first, second = pages
    sheet_button(first, "Requeue 3 rows").click()
    expect(first.locator("#result")).to_contain_text("Requeue: 3 moved")
    sheet_button(second, "Requeue 3 rows").click()
    expect(second.locator("#result")).to_contain_text("0 moved, 3 refused: already ready")
    for job_id in ids:
        moves = [one for one in world.task.events(job_id) if one.move == "requeue"]
        assert [one.actor for one in moves] == ["user:first"]


def test_a_paused_queue_says_so_to_everybody_and_can_go_on(signed_in, world):
    page, other = signed_in("operator"), signed_in("viewer")
    for one in (page, other):
        one.goto(TASKS)
    page.get_by_role("button", name="Pause…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the disk is full")
    dialog.locator("button.first, button.danger, button[type=submit]").first.click()
    expect(page.get_by_text("This queue is paused")).to_be_visible()
    other.reload()
    expect(other.locator("#view")).to_contain_text("the disk is full")
    expect(other.get_by_role("button", name="Resume")).to_have_count(0)
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("This queue is paused")).to_have_count(0)
    assert world.store.paused("task") == []


# The workshop's rules


def test_a_rule_is_changed_reviewed_and_then_in_force(signed_in, world):
    page = signed_in("operator")
    page.goto("/dashboard/optiplan/rules")
    before = order_service(world.service).workshop.rules()
    blade = page.locator("[name='v/saw/kerf_mm']")
    blade.fill("3,2555")
    check = page.locator("#rules-form").get_by_role("button", name="Check and show the changes")
    check.click()
    expect(page.get_by_role("heading", name="What would change")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_text(["Saw blade4 mm3.2555 mm"])
    page.get_by_role("button", name="Back to editing").click()
    expect(blade).to_have_value("3.2555")
    assert order_service(world.service).workshop.rules() == before
    check.click()
    page.get_by_role("button", name="Save 1 change").click()
    expect(page.get_by_text("Changed: kerf_mm.")).to_be_visible()
    expect(blade).to_have_value("3.2555")
    assert order_service(world.service).workshop.rules().kerf_mm == Decimal("3.2555")


# The seed's own page


@pytest.mark.parametrize(
    ("button", "action", "state"),
    [
        ("Retry", "Retry: 2 rows", "QUEUED"),
        ("Reset to queued", "Reset to queued: 2 rows", "QUEUED"),
    ],
)
def test_failed_conversions_go_back_to_the_queue(button, action, state, signed_in, world):
    world.site(f"site-{button[:5].lower()}")
    ids = conversions(world, site=f"site-{button[:5].lower()}", told=button)
    bad = [one for one in ids if world.state(one) == "FAILED"]
    page = signed_in("operator")
    page.goto(f"/dashboard/site/site-{button[:5].lower()}/oci-control?status=FAILED")
    page.get_by_label("Select every row shown").check()
    offer(page, button).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 of 2 chosen rows will move.")
    dialog.get_by_label("Reason, for the history").fill("mended at the source")
    dialog.get_by_role("button", name=action).click()
    expect(page.get_by_role("dialog")).to_contain_text("2 moved, 0 refused")
    assert {world.state(one) for one in bad} == {state}
    page.get_by_role("button", name="Close").click()
    expect(page.locator("tr[id^=row-]")).to_have_count(0)


def test_conversions_that_wait_are_marked_failed_and_delivered_ones_never(signed_in, world):
    world.site("marked")
    ids = conversions(world, site="marked")
    page = signed_in("operator")
    page.goto("/dashboard/site/marked/oci-control")
    page.get_by_label("Select every row shown").check()
    offer(page, "Mark failed").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("listitem").filter(has_text="COMPLETED")).to_contain_text("stay")
    before = {one: world.state(one) for one in ids}
    dialog.locator("button.danger").click()
    expect(page.get_by_role("heading", name=re.compile(r"^4 moved, 2 refused$"))).to_be_visible()
    after = {one: world.state(one) for one in ids}
    done = [one for one, state in before.items() if state == "COMPLETED"]
    assert [after[one] for one in done] == ["COMPLETED"] * len(done)
    assert {after[one] for one, state in before.items() if state == "QUEUED"} == {"FAILED"}


# As somebody likes it


def test_language_and_theme_change_in_place_and_are_remembered(signed_in, world):
    page = signed_in("operator")
    page.goto(f"{TASKS}?state=failed")
    page.get_by_role("button", name="TR", exact=True).click()
    expect(page).to_have_url(re.compile(r"\?state=failed$"))
    expect(page.locator("html")).to_have_attribute("lang", "tr")
    expect(page.get_by_role("link", name="Genel bakış")).to_be_visible()
    for theme in ("dark", "light", "auto"):
        page.locator("button[name=theme]").click()
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        if theme == "dark":
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert dark == "rgb(14, 18, 23)"
    page.goto("/dashboard")
    expect(page.locator("html")).to_have_attribute("lang", "tr")


def test_everything_on_a_row_can_be_reached_without_a_mouse(signed_in, world):
    [bad] = failed(world, 1, "BY_KEYBOARD")
    page = signed_in("operator")
    page.goto(f"{TASKS}?code=BY_KEYBOARD")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    row(page, bad).locator("input").focus()
    page.keyboard.press("Space")
    expect(row(page, bad).locator("input")).to_be_checked()
    page.keyboard.press("Tab")
    expect(row(page, bad).get_by_role("link").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/dashboard/jobs/{bad}"))
