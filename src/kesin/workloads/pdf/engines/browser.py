"""One warm Chromium and the page that waits in it; made, renewed, and ended by force if need be.

Everything here runs on the loop of `chromium.py`, and every step has a time limit of its own. What
does not end in time is ended by the next rung of the ladder: close the context, close the browser,
kill its process group, replace the driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kesin.foundation.clock import Clock
from kesin.foundation.logs import Logger
from kesin.workloads.pdf.engines import browser_process, network_guard
from kesin.workloads.pdf.engines.chromium_settings import ChromiumSettings
from kesin.workloads.pdf.engines.select import find_chromium, no_chromium
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Frame, Page, Playwright

BLANK: Final = "about:blank"
LAUNCH_S: Final = 10.0
SHEET_S: Final = 5.0
CLOSE_CONTEXT_S: Final = 1.0
CLOSE_BROWSER_S: Final = 2.0
STOP_DRIVER_S: Final = 2.0
CLOSE_S: Final = CLOSE_CONTEXT_S + CLOSE_BROWSER_S + STOP_DRIVER_S

_MEASURED_EVERY: Final = 25  # renders
_QUIET: Final = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_ROOT: Final = (
    "it refuses its sandbox to root; run as another user, or set KESIN_PDF_SANDBOX to auto"
)
_NO_SANDBOX: Final = (
    "its sandbox cannot be made here; install the package chromium-sandbox, or let it make"
    " namespaces (in a unit of systemd: RestrictNamespaces=user pid net)"
)
_NO_DRIVER: Final = (
    "Playwright, which drives it, does not run here; `python -m playwright --version` says why"
    " (the package libatomic1 may be missing)"
)
_LONG_FOLDER: Final = (
    "the name of the temporary folder is too long for its socket; set TMPDIR to a shorter one"
)
_log: Final = Logger(__name__)


@dataclass(slots=True)
class Sheet:
    """A page, ready for a document."""

    context: BrowserContext
    page: Page
    guard: network_guard.Guard
    lost: asyncio.Future[str]  # why, once the page or its browser is gone
    moved: asyncio.Future[str]  # where to, once a document has gone somewhere by itself
    renders: int = 0

    def lose(self, why: str) -> None:
        """The page is gone; the first to notice says why."""
        if not self.lost.done():
            self.lost.set_result(why)

    def move(self, url: str) -> None:
        """The document was replaced by another, which nobody asked for."""
        if url != BLANK and not self.moved.done():
            self.moved.set_result(url)


class WarmBrowser:
    """The driver, the browser and the sheet, each made when it is needed and missing."""

    def __init__(self, settings: ChromiumSettings, clock: Clock) -> None:
        self.mark = ""
        self.launches = 0
        self._settings = settings
        self._clock = clock
        self._playwright: Playwright | None = None
        self._drivers: set[int] = set()
        self._browser: Browser | None = None
        self._sheet: Sheet | None = None
        self._renders = 0
        self._born = 0.0
        self._leader = 0
        self._at_first = 0  # bytes in memory after the first render
        self._lock = asyncio.Lock()

    @property
    def leader(self) -> int:
        """The browser's process, which leads its group; 0 without one."""
        return self._leader if self._browser is not None else 0

    async def sheet(self) -> Sheet:
        """A page to print; raises RenderFailed when no browser will start."""
        async with self._lock:
            if self._sheet is not None and not self._sheet.lost.done():
                return self._sheet
            await self._away_with_sheet()
            try:
                return await self._fresh_sheet()
            except RenderFailed:
                raise
            except Exception as problem:
                await self._end()
                raise RenderFailed(
                    PdfErrorCode.BROWSER_LAUNCH_FAILED,
                    f"the browser opens no page: {said(problem)}",
                ) from problem

    async def drop(self) -> None:
        """The page is not to be trusted any more: close it, by force if it does not close."""
        async with self._lock:
            await self._away_with_sheet()

    async def tidy(self, *, heavy: bool, wipe: bool) -> None:
        """While nobody waits: renew what is used up, so that the next document finds it ready.

        ``heavy``: the document needed so much memory that its page is closed at once; ``wipe``:
        it left something behind that a new document in the same page would inherit.
        """
        async with self._lock:
            try:
                await self._tidy(heavy=heavy, wipe=wipe)
            except Exception as problem:  # noqa: BLE001 - the next render starts from nothing
                _log.warning("pdf.browser_renewed_badly", problem=said(problem))
                await self._end()

    async def settled(self) -> None:
        """Once nothing is being renewed."""
        async with self._lock:
            return

    async def close(self) -> None:
        """Let go of everything."""
        async with self._lock:
            await self._end()
            await self._stop_driver()

    def kill(self) -> None:
        """The same from any thread, for a loop that does not answer: ask nobody."""
        if self.mark:
            browser_process.kill_marked(self.mark)
        self._kill_driver()

    async def _tidy(self, *, heavy: bool, wipe: bool) -> None:
        limits = self._settings
        sheet = self._sheet
        if sheet is None:
            return
        sheet.renders += 1
        self._renders += 1
        once = limits.isolation_used == "context"
        if once or heavy or sheet.renders >= limits.page_renders or sheet.lost.done():
            await self._away_with_sheet()
        elif wipe:
            await asyncio.wait_for(sheet.page.goto(BLANK), CLOSE_BROWSER_S)
        if self._used_up(heavy=heavy):
            await self._end()
        if self._sheet is None:
            await self._fresh_sheet()

    def _used_up(self, *, heavy: bool) -> bool:
        limits = self._settings
        if self._renders >= limits.browser_renders:
            return True
        if self._clock.monotonic() - self._born >= limits.browser_age_s:
            return True
        if not self._at_first:
            self._at_first = browser_process.memory_bytes(self._leader)
        elif heavy or self._renders % _MEASURED_EVERY == 0:
            grown = browser_process.memory_bytes(self._leader) - self._at_first
            return grown > limits.memory_growth_mib * 1024 * 1024
        return False

    async def _fresh_sheet(self) -> Sheet:
        if self._browser is None or not self._browser.is_connected():
            await self._end()
            await self._launch()
        self._sheet = await asyncio.wait_for(self._open_sheet(), SHEET_S)
        return self._sheet

    async def _open_sheet(self) -> Sheet:
        settings = self._settings
        browser = self._browser
        if browser is None:
            raise RenderFailed(PdfErrorCode.BROWSER_LAUNCH_FAILED, "the browser went away")
        routed = "route" in settings.walls
        context = await browser.new_context(
            java_script_enabled=settings.javascript,
            offline=routed,
            service_workers="block",
            accept_downloads=False,
            locale=settings.locale,
            timezone_id=settings.time_zone,
            viewport={"width": settings.viewport[0], "height": settings.viewport[1]},
        )
        guard = network_guard.Guard(settings.allowed, settings.fetch)
        if routed:
            await context.route(lambda _: True, guard.answer)
        page = await context.new_page()
        loop = asyncio.get_running_loop()
        sheet = Sheet(context, page, guard, loop.create_future(), loop.create_future())
        page.on("crash", lambda _: sheet.lose("the page crashed"))
        page.on("close", lambda _: sheet.lose("the page or its browser was lost"))
        browser.on("disconnected", lambda _: sheet.lose("the browser died"))
        page.on("framenavigated", lambda frame: _note_move(sheet, frame))
        await page.emulate_media(media="print")
        if "policy" in settings.walls:
            audits = await context.new_cdp_session(page)
            audits.on("Audits.issueAdded", lambda event: _note_issue(sheet, event))
            await audits.send("Audits.enable")
        return sheet

    async def _launch(self) -> None:
        executable = find_chromium(self._settings.executable)
        if executable is None:
            raise no_chromium(self._settings.executable)
        try:
            from playwright.async_api import async_playwright
        except ImportError:
            raise no_chromium(self._settings.executable) from None
        sandboxed = self._settings.sandboxed
        if not sandboxed:
            _log.warning("pdf.sandbox_off", asked=self._settings.sandbox, root=os.getuid() == 0)
        self.mark = f"--kesin-browser={secrets.token_hex(8)}"
        self._settings.sweep()
        others = set() if self._playwright else browser_process.drivers()
        try:
            async with asyncio.timeout(LAUNCH_S):
                if self._playwright is None:
                    self._playwright = await async_playwright().start()
                    self._drivers = browser_process.drivers() - others
                self._browser = await self._playwright.chromium.launch(
                    executable_path=executable,
                    args=[
                        self.mark,
                        *_QUIET,
                        *(network_guard.FLAGS if "flags" in self._settings.walls else ()),
                    ],
                    chromium_sandbox=sandboxed,
                    timeout=LAUNCH_S * 1_000,
                    handle_sigint=False,
                    handle_sigterm=False,
                    handle_sighup=False,
                )
        except Exception as problem:
            self._drivers |= browser_process.drivers() - others
            await self._end()
            await self._stop_driver()
            self._kill_driver()
            raise RenderFailed(
                PdfErrorCode.BROWSER_LAUNCH_FAILED,
                f"{Path(executable).name} did not start: {_why(problem, sandboxed=sandboxed)}",
                details={"executable": str(executable), "sandbox": sandboxed},
            ) from problem
        self.launches += 1
        self._renders = 0
        self._at_first = 0
        self._born = self._clock.monotonic()
        self._leader = next(iter(browser_process.marked(self.mark)), 0)

    async def _away_with_sheet(self) -> None:
        """The first rung: close the context. A browser that cannot even do that must go."""
        sheet, self._sheet = self._sheet, None
        if sheet is None:
            return
        sheet.lose("the page was given up")
        if sheet.moved.done():  # a page that closes on its way out gets there: turn it round first
            await self._done(sheet.page.goto(BLANK), CLOSE_CONTEXT_S)
        if not await self._done(sheet.context.close(), CLOSE_CONTEXT_S):
            await self._end()

    async def _end(self) -> None:
        """The other rungs: close the browser, kill its group, replace the driver."""
        browser, self._browser = self._browser, None
        sheet, self._sheet = self._sheet, None
        if sheet is not None:
            sheet.lose("the browser was given up")
        closed = browser is None or await self._done(browser.close(), CLOSE_BROWSER_S)
        if self.mark:
            browser_process.kill_marked(self.mark)  # there is none where it closed
            self.mark = ""
        if not closed:
            await self._stop_driver()

    async def _stop_driver(self) -> None:
        playwright, self._playwright = self._playwright, None
        if playwright is None:
            return
        stopped = asyncio.ensure_future(playwright.stop())
        _, waiting = await asyncio.wait({stopped}, timeout=STOP_DRIVER_S)
        self._kill_driver()
        if waiting:  # it ends now, and its pipes are closed in order
            await asyncio.wait({stopped}, timeout=STOP_DRIVER_S)

    def _kill_driver(self) -> None:
        for pid in self._drivers & browser_process.drivers():
            browser_process.kill_group(pid)

    async def _done(self, step: Coroutine[Any, Any, Any], limit_s: float) -> bool:
        """Whether a step of closing ended in time; how it ended does not matter."""
        try:
            await asyncio.wait_for(step, limit_s)
        except TimeoutError:
            return False
        except Exception as problem:  # noqa: BLE001 - what is being closed may be gone already
            _log.info("pdf.closed_already", problem=said(problem))
        return True


def _note_move(sheet: Sheet, frame: Frame) -> None:
    if frame.parent_frame is None:
        sheet.move(frame.url)


def _note_issue(sheet: Sheet, event: dict[str, Any]) -> None:
    """The policy turned something away, of which the route never hears."""
    with contextlib.suppress(KeyError, TypeError):
        url = event["issue"]["details"]["contentSecurityPolicyIssueDetails"]["blockedURL"]
        sheet.guard.blocked(str(url))


def _why(problem: Exception, *, sandboxed: bool) -> str:
    """Why it did not start, where the first line does not say it."""
    if sandboxed and os.getuid() == 0:
        return _ROOT
    text = str(problem)
    if sandboxed and ("No usable sandbox" in text or "new namespace" in text):
        return _NO_SANDBOX
    if "Socket path too long" in text:
        return _LONG_FOLDER
    if "reading from the driver" in text:
        return _NO_DRIVER
    return said(problem)


def said(problem: BaseException) -> str:
    """The first line of what went wrong: the others are a drawing and a log of the browser's."""
    lines = [line for line in str(problem).splitlines() if line.strip()]
    return (lines[0] if lines else type(problem).__name__)[:300]
