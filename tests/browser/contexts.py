"""Browsers of somebody's own, made once and used again: a new one fetches every file anew."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.checking import WIDE, prepare
from tests.browser.watching import LISTEN

PATIENCE_MS = 15_000
LOCALES = {"en": "en-GB", "tr": "tr-TR"}


class Contexts:
    """Those that nobody uses now, with our files in their cache and nobody signed in."""

    def __init__(self, browser: Browser, address: str) -> None:
        self._browser = browser
        self._address = address
        self._made: list[BrowserContext] = []
        self._tab: Page | None = None
        self._judge: Page | None = None
        self._idle: dict[str, list[BrowserContext]] = {language: [] for language in LOCALES}

    def take(self, language: str) -> BrowserContext:
        """One that nobody else has."""
        if self._idle[language]:
            return self._idle[language].pop()
        context = self._browser.new_context(
            base_url=self._address,
            locale=LOCALES[language],
            viewport=WIDE,
            reduced_motion="reduce",
        )
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        context.add_init_script(LISTEN)
        self._made.append(context)
        return context

    def give_back(self, language: str, context: BrowserContext) -> None:
        """What its user opened and was remembered by is gone."""
        for page in context.pages:
            page.close()
        context.clear_cookies()
        self._idle[language].append(context)

    def tab(self, token: Callable[[], str]) -> Page:
        """One tab for all tests that only look, signed in once."""
        if self._tab is None:
            context = self.take("en")
            cookie = {"name": "kesin_session", "value": token(), "url": self._address}
            context.add_cookies([cookie])  # type: ignore[list-item]
            self._tab = context.new_page()
        return self._tab

    def judge(self) -> Page:
        """The tab in which all pages are judged."""
        if self._judge is None:
            self._judge = self.take("en").new_page()
            prepare(self._judge)
        return self._judge

    def close(self) -> None:
        """All of them, at the end."""
        for context in self._made:
            context.close()
