"""Picks the engine that renders: the requested one, or the best this machine has."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from kesin.workloads.pdf.engines import base
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed

if TYPE_CHECKING:
    from kesin.workloads.pdf.engines.browser import ChromiumSettings


def pick_engine(name: str | None = None, settings: "ChromiumSettings | None" = None) -> base.Engine:
    """Create this engine, or Chromium, or else WeasyPrint; raises RenderFailed for none."""
    # These load a lot of modules, which the process of WeasyPrint does without.
    from kesin.foundation.logs import Logger
    from kesin.workloads.pdf.engines.browser import ChromiumSettings
    from kesin.workloads.pdf.engines.chromium import ChromiumEngine
    from kesin.workloads.pdf.engines.weasyprint import WeasyPrintEngine

    settings = settings or ChromiumSettings()
    if name not in (None, *base.ENGINES):
        why, known = "there is no engine %(name)s, only %(known)s", base.ENGINES
        code = PdfErrorCode.UNSUPPORTED_PLATFORM
        raise RenderFailed(code, why, name=repr(name), known=" and ".join(known))
    if name != base.WEASYPRINT and base.is_chromium_available(settings.executable):
        return ChromiumEngine(settings)
    if name == base.CHROMIUM:
        raise base.chromium_missing(settings.executable)
    if find_spec("weasyprint") is None:
        why = "WeasyPrint is not installed here" if name else "Chromium and WeasyPrint are missing"
        raise RenderFailed(PdfErrorCode.UNSUPPORTED_PLATFORM, why)
    if name is None:
        engine, configured = base.WEASYPRINT, settings.executable
        Logger(__name__).warning("pdf.no_chromium", engine=engine, configured=configured)
    return WeasyPrintEngine()
