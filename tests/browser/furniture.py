"""Something on every page: rows of each kind in each state, made without a browser.

Every text that somebody else chose ends with ``told``: a probe there has to stay a text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kesin.engine.results import Done, Failed
from kesin.engine.worker import Worker
from kesin.lifecycle.errors import Category
from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.script import ack, ack_failed, export
from kesin.workloads.optiplan.orders.payload import read_payload
from kesin.workloads.optiplan.pipeline.runner import Runner
from kesin.workloads.pdf.engines.base import Engine, Paper, RenderedPdf
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.worker import PdfRenderWorker, PdfWorker
from kesin.workloads.pdf.services import (
    load_templates,
    open_artifacts,
    open_job_store,
    render_config,
)
from tests.web.conftest import ROOT, World
from tests.workloads.optiplan.order_bodies import order, part
from tests.workloads.optiplan.orders_ready import order_service, planned_order
from tests.workloads.pdf.batching import one_page

SITE = "north"


class Press:
    """Prints a real page at once; a document with ``unprintable`` in it fails."""

    name = "press"

    def render(self, html: str, paper: Paper, *, timeout_s: float) -> RenderedPdf:
        del paper, timeout_s
        if "unprintable" in html:
            raise RenderFailed("TEMPLATE_ERROR", "so it was laid out")
        return RenderedPdf(one_page("printed"), 1, self.name)

    def close(self) -> None: ...


@dataclass(frozen=True)
class Furniture:
    """What lies where."""

    task: dict[str, str]
    conversions: list[str]
    pdf: dict[str, str]
    orders: dict[str, str]
    key_id: str


def furnish(world: World, told: str = "") -> Furniture:
    """Rows everywhere."""
    return Furniture(
        tasks(world, told),
        conversions(world, told=told),
        pdfs(world, told),
        orders(world, told),
        world.accounts.create_key(ROOT, f"producer{told}", ["oci:ingest"], site=SITE)[1].id,
    )


def tasks(world: World, told: str = "") -> dict[str, str]:
    """One that is done, one that failed, one that waits."""
    found = {}
    answers = {
        "done": Done({"said": f"done{told}"}),
        "failed": Failed("BROKEN", f"it broke{told}", category=Category.VALIDATION),
    }
    for name, answer in answers.items():
        found[name] = world.job(payload={"note": f"a note{told}"}, key=f"{name}-task{told}")
        Worker(world.task, lambda _job, answer=answer: answer).drain()
    world.task.act("requeue", actor=f"user:can{told}", ids=[found["failed"]], reason=f"why{told}")
    Worker(world.task, lambda _job: answers["failed"]).drain()
    found["waiting"] = world.job(payload={"note": f"a note{told}"}, key=f"waiting-task{told}")
    return found


def conversions(
    world: World, n: int = 8, *, first: int = 1, site: str = SITE, told: str = ""
) -> list[str]:
    """A quarter is delivered, a quarter failed, a quarter is at the script, the rest wait."""
    house = world.service.workload_context("oci")
    place = world.accounts.find_site(site)
    assert place is not None
    now = datetime.fromtimestamp(world.clock.monotonic(), UTC)
    rows: list[Any] = [
        {
            "externalId": f"sale-{number}{told}",
            "gclid": f"Cj0KCQiA_click-{number:06d}",
            "conversionName": f"Phone sale{told}",
            "conversionTime": (now - timedelta(days=1, seconds=number)).isoformat("T", "seconds"),
            "conversionValue": 100 + number,
        }
        for number in range(first, first + n)
    ]
    results = ingest(house, place, rows, actor="key:tests")
    taken = [one["id"] for one in export(house, place, limit=3 * n // 4, actor="key:script")]
    quarter = n // 4
    ack(house, place, taken[:quarter], actor="key:script")
    ack_failed(
        house,
        place,
        taken[quarter : 2 * quarter],
        code="UNPARSEABLE_GCLID",
        message=f"unreadable click id{told}",
        category="VALIDATION",
        actor="key:script",
    )
    return [one.id.removeprefix("seal_") for one in results if one.id]


def press(world: World, engines: Callable[[str | None], Engine] = lambda _: Press()) -> None:
    """Print whatever waits, by default at once."""
    house = world.service.workload_context("pdf")
    renderer = PdfRenderWorker(
        open_job_store(house),
        open_artifacts(house),
        render_config(house.settings),
        library=load_templates(house.settings),
        engines=engines,
    )
    PdfWorker(house.queue, renderer).drain()


def pdfs(world: World, told: str = "", owner: str = "user:ayse") -> dict[str, str]:
    """One that is printed, one that could not be, one that waits."""
    house = world.service.workload_context("pdf")
    sample = load_templates(house.settings).get("invoice").sample

    def ask(number: str, name: str) -> str:
        variables = {**sample, "number": number, "buyer": {**sample["buyer"], "name": name}}
        return (
            open_job_store(house)
            .create_job("invoice", {"variables": variables}, owner=owner)
            .job_id
        )

    found = {"done": ask("F-1", f"Demir{told}"), "failed": ask("F-2", f"unprintable{told}")}
    press(world)
    return {**found, "waiting": ask("F-3", f"Çelik{told}")}


def orders(world: World, told: str = "", phone: str = "0532 000 00 01") -> dict[str, str]:
    """One that waits for a person, and one with its plan."""
    desk = order_service(world.service)
    body = order(
        part(id=f"p1{told}"),
        order_id=f"R-held{told}",
        customer_phone=phone,
        opti_mode="C",
        customer_snapshot_name=f"Ayşe{told}",
    )
    held = desk.create_order(ROOT, read_payload(body)).job.id
    Worker(desk.queue, Runner(desk.workshop, desk.queue).__call__, batch=1).drain()
    planned = planned_order(world.service)
    desk.add_customer(ROOT, name=f"Bülent{told}", phone="0555 765 43 21")
    return {"held": held, "planned": planned}
