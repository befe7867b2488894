"""Three walls around a document, each enough by itself: nothing it names is ever asked for.

* *policy*: a Content-Security-Policy ahead of everything else in the document;
* *route*: the browser asks us about every request, and its contexts are offline;
* *flags*: the browser is started with a proxy that does not exist and with no name resolved. Only
  this one keeps Chromium from opening a connection ahead of time, with nothing said on it yet.

An allow-listed URL is no hole in them: the route fetches it itself (see `fetching.py`) and hands
the answer in, so that the browser has no network at all, whatever is allowed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from kesin.workloads.pdf.safe_fetch import Fetched, Refused
from kesin.workloads.pdf.security import LIBRARY_CSP, csp_tag

if TYPE_CHECKING:
    from playwright.async_api import Route

Wall = Literal["policy", "route", "flags"]
Allowed = Callable[[str], bool]
Fetch = Callable[[str], Fetched]

ALL_WALLS: Final[frozenset[Wall]] = frozenset({"policy", "route", "flags"})
FLAGS: Final = (
    "--proxy-server=http://wall.invalid:1",
    "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--dns-prefetch-disable",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)
_SHOWN_LETTERS: Final = 200
_SHOWN_URLS: Final = 20

# What may stand before a doctype without the parser leaving its first state: white space,
# comments with all their odd endings, processing instructions. Anything else comes after it.
_BEGINNING: Final = re.compile(
    r"\ufeff?(?:[ \t\n\f\r]++|<!--(?:-?>|.*?--!?>)|<\?[^>]*>)*+(?:<!doctype[^>]*>)?",
    re.IGNORECASE | re.DOTALL,
)


def policy(*, scripts: bool = False, urls: bool = False) -> str:
    """What a document may load: data of its own, and what the route hands in if URLs may be."""
    sources = "data: http: https:" if urls else "data:"
    rules = [
        "default-src 'none'",
        f"style-src 'unsafe-inline' {sources}",
        f"img-src {sources}",
        f"font-src {sources}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    if scripts:
        rules.append(f"script-src 'unsafe-inline' 'unsafe-eval' {sources}")
    return "; ".join(rules)


def with_policy(html: str, rules: str) -> str:
    """The document with these rules ahead of everything that could load something.

    They are added whatever the document says itself: several policies only ever restrict. They
    replace the template library's policy, which would stay with the page when the next document
    comes, and would keep out what an allow-list lets in.
    """
    html = html.replace(csp_tag(LIBRARY_CSP), "", 1)
    found = _BEGINNING.match(html)
    at = found.end() if found else 0
    return html[:at] + csp_tag(rules) + html[at:]


class Guard:
    """Answers the requests of one page, and remembers what it turned away."""

    def __init__(self, allowed: Allowed | None, fetch: Fetch) -> None:
        self._allowed = allowed
        self._fetch = fetch
        self._blocked: dict[str, str] = {}

    def begin(self) -> None:
        """A new document: nothing was turned away yet."""
        self._blocked.clear()

    def blocked(self, url: str, why: str = "") -> None:
        """Remember a request that was turned away."""
        if len(self._blocked) < _SHOWN_URLS:
            self._blocked.setdefault(url[:_SHOWN_LETTERS], why)

    def warnings(self) -> list[str]:
        """A sentence for each, in an order that does not depend on the network."""
        return [
            f"blocked: {url}" + (f" ({why})" if why else "")
            for url, why in sorted(self._blocked.items())
        ]

    async def answer(self, route: Route) -> None:
        """Hand in what is allowed and refuse everything else."""
        url = route.request.url
        try:
            fetched = await self._fetched(url) if self._may(route) else None
        except Refused as problem:
            self.blocked(url, str(problem))
            fetched = None
        if fetched is None:
            self.blocked(url)
            await route.abort("blockedbyclient")
            return
        await route.fulfill(
            status=200,
            body=fetched.body,
            headers={"content-type": fetched.content_type, "access-control-allow-origin": "*"},
        )

    def _may(self, route: Route) -> bool:
        request = route.request
        plain = request.method == "GET" and not request.is_navigation_request()
        return plain and self._allowed is not None and self._allowed(request.url)

    async def _fetched(self, url: str) -> Fetched:
        return await asyncio.to_thread(self._fetch, url)
