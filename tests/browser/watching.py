"""Whatever a browser complains about while a test looks elsewhere fails that test."""

from __future__ import annotations

import re

from playwright.sync_api import ConsoleMessage, Error, Page, Request

# A page that is left while it still asks for something gives up: that is no failure of ours.
_LEFT = "net::ERR_ABORTED"
# What htmx writes when a filter replaces a renewal that is under way; a failure has another line.
_REPLACED = ("htmx:afterRequest", "htmx:sendAbort")
# The policy's own event: the browser's line in the console is not promised by any standard.
LISTEN = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`refused by the policy: ${event.violatedDirective} ${event.blockedURI}`);
}, true);
"""


class Watcher:
    """Collects errors of pages; what a test expects it says beforehand or afterwards."""

    def __init__(self) -> None:
        self.troubles: list[str] = []
        self._expected: list[re.Pattern[str]] = []

    def watch(self, page: Page) -> None:
        page.on("console", self._said)
        page.on("pageerror", self._raised)
        page.on("requestfailed", self._failed)
        page.on("crash", self._crashed)

    def leave(self, page: Page) -> None:
        """The next test watches this page itself."""
        page.remove_listener("console", self._said)
        page.remove_listener("pageerror", self._raised)
        page.remove_listener("requestfailed", self._failed)
        page.remove_listener("crash", self._crashed)

    def expects(self, pattern: str) -> None:
        """Errors that match belong to this test."""
        self._expected.append(re.compile(pattern))

    @property
    def unexpected(self) -> list[str]:
        return [one for one in self.troubles if not any(known.search(one) for known in self._expected)]

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(_REPLACED):
            self.troubles.append(f"console: {message.text} ({message.location.get('url')})")

    def _failed(self, request: Request) -> None:
        if request.failure != _LEFT:
            self.troubles.append(f"no answer: {request.method} {request.url} {request.failure}")

    def _raised(self, error: Error) -> None:
        self.troubles.append(f"error in a script: {error}")

    def _crashed(self, _: Page) -> None:
        self.troubles.append("the page crashed")
