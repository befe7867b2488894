"""From a request to an actor: a key, the cron secret or a session, and nothing else.

Cookies are sent by browsers without being asked, so a cookie alone may only change something when
the browser says that the page asking is ours (Fetch Metadata), or at least names our origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from kesin.engine.access.accounts import at_request, cron_actor
from kesin.foundation.passwords import KEY_SESSION, key_id_of, same
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import NotSignedIn, Problem, Refused
from kesin.store.errors import StoreError
from kesin.web.rate_limit import network_of
from kesin.web.service import Service

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
COOKIE: Final = "kesin_session"
SECURE_COOKIE: Final = "__Host-kesin_session"  # a browser takes it over TLS only
NOBODY: Final = Actor("nobody", frozenset())
PROBES: Final = frozenset({"/health/live", "/health/ready"})  # they never ask the store who it is
# The parts of pages that ask by the clock, as htmx names them; no reader has to be there.
RENEWED: Final = frozenset(
    {
        "cards",
        "job-story",
        "nav",
        "oci-live",
        "oci-summary",
        "orders",
        "pdf-jobs",
        "runs",
        "view",
        "workers",
    }
)
OPEN: Final[dict[str, Any]] = {"security": []}  # a route for everybody, as the schema says it


def service_of(request: Request) -> Service:
    """The service this app was made for."""
    service: Service = request.app.state.service
    return service


async def identify(request: Request) -> None:
    """Find out who asks, for every route; set ``request.state.actor``.

    Who shows nothing costs no thread: a probe is answered even when all are busy.
    """
    shown = any(name in request.headers for name in ("x-api-key", "authorization", "cookie"))
    shown &= request.url.path not in PROBES
    actor = await run_in_threadpool(_identified, request) if shown else None
    if actor is None:
        service_of(request).limit(f"address:{network_of(address_of(request))}")
    request.state.actor = at_request(actor or NOBODY, request.state.request_id)


def _identified(request: Request) -> Actor | None:
    actor = _recognised(request, used=not _asks_by_itself(request))
    if actor is not None:
        service_of(request).limit(actor.name)
    return actor


def _recognised(request: Request, *, used: bool) -> Actor | None:
    service, address = service_of(request), address_of(request)
    return _by_header(request, service, address) or _by_cookie(request, service, address, used=used)


def _asks_by_itself(request: Request) -> bool:
    """Whether the page asks and not its reader, which keeps no session alive."""
    if request.method not in SAFE:
        return False
    accepted = request.headers.get("accept", "")
    return accepted == "text/event-stream" or request.headers.get("hx-trigger") in RENEWED


def guarded_router(
    *, prefix: str = "", tags: Sequence[str] = (), include_in_schema: bool = True
) -> APIRouter:
    """A router that finds out who asks; its routes are made once and stand in every app as is."""
    return APIRouter(
        prefix=prefix,
        tags=list(tags),
        include_in_schema=include_in_schema,
        dependencies=[Depends(identify)],
    )


async def still(request: Request, actor: Actor) -> bool:
    """Whether the session or key that began a long answer is good; counts as no request."""
    try:
        found = await run_in_threadpool(_recognised, request, used=False)
    except Problem:
        return False
    except StoreError:  # it is away: nobody was signed out by that
        return True
    return found is not None and found.name == actor.name


async def asker(request: Request) -> Actor:  # else it costs a thread
    """Whoever asks; nobody is refused here."""
    actor: Actor = request.state.actor
    if not actor.grants:
        raise NotSignedIn("sign in, or send a key as x-api-key or Authorization: Bearer")
    return actor


Asker = Annotated[Actor, Depends(asker)]


def _by_header(request: Request, service: Service, address: str) -> Actor | None:
    given = request.headers.get("x-api-key") or _bearer(request)
    if not given:
        return None
    secret = service.settings.cron_secret
    if key_id_of(given) is not None:
        actor = service.accounts.key_actor(given, address)
        if actor is not None:
            return actor
    elif given.startswith(KEY_SESSION):
        actor = service.accounts.key_session_actor(given, address)
        if actor is not None:
            return actor
    elif secret is not None and same(given, secret.get_secret_value()):
        return cron_actor(address)
    service.limit(f"address:{network_of(address)}")
    if request.url.path.startswith("/api/cron"):
        raise Refused("the cron secret is not set or not this one")
    raise NotSignedIn("this key is not valid", code="wrong_key")


def _bearer(request: Request) -> str | None:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() or None if scheme.lower() == "bearer" else None


def _by_cookie(request: Request, service: Service, address: str, *, used: bool) -> Actor | None:
    token = session_token(request)
    if token is None:
        return None
    actor = service.accounts.session_actor(token, address, used=used)
    if actor is not None and request.method not in SAFE:
        check_origin(request, required=True)
    return actor


def session_token(request: Request) -> str | None:
    """The session cookie's value."""
    return request.cookies.get(SECURE_COOKIE if is_secure(request) else COOKIE)


def check_origin(request: Request, *, required: bool) -> None:
    """Refuse what another site's page made the browser send."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        if site != "same-origin":
            raise Refused("this came from another site's page", code="cross_site")
    elif origin is not None:
        if not _is_ours(origin, request.headers.get("host", "")):
            raise Refused("this came from another site's page", code="cross_site")
    elif required:
        raise Refused(
            "with a session cookie, say where this comes from: Sec-Fetch-Site or Origin",
            code="cross_site",
        )


def _is_ours(origin: str, host: str) -> bool:
    try:
        return bool(host) and urlsplit(origin).netloc == host
    except ValueError:  # no address at all
        return False


def set_session(request: Request, response: Response, token: str, max_age_s: int) -> None:
    """Hand the session to the browser."""
    secure = is_secure(request)
    response.set_cookie(
        SECURE_COOKIE if secure else COOKIE,
        token,
        max_age=max_age_s,
        path="/",
        secure=secure,
        httponly=True,
        samesite="lax",
    )


def drop_session(request: Request, response: Response) -> None:
    """Take it back."""
    secure = is_secure(request)
    name = SECURE_COOKIE if secure else COOKIE
    response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="lax")


def is_secure(request: Request) -> bool:
    """Whether the browser speaks TLS, with us or with a proxy we trust."""
    if _trusted(request, _peer(request)):
        told = request.headers.getlist("x-forwarded-proto") or [request.url.scheme]
        return told[-1] == "https"  # the last line is the proxy's own
    return request.url.scheme == "https"


def address_of(request: Request) -> str:
    """Where the request comes from: the last address not of a proxy we trust."""
    peer = _peer(request)
    told = ",".join(request.headers.getlist("x-forwarded-for"))  # some proxies add a line
    hops = [one.strip() for one in told.split(",")]
    while _trusted(request, peer) and hops and _parsed(hops[-1]):
        peer = hops.pop()
    return peer


def _peer(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def _trusted(request: Request, address: str) -> bool:
    """Whether this is one of our proxies: an address or a network of the setting."""
    parsed = _parsed(address)
    return parsed is not None and any(
        parsed in network for network in _networks(service_of(request).settings.trusted_proxies)
    )


@cache
def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(one.strip(), strict=False) for one in text.split(",") if one.strip())


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
