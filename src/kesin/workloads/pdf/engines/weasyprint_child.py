"""The child that runs WeasyPrint; the system's alarm ends it even if its parent is gone."""

import ctypes.util
import io
import logging
import resource
import sys
from typing import Any, BinaryIO, Final

from kesin.workloads.pdf.channel import ChildChannel, failure_head, parent_channel, serve_tasks
from kesin.workloads.pdf.engines.base import MAX_NAMED, PRODUCER, Paper, selected_pages
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.limits import MAX_HTML_BYTES, check_pages

MEMORY_BYTES: Final = 4 * 1024 * 1024 * 1024
_MAX_WARNINGS: Final = 20
_MAX_WARNING_LENGTH: Final = 300
_MAX_KEPT_BYTES: Final = 32 * 1024 * 1024  # of fonts


class _WarningCollector(logging.Handler):
    """Collects WeasyPrint's warnings: images it could not load, rules it does not know."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.missing: set[str] = set()  # characters that no font has

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith(".notdef glyph") and isinstance(record.args, tuple):
            self.missing.add(str(record.args[0]))
            return
        line = record.getMessage()[:_MAX_WARNING_LENGTH]
        if len(self.lines) < _MAX_WARNINGS and line not in self.lines:
            self.lines.append(line)


def page_rules(paper: Paper) -> str:
    """Format the paper as CSS, larger by the inverse scale: WeasyPrint scales whole pages."""
    width, height = paper.page_mm
    must = "" if paper.prefer_css_page_size and paper.scale == 1 else " !important"
    margin = " ".join(f"{side / paper.scale:g}mm" for side in paper.margin_mm)
    size = f"{width / paper.scale:g}mm {height / paper.scale:g}mm"
    outline = "" if paper.outline else "* { bookmark-level: none !important }"
    return f"@page {{ size: {size}{must}; margin: {margin}{must} }} {outline}"


def render_pdf(html: str, paper: Paper) -> tuple[dict[str, Any], bytes]:
    from pydyf import String  # type: ignore[import-untyped]
    from weasyprint import CSS, HTML  # type: ignore[import-untyped]
    from weasyprint.urls import URLFetcher  # type: ignore[import-untyped]

    collector = _WarningCollector()
    logger = logging.getLogger("weasyprint")
    logger.addHandler(collector)
    try:
        variant = paper.conformance[0] if paper.conformance else None
        options = {"pdf_tags": paper.tagged, "pdf_variant": variant}
        fetcher = URLFetcher(allowed_protocols=("data",), allow_redirects=False)
        document = HTML(string=html, url_fetcher=fetcher).render(
            stylesheets=[CSS(string=page_rules(paper), url_fetcher=fetcher)], **options
        )
        check_pages(len(document.pages))
        numbers = selected_pages(paper.page_ranges, len(document.pages))
        selected = document.copy([document.pages[number - 1] for number in numbers])
        named = {"Producer": String(PRODUCER)}
        finish = {"finisher": lambda _, pdf: pdf.info.update(named)}
        pdf = selected.write_pdf(zoom=paper.scale, **finish, **options)
    finally:
        logger.removeHandler(collector)
    warnings = collector.lines
    if paper.header_html or paper.footer_html:
        warnings.append("weasyprint ignores header_html and footer_html: use CSS margin boxes")
    if not paper.print_background:
        warnings.append("weasyprint always prints backgrounds")
    missing = sorted(collector.missing)[:MAX_NAMED]
    return {"pages": len(numbers), "warnings": warnings, "missing": missing}, bytes(pdf or b"")


def keep_fonts() -> None:
    """Decompress each font once: it takes half the time of a short document."""
    from fontTools.ttLib import woff2  # type: ignore[import-untyped]

    decompress, kept = woff2.decompress, dict[bytes, bytes]()

    def decompress_once(file: BinaryIO, out: BinaryIO) -> None:
        font = file.read()
        if (plain := kept.get(font)) is None:
            decompress(io.BytesIO(font), whole := io.BytesIO())
            plain = whole.getvalue()
            if len(plain) + sum(map(len, kept.values())) <= _MAX_KEPT_BYTES:
                kept[font] = plain
        out.write(plain)

    woff2.decompress = decompress_once


def _handle_request(head: dict[str, Any], html: bytes) -> tuple[dict[str, Any], bytes]:
    paper = Paper(**head["paper"] | {"margin_mm": tuple(head["paper"]["margin_mm"])})
    try:
        return render_pdf(html.decode(), paper)
    except RenderFailed as problem:
        return failure_head(problem), b""
    except MemoryError:
        message = "the document needs more memory than one document may use"
        return {"code": PdfErrorCode.TEMPLATE_ERROR, "message": message}, b""
    except Exception as problem:  # noqa: BLE001 - the parent reports every error
        message = f"{type(problem).__name__}: {problem}"[:_MAX_WARNING_LENGTH]
        return {"code": PdfErrorCode.UNKNOWN, "message": message}, b""


def serve(channel: ChildChannel) -> None:
    if sys.platform == "linux":  # it knows the files of its libraries; to find others takes gcc
        ctypes.util.find_library = lambda name: None  # noqa: ARG005
    try:
        import weasyprint  # noqa: F401
    except (ImportError, OSError) as problem:  # OSError: Pango is missing
        message = f"WeasyPrint cannot be loaded here: {problem}"[:_MAX_WARNING_LENGTH]
        channel.send({"code": PdfErrorCode.UNSUPPORTED_PLATFORM, "message": message})
        return
    logging.getLogger("weasyprint").propagate = False
    keep_fonts()
    channel.send({})
    serve_tasks(channel, _handle_request)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with parent_channel(2 * MAX_HTML_BYTES) as channel:
        serve(channel)


if __name__ == "__main__":
    main()
