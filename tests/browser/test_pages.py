"""Every page there is: wide and on a phone, light and dark, in English and in Turkish."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from kesin.workloads.pdf.setup import book_of
from tests.browser.checking import complaints, english, too_wide
from tests.browser.conftest import PHONE, WIDE
from tests.browser.furniture import SITE, Furniture, furnish
from tests.browser.served import Served
from tests.web.conftest import World
from tests.web.test_matrix import doors

VENDOR = Path(__file__).parent / "vendor"
CONTROL = f"/dashboard/site/{SITE}/oci-control"
Where = Callable[[Furniture], str]

# A route as the app declares it, and the pages to look at behind it.
PAGES: dict[str, dict[str, Where]] = {
    "/dashboard": {"overview": lambda _: "/dashboard"},
    "/dashboard/queues/{queue}": {
        "conversions": lambda _: "/dashboard/queues/oci",
        "filtered": lambda _: "/dashboard/queues/oci?state=FAILED&text=sale&age=within-1h",
        "nothing matches": lambda _: "/dashboard/queues/task?text=nothing+like+it",
        "empty queue": lambda _: "/dashboard/queues/pdf_batches",
        "orders queue": lambda _: "/dashboard/queues/optiplan",
    },
    "/dashboard/jobs/{job_id}": {
        "failed task": lambda had: f"/dashboard/jobs/{had.task['failed']}",
        "conversion": lambda had: f"/dashboard/jobs/{had.conversions[0]}",
        "printed": lambda had: f"/dashboard/jobs/{had.pdf['done']}",
        "order": lambda had: f"/dashboard/jobs/{had.orders['planned']}",
    },
    "/dashboard/site/{site_id}/oci-control": {
        "oci control": lambda _: CONTROL,
        "oci control of a quiet site": lambda _: "/dashboard/site/south/oci-control",
    },
    "/dashboard/site/{site_id}/oci-control/settings": {"oci": lambda _: f"{CONTROL}/settings"},
    "/dashboard/pdf": {
        "pdf": lambda _: "/dashboard/pdf?everybody=1",
        "pdf from nothing": lambda _: "/dashboard/pdf?template=cutting_plan&start=empty",
    },
    "/dashboard/optiplan": {"orders": lambda _: "/dashboard/optiplan"},
    "/dashboard/optiplan/new": {"new order": lambda _: "/dashboard/optiplan/new"},
    "/dashboard/optiplan/customers": {"customers": lambda _: "/dashboard/optiplan/customers"},
    "/dashboard/optiplan/rules": {"rules": lambda _: "/dashboard/optiplan/rules"},
    "/dashboard/workers": {"workers": lambda _: "/dashboard/workers"},
    "/dashboard/audit": {"audit": lambda _: "/dashboard/audit"},
    "/dashboard/admin/people": {"people": lambda _: "/dashboard/admin/people"},
    "/dashboard/admin/people/{name}": {"person": lambda _: "/dashboard/admin/people/ayse"},
    "/dashboard/admin/keys": {"keys": lambda _: "/dashboard/admin/keys"},
    "/dashboard/admin/keys/{key_id}": {"key": lambda had: f"/dashboard/admin/keys/{had.key_id}"},
    "/dashboard/admin/sites": {"sites": lambda _: "/dashboard/admin/sites"},
    "/dashboard/admin/sites/{site_id}": {"site": lambda _: f"/dashboard/admin/sites/{SITE}"},
    "/dashboard/{rest:path}": {"no such page": lambda _: "/dashboard/nowhere/at/all"},
}
# Routes that are no page: a part of one that comes by itself, or a file.
PARTS = {
    "/dashboard/jobs/{job_id}/paper",
    "/dashboard/optiplan/orders/{job_id}/{call}",
    "/dashboard/pdf/preview/{token}",
    "/dashboard/queues/{queue}/rows",
    "/dashboard/queues/{queue}/rows.csv",
    "/dashboard/queues/{queue}/runs",
    "/dashboard/queues/{queue}/steer",
    "/dashboard/site/{site_id}/oci-control/export",
}
NAMED = {
    f"{name} ({route})": where for route, all_ in PAGES.items() for name, where in all_.items()
}


@pytest.fixture(scope="module")
def furnished(served: Served) -> Furniture:
    served.world.known("ayse", "admin", all_sites=True)
    return furnish(served.world)


@pytest.fixture(scope="module")
def carried(served: Served, furnished: Furniture) -> set[str]:
    """What is told in the language of whoever made it: errors of jobs, the words of a template."""
    jobs = [job for queue in served.world.service.queues.values() for job in queue.jobs().jobs]
    book = book_of(served.world.settings)
    templates = [book.get(name) for name in book.names]
    words = re.findall(
        r'"(?:title|description)": "([^"]+)"',
        json.dumps([one.schema for one in templates], ensure_ascii=False),
    )
    return {job.error_message[:20] for job in jobs if job.error_message} | set(words)


def test_every_route_is_a_page_to_look_at_or_said_to_be_none(world: World):
    there = {path for method, path in doors(world.app) if method == "GET"}
    there = {path for path in there if path.startswith("/dashboard")}
    assert there == PAGES.keys() | PARTS


@pytest.mark.parametrize("where", NAMED.values(), ids=NAMED.keys())
def test_a_page_is_fit_to_be_used(where, furnished, carried, admins_tab, watcher):
    path, page = where(furnished), admins_tab
    watcher.expects(r"status of 404 .*nowhere/at/all")
    page.goto(path)
    _fit(page, "en")
    assert too_wide(page) == []
    assert complaints(page) == []
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(PHONE)
    assert too_wide(page) == []
    assert complaints(page) == []

    page.context.add_cookies([{"name": "kesin_language", "value": "tr", "url": page.url}])
    page.goto(path)
    _fit(page, "tr")
    assert too_wide(page) == []
    assert english(page, carried) == []
    page.set_viewport_size(WIDE)
    assert too_wide(page) == []


def _fit(page: Page, language: str) -> None:
    """A title, one heading, the language it says it has."""
    expect(page).to_have_title(re.compile(r"\S+ · Kesin$"))
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("h1")).not_to_be_empty()
    expect(page.locator("html")).to_have_attribute("lang", language)
    expect(page.locator("main")).to_have_count(1)
    expect(page.locator("nav.side [aria-current=page]")).not_to_have_count(2)


def test_the_sign_in_page_is_fit_to_be_used(page, watcher):
    page.goto("/sign-in")
    assert complaints(page) == []
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(PHONE)
    assert too_wide(page) == []
    assert complaints(page, "color-contrast") == []


def test_what_judges_the_pages_is_what_was_published():
    [(digest, name)] = re.findall(
        r"^([0-9a-f]{64})  (\S+)$", (VENDOR / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
