"""Take the pictures of the dashboard that the documentation shows.

Needs every extra and Chromium. The clock stands at one moment and chance has a seed: two runs
differ in the jobs' ids and in nothing else that is worth a look.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import uvicorn
from past_sales import SITE, sell
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from kesin.engine.worker import Worker
from kesin.foundation.clock import ManualClock
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import Settings
from kesin.store.directory import MetadataEntry
from kesin.store.history import MAX_NOTES, TOTALS, WORKLOAD, read_totals
from kesin.store.open import open_store
from kesin.store.records import Filter
from kesin.web.app import create_app
from kesin.web.service import Service
from kesin.workloads import workloads
from kesin.workloads.optiplan.optimizer.input import read_batch
from kesin.workloads.optiplan.optimizer.optimise import Effort, optimise
from kesin.workloads.optiplan.optimizer.output.xml import solution_xml
from kesin.workloads.optiplan.orders.payload import read_payload
from kesin.workloads.optiplan.pipeline.runner import Runner
from kesin.workloads.optiplan.service import OrderService
from kesin.workloads.pdf.engines.base import find_chromium
from kesin.workloads.pdf.services import create_worker, load_pdf_templates, open_job_store

PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
NOON_US: Final = 1_789_990_200_000_000  # a quiet Monday morning
MINUTE_US: Final = 60_000_000
WIDE: Final = {"width": 1440, "height": 900}
PHONE: Final = {"width": 390, "height": 844}
STEPS: Final = 3  # of an order whose XML is there: until it waits for the saw
ROOT: Final = system_actor("screenshots")
OWNER: Final = "user:ayse"
PHONES: Final = ("0555 123 45 67", "0532 000 00 01")
CUSTOMERS: Final = ("Demir Mobilya", "Işıl Çağrı", "Öztürk & Oğulları", "Güneş Ahşap")
PART: Final[dict[str, Any]] = {
    "material_code": "18MM 210*280",
    "part_type": "GOVDE",
    "color": "Açık Meşe",
    "thickness_mm": 18,
}
PARTS: Final = [
    {**PART, "id": "side", "length_cm": 210, "width_cm": 58, "quantity": 4, "grain": 1},
    {**PART, "id": "shelf", "length_cm": 86.4, "width_cm": 55.5, "quantity": 10, "grain": 0},
    {**PART, "id": "door", "length_cm": 206.5, "width_cm": 44.7, "quantity": 4, "grain": 1},
]


def furnish(service: Service, clock: ManualClock) -> None:
    """A day's work of all three trades."""
    clock.time_us = NOON_US - 100 * MINUTE_US
    sell(service.store, clock)
    service.accounts.set_site(ROOT, SITE, name="Bosphorus Plumbing")
    clock.time_us = NOON_US - 5 * MINUTE_US
    _print(service)
    _cut(service, clock)
    clock.time_us = NOON_US
    _remember(service, clock)


def _print(service: Service) -> None:
    house = service.workload_context("pdf")
    sample = load_pdf_templates(house.settings).get("invoice").sample
    for number in range(12):
        buyer = {**sample["buyer"], "name": CUSTOMERS[number % len(CUSTOMERS)]}
        variables = {**sample, "number": f"A-{1001 + number}", "buyer": buyer}
        if number == 5:  # noqa: PLR2004  # one whose sum is not its lines'
            variables["stated_total"] = 1.0
        open_job_store(house).create_job("invoice", {"variables": variables}, owner=OWNER)
    create_worker(house).drain()
    for number in range(3):
        variables = {**sample, "number": f"B-{1001 + number}"}
        open_job_store(house).create_job("invoice", {"variables": variables}, owner=OWNER)


def _cut(service: Service, clock: ManualClock) -> None:
    desk = OrderService(service.workload_context("optiplan"))
    desk.add_customer(ROOT, name=CUSTOMERS[0], phone=PHONES[0])
    for number, phone in enumerate(PHONES):
        body = {
            "order_id": f"A-{1001 + number}",
            "customer_phone": phone,
            "customer_snapshot_name": CUSTOMERS[number],
            "opti_mode": "C",
            "parts": PARTS,
        }
        job_id = desk.create_order(ROOT, read_payload(body)).job.id
        worker = Worker(desk.queue, Runner(desk.workshop, desk.queue).__call__, name="workshop-1", batch=1)
        worker.drain()
        paths, dossier = desk.workshop.paths(), desk.progress(desk.job(ROOT, job_id))
        for stem in dossier.stems:
            demands = read_batch(paths.import_folder / f"{stem}.xlsx")
            plans = [optimise(one, Effort(seconds=5)) for one in demands]
            (paths.export_folder / f"{stem}.xml").write_bytes(solution_xml(plans))
        if dossier.stems:
            desk.approve(ROOT, job_id)
            for _ in range(STEPS):
                worker.drain()
                clock.advance(10)


