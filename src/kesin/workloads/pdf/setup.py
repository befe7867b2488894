"""Templates and engines as the settings want them."""

from __future__ import annotations

from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import Settings
from kesin.workloads.pdf.book import SHIPPED, TemplateBook
from kesin.workloads.pdf.chromium_settings import ChromiumSettings
from kesin.workloads.pdf.engine import Engine
from kesin.workloads.pdf.finding import pick_engine


def book_of(settings: Settings) -> TemplateBook:
    """The templates that come with Kesin, and those of the configured folder over them."""
    own = settings.pdf_templates
    if own is None:
        return TemplateBook.load()
    if not own.is_dir():
        raise Unavailable(f"there is no folder {own}: look at KESIN_PDF_TEMPLATES")
    return TemplateBook.load((SHIPPED, own))


def chromium_settings(settings: Settings) -> ChromiumSettings:
    """How the browser is used here."""
    return ChromiumSettings(
        executable=settings.pdf_chromium,
        isolation=settings.pdf_isolation,
        sandbox=settings.pdf_sandbox,
    )


def engine_of(settings: Settings, named: str | None = None) -> Engine:
    """The engine of this name, or the best there is; raises RenderFailed."""
    return pick_engine(named, chromium_settings(settings))
