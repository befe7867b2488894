"""Whatever others wrote into a job, an order or a name is shown as it is and never runs."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests.browser.furniture import SITE, Furniture, furnish
from tests.browser.served import Served
from tests.browser.test_pages import NAMED
from tests.web.conftest import ROOT

PROBE = "\"'><img src=x onerror=window.__hacked=1><script>window.__hacked=1</script>{{7*7}}"


@pytest.fixture(scope="module")
def probed(served: Served) -> Furniture:
    world = served.world
    world.known("ayse", "admin", all_sites=True)
    world.accounts.set_site(ROOT, SITE, name=f"North{PROBE}")
    found = furnish(world, PROBE)
    world.service.commands.pause(ROOT, "task", reason=f"a pause{PROBE}")
    world.accounts.note(ROOT, "job.unmask", queue="task", target=f"target{PROBE}"[:120])
    return found


@pytest.mark.parametrize("where", NAMED.values(), ids=NAMED.keys())
def test_a_probe_stays_a_text(where, probed, admins_tab, watcher):
    """A probe that became markup would ask for an image, and the policy would tell of a script."""
    watcher.expects(r"status of 404 .*nowhere/at/all")
    page = admins_tab
    page.goto(where(probed))
    expect(page.locator("h1")).to_have_count(1)
    page.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("window.__hacked") is None
    assert "49{{" not in page.content()
    assert ">49<" not in page.locator("h1").inner_html()


def test_the_probes_are_really_shown(probed, admins_tab):
    page = admins_tab
    seen = {}
    for name, path in {
        "error": "/dashboard/queues/task",
        "site": "/dashboard/admin/sites",
        "key": "/dashboard/admin/keys",
        "order": "/dashboard/optiplan",
        "customer": "/dashboard/optiplan/customers",
        "conversion": f"/dashboard/site/{SITE}/oci-control",
        "job": f"/dashboard/jobs/{probed.task['failed']}",
    }.items():
        page.goto(path)
        seen[name] = "<img src=x" in page.locator("main").inner_text()
    assert seen == dict.fromkeys(seen, True)


def test_a_probe_in_a_sheet_stays_a_text(probed, signed_in):
    page = signed_in("admin")
    page.goto("/dashboard/queues/task?state=failed")
    page.get_by_label("Select every row shown").check()
    page.locator("[data-bar]").get_by_role("button", name="Requeue", exact=True).click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_label("Reason").fill(PROBE)
    page.get_by_role("dialog").locator("button[type=submit]").click()
    expect(page.locator("#result")).to_contain_text("1 moved")
    page.goto("/dashboard/optiplan")
    page.get_by_role("button", name="Approve").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("R-")
    assert page.evaluate("window.__hacked") is None
    assert page.locator("img[src=x]").count() == 0


def test_a_probe_in_the_address_stays_a_text(probed, admins_tab, watcher):
    watcher.expects(r"status of 4\d\d")
    page = admins_tab
    names = ("text", "code", "site", "state", "ids", "cursor", "age", "category", "q", "status")
    for path in ("/dashboard/queues/task", f"/dashboard/site/{SITE}/oci-control"):
        for query in (dict.fromkeys(names, PROBE), {"text": PROBE}, {"site": PROBE}):
            page.goto(f"{path}?{urlencode(query)}")
            expect(page.locator("h1")).to_have_count(1)
            assert page.locator("img[src=x]").count() == 0
            assert page.evaluate("window.__hacked") is None