def _remember(service: Service, clock: ManualClock) -> None:
    """Lay out a day of notes that end at the counts of now."""
    directory, chance = service.accounts.directory, random.Random(7)
    for name, queue in service.queues.items():
        now = clock.time_us
        entered = dict(read_totals(queue.store, queue.lifecycle, queue.stats())[-1].entered)
        notes = [[now, dict(entered)]]
        for back in range(1, MAX_NOTES):
            busy = 1 if 4 * 60 < back < 15 * 60 else 3  # nights are quiet
            for state, n in entered.items():
                entered[state] = max(n - (chance.random() < busy * n / 2_000), 0)
            notes.append([now - back * MINUTE_US, dict(entered)])
        text = json.dumps(notes[::-1])
        directory.put_metadata(MetadataEntry(WORKLOAD, name, TOTALS, text, now))


@contextlib.contextmanager
def served(service: Service) -> Iterator[str]:
    """The service on a free port of this machine; its address."""
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


def signed_in(browser: Browser, address: str, token: str, *, phone: bool, dark: bool, turkish: bool) -> Page:
    """A page of somebody who likes it so."""
    context = browser.new_context(
        base_url=address,
        viewport=PHONE if phone else WIDE,  # type: ignore[arg-type]
        color_scheme="dark" if dark else "light",
        locale="tr-TR" if turkish else "en-GB",
        reduced_motion="reduce",
    )
    context.add_cookies([{"name": "kesin_session", "value": token, "url": address}])
    return context.new_page()


def take(page: Page, out: Path, name: str) -> None:
    """Keep what is seen, in a fifth of the bytes."""
    page.mouse.move(0, 0)
    seen = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
    small = seen.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    small.save(out / f"dashboard-{name}.png", optimize=True)


def take_all(browser: Browser, service: Service, address: str, token: str, out: Path) -> None:
    """Every picture."""
    bad = service.queues["oci"].jobs(Filter(states=("FAILED",)), limit=1).jobs[0].id
    control = f"/dashboard/site/{SITE}/oci-control"
    page = signed_in(browser, address, token, phone=False, dark=False, turkish=False)
    for name, path in {
        "overview": "/dashboard",
        "queue": "/dashboard/queues/oci?state=FAILED",
        "job": f"/dashboard/jobs/{bad}",
        "oci-control": control,
        "pdf": "/dashboard/pdf",
        "optiplan": "/dashboard/optiplan",
    }.items():
        page.goto(path)
        if name == "pdf":
            page.frame_locator("#pdf-preview iframe").locator("body").wait_for()
        take(page, out, name)
    planned = service.queues["optiplan"].jobs(Filter(states=("XML_READY",)), limit=1).jobs[0].id
    page.goto(f"/dashboard/jobs/{planned}")
    page.locator("img.plan").last.wait_for()
    page.wait_for_load_state("networkidle")
    take(page, out, "optiplan-order")
    page.goto("/dashboard/queues/oci?state=FAILED")
    page.locator("input[data-pick-all]").check()
    page.locator("[data-bar] [data-from]:visible").first.click()
    page.get_by_role("dialog").wait_for()
    take(page, out, "action")
    page = signed_in(browser, address, token, phone=True, dark=True, turkish=True)
    for name, path in {"overview": "/dashboard", "queue": "/dashboard/queues/oci"}.items():
        page.goto(path)
        take(page, out, f"{name}-phone-dark-tr")
    page = signed_in(browser, address, token, phone=False, dark=True, turkish=True)
    page.goto(control)
    take(page, out, "oci-control-dark-tr")


def main() -> None:
    """Make every picture again."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, default=PICTURES, help="where they go")
    out = arguments.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), ManualClock(NOON_US)
        settings = Settings.model_construct(data_dir=folder)
        service = Service(settings, open_store(folder / "kesin.db"), workloads(), work=False, clock=clock)
        furnish(service, clock)
        service.accounts.add_user(ROOT, "ayse", "a long enough password", role="admin")
        token, _ = service.accounts.sign_in("ayse", "a long enough password", "127.0.0.1")
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        with served(service) as address, sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=find_chromium(), args=flags)
            take_all(browser, service, address, token, out)
            browser.close()


if __name__ == "__main__":
    main()
