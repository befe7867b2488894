"""What people wait for: the dashboard's pages in a real Chromium, at 10⁴ and at 10⁶ jobs.

Both services run side by side and are asked in turn, so that a slow minute falls on both.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from bench.beside import say
from bench.report import Report
from kesin.foundation.clock import ManualClock
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import Settings
from kesin.store.records import Filter
from kesin.store.sqlite.store import SqliteStore
from kesin.web.app import create_app
from kesin.web.service import Service
from kesin.workloads import workloads
from kesin.workloads.pdf.engines.base import find_chromium
from tests.store import crowd

ROOT = Path(__file__).parent.parent
SIZES = (10_000, 1_000_000)
REPEATS = 11
SITES, SITES_MOST_MS = 1_000, 300
GROWTH_MOST = 1.5
ME = system_actor("bench")
PASSWORD = "a long enough password"
QUEUE = "/dashboard/queues/oci"
FAILED = f"{QUEUE}?state=FAILED"


@dataclass(frozen=True)
class Place:
    """One service and a page of somebody who is signed in there."""

    page: Page
    job: str
    site: str


Visit = Callable[[Place], Callable[[], object]]  # gets ready; what it returns is timed


def _opens(path: str) -> Visit:
    def ready(place: Place) -> Callable[[], object]:
        where = path.format(job=place.job, site=place.site)
        return lambda: place.page.goto(where)

    return ready


def _appends(place: Place) -> Callable[[], object]:
    place.page.goto(QUEUE)
    rows = place.page.locator("tr[id^=row-]")
    shown = rows.count()

    def append() -> None:
        place.page.locator("#more a").click()
        rows.nth(shown).wait_for()

    return append


def _sheet(place: Place) -> Callable[[], object]:
    place.page.goto(FAILED)
    place.page.locator("input[data-pick-all]").check()
    return lambda: _offered(place.page)


def _sheet_of_all(place: Place) -> Callable[[], object]:
    _sheet(place)
    place.page.locator("[data-pick-matching]").click()
    return lambda: _offered(place.page)


def _offered(page: Page) -> None:
    page.locator("[data-bar] [data-from]:visible").first.click()
    page.get_by_role("dialog").wait_for()


VISITS: dict[str, Visit] = {
    "overview": _opens("/dashboard"),
    "queue": _opens(QUEUE),
    "queue, by state": _opens(FAILED),
    "queue, by state and code": _opens(f"{FAILED}&code=VALIDATION_FAILED"),
    "queue, by site": _opens(f"{QUEUE}?site={{site}}"),
    "queue, search for one key": _opens(f"{QUEUE}?text=key-42"),
    "queue, by a code no job has": _opens(f"{QUEUE}?code=UNHEARD_OF"),
    # The newest are in other states: without the state the larger one would list rows.
    "queue, created in the last hour (no jobs)": _opens(f"{QUEUE}?age=within-1h&state=COMPLETED"),
    "queue, 50 more rows": _appends,
    "job": _opens("/dashboard/jobs/{job}"),
    "OCI control": _opens("/dashboard/site/{site}/oci-control"),
    "PDFs": _opens("/dashboard/pdf?everybody=1"),
    "orders": _opens("/dashboard/optiplan"),
    "dialog: preview of 50 selected jobs": _sheet,
    "dialog: preview of all matching jobs": _sheet_of_all,
}


WHY = """
## What grows

Pages read their rows through an index, and counts come from counters. Filters on error category or
on words in an error message have no index: Kesin reads jobs, newest first, until enough match.
This is fast when many jobs match. When hardly any do, Kesin reads every job in the chosen states,
so filter by state as well. A dialog for all matching jobs uses the counters and the error index
when states and codes alone determine what an action does; otherwise it checks each job. The table
of all sites initially shows a hundred sites, worst first.
"""


def run(report: Report, folder: Path) -> None:
    """Fill, serve, look; the page with its medians and their ratio."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with contextlib.ExitStack() as stack:
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=find_chromium(), args=flags)
        stack.callback(browser.close)
        places = {size: stack.enter_context(_placed(browser, folder, size)) for size in SIZES}
        rows = [_row(report, name, visit, places) for name, visit in VISITS.items()]
        sites_ms = _all_sites(stack.enter_context(_placed(browser, folder, SIZES[-1], SITES)))
    report.say("## Milliseconds to load, median")
    report.table(("page", *(f"{size:,} jobs" for size in SIZES), "ratio"), rows)
    report.say(
        f"The page that lists {SITES:,} sites in one table, with {SIZES[-1]:,} jobs, loads in {sites_ms:.0f} ms."
    )
    report.aim("all sites, ms", sites_ms, most=SITES_MOST_MS)


