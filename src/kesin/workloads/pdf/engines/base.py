"""The interface of the engines that render HTML to PDF: see `chromium.py` and `weasyprint.py`."""

import hashlib
import os
import re
import shutil
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from kesin.foundation.clock import SystemClock
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed, TemplateError
from kesin.workloads.pdf.limits import check_html

CHROMIUM: Final = "chromium"
WEASYPRINT: Final = "weasyprint"
ENGINES: Final = (CHROMIUM, WEASYPRINT)

# Changes a PDF (of pikepdf), and its information (/Title …), before it is checked and saved;
# returns the level of the Factur-X invoice that it then carries, if any.
Finish = Callable[[Any, dict[str, str]], str]
Format = Literal["A3", "A4", "A5", "Letter", "Legal"]

SIZES_MM: Final[dict[Format, tuple[float, float]]] = {
    "A3": (297, 420),
    "A4": (210, 297),
    "A5": (148, 210),
    "Letter": (215.9, 279.4),
    "Legal": (215.9, 355.6),
}
Conformance = Literal["pdf/a-3a", "pdf/a-3b", "pdf/ua-1"]
LEVELS: Final[dict[str, str]] = {"pdf/a-3a": "A", "pdf/a-3b": "B"}
UNMARKED_ARCHIVES: Final = "WeasyPrint cannot make a PDF/A with a stamp, metadata or attachments"
ARCHIVES_ONLY: Final = "WeasyPrint makes only PDF/A-3a or PDF/A-3b; other standards, or more than one, need Chromium"
TAGGED: Final = frozenset({"pdf/a-3a", "pdf/ua-1"})  # these need the structure of the document

PRODUCER: Final = "Kesin"  # of every PDF
MAX_NAMED: Final = 50  # characters that no font has


@dataclass(frozen=True, slots=True)
class Paper:
    """Print options; CSS ``@page`` sizes take precedence if ``prefer_css_page_size`` is set."""

    format: Format = "A4"
    width_mm: float | None = None  # with height_mm, in place of a format
    height_mm: float | None = None
    landscape: bool = False
    margin_mm: tuple[float, float, float, float] = (0, 0, 0, 0)  # top, right, bottom, left
    scale: float = 1.0  # 0.1…2
    page_ranges: str = ""  # "1-3, 5"
    print_background: bool = True
    prefer_css_page_size: bool = True
    header_html: str = ""
    footer_html: str = ""
    tagged: bool = False
    outline: bool = False
    conformance: tuple[str, ...] = ()  # to standards, such as pdf/a-3a
    finish: Finish | None = None
    own_page: bool = False  # of the browser, with a profile and a process that no other has

    @property
    def size_mm(self) -> tuple[float, float]:
        """Width and height in portrait orientation."""
        if self.width_mm is not None and self.height_mm is not None:
            return self.width_mm, self.height_mm
        return SIZES_MM[self.format]

    @property
    def page_mm(self) -> tuple[float, float]:
        """Width and height in the page's orientation."""
        width, height = self.size_mm
        return (height, width) if self.landscape else (width, height)


@dataclass(frozen=True, slots=True)
class RenderedPdf:
    """A PDF with the warnings of its engine."""

    pdf: bytes
    pages: int
    engine: str
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    missing_glyphs: tuple[str, ...] = ()  # characters that no font has; a warning names them too

    @property
    def sha256(self) -> str:
        """The hash of the bytes; the same job on the same machine gives the same."""
        return hashlib.sha256(self.pdf).hexdigest()


def describe_characters(characters: Iterable[str]) -> str:
    """Format characters for a person: 漢 (U+6F22), 字 (U+5B57)."""
    shown = ((each if each.isprintable() else "?", ord(each)) for each in characters)
    return ", ".join(f"{character} (U+{number:04X})" for character, number in shown)


def missing_glyphs_failure(characters: Iterable[str]) -> RenderFailed:
    why, named = "no font has these characters: %(characters)s", describe_characters(characters)
    return RenderFailed(PdfErrorCode.MISSING_GLYPHS, why, characters=named)


def first_line(problem: BaseException) -> str:
    """Return the first line of an error; the others are a box and a log of the browser."""
    lines = [line for line in str(problem).splitlines() if line.strip()]
    return (lines[0] if lines else type(problem).__name__)[:300]


class Engine(Protocol):
    """Renders one document at a time; safe to call from one thread."""

    name: str

    def render(self, html: str, paper: Paper, *, timeout_s: float) -> RenderedPdf:
        """Render HTML to PDF; raises RenderFailed and nothing else."""

    def close(self) -> None:
        """Release all resources, processes included."""


class WarmEngine(Engine):
    """An engine in a process that stays warm between documents; starting it has its own limit."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._lock = threading.Lock()

    def render(self, html: str, paper: Paper, *, timeout_s: float) -> RenderedPdf:
        try:
            with self._lock:
                started_at = self._clock.monotonic()
                check_html(html)
                parse_page_ranges(paper.page_ranges)
                rendered = self._render(html, paper, timeout_s)
        except RenderFailed:
            raise
        except Exception as problem:
            raise RenderFailed(PdfErrorCode.UNKNOWN, first_line(problem)) from problem
        warnings = rendered.warnings
        if rendered.missing_glyphs:
            if paper.conformance:
                raise missing_glyphs_failure(rendered.missing_glyphs)
            warnings += (f"missing glyph: {describe_characters(rendered.missing_glyphs)}",)
        return replace(rendered, warnings=warnings, seconds=self._clock.monotonic() - started_at)

    @abstractmethod
    def _render(self, html: str, paper: Paper, timeout_s: float) -> RenderedPdf:
        """Render a document that was checked; called by one thread at a time."""


_RANGE: Final = re.compile(r"(\d{1,6})|(\d{0,6})-(\d{0,6})")


def parse_page_ranges(text: str) -> list[tuple[int, int | None]]:
    """Parse the first and last page of each range, None for the end; raises TemplateError."""
    ranges: list[tuple[int, int | None]] = []
    if not text.strip():
        return ranges
    for part in map(str.strip, text.split(",")):
        match = _RANGE.fullmatch(part)
        if match is None or part == "-":
            raise _page_range_error(text, f"{part!r} is not a page or range of pages")
        first = int(match[1] or match[2] or 1)
        last = int(match[1]) if match[1] else int(match[3]) if match[3] else None
        if first < 1 or (last is not None and last < first):
            raise _page_range_error(text, f"{part!r} runs backwards or starts before page 1")
        ranges.append((first, last))
    return ranges


def selected_pages(text: str, pages: int) -> list[int]:
    """Return the page numbers of the ranges, from 1, once each and in order; all without ranges."""
    ranges = parse_page_ranges(text)
    if not ranges:
        return list(range(1, pages + 1))
    if any(first > pages for first, _ in ranges):
        raise _page_range_error(text, f"the document has {pages} pages")
    bounded = (range(first, min(last or pages, pages) + 1) for first, last in ranges)
    return sorted(set(chain.from_iterable(bounded)))


def _page_range_error(text: str, reason: str) -> RenderFailed:
    why, details = "page_ranges %(given)s is invalid: %(problem)s", {"page_ranges": text}
    return TemplateError(why, details=details, given=repr(text), problem=reason)


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
    why = "Chromium was not found (%(looked)s): install it, or use the engine %(engine)s"
    looked = configured or f"{', '.join(_COMMANDS)} on PATH and Playwright's own"
    return RenderFailed(code, why, looked=looked, engine=WEASYPRINT)
