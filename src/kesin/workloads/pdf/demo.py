"""The PDFs of `kesin demo`: invoices, requested over HTTP."""

import os
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final

from kesin.foundation.problems import Problem, Unavailable
from kesin.foundation.settings import load_settings
from kesin.foundation.terminal import say
from kesin.workloads.common import demo
from kesin.workloads.common.api_client import over_http

TEMPLATE: Final = "invoice"
INVOICES: Final = 6
WRONG_EVERY: Final = 6  # such an invoice states another total than its lines have
CUSTOMERS: Final = ("Demir Mobilya", "Işıl Çağrı", "Öztürk & Oğulları", "Güneş Ahşap")
FIRST_PAGE_S: Final = 20
FIRST_PDF_S: Final = 30.0  # for a process that renders to come up
RETRY_S: Final = 0.5
_BUSY: Final = 503


class Invoices:
    """A shop's program, which requests invoices."""

    def __init__(self, address: str, key: str) -> None:
        from kesin.workloads.pdf.templating.library import TemplateLibrary

        self._send = over_http(address, key)
        self._sample = TemplateLibrary.load().get(TEMPLATE).sample
        self._numbers = count(1)

    def request(self) -> str:
        """Request the next invoice; return the job's id. Raises Unavailable without a worker."""
        response = self._send("POST", "/pdf/jobs", self._body(next(self._numbers)))
        if response.status == _BUSY:
            raise Unavailable("no PDF worker is running yet")
        if not isinstance(response.body, dict) or "job_id" not in response.body:
            raise Problem(f"the response to an invoice was {response.status}")
        return str(response.body["job_id"])

    def _body(self, number: int) -> dict[str, Any]:
        buyer = {**self._sample["buyer"], "name": CUSTOMERS[number % len(CUSTOMERS)]}
        variables = {**self._sample, "number": f"D-{1000 + number}", "buyer": buyer}
        if number % WRONG_EVERY == 0:
            variables["stated_total"] = 1.0
        file = f"invoice-{variables['number']}.pdf"
        return {"template_name": TEMPLATE, "variables": variables, "file_name": file}


class PdfDemo(demo.DemoPart):
    """Invoices, one of them with a wrong total."""

    title: ClassVar = "PDFs"
    slow_start: ClassVar = True
    scopes: ClassVar = ("pdf",)
    machine_settings: ClassVar = frozenset({"KESIN_PDF_CHROMIUM", "KESIN_PDF_SANDBOX"})

    _first_job = ""

    def check_machine(self) -> str:
        """See that a page can be rendered; without Chromium, the settings name no browser."""
        try:
            from kesin.workloads.pdf.engines.base import ENGINES, Paper
            from kesin.workloads.pdf.errors import RenderFailed
            from kesin.workloads.pdf.jobs import worker  # noqa: F401  # only whether it is there
            from kesin.workloads.pdf.services import create_pdf_engine
        except ImportError as problem:
            library = f"{problem.name} is missing (pip install 'kesin[pdf]')"
            raise Unavailable(f"no PDFs: {library}") from None
        settings, reasons = load_settings(), list[str]()
        for name in ENGINES:
            try:
                with closing(create_pdf_engine(settings, name)) as engine:
                    engine.render("<p>Kesin</p>", Paper(), timeout_s=FIRST_PAGE_S)
            except RenderFailed as problem:
                reasons.append(problem.message)
                continue
            if not reasons:
                return ""
            os.environ["KESIN_PDF_CHROMIUM"] = "no-chromium"  # so that WeasyPrint does the work
            return f"{reasons[0]}: WeasyPrint renders the PDFs instead"
        raise Unavailable(f"no PDFs: {'; '.join(reasons)}")

    def begin(self, context: demo.DemoContext) -> None:
        invoices = Invoices(context.address, context.shop_key)
        self._first_job = self._request_first(invoices, context)
        if not self._first_job:
            return
        say(f"  {INVOICES} invoices, one of them with a total that does not match its lines")
        for _ in range(INVOICES - 1):
            invoices.request()
        context.background.every(10.0 if context.goes_on else None, invoices.request)

    @staticmethod
    def _request_first(invoices: Invoices, context: demo.DemoContext) -> str:
        """The first job's id; '' if no process came up, or the demonstration is to stop."""
        until = time.monotonic() + FIRST_PDF_S
        while time.monotonic() < until:
            with suppress(Unavailable):
                return invoices.request()
            if context.wait(RETRY_S):
                return ""
        say(f"  no worker that renders PDFs started: {demo.TRY_AGAIN}")
        return ""

    def tour(self, pages: str) -> Iterable[demo.TourStop]:
        if self._first_job:
            yield demo.TourStop(
                "An invoice as a PDF",
                f"{pages}/jobs/{self._first_job}",
                f"The PDF is shown below the timeline. As an admin, you can make your own at {pages}/pdf",
            )

    def kept_files(self, folder: Path) -> Iterable[tuple[str, Path]]:
        yield "the PDFs", folder / "artifacts" / "pdfs"
