"""The Chromium engine, on a browser that stays warm between documents.

A document has until five seconds before its hard limit; the rest is for killing a browser that
does not respond. The same document gives the same bytes, but for the class `date` in a header or
footer, which prints today's date, and for another version of Chromium, whose layout may differ.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from kesin.foundation.logs import Logger
from kesin.foundation.messages import Message
from kesin.workloads.pdf.engines import browser as warm
from kesin.workloads.pdf.engines import browser_process, network_guard
from kesin.workloads.pdf.engines.base import Paper, RenderedPdf, WarmEngine, first_line
from kesin.workloads.pdf.engines.browser import BLANK, ChromiumSettings, PageSession, WarmBrowser
from kesin.workloads.pdf.engines.browser_process import LoopStuck, LoopThread
from kesin.workloads.pdf.engines.normalise import NormalisedPdf, normalise_pdf
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed, TemplateError
from kesin.workloads.pdf.limits import soft_timeout_s, timeout_failure

_T = TypeVar("_T")

_MAX_ATTEMPTS: Final = 2  # the first time a browser dies, the document is not blamed
_HEAVY_PAGES: Final = 40
_HEAVY_BYTES: Final = 1024 * 1024
_MAX_WARNINGS: Final = 20
_MAX_NAME_LENGTH: Final = 120
_EMPTY_TEMPLATE: Final = "<span></span>"  # an empty template would print Chromium's default
_BAD_PAPER_HINTS: Final = ("page range", "invalid print parameters", "scale is outside")
_SAME_OPTIONS: Final = (  # of paper and of the browser
    *("landscape", "scale", "page_ranges", "print_background", "prefer_css_page_size", "outline"),
)

_INSPECT_SCRIPT: Final = Path(__file__).with_name("inspect.js").read_text("utf-8").strip()
# Writes and inspects the document in a single round trip to the browser, which makes up for the
# cost of the inspection. If something is still loading, the document is set again and awaited.
_WRITE_SCRIPT: Final = f"""([html, outside]) => {{
  document.open(); document.write(html); document.close();
  return ({_INSPECT_SCRIPT})(outside);
}}"""
_log: Final = Logger(__name__)


class _PageLost(Exception):
    """The page or its browser died; the document is not known to be the cause."""


class _PrintedDocument(NamedTuple):
    pdf: bytes
    warnings: tuple[str, ...]
    inherited: bool
    about: dict[str, str]  # what the document says of itself


class ChromiumEngine(WarmEngine):
    """Renders one document at a time; call it from one thread."""

    name = "chromium"

    def __init__(self, settings: ChromiumSettings | None = None) -> None:
        super().__init__()
        self.settings = settings or ChromiumSettings()
        self._loop: LoopThread | None = None
        self._browser: WarmBrowser | None = None
        self._policy = network_guard.build_policy(
            scripts=self.settings.javascript, urls=self.settings.is_url_allowed is not None
        )

    @property
    def browser_pid(self) -> int:
        return self._browser.leader_pid if self._browser is not None else 0

    def _render(self, html: str, paper: Paper, timeout_s: float) -> RenderedPdf:
        printed = self._print_with_retry(html, paper, timeout_s)
        pdf, pages, missing = self._normalise_and_renew(printed, html, paper)
        return RenderedPdf(pdf, pages, self.name, printed.warnings, missing_glyphs=missing)

    def close(self) -> None:
        with self._lock:
            if self._loop is None or self._browser is None:
                return
            try:
                self._loop.call(self._browser.close(), limit_s=3 * warm.CLOSE_S)
            except Exception as problem:  # noqa: BLE001 - then it is killed
                _log.warning("pdf.browser_close_failed", problem=first_line(problem))
            self._abandon_browser()

    def _print_with_retry(self, html: str, paper: Paper, timeout_s: float) -> _PrintedDocument:
        policed = "policy" in self.settings.guard_layers
        guarded = network_guard.insert_policy(html, self._policy) if policed else html
        remaining_s = soft_timeout_s(timeout_s)
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            session = self._ready_session(unused=paper.own_page)
            started_at = self._clock.monotonic()
            try:
                work = self._print(session, guarded, paper, remaining_s, timeout_s)
                return self._run_on_loop(work, remaining_s + warm.CLOSE_S)
            except _PageLost as loss:
                remaining_s -= self._clock.monotonic() - started_at
                _log.warning("pdf.page_lost", why=str(loss), attempt=attempt)
                if attempt == _MAX_ATTEMPTS or remaining_s <= 0:
                    code, details = PdfErrorCode.NAVIGATION_TIMEOUT, {"reason": "crashed"}
                    why, problem = "%(problem)s before the document was printed", Message(str(loss))
                    raise RenderFailed(code, why, details=details, problem=problem) from None
        raise AssertionError("unreachable")  # pragma: no cover

    def _normalise_and_renew(self, printed: _PrintedDocument, html: str, paper: Paper) -> NormalisedPdf:
        """Normalise the PDF while the browser is renewed for the next document."""
        pages = 0
        try:
            pdf, pages, missing = normalise_pdf(printed.pdf, printed.about, html, paper)
        finally:
            size = max(len(html), 0 if pages else len(printed.pdf))  # its pages may be unknown
            heavy = paper.own_page or pages > _HEAVY_PAGES or size > _HEAVY_BYTES
            if self._loop is not None and self._browser is not None:
                self._loop.start(self._browser.renew(heavy=heavy, wipe=printed.inherited))
        return pdf, pages, missing

    def _ready_session(self, *, unused: bool) -> PageSession:
        if self._loop is None or self._browser is None:
            self._loop = LoopThread("kesin-chromium")
            self._browser = WarmBrowser(self.settings, self._clock)
        return self._run_on_loop(self._browser.ready_session(unused=unused), warm.prepare_s())

    def _run_on_loop(self, work: Coroutine[Any, Any, _T], limit_s: float) -> _T:
        """Run a coroutine on the loop; a stuck loop is abandoned with everything it started."""
        if self._loop is None:
            raise LoopStuck("there is no loop")
        try:
            return self._loop.call(work, limit_s=limit_s)
        except LoopStuck as stuck:
            self._abandon_browser()
            why, details = "the browser's driver did not respond for %(n)s s", {"reason": "stuck"}
            code = PdfErrorCode.NAVIGATION_TIMEOUT
            raise RenderFailed(code, why, details=details, n=f"{limit_s:g}") from stuck

    def _abandon_browser(self) -> None:
        loop, self._loop = self._loop, None
        browser, self._browser = self._browser, None
        if browser is not None:
            browser.kill()
        if loop is not None:
            loop.stop()

    async def _print(
        self, session: PageSession, html: str, paper: Paper, limit_s: float, timeout_s: float
    ) -> _PrintedDocument:
        session.guard.reset()
        step = ["load"]
        work = asyncio.ensure_future(_print_document(session, html, paper, step, self.settings))
        ends: set[asyncio.Future[Any]] = {work, session.lost}
        half_s, busy = limit_s / 2, 0.0
        await asyncio.wait(ends, timeout=half_s, return_when=asyncio.FIRST_COMPLETED)
        if not any(end.done() for end in ends):  # only slow documents pay for the measurement
            used_s = self._browser_cpu_s()
            await asyncio.wait(ends, timeout=half_s, return_when=asyncio.FIRST_COMPLETED)
            busy = (self._browser_cpu_s() - used_s) / half_s
        if work.done() and work.exception() is None:
            return work.result()
        timed_out = timeout_failure(timeout_s, busy=busy, step=step[0])
        failure = await self._build_failure(session, work, timed_out)
        work.cancel()
        if self._browser is not None:
            await self._browser.discard_session()
        await asyncio.gather(work, return_exceptions=True)
        raise failure

    def _browser_cpu_s(self) -> float:
        return browser_process.cpu_seconds(browser_process.group_members(self.browser_pid))

    async def _build_failure(
        self, session: PageSession, work: asyncio.Future[_PrintedDocument], timed_out: RenderFailed
    ) -> Exception:
        """Build the error: from what happened to the page, else from the browser's message."""
        problem = work.exception() if work.done() else None
        if isinstance(problem, RenderFailed):
            return problem
        message = first_line(problem) if problem is not None else ""
        bad_paper = any(hint in message.lower() for hint in _BAD_PAPER_HINTS)
        if problem is not None and not bad_paper:
            # The browser's error may come a moment before the event that caused it.
            events = {session.navigated, session.lost}
            await asyncio.wait(events, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        if session.navigated.done():
            return _navigation_error(session.navigated.result())
        if session.lost.done():
            return _PageLost(session.lost.result())
        if problem is None:
            return timed_out
        if bad_paper:
            return TemplateError("the print options are invalid: %(problem)s", problem=message)
        details = {"step": timed_out.details["step"]}
        return RenderFailed(PdfErrorCode.UNKNOWN, message, details=details)


async def _print_document(
    session: PageSession, html: str, paper: Paper, step: list[str], settings: ChromiumSettings
) -> _PrintedDocument:
    page, outside = session.page, settings.is_url_allowed is not None
    report = None if settings.javascript else await page.evaluate(_WRITE_SCRIPT, [html, outside])
    if report is None or not report["loaded"]:
        await page.set_content(html, wait_until="load", timeout=0)
        step[0] = "pictures and fonts"
        report = await page.evaluate(_INSPECT_SCRIPT, outside)
    if report["refresh"]:
        session.mark_navigated("where a refresh leads")
    _check_not_navigated(session)
    step[0] = "print"
    pdf = await page.pdf(**print_options(paper))
    _check_not_navigated(session)
    warnings = [
        *session.guard.warnings(),
        *_format_warnings("picture not shown", report["broken"]),
        *_format_warnings("font not loaded", report["fonts"]),
    ]
    return _PrintedDocument(pdf, tuple(warnings), bool(report["inherited"]), report["about"])


def _check_not_navigated(session: PageSession) -> None:
    if session.page.url != BLANK:
        session.mark_navigated(session.page.url)
    if session.navigated.done():
        raise _navigation_error(session.navigated.result())


def _navigation_error(url: str) -> RenderFailed:
    why = Message("the document navigates to another page, which would be printed in its place")
    return TemplateError(why, details={"to": url[:_MAX_NAME_LENGTH]})


def _format_warnings(label: str, names: list[str]) -> list[str]:
    return [f"{label}: {name[:_MAX_NAME_LENGTH]}" for name in sorted(set(names))[:_MAX_WARNINGS]]


def print_options(paper: Paper) -> dict[str, Any]:
    width, height = map(_inches, paper.size_mm)
    sides = ("top", "right", "bottom", "left")
    return {
        **{name: getattr(paper, name) for name in _SAME_OPTIONS},
        "tagged": paper.tagged or paper.outline,  # an outline is made of the tags
        "width": width,
        "height": height,
        "margin": dict(zip(sides, map(_inches, paper.margin_mm), strict=True)),
        "display_header_footer": bool(paper.header_html or paper.footer_html),
        "header_template": paper.header_html or _EMPTY_TEMPLATE,
        "footer_template": paper.footer_html or _EMPTY_TEMPLATE,
    }


def _inches(millimetres: float) -> str:
    return f"{millimetres / 25.4:.6f}in"
