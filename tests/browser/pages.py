"""Every page there is, and every sheet and menu that opens on one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from playwright.sync_api import Page

from kesin.workloads.optiplan.labels.ids import order_code
from tests.browser.sample_data import SITE, SampleData

CONTROL = f"/dashboard/site/{SITE}/oci-control"
Where = Callable[[SampleData], str]

# A route as the app declares it, and the pages to look at behind it.
PAGES: dict[str, dict[str, Where]] = {
    "/dashboard": {"overview": lambda _: "/dashboard"},
    "/dashboard/queues/{queue}": {
        "conversions": lambda _: "/dashboard/queues/oci",
        "filtered": lambda _: "/dashboard/queues/oci?state=FAILED&age=within-1h",
        "nothing matches": lambda _: "/dashboard/queues/task?text=nothing+like+it",
        "empty queue": lambda _: "/dashboard/queues/pdf_batches",
        "orders queue": lambda _: "/dashboard/queues/optiplan",
        "limited queue": lambda _: "/dashboard/queues/steps",
    },
    "/dashboard/queues/{queue}/fix": {"fix": lambda _: "/dashboard/queues/task/fix"},
    "/dashboard/jobs/{job_id}": {
        "failed task": lambda data: f"/dashboard/jobs/{data.task['failed']}",
        "conversion": lambda data: f"/dashboard/jobs/{data.conversions[0]}",
        "failed conversion": lambda data: f"/dashboard/jobs/{data.conversions[2]}",
        "printed": lambda data: f"/dashboard/jobs/{data.pdf['done']}",
        "order": lambda data: f"/dashboard/jobs/{data.orders['planned']}",
        "held order": lambda data: f"/dashboard/jobs/{data.orders['held']}",
        "running": lambda data: f"/dashboard/jobs/{data.steps['running']}",
        "blocked": lambda data: f"/dashboard/jobs/{data.steps['blocked']}",
    },
    "/dashboard/triage": {"triage": lambda _: "/dashboard/triage"},
    "/dashboard/oci": {"oci sites": lambda _: "/dashboard/oci"},
    "/dashboard/site/{site_id}/oci-control": {
        "oci control": lambda _: CONTROL,
        "oci control of a quiet site": lambda _: "/dashboard/site/south/oci-control",
    },
    "/dashboard/site/{site_id}/oci-control/settings": {"oci": lambda _: f"{CONTROL}/settings"},
    "/dashboard/site/{site_id}/oci-control/reconciliation": {
        "reconciliation": lambda _: f"{CONTROL}/reconciliation",
        "reconciliation of a quiet site": lambda _: "/dashboard/site/south/oci-control/reconciliation",
    },
    "/dashboard/site/{site_id}/oci-control/import": {"oci import": lambda _: f"{CONTROL}/import"},
    "/dashboard/pdf": {
        "pdf": lambda _: "/dashboard/pdf?everybody=1",
        "pdf from nothing": lambda _: "/dashboard/pdf?template=cutting_plan&start=empty",
    },
    "/dashboard/pdf/templates": {"versions": lambda _: "/dashboard/pdf/templates?name=card"},
    "/dashboard/optiplan": {"orders": lambda _: "/dashboard/optiplan"},
    "/dashboard/optiplan/new": {"new order": lambda _: "/dashboard/optiplan/new"},
    "/dashboard/optiplan/scan": {"scan": lambda _: "/dashboard/optiplan/scan"},
    "/dashboard/optiplan/scan/{label}": {
        "scanned part": lambda data: f"/dashboard/optiplan/scan/{order_code(data.orders['planned'])}-1-1"
    },
    "/dashboard/optiplan/customers": {"customers": lambda _: "/dashboard/optiplan/customers"},
    "/dashboard/optiplan/rack": {
        "rack": lambda data: f"/dashboard/optiplan/rack?scan={data.offcuts['free']}",
        "empty rack": lambda _: "/dashboard/optiplan/rack?search=nothing+like+it",
    },
    "/dashboard/optiplan/rules": {"rules": lambda _: "/dashboard/optiplan/rules"},
    "/dashboard/workers": {"workers": lambda _: "/dashboard/workers"},
    "/dashboard/audit": {"audit": lambda _: "/dashboard/audit"},
    "/dashboard/admin/people": {"people": lambda _: "/dashboard/admin/people"},
    "/dashboard/admin/people/{name}": {"person": lambda _: "/dashboard/admin/people/ayse"},
    "/dashboard/admin/keys": {"keys": lambda _: "/dashboard/admin/keys"},
    "/dashboard/admin/keys/{key_id}": {"key": lambda data: f"/dashboard/admin/keys/{data.key_id}"},
    "/dashboard/admin/sites": {"sites": lambda _: "/dashboard/admin/sites"},
    "/dashboard/admin/sites/{site_id}": {"site": lambda _: f"/dashboard/admin/sites/{SITE}"},
    "/dashboard/password": {"password": lambda _: "/dashboard/password"},
    "/dashboard/{rest:path}": {"no such page": lambda _: "/dashboard/nowhere/at/all"},
}
# Routes that are no page: a part of one that comes by itself, or a file.
PARTS = {
    "/dashboard/admin/sites/{site_id}/removal",
    "/dashboard/jobs/{job_id}/paper",
    "/dashboard/jump",
    "/dashboard/nav",
    "/dashboard/optiplan/orders/{job_id}/{action}",
    "/dashboard/pdf/jobs/{job_id}/links",
    "/dashboard/pdf/templates/{name}/dialog",
    "/dashboard/pdf/templates/{name}/{version}/document",
    "/dashboard/queues/{queue}/rows",
    "/dashboard/queues/{queue}/rows.csv",
    "/dashboard/queues/{queue}/runs",
    "/dashboard/queues/{queue}/steer",
    "/dashboard/site/{site_id}/oci-control/export",
    "/dashboard/site/{site_id}/oci-control/pause",
    "/dashboard/site/{site_id}/oci-control/rows/{job_id}/fix",
}
NAMED = {name: where for all_ in PAGES.values() for name, where in all_.items()}

Say = Callable[[str], str]  # a sentence in the language of the page
DIALOG, MENU = "dialog[open]", "details.menu[open]"


@dataclass(frozen=True)
class Opened:
    """What opens on a page; ``template`` is what a sheet is made of."""

    page: str
    open: Callable[[Page, Say], None]
    within: str = DIALOG
    template: str = ""


def _button(name: str) -> Callable[[Page, Say], None]:
    def press(page: Page, say: Say) -> None:
        page.locator("main").get_by_role("button", name=say(name), exact=True).first.click()

    return press


def _chosen(name: str) -> Callable[[Page, Say], None]:
    """With every row that is shown."""

    def press(page: Page, say: Say) -> None:
        page.get_by_label(say("Select every row shown")).check()
        _button(name)(page, say)

    return press


def _menu(selector: str) -> Callable[[Page, Say], None]:
    return lambda page, _: page.locator(f"{selector} summary").first.click()


def _asked(path: str) -> Callable[[Page, Say], None]:
    """A dialog that the inbox offers for other failures than those of the sample data."""
    return lambda page, _: page.evaluate(f"htmx.ajax('GET', '{path}', '#sheet')")


def _key(name: str, shows: str) -> Callable[[Page, Say], None]:
    def press(page: Page, _: Say) -> None:
        page.keyboard.press(name)
        page.locator(shows).first.wait_for()

    return press


OPENED = [
    Opened("overview", _key("?", ".keys"), template="part_dialogs.html"),
    Opened("overview", _key("Control+k", "[role=option]"), template="part_dialogs.html"),
    Opened("overview", _menu("header .mine"), MENU),
    Opened("overview", _menu("header .switch"), MENU),
    Opened("overview", _asked("/dashboard/triage"), template="dialog.html"),
    Opened("oci control", _menu("main .menu"), MENU),
    Opened("oci control", _button("Preview export"), template="oci/part_export.html"),
    Opened("oci control", _button("Pause…"), template="oci/part_pause.html"),
    Opened("oci control", _chosen("Mark failed"), template="oci/part_action.html"),
    Opened("filtered", _chosen("Retry"), template="sheet_action.html"),
    Opened("conversions", _button("Pause…"), template="sheet_pause.html"),
    Opened("site", _button("Remove site…"), template="sheet_remove_site.html"),
    Opened("orders", _button("Approve"), template="optiplan/part_order_dialog.html"),
    Opened("printed", _button("Create link…"), template="pdf/sheet_link.html"),
    Opened("versions", _button("Activate…"), template="pdf/sheet_version.html"),
    Opened("failed conversion", _button("Fix data"), template="oci/part_fix.html"),
]
