"""Three layers that keep a document off the network; each is sufficient by itself.

* *policy*: a Content-Security-Policy ahead of everything else in the document;
* *route*: the browser asks us about every request, and its contexts are offline;
* *flags*: the browser is started with a proxy that does not exist and with name resolution off.
  Only this layer keeps Chromium from opening a connection ahead of a request.

An allow-listed URL does not weaken them: the route fetches it itself (see `safe_fetch.py`) and
returns the body, so the browser has no network access whatever is allowed.
"""

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from kesin.workloads.pdf.safe_fetch import FetchedResource, FetchRefused
from kesin.workloads.pdf.security import LIBRARY_CSP, csp_tag

if TYPE_CHECKING:
    from playwright.async_api import Route

GuardLayer = Literal["policy", "route", "flags"]
UrlFilter = Callable[[str], bool]
Fetch = Callable[[str], FetchedResource]

ALL_LAYERS: Final[frozenset[GuardLayer]] = frozenset({"policy", "route", "flags"})
NETWORK_FLAGS: Final = (
    "--proxy-server=http://wall.invalid:1",
    "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--dns-prefetch-disable",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)
_SHOWN_URLS: Final = 20

# What may precede a doctype without the parser leaving its initial state: white space, comments
# with all their odd endings, processing instructions. Anything else comes after it.
_BEGINNING: Final = re.compile(
    r"\ufeff?(?:[ \t\n\f\r]++|<!--(?:-?>|.*?--!?>)|<\?[^>]*>)*+(?:<!doctype[^>]*>)?", re.IGNORECASE | re.DOTALL
)


def build_policy(*, scripts: bool = False, urls: bool = False) -> str:
    """Build the policy of a document: its own data only, and what the route fetches with URLs."""
    sources = "data: http: https:" if urls else "data:"
    shown = f"style-src 'unsafe-inline' {sources}; img-src {sources}; font-src {sources}"
    policy = f"default-src 'none'; {shown}; base-uri 'none'; form-action 'none'"
    return f"{policy}; script-src 'unsafe-inline' 'unsafe-eval' {sources}" if scripts else policy


def insert_policy(html: str, rules: str) -> str:
    """Insert a policy first; it replaces the library's, which would stay for the next document."""
    html = html.replace(csp_tag(LIBRARY_CSP), "", 1)  # other policies can only restrict
    start = match.end() if (match := _BEGINNING.match(html)) else 0
    return html[:start] + csp_tag(rules) + html[start:]


class PageGuard:
    """Handles the requests of a page and records those that it blocks."""

    def __init__(self, allowed: UrlFilter | None, new_fetch: Callable[[], Fetch]) -> None:
        self._allowed = allowed
        self._new_fetch = new_fetch
        self._fetch = new_fetch()
        self._blocked: dict[str, str] = {}

    def reset(self) -> None:
        self._fetch = self._new_fetch()
        self._blocked.clear()

    def record_blocked(self, url: str, reason: str = "") -> None:
        if len(self._blocked) < _SHOWN_URLS:
            self._blocked.setdefault(url[:200], reason)

    def warnings(self) -> list[str]:
        """Format a warning for each blocked request, in an order independent of the network."""
        blocked = sorted(self._blocked.items())
        return [f"blocked: {url}" + (f" ({why})" if why else "") for url, why in blocked]

    async def handle_route(self, route: "Route") -> None:
        """Fetch an allowed URL for the browser; block every other request."""
        request, url, fetched = route.request, route.request.url, None
        plain = request.method == "GET" and not request.is_navigation_request()
        try:
            if plain and self._allowed is not None and self._allowed(url):
                fetched = await asyncio.to_thread(self._fetch, url)
        except FetchRefused as problem:
            self.record_blocked(url, str(problem))
        if fetched is None:
            self.record_blocked(url)
            await route.abort("blockedbyclient")
            return
        headers = {"content-type": fetched.content_type, "access-control-allow-origin": "*"}
        await route.fulfill(status=200, body=fetched.body, headers=headers)
