"""What the doors work with, made when somebody first comes in.

A service that never makes a PDF starts without templates, storage and the libraries they need.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kesin.foundation.problems import Unavailable
from kesin.workloads.pdf.artifacts import PdfArtifactStore
from kesin.workloads.pdf.config import PdfRenderConfig
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs import PdfJobStore
from kesin.workloads.pdf.setup import artifacts_of, book_of, config_of
from kesin.workloads.pdf.webhooks import Hooks
from kesin.workloads.workload import House

if TYPE_CHECKING:
    from kesin.workloads.pdf.book import TemplateBook

NOT_INSTALLED: Final = "pdf_not_installed"


@dataclass(frozen=True, slots=True)
class Tools:
    """Templates, jobs and their storage."""

    config: PdfRenderConfig
    book: TemplateBook
    jobs: PdfJobStore
    artifacts: PdfArtifactStore
    hooks: Hooks


class Shop:
    """Opens at the first question."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._lock = threading.Lock()
        self._tools: Tools | None = None

    @property
    def tools(self) -> Tools:
        """Raises Unavailable with what to install or to set; the next question tries again."""
        with self._lock:
            if self._tools is None:
                self._tools = self._made()
            return self._tools

    def _made(self) -> Tools:
        try:
            book = book_of(self.house.settings)
        except ImportError as problem:
            raise Unavailable(
                f"PDFs need {problem.name or 'more'}: install it with `pip install 'kesin[pdf]'`",
                code=NOT_INSTALLED,
            ) from None
        except RenderFailed as problem:
            raise Unavailable(f"the templates cannot be used: {problem.message}") from None
        artifacts = artifacts_of(self.house)
        return Tools(
            config=config_of(self.house.settings),
            book=book,
            jobs=PdfJobStore(self.house.commands.queues["pdf"], artifacts),
            artifacts=artifacts,
            hooks=Hooks(self.house),
        )
