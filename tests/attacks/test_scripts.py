"""Scripts in every text that users store, and every page that shows them, in a real Chromium.

The short form is ``tests/browser/test_pages.py``, which puts one probe into every text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Dialog, Page, Response

from kesin.engine.access.accounts import Accounts
from kesin.engine.queue import Queue
from kesin.store.directory import Directory
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from tests.attacks.conftest import Record
from tests.attacks.patterns import SCRIPTS
from tests.attacks.target import OWN, ROOT, Target, conversion
from tests.browser.pages import PAGES
from tests.browser.sample_data import SampleData
from tests.browser.watching import LISTEN, Watcher
from tests.web.serving import opened
from tests.workloads.optiplan.order_bodies import order, part
from tests.workloads.optiplan.stock.racks import put_offcut

pytestmark = pytest.mark.long
REFLECTED = (
    "/dashboard/queues/oci?text={0}&code={0}&site={0}",
    "/dashboard/optiplan?order_id={0}&made={0}",
    "/dashboard/audit?actor={0}&target={0}",
    "/dashboard/nowhere/{0}",
    "/sign-in?next={0}",
    "/dashboard/pdf?template={0}",
    "/dashboard/optiplan/customers?phone={0}&done={0}&order={0}",
    f"/dashboard/site/{OWN}/oci-control?q={{0}}&status={{0}}&code={{0}}",
)
_RAN = """() => {
  for (const one of document.querySelectorAll("details:not(.menu)")) one.open = true;
  const text = ["title", "value", "alt", "placeholder", "aria-label"];  // never an address
  const ours = [...document.querySelectorAll("*")].filter((one) =>
    [...one.attributes].some((it) => it.name.startsWith("on")
      || (/^javascript:/i.test(it.value) && !text.includes(it.name))));
  const foreign = document.querySelectorAll("base, script:not([src]), img[src=x], svg[onload]");
  return {ran: "ran" in window, markup: [...ours, ...foreign].map((one) => one.outerHTML)};
}"""


@pytest.fixture(scope="module")
def stored(target: Target) -> SampleData:
    """The scripts in names, payloads, keys, reasons, error messages and order fields."""
    texts = SCRIPTS
    key_id = _store_names(target, texts)
    conversions = _store_conversions(target, texts)
    documents = _store_documents(target, texts)
    orders = _store_orders(target, texts)
    target.post("/api/queues/pdf/pause", {"reason": texts[0]})
    target.post("/api/queues/oci/pause", {"reason": texts[-1], "site": OWN})
    target.ids |= {f"job {n}": id_ for n, id_ in enumerate([*conversions, *documents, *orders])}
    first = dict.fromkeys(("failed", "done"), documents[0])
    steps = {"running": first["failed"], "blocked": first["failed"]}
    first_ones = {"planned": orders[0]}, steps, {"free": _store_offcuts(target, texts)[0]}
    return SampleData(first, conversions, first, *first_ones, key_id)


def _store_names(target: Target, texts: list[str]) -> str:
    with opened(target.folder) as store:
        accounts = Accounts(Directory(store))
        accounts.set_site(ROOT, OWN, name=f"North {texts[0]}"[:100])
        keys = [accounts.create_key(ROOT, f"k {text}"[:100], ["oci:ingest"], site=OWN)[1].id for text in texts]
        for text in texts:
            accounts.note(ROOT, "job.reveal", queue="oci", target=text[:120])
    return keys[0]


def _store_conversions(target: Target, texts: list[str]) -> list[str]:
    rows = [conversion(number, text) for number, text in enumerate(texts)]
    answer = target.post(f"/api/oci/conversions?siteId={OWN}", rows)
    taken_in = [result["id"] for result in answer["results"] if "id" in result]
    assert len(taken_in) > len(texts) / 2  # a line break, or a very long name, is refused
    ids = [seal.removeprefix("seal_") for seal in taken_in]
    client = target.served.client
    exported = client.get(f"/api/oci/google-ads-export?siteId={OWN}&markAsExported=true").json()
    taken = [row["id"] for row in (exported if isinstance(exported, list) else exported["rows"])]
    for seal, text in zip(taken, texts, strict=False):
        failure = {"errorCode": "BROKEN", "errorMessage": text, "errorCategory": "VALIDATION"}
        target.post("/api/oci/ack-failed", {"siteId": OWN, "queueIds": [seal], **failure})
    return ids


def _store_documents(target: Target, texts: list[str]) -> list[str]:
    jobs = [{"payload": {"note": text, text: [text], "file_name": text}, "key": text} for text in texts]
    created = target.post("/api/queues/pdf/jobs", {"jobs": jobs})["jobs"]
    for job, text in zip(created, texts, strict=True):
        cancel = {"action": "cancel", "ids": [job["id"]], "reason": text}
        target.post("/api/queues/pdf/actions", cancel)
    return [job["id"] for job in created]


def _store_offcuts(target: Target, texts: list[str]) -> list[str]:
    named = [dict.fromkeys(("material", "color", "place"), text[:100]) for text in texts]
    with opened(target.folder) as store:
        queue = Queue("optiplan", optiplan_lifecycle(), store)
        return [put_offcut(queue, str(number), **names) for number, names in enumerate(named)]


def _store_orders(target: Target, texts: list[str]) -> list[str]:
    ids = []
    for number, text in enumerate(texts):
        words = {"id": text, "color": text, "material_code": text}
        body = order(
            part(**{name: value[:60] for name, value in words.items()}),
            order_id=f"{number} {text}"[:60],
            customer_snapshot_name=text[:60],
        )
        ids.append(target.post("/jobs", body)["job"]["id"])
        phone = f"0555 765 {number // 100:02} {number % 100:02}"
        target.post("/customers", {"name": text, "phone": phone})
    return ids


class Visitor:
    """An admin's tab, and what went wrong in it."""

    def __init__(self, page: Page, watcher: Watcher) -> None:
        self.page = page
        self.watcher = watcher
        self.answers: Counter[Any] = Counter()
        self.wrong: list[str] = []
        page.on("dialog", self._refuse)

    def _refuse(self, dialog: Dialog) -> None:
        self.wrong.append(f"a dialog: {dialog.message} at {self.page.url}")
        dialog.dismiss()

    def open(self, path: str) -> None:
        """Open a page and look for scripts that ran and for markup that the texts became."""
        response: Response | None = self.page.goto(path)
        assert response is not None
        self.answers[response.status] += 1
        if response.status >= 500:
            self.wrong.append(f"{response.status} at {path}")
        self.check(path)

    def check(self, path: str) -> None:
        seen = self.page.evaluate(_RAN)
        if seen["ran"] or seen["markup"]:
            self.wrong.append(f"{seen} at {path}")
        self.wrong += [f"{one} at {path}" for one in self.watcher.unexpected]
        self.watcher.troubles.clear()


