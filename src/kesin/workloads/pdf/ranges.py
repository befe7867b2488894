"""Page ranges as printers take them: ``1-3, 5``, ``2-``, ``-4``."""

from __future__ import annotations

import re
from typing import Final

from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed

_RANGE: Final = re.compile(r"(\d{1,6})|(\d{0,6})-(\d{0,6})")


def check_ranges(text: str) -> list[tuple[int, int | None]]:
    """First and last page of each range, None for the end; raises RenderFailed(TEMPLATE_ERROR)."""
    ranges: list[tuple[int, int | None]] = []
    if not text.strip():
        return ranges
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None or part.strip() == "-":
            raise _bad(text, f"{part.strip()!r} is no page or range of pages")
        first = int(found[1] or found[2] or 1)
        last = int(found[1]) if found[1] else int(found[3]) if found[3] else None
        if first < 1 or (last is not None and last < first):
            raise _bad(text, f"{part.strip()!r} runs backwards or starts before page 1")
        ranges.append((first, last))
    return ranges


def pages_in(text: str, pages: int) -> list[int]:
    """The pages that are meant, from 1, each once and in order; all of them for no range."""
    ranges = check_ranges(text)
    if not ranges:
        return list(range(1, pages + 1))
    beyond = [first for first, _ in ranges if first > pages]
    if beyond:
        raise _bad(text, f"the document has {pages} pages")
    meant = {page for first, last in ranges for page in range(first, min(last or pages, pages) + 1)}
    return sorted(meant)


def _bad(text: str, why: str) -> RenderFailed:
    return RenderFailed(
        PdfErrorCode.TEMPLATE_ERROR,
        f"page_ranges {text!r} cannot be printed: {why}",
        details={"page_ranges": text},
    )
