"""Picks the engine that renders: the requested one, or the best this machine has."""

from __future__ import annotations

from typing import Final

from kesin.foundation.logs import Logger
from kesin.workloads.pdf.engines.base import Engine
from kesin.workloads.pdf.engines.chromium_settings import ChromiumSettings
from kesin.workloads.pdf.engines.select import (
    CHROMIUM,
    ENGINES,
    WEASYPRINT,
    chromium_possible,
    no_chromium,
    weasyprint_possible,
)
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed

_log: Final = Logger(__name__)


def pick_engine(named: str | None = None, settings: ChromiumSettings | None = None) -> Engine:
    """The engine of this name; without one, Chromium where there is any, else WeasyPrint.

    Raises RenderFailed(UNSUPPORTED_PLATFORM) for one that cannot exist here.
    """
    from kesin.workloads.pdf.engines.chromium import (
        ChromiumEngine,  # each engine loads a lot of modules
    )
    from kesin.workloads.pdf.engines.weasyprint import WeasyPrintEngine

    settings = settings or ChromiumSettings()
    if named not in (None, *ENGINES):
        raise RenderFailed(
            PdfErrorCode.UNSUPPORTED_PLATFORM,
            f"there is no engine {named!r}, only {' and '.join(ENGINES)}",
        )
    if named != WEASYPRINT and chromium_possible(settings.executable):
        return ChromiumEngine(settings)
    if named == CHROMIUM:
        raise no_chromium(settings.executable)
    if not weasyprint_possible():
        raise RenderFailed(
            PdfErrorCode.UNSUPPORTED_PLATFORM,
            "WeasyPrint is not installed here" if named else "neither Chromium nor WeasyPrint is",
        )
    if named is None:
        _log.warning("pdf.no_chromium", engine=WEASYPRINT, configured=settings.executable)
    return WeasyPrintEngine()
