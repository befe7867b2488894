"""The part of PDFs in `kesin demo`: invoices that are asked for over HTTP."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final

from kesin.foundation.child_environment import child_environment
from kesin.foundation.problems import Problem, Unavailable
from kesin.foundation.settings import load_settings
from kesin.foundation.terminal import say
from kesin.workloads.common import demo
from kesin.workloads.common.api_client import over_http

TEMPLATE: Final = "invoice"
INVOICES: Final = 6
INVOICE_EVERY_S: Final = 10.0
WRONG_EVERY: Final = 6  # such an invoice states another total than its lines have
CUSTOMERS: Final = ("Demir Mobilya", "Işıl Çağrı", "Öztürk & Oğulları", "Güneş Ahşap")
VERSION_S: Final = 20.0
FIRST_PDF_S: Final = 30.0  # for a process that renders to come up
RETRY_S: Final = 0.5
NO_PROGRAM: Final = "no-chromium"  # named as the browser, it leaves the work to WeasyPrint
_BUSY: Final = 503


def check_renderers() -> demo.Readiness:
    """Whether a PDF can be drawn on this machine, and by what; WeasyPrint stands in for Chromium.

    Where it does, the environment names no browser from now on.
    """
    try:
        from kesin.workloads.pdf import services  # noqa: F401
        from kesin.workloads.pdf.engines.availability import find_chromium
        from kesin.workloads.pdf.jobs import worker  # noqa: F401  # only whether it is there
    except ImportError as problem:
        note = f"no PDFs: {problem.name} is missing (pip install 'kesin[pdf]')"
        return demo.Readiness(ready=False, note=note)
    chromium = find_chromium(load_settings().pdf_chromium)
    if chromium is None:
        why = "no Chromium was found (apt-get install chromium)"
    elif find_spec("playwright") is None:
        why = "Chromium is driven by Playwright, which is missing (pip install 'kesin[pdf]')"
    elif trouble := _trouble(chromium):
        why = f"{chromium} does not start ({trouble})"
    elif trouble := _trouble(sys.executable, "-m", "playwright"):
        why = f"Playwright, which drives Chromium, does not start ({trouble})"
    else:
        return demo.Readiness()
    if find_spec("weasyprint") is None:
        note = f"no PDFs: {why}, and WeasyPrint is missing (pip install 'kesin[pdf]')"
        return demo.Readiness(ready=False, note=note)
    os.environ["KESIN_PDF_CHROMIUM"] = NO_PROGRAM
    return demo.Readiness(note=f"{why}: WeasyPrint draws the PDFs instead")


def _trouble(*program: str | Path) -> str:
    """Why a program does not print its version; '' if it does."""
    try:
        done = subprocess.run(  # noqa: S603  # the browser that renders, and what drives it
            [*program, "--version"],
            env=child_environment("PLAYWRIGHT_NODEJS_PATH"),
            capture_output=True,
            text=True,
            timeout=VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"it ends with {done.returncode}"


class Invoices:
    """A shop's program, which asks for invoices."""

    def __init__(self, address: str, key: str) -> None:
        from kesin.workloads.pdf.templating.library import TemplateLibrary

        self._send = over_http(address, key)
        self._sample = TemplateLibrary.load().get(TEMPLATE).sample
        self._numbers = count(1)

    def request(self) -> str:
        """Ask for the next invoice; the job's id. Raises Unavailable while no worker renders."""
        response = self._send("POST", "/pdf/jobs", self._body(next(self._numbers)))
        if response.status == _BUSY:
            raise Unavailable("nobody makes PDFs yet")
        if not isinstance(response.body, dict) or "job_id" not in response.body:
            raise Problem(f"an invoice was answered with {response.status}")
        return str(response.body["job_id"])

    def _body(self, number: int) -> dict[str, Any]:
        buyer = {**self._sample["buyer"], "name": CUSTOMERS[number % len(CUSTOMERS)]}
        variables = {**self._sample, "number": f"D-{1000 + number}", "buyer": buyer}
        if number % WRONG_EVERY == 0:
            variables["stated_total"] = 1.0
        file = f"invoice-{variables['number']}.pdf"
        return {"template_name": TEMPLATE, "variables": variables, "file_name": file}


class PdfDemo(demo.DemoPart):
    """Invoices, one of which cannot be right."""

    title: ClassVar = "PDFs"
    slow_start: ClassVar = True
    scopes: ClassVar = ("pdf",)
    machine_settings: ClassVar = frozenset({"KESIN_PDF_CHROMIUM", "KESIN_PDF_SANDBOX"})

    def __init__(self) -> None:
        self._first_job = ""

    def check_machine(self) -> demo.Readiness:
        return check_renderers()

    def begin(self, context: demo.DemoContext) -> None:
        """Ask for some invoices, as soon as a process renders."""
        invoices = Invoices(context.address, context.shop_key)
        self._first_job = self._request_first(invoices, context)
        if not self._first_job:
            return
        say(f"  {INVOICES} invoices, one of them with a total that its lines do not have")
        for _ in range(INVOICES - 1):
            invoices.request()
        every_s = INVOICE_EVERY_S if context.pace.goes_on else None
        context.background.every(every_s, invoices.request)

    @staticmethod
    def _request_first(invoices: Invoices, context: demo.DemoContext) -> str:
        """The first job's id; '' if no process came up, or the demonstration is to stop."""
        until = time.monotonic() + FIRST_PDF_S
        while True:
            try:
                return invoices.request()
            except Unavailable:
                if time.monotonic() > until:
                    say(f"  no process that makes PDFs came up: {demo.TRY_AGAIN}")
                    return ""
                if context.wait(RETRY_S):
                    return ""

    def tour(self, pages: str) -> Iterable[demo.TourStop]:
        if self._first_job:
            yield demo.TourStop(
                "An invoice, as the PDF it became",
                f"{pages}/jobs/{self._first_job}",
                "The PDF stands under what happened. As admin, make one of your own at"
                f" {pages}/pdf",
            )

    def kept_files(self, folder: Path) -> Iterable[tuple[str, Path]]:
        yield "the PDFs", folder / "artifacts" / "pdfs"
