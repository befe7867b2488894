"""PDFs printed by Chromium, on a browser that stays warm between documents.

The browser lives on an event loop in a thread of its own; `render` waits for it with a time limit
that holds even if the loop is stuck. A document has until five seconds before its hard limit; then
its page is taken away, and the rest of the time is for the browser, should it not let go.

The same document gives the same bytes. Two things are the template's own affair: the class `date`
in a header or footer prints today's date, and another Chromium may set the same text otherwise.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kesin.foundation.clock import Clock, SystemClock
from kesin.foundation.logs import Logger
from kesin.workloads.pdf.engines import browser as warm
from kesin.workloads.pdf.engines import network_guard
from kesin.workloads.pdf.engines.base import Paper, Rendered, check_ranges
from kesin.workloads.pdf.engines.browser import BLANK, Sheet, WarmBrowser, said
from kesin.workloads.pdf.engines.browser_process import LoopStuck, LoopThread
from kesin.workloads.pdf.engines.chromium_settings import ChromiumSettings
from kesin.workloads.pdf.engines.normalise import normalised
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.limits import check_html, graceful_s, too_long

_T = TypeVar("_T")

_MM_PER_INCH: Final = 25.4
_TRIES: Final = 2  # a browser that dies under a document is no fault of the document's, once
_PREPARE_S: Final = warm.LAUNCH_S + warm.SHEET_S + 2 * warm.CLOSE_S
_HEAVY_PAGES: Final = 40
_HEAVY_BYTES: Final = 1024 * 1024
_NAMES_SHOWN: Final = 20
_LETTERS_SHOWN: Final = 120
_NOTHING: Final = "<span></span>"  # an empty template would print Chromium's own
_BAD_PAPER: Final = ("page range", "invalid print parameters", "scale is outside")
_NEWS_S: Final = 1.0

# Every picture is asked to load, even one far down the page; that it is complete is enough, since
# a broken one never gets a size. Where scripts are off no event and no timer reaches this, only
# what the browser promises does. What a later document in the same page would inherit is noted.
# A picture that only a style shows is fetched when the page is laid out, which may be after all
# has been loaded; where documents may fetch anything, each is asked for by name and waited for.
_READY: Final = """async outside => {
  const pictures = Array.from(document.images);
  for (const one of pictures) one.loading = 'eager';
  const painted = new Set();
  for (const one of outside ? document.querySelectorAll('*') : []) {
    for (const part of [null, '::before', '::after']) {
      const style = getComputedStyle(one, part);
      for (const name of ['backgroundImage', 'borderImageSource', 'listStyleImage', 'maskImage'])
        for (const found of style[name].matchAll(/url\\("([^"]+)"\\)/g)) painted.add(found[1]);
    }
  }
  await Promise.allSettled(Array.from(painted, url => {
    const one = new Image();
    one.src = url;
    return one.decode();
  }));
  await Promise.allSettled(pictures.filter(one => !one.complete).map(one => one.decode()));
  await document.fonts.ready;
  const words = element => (element.httpEquiv || '').trim().toLowerCase();
  const metas = Array.from(document.querySelectorAll('meta'));
  const ours = metas.findIndex(one => words(one) === 'content-security-policy');
  return {
    loaded: document.readyState === 'complete',
    broken: pictures.filter(one => (one.currentSrc || one.src) && !one.naturalWidth
      && !one.naturalHeight).map(one => (one.currentSrc || one.src).slice(0, 300)),
    fonts: Array.from(document.fonts).filter(one => one.status === 'error')
      .map(one => one.family),
    refresh: metas.some(one => words(one) === 'refresh'),
    inherited: metas.some((one, at) => at !== ours && (
      !['', 'content-type', 'x-ua-compatible'].includes(words(one))
      || ['referrer', 'color-scheme'].includes(one.name.trim().toLowerCase()))),
  };
}"""
# Writing the document and looking at it are one errand to the browser instead of two: that makes
# up for all the looking. If something is still loading then, it is written again and waited for.
_WRITTEN: Final = f"""([html, outside]) => {{
  document.open(); document.write(html); document.close();
  return ({_READY})(outside);
}}"""
_log: Final = Logger(__name__)


class _Lost(Exception):
    """The page or its browser died; what was being printed is not to blame, as far as we know."""


@dataclass(frozen=True, slots=True)
class _Printed:
    pdf: bytes
    warnings: tuple[str, ...]
    inherited: bool


class ChromiumEngine:
    """Renders one document at a time; call it from one thread."""

    name = "chromium"

    def __init__(
        self, settings: ChromiumSettings | None = None, *, clock: Clock | None = None
    ) -> None:
        self.settings = settings or ChromiumSettings()
        self._clock = clock or SystemClock()
        self._turn = threading.Lock()
        self._loop: LoopThread | None = None
        self._browser: WarmBrowser | None = None
        self._policy = network_guard.policy(
            scripts=self.settings.javascript, urls=self.settings.allowed is not None
        )

    @property
    def browser_pid(self) -> int:
        """The process of the browser as it is now; 0 while there is none."""
        return self._browser.leader if self._browser is not None else 0

    @property
    def launches(self) -> int:
        """How many browsers were started since the engine was made or had to start anew."""
        return self._browser.launches if self._browser is not None else 0

    def warm_up(self) -> None:
        """Start the browser before the first document comes; raises as `render` does."""
        with self._turn:
            self._prepare()

    def render(self, html: str, paper: Paper, *, timeout_s: float) -> Rendered:
        """A PDF of this HTML; raises RenderFailed and nothing else.

        Starting a browser, where that is needed, has a time limit of its own and does not count.
        """
        try:
            with self._turn:
                began = self._clock.monotonic()
                check_html(html)
                check_ranges(paper.page_ranges)
                printed = self._printed(html, paper, timeout_s)
                pdf, pages = self._finished(printed, html)
        except RenderFailed:
            raise
        except Exception as problem:
            raise RenderFailed(PdfErrorCode.UNKNOWN, said(problem)) from problem
        seconds = self._clock.monotonic() - began
        return Rendered(pdf, pages, self.name, printed.warnings, seconds)

    def settle(self) -> None:
        """Wait until what is done between two documents is done."""
        with self._turn:
            if self._loop is not None and self._browser is not None:
                self._call(self._browser.settled(), _PREPARE_S)

    def close(self) -> None:
        """End the browser, its driver and the loop."""
        with self._turn:
            if self._loop is None or self._browser is None:
                return
            try:
                self._loop.call(self._browser.close(), limit_s=3 * warm.CLOSE_S)
            except Exception as problem:  # noqa: BLE001 - then it is ended by force
                _log.warning("pdf.browser_closed_badly", problem=said(problem))
            self._forget()

    def _printed(self, html: str, paper: Paper, timeout_s: float) -> _Printed:
        walled = html
        if "policy" in self.settings.walls:
            walled = network_guard.with_policy(html, self._policy)
        left = graceful_s(timeout_s)
        for attempt in range(1, _TRIES + 1):
            sheet = self._prepare()
            began = self._clock.monotonic()
            try:
                work = self._print(sheet, walled, paper, left, timeout_s)
                return self._call(work, left + warm.CLOSE_S)
            except _Lost as loss:
                left -= self._clock.monotonic() - began
                _log.warning("pdf.page_lost", why=str(loss), attempt=attempt)
                if attempt == _TRIES or left <= 0:
                    raise RenderFailed(
                        PdfErrorCode.NAVIGATION_TIMEOUT,
                        f"{loss} before the document was printed",
                        details={"reason": "crashed"},
                    ) from None
        raise AssertionError("unreachable")  # pragma: no cover

    def _finished(self, printed: _Printed, html: str) -> tuple[bytes, int]:
        """What is left to do outside of the browser, while it gets ready for the next one."""
        pages = 0
        try:
            pdf, pages = normalised(printed.pdf)
        finally:
            heavy = pages > _HEAVY_PAGES or pages == 0 or len(html) > _HEAVY_BYTES
            if self._loop is not None and self._browser is not None:
                self._loop.begin(self._browser.tidy(heavy=heavy, wipe=printed.inherited))
        return pdf, pages

    def _prepare(self) -> Sheet:
        if self._loop is None or self._browser is None:
            self._loop = LoopThread("kesin-chromium")
            self._browser = WarmBrowser(self.settings, self._clock)
        return self._call(self._browser.sheet(), _PREPARE_S)

    def _call(self, work: Coroutine[Any, Any, _T], limit_s: float) -> _T:
        """Run it on the loop; a loop that does not answer is left behind with all it started."""
        if self._loop is None:
            raise LoopStuck("there is no loop")
        try:
            return self._loop.call(work, limit_s=limit_s)
        except LoopStuck as stuck:
            self._forget()
            raise RenderFailed(
                PdfErrorCode.NAVIGATION_TIMEOUT,
                f"the browser's driver gave no answer within {limit_s:g} s",
                details={"reason": "stuck"},
            ) from stuck

    def _forget(self) -> None:
        loop, self._loop = self._loop, None
        browser, self._browser = self._browser, None
        if browser is not None:
            browser.kill()
        if loop is not None:
            loop.stop()

    async def _print(
        self, sheet: Sheet, html: str, paper: Paper, limit_s: float, told_s: float
    ) -> _Printed:
        sheet.guard.begin()
        step = ["load"]
        work = asyncio.ensure_future(_steps(sheet, html, paper, step, self.settings))
        ends: set[asyncio.Future[Any]] = {work, sheet.lost}
        await asyncio.wait(ends, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if work.done() and work.exception() is None:
            return work.result()
        failure = await self._failure(sheet, work, step[0], told_s)
        work.cancel()
        if self._browser is not None:
            await self._browser.drop()
        await asyncio.gather(work, return_exceptions=True)
        raise failure

    async def _failure(
        self, sheet: Sheet, work: asyncio.Future[_Printed], step: str, told_s: float
    ) -> Exception:
        """What to tell: from what happened to the page first, from the browser's words last."""
        problem = work.exception() if work.done() else None
        if isinstance(problem, RenderFailed):
            return problem
        words = said(problem) if problem is not None else ""
        bad_paper = any(hint in words.lower() for hint in _BAD_PAPER)
        if problem is not None and not bad_paper:
            # The browser's answer may come a moment before the news of what was behind it.
            news = {sheet.moved, sheet.lost}
            await asyncio.wait(news, timeout=_NEWS_S, return_when=asyncio.FIRST_COMPLETED)
        if sheet.moved.done():
            return _went_away(sheet.moved.result())
        if sheet.lost.done():
            return _Lost(sheet.lost.result())
        if problem is None:
            return RenderFailed(
                PdfErrorCode.NAVIGATION_TIMEOUT,
                too_long(told_s),
                details={"reason": "timeout", "step": step},
            )
        if bad_paper:
            return RenderFailed(PdfErrorCode.TEMPLATE_ERROR, f"it cannot be printed so: {words}")
        return RenderFailed(PdfErrorCode.UNKNOWN, words, details={"step": step})


async def _steps(
    sheet: Sheet, html: str, paper: Paper, step: list[str], settings: ChromiumSettings
) -> _Printed:
    page, outside = sheet.page, settings.allowed is not None
    seen = None if settings.javascript else await page.evaluate(_WRITTEN, [html, outside])
    if seen is None or not seen["loaded"]:
        await page.set_content(html, wait_until="load", timeout=0)
        step[0] = "pictures and fonts"
        seen = await page.evaluate(_READY, outside)
    if seen["refresh"]:
        sheet.move("where a refresh leads")
    _stayed(sheet)
    step[0] = "print"
    pdf = await page.pdf(**print_options(paper))
    _stayed(sheet)
    warnings = [
        *sheet.guard.warnings(),
        *_named("picture not shown", seen["broken"]),
        *_named("font not loaded", seen["fonts"]),
    ]
    return _Printed(pdf, tuple(warnings), bool(seen["inherited"]))


def _stayed(sheet: Sheet) -> None:
    if sheet.page.url != BLANK:
        sheet.move(sheet.page.url)
    if sheet.moved.done():
        raise _went_away(sheet.moved.result())


def _went_away(where: str) -> RenderFailed:
    return RenderFailed(
        PdfErrorCode.TEMPLATE_ERROR,
        "the document leads to another page, and that would be printed in its place",
        details={"to": where[:_LETTERS_SHOWN]},
    )


def _named(what: str, names: list[str]) -> list[str]:
    return [f"{what}: {name[:_LETTERS_SHOWN]}" for name in sorted(set(names))[:_NAMES_SHOWN]]


def print_options(paper: Paper) -> dict[str, Any]:
    """The sheet in Chromium's words."""
    width, height = paper.size_mm
    top, right, bottom, left = paper.margin_mm
    return {
        "width": _inches(width),
        "height": _inches(height),
        "landscape": paper.landscape,
        "margin": {
            "top": _inches(top),
            "right": _inches(right),
            "bottom": _inches(bottom),
            "left": _inches(left),
        },
        "scale": paper.scale,
        "page_ranges": paper.page_ranges,
        "print_background": paper.print_background,
        "prefer_css_page_size": paper.prefer_css_page_size,
        "display_header_footer": bool(paper.header_html or paper.footer_html),
        "header_template": paper.header_html or _NOTHING,
        "footer_template": paper.footer_html or _NOTHING,
        "tagged": paper.tagged,
        "outline": paper.outline,
    }


def _inches(millimetres: float) -> str:
    return f"{millimetres / _MM_PER_INCH:.6f}in"
