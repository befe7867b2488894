"""Invoices of the demonstration: asked for over HTTP, made by a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Final

from kesin.foundation.problems import Problem, Unavailable
from kesin.foundation.settings import load_settings
from kesin.workloads.oci.cli.script_simulator import over_http

QUEUES: Final = frozenset({"pdf", "pdf_batches", "pdf_webhooks"})
TEMPLATE: Final = "invoice"
INVOICES: Final = 6
WRONG_EVERY: Final = 6  # states another total than its lines have
CUSTOMERS: Final = ("Demir Mobilya", "Işıl Çağrı", "Öztürk & Oğulları", "Güneş Ahşap")
VERSION_S: Final = 20.0
NO_PROGRAM: Final = "no-chromium"  # named as the browser, it leaves the work to WeasyPrint
_BUSY: Final = 503


def what_is_missing() -> tuple[str, bool]:
    """What a visitor should know about PDFs on this machine, and whether any can be made."""
    try:
        from kesin.workloads.pdf import services  # noqa: F401
        from kesin.workloads.pdf.engines.select import find_chromium
        from kesin.workloads.pdf.jobs import worker  # noqa: F401  # only whether they can be had
    except ImportError as problem:
        return f"no PDFs: {problem.name} is missing (pip install 'kesin[pdf]')", False
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
        return "", True
    if find_spec("weasyprint") is None:
        return f"no PDFs: {why}, and WeasyPrint is missing (pip install 'kesin[pdf]')", False
    os.environ["KESIN_PDF_CHROMIUM"] = NO_PROGRAM
    return f"{why}: WeasyPrint draws the PDFs instead", True


def _trouble(*program: str | Path) -> str:
    """Why a program does not even tell its version; '' if it does."""
    try:
        asked = subprocess.run(  # noqa: S603  # the browser that renders, and what drives it
            [*program, "--version"], capture_output=True, text=True, timeout=VERSION_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    if asked.returncode == 0:
        return ""
    said = asked.stderr.strip().splitlines()
    return said[-1] if said else f"it ends with {asked.returncode}"


class Invoices:
    """A shop's program, which wants them."""

    def __init__(self, address: str, key: str) -> None:
        from kesin.workloads.pdf.templating.library import TemplateBook

        self._send = over_http(address, key)
        self._sample = TemplateBook.load().get(TEMPLATE).sample
        self._numbers = count(1)

    def bring(self) -> str:
        """Ask for the next one; the job's id. Raises Unavailable while nobody makes PDFs yet."""
        heard = self._send("POST", "/pdf/jobs", self._wanted(next(self._numbers)))
        if heard.status == _BUSY:
            raise Unavailable("nobody makes PDFs yet")
        if not isinstance(heard.body, dict) or "job_id" not in heard.body:
            raise Problem(f"an invoice was answered with {heard.status}")
        return str(heard.body["job_id"])

    def _wanted(self, number: int) -> dict[str, Any]:
        buyer = {**self._sample["buyer"], "name": CUSTOMERS[number % len(CUSTOMERS)]}
        variables = {**self._sample, "number": f"D-{1000 + number}", "buyer": buyer}
        if number % WRONG_EVERY == 0:
            variables["stated_total"] = 1.0
        file = f"invoice-{variables['number']}.pdf"
        return {"template_name": TEMPLATE, "variables": variables, "file_name": file}
