"""Tabs with cookies and a cache of their own, made once and used again: a new one is slow."""

from __future__ import annotations

from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.checking import WIDE, prepare
from tests.browser.watching import LISTEN

PATIENCE_MS = 120_000  # a busy machine may stand still for half a minute
# A page renews itself after pauses of one to three seconds: here after a tenth of that. Only the
# renewal that follows the opening of its stream keeps its two seconds: nothing has moved yet, and
# every page of every test would be made twice.
HURRY = """
const later = setTimeout;
let opening = true;
window.setTimeout = (run, ms, ...rest) => {
  const soon = 500 < ms && ms <= 3000, renews = soon && run.name === "renew";
  const waits = renews && opening && ms < 2000;
  if (renews) opening = false;
  return later(run, soon && !waits ? ms / 10 : ms, ...rest);
};
"""
LOCALES = {"en": "en-GB", "tr": "tr-TR"}


class Contexts:
    """Tabs that no test uses now, with our files in their cache and no sign-in.

    They outlive a module: the next one has its service at the same address.
    """

    def __init__(self, browser: Browser, address: str) -> None:
        self._browser = browser
        self._address = address
        self._made: list[BrowserContext] = []
        self._judge: Page | None = None
        self._idle: dict[str, list[Page]] = {language: [] for language in LOCALES}

    def take(self, language: str) -> Page:
        """A tab of a context that no other test has; a new one takes four times as long."""
        if self._idle[language]:
            return self._idle[language].pop()
        context = self._browser.new_context(
            base_url=self._address, locale=LOCALES[language], viewport=WIDE, reduced_motion="reduce"
        )
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        context.add_init_script(LISTEN)
        context.add_init_script(HURRY)
        self._made.append(context)
        return context.new_page()

    def give_back(self, language: str, tab: Page) -> None:
        """Remove what its user opened and was remembered by."""
        for page in tab.context.pages:
            if page is not tab:
                page.close()
        tab.unroute_all()
        tab.evaluate("location.protocol.startsWith('http') && sessionStorage.clear()")
        tab.goto("about:blank")
        tab.context.clear_cookies()
        self._idle[language].append(tab)

    def judge(self) -> Page:
        """The tab in which all pages are judged."""
        if self._judge is None:
            self._judge = self.take("en")
            prepare(self._judge)
        return self._judge

    def close(self) -> None:
        """All of them, at the end."""
        for context in self._made:
            context.close()