def _row(report: Report, name: str, visit: Visit, places: dict[int, Place]) -> tuple[str, str, str, str]:
    took: dict[int, list[float]] = {size: [] for size in places}
    for number in range(REPEATS + 1):
        for size, place in places.items():
            timed = visit(place)
            started = time.perf_counter()
            timed()
            if number:  # the first look fills caches
                took[size].append(1_000 * (time.perf_counter() - started))
    small, large = (statistics.median(took[size]) for size in SIZES)
    say(f"{name}: {small:.0f} ms, {large:.0f} ms")
    report.aim(name, large / small, most=GROWTH_MOST)
    return (name, f"{small:.0f}", f"{large:.0f}", f"{large / small:.2f}")


def _all_sites(place: Place) -> float:
    """The median time of the table of all sites."""
    took = []
    for _ in range(REPEATS + 1):
        started = time.perf_counter()
        place.page.goto("/dashboard/oci")
        took.append(1_000 * (time.perf_counter() - started))
    return statistics.median(took[1:])  # the first look fills caches


@contextlib.contextmanager
def _placed(browser: Browser, folder: Path, size: int, sites: int = crowd.TENANTS) -> Iterator[Place]:
    home = folder / f"{size}-{sites}"
    home.mkdir()
    started = time.perf_counter()
    crowd.crowd_sqlite(home / "kesin.db", size, sites)
    say(f"{size:,} jobs filled in {time.perf_counter() - started:.0f} s")
    settings = Settings(data_dir=home, rate_per_s=1e6)
    store = SqliteStore(home / "kesin.db")
    service = Service(settings, store, workloads(), work=False, clock=ManualClock(crowd.NOW))
    for number in range(sites):
        service.accounts.add_site(ME, f"t{number}")
    service.accounts.add_user(ME, "ayse", PASSWORD, role="admin", all_sites=True)
    token, _ = service.accounts.sign_in("ayse", PASSWORD, "127.0.0.1")
    failed = service.queues["oci"].jobs(Filter(states=("FAILED",)), limit=1).jobs[0]
    with _served(service) as address:
        context = browser.new_context(
            base_url=address, viewport={"width": 1440, "height": 900}, reduced_motion="reduce"
        )
        context.add_cookies([{"name": "kesin_session", "value": token, "url": address}])
        yield Place(context.new_page(), failed.id, failed.tenant)
        context.close()
    store.close()


@contextlib.contextmanager
def _served(service: Service) -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(service), log_config=None))
        thread = threading.Thread(target=server.run, args=([taken],), daemon=True)
        taken.listen()  # a browser that comes too early waits for its answer
        thread.start()
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        service.begin_stop()
        server.should_exit = True
        thread.join()


def main(*, write: bool) -> None:
    """Measure, print, and write docs/contributing/dashboard-benchmarks.md if asked."""
    report = Report("Dashboard benchmarks")
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    report.say(
        f"Measured with `make bench ARGS='dashboard --write'` on {when}: {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}; the browser,"
        " service and database share the machine. Four queues hold jobs in every state. An admin"
        f" opens the pages in Chromium at 1440 px. Figures are medians of {REPEATS} loads,"
        " alternating between stores with 10,000 and 1,000,000 jobs. Timing stops when the"
        " browser reports that the page has loaded or when the dialog appears."
    )
    with tempfile.TemporaryDirectory(prefix="kesin-bench-") as name:
        run(report, Path(name))
    text = report.text() + WHY
    print(text)
    if write:
        (ROOT / "docs" / "contributing" / "dashboard-benchmarks.md").write_text(text, "utf-8")
