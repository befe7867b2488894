"""A service with one small template and a fake engine, and short names for batches."""

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pikepdf
import pytest

from kesin.engine.queue import Queue
from kesin.engine.replay import verify
from kesin.lifecycle.vocabulary import STAGES
from kesin.store.contract import Store
from kesin.store.metadata import metadata_for
from kesin.workloads.pdf import services
from kesin.workloads.pdf.batches.store import BatchOrder, PdfBatch, PdfBatchStore
from kesin.workloads.pdf.batches.worker import BatchWorker
from kesin.workloads.pdf.engines.base import Paper, RenderedPdf
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.store import PdfJobStore
from kesin.workloads.pdf.jobs.worker import PdfRenderWorker
from kesin.workloads.pdf.services import load_pdf_templates, open_batch_store, render_config
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.local import LocalStorage
from tests.web.conftest import World, opened

TTL_S = 24 * 3_600
LEASE_S = 61
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": {"$ref": "#/$defs/short"},
        "count": {"type": "integer"},
        "price": {"type": "number"},
        "exact": {"type": ["number", "string"]},
        "paid": {"type": "boolean"},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "buyer": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"name": {"type": "string"}, "age": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        },
    },
    "$defs": {"short": {"type": "string", "minLength": 1, "maxLength": 60}},
}
TEMPLATE = "<!doctype html><html><head></head><body><p>{{ name }}</p></body></html>"


def one_page(text: str) -> bytes:
    """A PDF that says this, in plain letters."""
    pdf = pikepdf.new()
    page = pdf.add_blank_page(page_size=(300, 200))
    font = pikepdf.Dictionary(Type="/Font", Subtype="/Type1", BaseFont="/Helvetica")
    for name in ("Type", "Subtype", "BaseFont"):
        font[f"/{name}"] = pikepdf.Name(str(font[f"/{name}"]))
    page.obj.Resources = pikepdf.Dictionary(Font=pikepdf.Dictionary(F1=font))
    plain = text.encode("ascii", "replace").replace(b"(", b"").replace(b")", b"")
    page.obj.Contents = pdf.make_stream(b"BT /F1 12 Tf 10 100 Td (" + plain + b") Tj ET")
    out = io.BytesIO()
    pdf.save(out, deterministic_id=True)
    return out.getvalue()


class TinyEngine:
    """Prints the name on one page; a name with ``bad`` in it cannot be printed."""

    name = "tiny"

    def __init__(self) -> None:
        self.printed: list[str] = []

    def render(self, html: str, paper: Paper, *, timeout_s: float) -> RenderedPdf:
        del paper, timeout_s
        found = re.search(r"<p>(.*)</p>", html)
        text = found[1] if found else "?"
        self.printed.append(text)
        if "bad" in text:
            raise RenderFailed("TEMPLATE_ERROR", "so the test wants it")
        return RenderedPdf(one_page(text), 1, self.name)

    def close(self) -> None: ...


