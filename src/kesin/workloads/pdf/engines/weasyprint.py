"""The WeasyPrint engine, in a warm child: only a process can be stopped amid a computation."""

import io
from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Final

import pikepdf

from kesin.foundation.messages import Message
from kesin.workloads.pdf import limits
from kesin.workloads.pdf.channel import Child, raise_failure
from kesin.workloads.pdf.engines.archive import SAVED, check_conformance, check_parts
from kesin.workloads.pdf.engines.base import ARCHIVES_ONLY, LEVELS, Paper, RenderedPdf, WarmEngine
from kesin.workloads.pdf.engines.browser_process import cpu_seconds
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed

CHILD_MODULE: Final = "kesin.workloads.pdf.engines.weasyprint_child"
START_S: Final = 20.0  # it imports a great many modules, perhaps from a slow disk

_MAX_REPLY_BYTES: Final = limits.MAX_PDF_BYTES + 64 * 1024 * 1024


class WeasyPrintEngine(WarmEngine):
    """Renders one document at a time; call it from one thread."""

    name = "weasyprint"

    def __init__(self) -> None:
        super().__init__()
        self._child: Child | None = None

    def close(self) -> None:
        with self._lock:
            self._kill_child()

    def _render(self, html: str, paper: Paper, timeout_s: float) -> RenderedPdf:
        head, pdf = self._request(html, paper, timeout_s)
        if "code" in head:
            raise_failure(head)
        limits.check_pdf(pdf)
        limits.check_pages(head["pages"])
        warnings, missing = tuple(head["warnings"]), tuple(head["missing"])
        if paper.conformance and not missing:  # which fails anyway
            pdf = _conform(pdf, paper.conformance)
        return RenderedPdf(pdf, head["pages"], self.name, warnings, missing_glyphs=missing)

    def _request(self, html: str, paper: Paper, timeout_s: float) -> tuple[dict[str, Any], bytes]:
        child = self._start_child()
        limit_s = limits.soft_timeout_s(timeout_s)
        deadline = self._clock.monotonic() + limit_s
        used_s = cpu_seconds([child.process.pid])
        try:
            child.send({"paper": asdict(paper), "limit_s": limit_s}, html.encode(), deadline)
            return child.receive(deadline)
        except TimeoutError:
            busy = (cpu_seconds([child.process.pid]) - used_s) / limit_s
            self._kill_child()
            raise limits.timeout_failure(timeout_s, busy=busy) from None
        except (EOFError, OSError):
            self._kill_child()
            code, details = PdfErrorCode.NAVIGATION_TIMEOUT, {"reason": "crashed"}
            why = Message("WeasyPrint's process died before the document was printed")
            raise RenderFailed(code, why, details=details) from None

    def _start_child(self) -> Child:
        if self._child is not None and self._child.alive:
            return self._child
        self._kill_child()
        self._child = child = Child(CHILD_MODULE, _MAX_REPLY_BYTES)
        try:
            hello, _ = child.receive(self._clock.monotonic() + START_S)
        except (TimeoutError, EOFError, OSError) as problem:
            self._kill_child()
            code, reason = PdfErrorCode.BROWSER_LAUNCH_FAILED, str(problem) or "it took too long"
            why = "WeasyPrint's process did not start: %(problem)s"
            raise RenderFailed(code, why, problem=reason) from None
        if "code" in hello:
            self._kill_child()
            raise_failure(hello)
        return child

    def _kill_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()


def _conform(pdf: bytes, conformance: Collection[str]) -> bytes:
    """Return WeasyPrint's own PDF/A without what the standard forbids; raises RenderFailed."""
    if len(conformance) > 1 or not LEVELS.keys() & conformance:  # there is no browser
        raise RenderFailed(PdfErrorCode.NOT_CONFORMING, Message(ARCHIVES_ONLY))
    out = io.BytesIO()
    with pikepdf.open(io.BytesIO(pdf)) as document:
        check_parts(document)
        for each in document.objects:
            if isinstance(each, pikepdf.Stream) and "/Interpolate" in each:
                del each["/Interpolate"]  # a hint for viewers, which changes no pixel of the file
        check_conformance(document, conformance)
        document.save(out, **SAVED, deterministic_id=True)
    return out.getvalue()
