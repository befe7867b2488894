"""Requests that another site's page makes a browser send: only those of our own pages count.

The short form is ``tests/web/test_cross_site.py``, which asks every unsafe route.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from tests.attacks.conftest import Record
from tests.attacks.target import Target
from tests.attacks.wire import Reply, Wire
from tests.web.matrix import NO_JOB

pytestmark = pytest.mark.long
FORM, JSON = "application/x-www-form-urlencoded", "application/json"
COOKIES = ("session", "ended session", "two sessions", "none")
SEC_FETCH_SITE = (None, "same-origin", "same-site", "cross-site", "none", "Same-Origin", "")
ORIGIN = (None, "ours", "http://evil.test", "null", "", "ours.evil.test", "evil.ours", "ours@evil")
REFERER = (None, "ours", "http://evil.test/ours")
CONTENT_TYPE = (JSON, FORM, "text/plain", "multipart/form-data; boundary=x", None)


@dataclass(frozen=True)
class Route:
    """An unsafe request, the types that it takes, and its status when it is let in."""

    method: str
    path: str
    body: Any
    takes: str | None
    status: frozenset[int]


ROUTES = [
    Route("POST", "/api/queues/oci/pause", {"reason": "csrf"}, JSON, frozenset({200})),
    Route("PUT", "/api/oci/credentials", {"siteId": "nowhere"}, JSON, frozenset({404, 422})),
    Route("DELETE", f"/pdf/jobs/{NO_JOB}", None, None, frozenset({404})),
    Route("POST", "/dashboard/queues/oci/pause", {"reason": "csrf"}, FORM, frozenset({303})),
]
Combination = tuple[Route, str, str | None, str | None, str | None, str | None]
PRODUCT: list[Combination] = list(itertools.product(ROUTES, COOKIES, SEC_FETCH_SITE, ORIGIN, REFERER, CONTENT_TYPE))


def is_ours(site: str | None, origin: str | None) -> bool:
    """Whether a browser says that one of our own pages sends this."""
    return site == "same-origin" if site is not None else origin == "ours"


class Browser:
    """Sends the combinations, with real and ended sessions."""

    def __init__(self, target: Target, wire: Wire) -> None:
        self._wire = wire
        ended = "A" * 43
        session = target.tokens["admin"]
        self._cookies = {
            "session": f"kesin_session={session}",
            "ended session": f"kesin_session={ended}",
            "two sessions": f"kesin_session={ended}; kesin_session={session}",
        }

    def send(self, combination: Combination) -> Reply:
        route, cookie, site, origin, referer, kind = combination
        given = {
            "cookie": self._cookies.get(cookie),
            "sec-fetch-site": site,
            "origin": self._named(origin),
            "referer": self._named(referer),
            "content-type": kind,
        }
        headers = {name: value for name, value in given.items() if value is not None}
        return self._wire.ask(route.method, route.path, headers, _body(route.body, kind))

    def _named(self, text: str | None) -> str | None:
        """The value of a header, with our own address in it."""
        host = self._wire.host
        named = {
            "ours": f"http://{host}",
            "ours.evil.test": f"http://{host}.evil.test",
            "evil.ours": f"http://evil.{host}",
            "ours@evil": f"http://{host}@evil.test",
        }
        return None if text is None else named.get(text, text.replace("ours", host))


def _body(fields: dict[str, str] | None, kind: str | None) -> bytes:
    if fields is None:
        return b""
    if kind == FORM:
        return "&".join(f"{name}={value}" for name, value in fields.items()).encode()
    if kind and kind.startswith("multipart"):
        parts = (
            f'--x\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
        )
        return ("".join(parts) + "--x--\r\n").encode()
    return json.dumps(fields).encode()


def allowed(combination: Combination, reply: Reply) -> bool:
    """Whether the answer is right: an effect only for our own pages, and the right refusal."""
    route, cookie, site, origin, _, kind = combination
    page = route.path.startswith("/dashboard")
    if cookie in {"none", "ended session"}:
        return reply.status == (303 if page else 401) and "/sign-in" in (
            reply.header("location") if page else "/sign-in"
        )
    if cookie == "two sessions" and "sign-in" in reply.header("location"):
        return True  # the ended one counted
    if not is_ours(site, origin):
        return reply.status == 403 and "cross_site" in reply.text
    if route.takes in {None, kind}:
        return reply.status in route.status
    return reply.status in {*route.status, 400, 415, 422}


@pytest.mark.parametrize("foreign", [True, False], ids=["other pages", "our pages"])
def test_a_session_is_used_by_our_own_pages_only(foreign, target: Target, record: Record):
    answers: Counter[int] = Counter()
    wrong = []
    with target.wire() as wire:
        browser = Browser(target, wire)
        for combination in PRODUCT:
            if is_ours(combination[2], combination[3]) == foreign:
                continue
            reply = browser.send(combination)
            answers[reply.status] += 1
            if not allowed(combination, reply):
                wrong.append((*combination, reply.status, reply.text[:100]))
    record(f"CSRF by {'other' if foreign else 'our own'} pages", answers)
    assert wrong == []
    queues = target.served.client.get("/api/queues").json()
    [paused] = [queue["paused"] for queue in queues if queue["name"] == "oci"]
    assert bool(paused) != foreign