class BatchWorld(World):
    """The service, its batches and whoever works on them."""

    def __init__(self, store: Store, folder: Path, **settings: Any) -> None:
        place = folder / "templates" / "card"
        place.mkdir(parents=True)
        (place / "template.html").write_text(TEMPLATE)
        (place / "schema.json").write_text(json.dumps(SCHEMA))
        (place / "sample.json").write_text(json.dumps({"name": "sample"}))
        super().__init__(store, folder, pdf_templates=folder / "templates", pdf_allowed_templates="card", **settings)
        self.context = self.service.workload_context("pdf")
        self.batches: PdfBatchStore = open_batch_store(self.context)
        self.engine = TinyEngine()
        own = PdfArtifactStore(LocalStorage(self.folder), self.clock)  # of another process
        self.printer = PdfRenderWorker(
            PdfJobStore(self.pdf, own),
            own,
            render_config(self.settings),
            library=load_pdf_templates(self.settings),
            engines=lambda _: self.engine,
        )
        self.headers = self.key("pdf")

    @property
    def folder(self) -> Path:
        """Where artifacts lie."""
        return self.settings.data_dir / "artifacts"

    @property
    def pdf(self) -> Queue:
        return self.service.queues["pdf"]

    @property
    def queue(self) -> Queue:
        return self.service.queues["pdf_batches"]

    # Requests

    def post(self, rows: Any, *, headers: Any = None, **more: Any) -> Any:
        body = {"template_name": "card", "rows": rows, **more}
        return self.client.post("/pdf/batches", json=body, headers=headers or self.headers)

    def post_csv(self, text: str | bytes, *, headers: Any = None, **query: Any) -> Any:
        csv = {**(headers or self.headers), "content-type": "text/csv; charset=utf-8"}
        query = {"template_name": "card", **query}
        data = text.encode() if isinstance(text, str) else text
        return self.client.post("/pdf/batches", content=data, params=query, headers=csv)

    def order(self, *names: str, **more: Any) -> str:
        """A new batch of these names; its id."""
        response = self.post([{"name": name} for name in names], **more)
        assert response.status_code == 202, response.text
        batch_id: str = response.json()["batch_id"]
        assert response.headers["location"] == f"/pdf/batches/{batch_id}"
        return batch_id

    def get(self, batch_id: str, *, headers: Any = None, **query: Any) -> dict[str, Any]:
        path = f"/pdf/batches/{batch_id}"
        response = self.client.get(path, params=query, headers=headers or self.headers)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    def download(self, batch_id: str, **headers: str) -> Any:
        path = f"/pdf/batches/{batch_id}/download"
        return self.client.get(path, headers={**self.headers, **headers})

    def delete(self, batch_id: str) -> Any:
        return self.client.delete(f"/pdf/batches/{batch_id}", headers=self.headers)

    def entries(self, batch_id: str) -> dict[str, bytes]:
        """The files of a zip that was made."""
        response = self.download(batch_id)
        assert response.status_code == 200, response.text
        return unzipped(response.content)

    # Work

    def print_all(self, *, most: int = 1_000) -> int:
        """Render what waits in the line."""
        jobs = self.pdf.peek(limit=most)
        for job in jobs:
            self.printer.process_job(job.id)
        return len(jobs)

    def _print_while_waiting(self, _seconds: float) -> None:
        self.print_all()

    def worker(self, wait: Callable[[float], None] | None = None, **how: Any) -> BatchWorker:
        """A worker of batches; while it waits, its rows are rendered."""
        return BatchWorker(self.batches, wait=wait or self._print_while_waiting, threads=1, **how)

    def work(self, wait: Callable[[float], None] | None = None, **how: Any) -> None:
        """Take the next batch and see it to its end."""
        self.worker(wait, **how).run_once()

    def batch(self, batch_id: str) -> PdfBatch:
        batch = self.batches.get(batch_id)
        assert batch is not None
        return batch

    def metadata_names(self) -> set[str]:
        return {entry.name for entry in metadata_for(self.pdf.store).metadata_entries("pdf") if entry.site}

    def recover(self) -> None:
        """Let the lease of a dead worker run out."""
        self.clock.advance(LEASE_S)
        self.sweep("recover")

    def sweep(self, *stages: str) -> None:
        for queue in (self.pdf, self.queue):
            for move in queue.lifecycle.scheduled_moves:
                if move.stage in (stages or STAGES):
                    queue.sweep(move)

    def stored(self) -> set[str]:
        """The files of batches, without the folder that is theirs."""
        return {file.key.rpartition("/")[2] for file in self.batches.storage.list("batches")}

    @contextmanager
    def storage_down(self) -> Iterator[None]:
        """The disk is not mounted."""
        self.client.get("/pdf/batches/none", headers=self.headers)  # the routes have it open
        hidden = self.folder.with_name("unmounted")
        self.folder.rename(hidden)
        try:
            yield
        finally:
            hidden.rename(self.folder)


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


@contextmanager
def opened_batches(kind: str, folder: Path, request: pytest.FixtureRequest, **settings: Any) -> Iterator[BatchWorld]:
    """Open one on this kind of store; its history must replay after the test."""
    (folder / "none").mkdir()
    with ExitStack() as stack, patch.object(services, "SHIPPED", folder / "none"):  # half a second
        store = opened(kind, folder, request, stack)
        bindery = BatchWorld(store, folder, **settings)
        stack.enter_context(bindery.kept())
        yield bindery
        for queue in ("pdf", "pdf_batches"):
            assert [str(difference) for difference in verify(store, queue).differences] == []


def names(count: int, first: int = 1) -> list[str]:
    return [f"row {number}" for number in range(first, first + count)]


def order_of(count: int) -> BatchOrder:
    """An order of rows without file names."""
    rows = [{"name": name} for name in names(count)]
    return BatchOrder("card", {"engine": None, "paper": {}}, rows, [""] * count)
