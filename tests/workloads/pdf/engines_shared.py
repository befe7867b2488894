"""Engines that are started once and shared by all tests of the workload."""

from dataclasses import replace
from typing import Any

from kesin.workloads.pdf.engines import network_guard
from kesin.workloads.pdf.engines.browser import ChromiumSettings, WarmBrowser, prepare_s
from kesin.workloads.pdf.engines.chromium import ChromiumEngine

CLOSE_PAGE_S = 30


class SwitchableEngine(ChromiumEngine):
    """Chromium with settings that can change between two documents, while the browser stays.

    Settings of the process itself (its flags, its sandbox) are those of the first document.
    """

    def __init__(self, settings: ChromiumSettings | None = None) -> None:
        super().__init__(settings)
        self._first_settings = self.settings

    def switch(self, **changes: Any) -> None:
        """Print the next documents with the first settings and these changes."""
        settings = replace(self._first_settings, **changes)
        if settings == self.settings:
            return
        self.settings = settings
        self._policy = network_guard.build_policy(scripts=settings.javascript, urls=settings.is_url_allowed is not None)
        if self._browser is not None:
            self._browser._settings = settings
            self._run_on_loop(self._browser.discard_session(), CLOSE_PAGE_S)


def wait_idle(engine: ChromiumEngine) -> None:
    """Wait until the renewal between two documents has ended."""
    browser = engine._browser
    if browser is not None:
        engine._run_on_loop(_renewed(browser), prepare_s())


async def _renewed(browser: WarmBrowser) -> None:
    async with browser._lock:
        return
