"""The engines that this machine has; picks the requested one, or the best."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kesin.workloads.pdf.engines.base import Engine
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed

if TYPE_CHECKING:
    from kesin.workloads.pdf.engines.browser import ChromiumSettings

CHROMIUM: Final = "chromium"
WEASYPRINT: Final = "weasyprint"
ENGINES: Final = (CHROMIUM, WEASYPRINT)

# A headless shell starts and prints faster than the full browser.
_COMMANDS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_PROGRAMS: Final = {  # of a script that would stay between us and the browser
    "/usr/bin/chromium-headless-shell": "/usr/lib/chromium/chromium-headless-shell"
}
_PLAYWRIGHT_PATTERNS: Final = (
    "chromium_headless_shell-*/*/headless_shell",
    "chromium_headless_shell-*/*/chrome-headless-shell",
    "chromium-*/*/chrome",
)


def find_chromium(configured: str = "") -> Path | None:
    """Find the executable: only the configured one, else one on PATH, else Playwright's own."""
    names = (configured,) if configured else _COMMANDS
    on_path = next((path for name in names if (path := shutil.which(name))), None)
    if on_path:
        return Path(_PROGRAMS.get(on_path, on_path))
    if configured:
        return None
    default = Path.home() / ".cache" / "ms-playwright"
    folder = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or default)
    newest = (p for each in _PLAYWRIGHT_PATTERNS for p in sorted(folder.glob(each), reverse=True))
    return next((path for path in newest if os.access(path, os.X_OK)), None)


def is_chromium_available(configured: str = "") -> bool:
    """Whether this machine has a browser and the library that drives it."""
    return find_spec("playwright") is not None and find_chromium(configured) is not None


def chromium_missing(configured: str) -> RenderFailed:
    code = PdfErrorCode.UNSUPPORTED_PLATFORM
    if not find_spec("playwright"):
        return RenderFailed(code, "Chromium is driven by Playwright, which is not installed")
    why = "no Chromium was found (%(looked)s): install one, or use the engine %(engine)s"
    looked = configured or f"{', '.join(_COMMANDS)} on PATH and Playwright's own"
    return RenderFailed(code, why, looked=looked, engine=WEASYPRINT)


def pick_engine(name: str | None = None, settings: ChromiumSettings | None = None) -> Engine:
    """Create this engine, or Chromium, or else WeasyPrint; raises RenderFailed for none."""
    # These load a lot of modules, which the process of WeasyPrint does without.
    from kesin.foundation.logs import Logger
    from kesin.workloads.pdf.engines.browser import ChromiumSettings
    from kesin.workloads.pdf.engines.chromium import ChromiumEngine
    from kesin.workloads.pdf.engines.weasyprint import WeasyPrintEngine

    settings = settings or ChromiumSettings()
    if name not in (None, *ENGINES):
        why, known = "there is no engine %(name)s, only %(known)s", ENGINES
        code = PdfErrorCode.UNSUPPORTED_PLATFORM
        raise RenderFailed(code, why, name=repr(name), known=" and ".join(known))
    if name != WEASYPRINT and is_chromium_available(settings.executable):
        return ChromiumEngine(settings)
    if name == CHROMIUM:
        raise chromium_missing(settings.executable)
    if find_spec("weasyprint") is None:
        raise RenderFailed(
            PdfErrorCode.UNSUPPORTED_PLATFORM,
            "WeasyPrint is not installed here" if name else "neither Chromium nor WeasyPrint is",
        )
    if name is None:
        engine, configured = WEASYPRINT, settings.executable
        Logger(__name__).warning("pdf.no_chromium", engine=engine, configured=configured)
    return WeasyPrintEngine()
