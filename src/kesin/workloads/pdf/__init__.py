"""HTML templates to PDF, away from the request that wants one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from kesin.workloads.workload import Workload

if TYPE_CHECKING:
    from typer import Typer


def _cli() -> Typer:
    from kesin.workloads.pdf.cli import app

    return app


PDF: Final = Workload("pdf", pdf_lifecycle, "HTML templates to PDF", sited=False, cli=_cli)
