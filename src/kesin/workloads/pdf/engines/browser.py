"""A warm Chromium, on the loop of `chromium.py`; a step that is late leads to a harder one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from kesin.foundation.child_environment import child_environment
from kesin.foundation.clock import Clock
from kesin.foundation.logs import Logger
from kesin.workloads.pdf import safe_fetch
from kesin.workloads.pdf.engines import base, browser_process, network_guard
from kesin.workloads.pdf.engines.base import first_line
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page, Playwright

Isolation = Literal["page", "context"]

BLANK: Final = "about:blank"
LAUNCH_S: Final = 10.0
OPEN_PAGE_S: Final = 10.0
CLOSE_CONTEXT_S: Final = 1.0
CLOSE_BROWSER_S: Final = 2.0
STOP_DRIVER_S: Final = 2.0
CLOSE_S: Final = CLOSE_CONTEXT_S + CLOSE_BROWSER_S + STOP_DRIVER_S

_MEASURE_EVERY: Final = 25  # renders
_FLAGS: Final = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--font-render-hinting=none",  # paper has no pixels: a headless shell would shift letters
)
_ROOT_HINT: Final = "it refuses to run its sandbox as root; run as another user, or set KESIN_PDF_SANDBOX to auto"
_HINTS: Final = {  # by a part of what the browser or its driver says
    "No usable sandbox|new namespace": "its sandbox cannot be created here; install the package"
    " chromium-sandbox, or let it create namespaces (in a unit of systemd: RestrictNamespaces=user"
    " pid net)",
    "Socket path too long": "the name of the temporary folder is too long for its socket; set TMPDIR to a shorter one",
    "reading from the driver": "Playwright, which drives it, does not run here; `python -m"
    " playwright --version` says why (the package libatomic1 may be missing)",
}
_log: Final = Logger(__name__)


@dataclass(frozen=True, slots=True)
class ChromiumSettings:
    """How Chromium is started, and isolates documents: one page for all, or a context for each."""

    executable: str = ""  # empty: the first on PATH, else Playwright's own
    isolation: Isolation = "page"  # "context" if scripts run or URLs are allowed
    sandbox: Literal["auto", "on", "off"] = "auto"  # on, unless we are root, which Chromium refuses
    javascript: bool = False
    is_url_allowed: Callable[[str], bool] | None = None  # which URLs are fetched; None: no URL
    new_fetch: Callable[[], network_guard.Fetch] = lambda: safe_fetch.fetch  # for each document
    page_renders: int = 100
    browser_renders: int = 500
    browser_age_s: float = 3600.0
    memory_growth_mib: int = 512  # over the browser's memory after its first document
    guard_layers: frozenset[network_guard.GuardLayer] = network_guard.ALL_LAYERS  # fewer in tests
    delete_stale_profiles: Callable[[], Any] = browser_process.delete_stale_profiles

    @property
    def isolation_used(self) -> Isolation:
        """`page` only where a document cannot leave anything to the next."""
        shared = not self.javascript and self.is_url_allowed is None
        return self.isolation if shared else "context"

    @property
    def sandboxed(self) -> bool:
        return os.getuid() != 0 if self.sandbox == "auto" else self.sandbox == "on"


@dataclass(slots=True)
class PageSession:
    """A page that is ready for a document."""

    context: BrowserContext
    page: Page
    guard: network_guard.PageGuard
    lost: asyncio.Future[str]  # the reason, once the page or its browser is gone
    navigated: asyncio.Future[str]  # the URL, once a document has navigated away
    renders: int = 0

    def mark_lost(self, reason: str) -> None:
        """Record that the page is gone; the first reason counts."""
        if not self.lost.done():
            self.lost.set_result(reason)

    def mark_navigated(self, url: str) -> None:
        if url != BLANK and not self.navigated.done():
            self.navigated.set_result(url)


def prepare_s() -> float:
    """The longest time from a dead browser to a page of a new one."""
    return LAUNCH_S + OPEN_PAGE_S + 2 * CLOSE_S


class WarmBrowser:
    """The driver, the browser and the page, each started when needed."""

    def __init__(self, settings: ChromiumSettings, clock: Clock) -> None:
        self.mark = ""
        self._settings = settings
        self._clock = clock
        self._playwright: Playwright | None = None
        self._drivers: set[int] = set()
        self._browser: Browser | None = None
        self._session: PageSession | None = None
        self._renders = 0
        self._launched_at = 0.0
        self._leader_pid = 0
        self._baseline_bytes = 0  # memory after the first render
        self._lock = asyncio.Lock()

    @property
    def leader_pid(self) -> int:
        """The browser's main process, which leads its group; 0 without one."""
        return self._leader_pid if self._browser is not None else 0

    async def ready_session(self, *, unused: bool = False) -> PageSession:
        """Return a page that is ready to print; raises RenderFailed if no browser starts."""
        async with self._lock:
            session = self._session
            if session and not session.lost.done() and not (unused and session.renders):
                return session
            await self._close_session()
            try:
                return await self._start_session()
            except RenderFailed:
                raise
            except Exception as problem:
                await self._close_browser()
                why, reason = "the browser cannot open a page: %(problem)s", first_line(problem)
                code = PdfErrorCode.BROWSER_LAUNCH_FAILED
                raise RenderFailed(code, why, problem=reason) from problem

    async def discard_session(self) -> None:
        """Close a page that is not to be used again, by force if necessary."""
        async with self._lock:
            await self._close_session()

    async def renew(self, *, heavy: bool, wipe: bool) -> None:
        """Renew what a ``heavy`` or untrusted document used up, or left changed (``wipe``)."""
        async with self._lock:
            try:
                await self._renew(heavy=heavy, wipe=wipe)
            except Exception as problem:  # noqa: BLE001 - the next render starts a browser
                _log.warning("pdf.browser_renewal_failed", problem=first_line(problem))
                await self._close_browser()

    async def close(self) -> None:
        async with self._lock:
            await self._close_browser()
            await self._stop_driver()

    def kill(self) -> None:
        """Kill the browser and the driver from any thread, for a loop that does not respond."""
        if self.mark:
            browser_process.kill_marked(self.mark)
        self._kill_driver()

    async def _renew(self, *, heavy: bool, wipe: bool) -> None:
        limits = self._settings
        session = self._session
        if session is None:
            return
        session.renders += 1
        self._renders += 1
        single_use = limits.isolation_used == "context"
        if single_use or heavy or session.renders >= limits.page_renders or session.lost.done():
            await self._close_session()
        elif wipe:
            await asyncio.wait_for(session.page.goto(BLANK), CLOSE_BROWSER_S)
        if self._is_used_up(heavy=heavy):
            await self._close_browser()
        if self._session is None:
            await self._start_session()

    def _is_used_up(self, *, heavy: bool) -> bool:
        limits = self._settings
        age_s = self._clock.monotonic() - self._launched_at
        if self._renders >= limits.browser_renders or age_s >= limits.browser_age_s:
            return True
        if not self._baseline_bytes:
            self._baseline_bytes = browser_process.memory_bytes(self._leader_pid)
        elif heavy or self._renders % _MEASURE_EVERY == 0:
            growth = browser_process.memory_bytes(self._leader_pid) - self._baseline_bytes
            return growth > limits.memory_growth_mib * 1024 * 1024
        return False

    async def _start_session(self) -> PageSession:
        browser = self._browser
        if browser is None or not browser.is_connected():
            await self._close_browser()
            browser = await self._launch()
        self._session = await asyncio.wait_for(self._open_session(browser), OPEN_PAGE_S)
        return self._session

    async def _open_session(self, browser: Browser) -> PageSession:
        settings = self._settings
        routed = "route" in settings.guard_layers
        context = await browser.new_context(
            java_script_enabled=settings.javascript,
            offline=routed,
            service_workers="block",
            accept_downloads=False,
            locale="en-US",  # of documents without a language; `lang` in the template wins
            timezone_id="UTC",
            viewport={"width": 1280, "height": 720},
        )
        guard = network_guard.PageGuard(settings.is_url_allowed, settings.new_fetch)
        if routed:
            await context.route(lambda _: True, guard.handle_route)
        page = await context.new_page()
        loop = asyncio.get_running_loop()
        session = PageSession(context, page, guard, loop.create_future(), loop.create_future())
        page.on("crash", lambda _: session.mark_lost("the page crashed"))
        page.on("close", lambda _: session.mark_lost("the page or its browser was lost"))
        browser.on("disconnected", lambda _: session.mark_lost("the browser died"))
        arrived = session.mark_navigated
        page.on("framenavigated", lambda it: arrived(BLANK if it.parent_frame else it.url))
        await page.emulate_media(media="print")
        if "policy" in settings.guard_layers:
            audits = await context.new_cdp_session(page)
            audits.on("Audits.issueAdded", lambda event: _record_issue(session, event))
            await audits.send("Audits.enable")
        return session

    async def _launch(self) -> Browser:
        executable = base.find_chromium(self._settings.executable)
        if executable is None:
            raise base.chromium_missing(self._settings.executable)
        from playwright.async_api import async_playwright

        sandboxed = self._settings.sandboxed
        if not sandboxed:
            _log.warning("pdf.sandbox_off", asked=self._settings.sandbox, root=os.getuid() == 0)
        guarded = "flags" in self._settings.guard_layers
        network_flags = network_guard.NETWORK_FLAGS if guarded else ()
        self.mark = f"--kesin-browser={secrets.token_hex(8)}"
        self._settings.delete_stale_profiles()
        earlier = set() if self._playwright else browser_process.find_drivers()
        try:
            async with asyncio.timeout(LAUNCH_S):
                if self._playwright is None:
                    self._playwright = await async_playwright().start()
                    self._drivers = browser_process.find_drivers() - earlier
                browser = await self._playwright.chromium.launch(
                    executable_path=executable,
                    args=[self.mark, *_FLAGS, *network_flags],
                    env={**child_environment()},
                    chromium_sandbox=sandboxed,
                    timeout=LAUNCH_S * 1_000,
                    handle_sigint=False,
                    handle_sigterm=False,
                    handle_sighup=False,
                )
        except Exception as problem:
            self._drivers |= browser_process.find_drivers() - earlier
            await self._close_browser()
            await self._stop_driver()
            self._kill_driver()
            code, why = PdfErrorCode.BROWSER_LAUNCH_FAILED, "%(program)s did not start: %(problem)s"
            details = {"executable": str(executable), "sandbox": sandboxed}
            name, reason = executable.name, _launch_failure(problem, sandboxed=sandboxed)
            failure = RenderFailed(code, why, details=details, program=name, problem=reason)
            raise failure from problem
        self._browser = browser
        self._renders = 0
        self._baseline_bytes = 0
        self._launched_at = self._clock.monotonic()
        self._leader_pid = next(iter(browser_process.find_marked(self.mark)), 0)
        return browser

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        session.mark_lost("the page was abandoned")
        if session.navigated.done():  # closing would finish it
            await self._ends_in_time(session.page.goto(BLANK), CLOSE_CONTEXT_S)
        if not await self._ends_in_time(session.context.close(), CLOSE_CONTEXT_S):
            await self._close_browser()

    async def _close_browser(self) -> None:
        """Close the browser, kill its group, and replace the driver if it did not close."""
        browser, self._browser = self._browser, None
        session, self._session = self._session, None
        if session is not None:
            session.mark_lost("the browser was abandoned")
        closed = browser is None or await self._ends_in_time(browser.close(), CLOSE_BROWSER_S)
        if self.mark:
            browser_process.kill_marked(self.mark)  # none is left if it closed
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
        if waiting:  # it ends now that its driver is gone, and closes its pipes
            await asyncio.wait({stopped}, timeout=STOP_DRIVER_S)

    def _kill_driver(self) -> None:
        for pid in self._drivers & browser_process.find_drivers():
            browser_process.kill_group(pid)

    async def _ends_in_time(self, step: Coroutine[Any, Any, Any], limit_s: float) -> bool:
        """Run a closing step and return whether it ended in time, even with an error."""
        try:
            await asyncio.wait_for(step, limit_s)
        except TimeoutError:
            return False
        except Exception as problem:  # noqa: BLE001 - it may be gone already
            _log.info("pdf.already_closed", problem=first_line(problem))
        return True


def _record_issue(session: PageSession, event: dict[str, Any]) -> None:
    """Record a request that the policy blocked, which never reaches the route."""
    with contextlib.suppress(KeyError, TypeError):
        url = event["issue"]["details"]["contentSecurityPolicyIssueDetails"]["blockedURL"]
        session.guard.record_blocked(str(url))


def _launch_failure(problem: Exception, *, sandboxed: bool) -> str:
    """Explain why the browser did not start; by default, the first line of the error."""
    if sandboxed and os.getuid() == 0:
        return _ROOT_HINT
    hints = (hint for sign, hint in _HINTS.items() if re.search(sign, str(problem)))
    return next(hints, first_line(problem))
