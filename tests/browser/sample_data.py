"""Sample data for every page: jobs of each kind in each state, created without a browser.

Every text that a user chose ends with ``probe``, which has to stay a text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from kesin.engine.queue import Queue
from kesin.engine.results import Done, Failed
from kesin.engine.worker import Worker
from kesin.lifecycle.errors import Category
from kesin.lifecycle.task import task_lifecycle
from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.reconciliation import store_copy
from kesin.workloads.oci.script import ack, ack_failed, export
from kesin.workloads.oci.site import SiteContext
from kesin.workloads.optiplan.orders.payload import read_payload
from kesin.workloads.optiplan.pipeline.runner import Runner
from kesin.workloads.pdf.api.versions import changing
from kesin.workloads.pdf.engines.base import Paper, RenderedPdf
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.worker import PdfRenderWorker, PdfWorker
from kesin.workloads.pdf.services import (
    PdfServiceLoader,
    load_pdf_templates,
    open_artifacts,
    open_job_store,
    render_config,
)
from kesin.workloads.pdf.templating.versions import write_package
from tests.web.conftest import ROOT, World
from tests.workloads.optiplan.order_bodies import order, part
from tests.workloads.optiplan.orders_ready import order_service, planned_order
from tests.workloads.optiplan.stock.racks import put_offcut
from tests.workloads.pdf.batching import one_page

SITE = "north"


class Press:
    """Prints the number of an invoice at once; a document with ``unprintable`` in it fails."""

    name = "press"

    def render(self, html: str, paper: Paper, *, timeout_s: float) -> RenderedPdf:
        del paper, timeout_s
        if "unprintable" in html:
            raise RenderFailed("TEMPLATE_ERROR", "so it was laid out")
        number = re.search(r"\b[A-Z]+-\d+\b", html)
        return RenderedPdf(one_page(number[0] if number else "printed"), 1, self.name)

    def close(self) -> None: ...


@dataclass(frozen=True)
class SampleData:
    """Ids of the sample jobs."""

    task: dict[str, str]
    conversions: list[str]
    pdf: dict[str, str]
    orders: dict[str, str]
    steps: dict[str, str]
    offcuts: dict[str, str]
    key_id: str


def create_sample_data(world: World, probe: str = "") -> SampleData:
    """Create jobs of every workload, a customer and a key."""
    return SampleData(
        tasks(world, probe),
        conversions(world, probe=probe),
        pdfs(world, probe),
        orders(world, probe),
        steps(world, probe),
        offcuts(world, probe),
        world.accounts.create_key(ROOT, f"producer{probe}", ["oci:ingest"], site=SITE)[1].id,
    )


def tasks(world: World, probe: str = "") -> dict[str, str]:
    """One that is done, one that failed, one that waits."""
    jobs = {}
    results: dict[str, Done | Failed] = {
        "done": Done({"said": f"done{probe}"}),
        "failed": Failed("BROKEN", f"it broke{probe}", category=Category.VALIDATION),
    }
    for name, result in results.items():
        jobs[name] = world.job(payload={"note": f"a note{probe}"}, key=f"{name}-task{probe}")
        Worker(world.task, partial(_return, result)).drain()
    world.task.act("requeue", actor=f"user:can{probe}", ids=[jobs["failed"]], reason=f"why{probe}")
    Worker(world.task, partial(_return, results["failed"])).drain()
    jobs["waiting"] = world.job(payload={"note": f"a note{probe}"}, key=f"waiting-task{probe}")
    return jobs


def steps(world: World, probe: str = "") -> dict[str, str]:
    """One that is done, one that runs and says how far it is, and one that comes after both."""
    rules = task_lifecycle("steps", parents=True, concurrency=2, per="tenant", rate=(100, 60))
    queue = Queue("steps", rules, world.store, clock=world.clock)
    world.service.queues["steps"] = queue
    jobs = {name: queue.enqueue(1, tenant=SITE, key=f"{name}{probe}").id for name in ("a", "b")}
    Worker(queue, partial(_return, Done({"said": f"done{probe}"}))).drain()
    jobs["running"] = queue.enqueue(2, tenant=SITE, key=f"running-step{probe}").id
    [job] = queue.claim(f"worker{probe}")
    claim = (job.id, job.token)
    world.store.report_progress("steps", claim, 0.4, f"page 12{probe}", now=queue.now())
    jobs["blocked"] = queue.enqueue(3, tenant=SITE, key=f"last{probe}", after=[*jobs.values()]).id
    return jobs


def _return(result: Done | Failed, _job: Any) -> Done | Failed:
    return result


def conversions(world: World, n: int = 8, *, first: int = 1, site: str = SITE, probe: str = "") -> list[str]:
    """A quarter is delivered, a quarter failed, a quarter is at the script, the rest wait."""
    found = world.accounts.find_site(site)
    assert found is not None
    tenant = SiteContext(world.service.workload_context("oci"), found)
    now = datetime.fromtimestamp(world.clock.monotonic(), UTC)
    rows: list[Any] = [
        {
            "externalId": f"sale-{number}{probe}",
            "gclid": f"Cj0KCQiA_click-{number:06d}",
            "conversionName": f"Phone sale{probe}",
            "conversionTime": (now - timedelta(days=1, seconds=number)).isoformat("T", "seconds"),
            "conversionValue": 100 + number,
        }
        for number in range(first, first + n)
    ]
    results = ingest(tenant, rows, actor=ROOT)
    taken = [one["id"] for one in export(tenant, limit=3 * n // 4, actor="key:script")]
    quarter = n // 4
    ack(tenant, taken[:quarter], actor="key:script")
    ack_failed(
        tenant,
        taken[quarter : 2 * quarter],
        code="UNPARSEABLE_GCLID",
        message=f"unreadable click id{probe}",
        category="VALIDATION",
        actor="key:script",
    )
    if site == SITE:
        days = [(now - timedelta(days=n)).date().isoformat() for n in range(1, 7)]
        uploads = [(day, f"Phone sale{probe}", "GOOGLE_ADS_API", [9, 1, 2]) for day in days]
        attributed = [(day, f"Phone sale{probe}", 7.25) for day in days]
        store_copy(tenant, ZoneInfo("UTC"), uploads, attributed)
    return [one.id.removeprefix("seal_") for one in results if one.id]


def press(world: World) -> None:
    """Print whatever waits."""
    context = world.service.workload_context("pdf")
    renderer = PdfRenderWorker(
        open_job_store(context),
        open_artifacts(context.settings, context.queue),
        render_config(context.settings),
        library=load_pdf_templates(context.settings),
        engines=lambda _: Press(),
    )
    PdfWorker(context.queue, renderer).drain()


def pdfs(world: World, probe: str = "", owner: str = "user:ayse") -> dict[str, str]:
    """One that is printed, one that could not be, one that waits."""
    context = world.service.workload_context("pdf")
    sample = load_pdf_templates(context.settings).get("invoice").sample

    def ask(number: str, name: str) -> str:
        variables = {**sample, "number": number, "buyer": {**sample["buyer"], "name": name}}
        return open_job_store(context).create_job("invoice", {"variables": variables}, owner=owner).job_id

    jobs = {"done": ask("F-1", f"Demir{probe}"), "failed": ask("F-2", f"unprintable{probe}")}
    press(world)
    return {**jobs, "waiting": ask("F-3", f"Çelik{probe}")}


def template_draft(world: World) -> None:
    """A version of a template that is not active yet."""
    loader = PdfServiceLoader(world.service.workload_context("pdf"))
    page = b"<html lang='en'><head><title>Card</title></head><body>{{ name }}</body></html>"
    files = {"template.html": page, "schema.json": b"{}", "sample.json": b'{"name": "Ali"}'}
    with changing(loader, ROOT, "upload_version", "card") as change:
        loader.templates.versions.add(change, write_package(files))


def offcuts(world: World, probe: str = "") -> dict[str, str]:
    """One that is free, and one in doubt, whose order is unknown."""
    named = {"material": f"MDF{probe}", "color": f"White{probe}", "place": f"B3{probe}"}
    queue, states = world.service.queues["optiplan"], {"free": "FREE", "doubt": "IN_DOUBT"}
    return {
        name: put_offcut(queue, key=f"{name}{probe}", **{**named, "state": state}) for name, state in states.items()
    }


def orders(world: World, probe: str = "", phone: str = "0532 000 00 01") -> dict[str, str]:
    """One that waits for a person, and one with its plan."""
    service = order_service(world.service)
    body = order(
        part(id=f"p1{probe}"),
        order_id=f"R-held{probe}",
        customer_phone=phone,
        opti_mode="C",
        customer_snapshot_name=f"Ayşe{probe}",
    )
    held = service.create_order(ROOT, read_payload(body)).job.id
    Worker(service.queue, Runner(service.workshop, service.queue).__call__, batch=1).drain()
    planned = planned_order(world.service)
    service.add_customer(ROOT, name=f"Bülent{probe}", phone="0555 765 43 21")
    return {"held": held, "planned": planned}