@contextmanager
def visiting(browser: Browser, watcher: Watcher, target: Target) -> Iterator[Visitor]:
    context = browser.new_context(base_url=target.address, locale="en-GB", reduced_motion="reduce")
    cookie = {"name": "kesin_session", "value": target.tokens["admin"], "url": target.address}
    context.add_cookies([cookie])  # type: ignore[list-item]
    context.add_init_script(LISTEN)
    page = context.new_page()
    watcher.watch(page)
    watcher.expects(r"status of 4\d\d")  # pages that do not exist, and refused forms
    yield Visitor(page, watcher)
    context.close()


def test_no_script_runs_on_any_page(target, stored, browser, watcher, record: Record):
    with visiting(browser, watcher, target) as visitor:
        visit_stored(visitor, target, stored)
        record("pages with stored scripts", visitor.answers)
        visitor.answers.clear()
        assert visitor.wrong == []
        for text in SCRIPTS:
            for path in REFLECTED:
                visitor.open(path.format(quote(text, safe="")))
        record("pages with scripts in the address", visitor.answers)
        visitor.answers.clear()
        assert visitor.wrong == []
        for text in SCRIPTS:
            send_file(visitor, text)
        record("pages after a file with a script", visitor.answers)
    assert visitor.wrong == []


def visit_stored(visitor: Visitor, target: Target, stored: SampleData) -> None:
    """Open every page, and the page of every job."""
    paths = [path(stored) for named in PAGES.values() for path in named.values()]
    jobs = [f"/dashboard/jobs/{target.ids[name]}" for name in target.ids if name.startswith("job ")]
    for path in dict.fromkeys([*paths, *jobs, "/dashboard/queues/pdf"]):
        visitor.open(path)
    assert SCRIPTS[0] in visitor.page.locator("main").inner_text()


def send_file(visitor: Visitor, text: str) -> None:
    """Send an order list with scripts in its name, its cells and the fields beside it."""
    page = visitor.page
    page.goto("/dashboard/optiplan/new")
    file: Any = {"name": f"{text}.xlsx", "mimeType": "text/csv", "buffer": text.encode()}
    page.locator("#i-file").set_input_files(file)
    form = page.locator("form", has=page.locator("#i-file"))
    fill = "(all, text) => all.forEach((one) => { one.value = text; })"
    form.locator("input[type=text], input:not([type]), input[type=tel]").evaluate_all(fill, text)
    with page.expect_navigation(url="**/dashboard/optiplan/import") as sent:
        form.evaluate("form => form.submit()")
    visitor.answers[sent.value.status] += 1
    visitor.check("/dashboard/optiplan/import")
