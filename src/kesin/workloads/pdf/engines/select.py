"""Which engines this machine has, and where its Chromium is."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed

CHROMIUM: Final = "chromium"
WEASYPRINT: Final = "weasyprint"
ENGINES: Final = (CHROMIUM, WEASYPRINT)

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
# A headless shell starts and opens pages faster than the whole browser does.
_PLAYWRIGHTS_OWN: Final = (
    "chromium_headless_shell-*/*/headless_shell",
    "chromium_headless_shell-*/*/chrome-headless-shell",
    "chromium-*/*/chrome",
)


def find_chromium(configured: str = "") -> Path | None:
    """The executable: the configured one or none, else one on PATH, else Playwright's own."""
    if configured:
        found = shutil.which(configured)
        return Path(found) if found else None
    on_path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    return Path(on_path) if on_path else _playwrights_own()


def chromium_possible(configured: str = "") -> bool:
    """Whether there is a browser here, and the library that drives it."""
    return find_spec("playwright") is not None and find_chromium(configured) is not None


def weasyprint_possible() -> bool:
    """Whether WeasyPrint is installed here."""
    return find_spec("weasyprint") is not None


def no_chromium(configured: str) -> RenderFailed:
    """What to tell where no browser can be had."""
    looked = configured or f"{', '.join(_NAMES)} on PATH and Playwright's own"
    message = (
        f"no Chromium was found ({looked}): install one, or use the engine {WEASYPRINT}"
        if find_spec("playwright")
        else "Chromium is driven by Playwright, which is not installed"
    )
    return RenderFailed(PdfErrorCode.UNSUPPORTED_PLATFORM, message)


def _playwrights_own() -> Path | None:
    folder = Path(
        os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright"
    )
    for pattern in _PLAYWRIGHTS_OWN:
        for path in sorted(folder.glob(pattern), reverse=True):
            if os.access(path, os.X_OK):
                return path
    return None
