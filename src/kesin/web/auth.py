"""From a request to an actor: by an API key, the cron secret or a session."""

from dataclasses import replace
from functools import lru_cache
from ipaddress import ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from kesin.engine.access.accounts import SESSION_S, cron_actor
from kesin.foundation.passwords import KEY_SESSION_PREFIX, equal_secrets, key_id_of
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Forbidden, NotSignedIn, Problem
from kesin.store.errors import StoreError
from kesin.web.rate_limit import network_of, parse_address
from kesin.web.service import Service
from kesin.web.validation import check_parameters

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
COOKIE: Final = "kesin_session"
SECURE_COOKIE: Final = "__Host-kesin_session"  # browsers accept it over TLS only
CREDENTIALS: Final = frozenset({"x-api-key", "authorization", "cookie"})
NOBODY: Final = Actor("nobody", frozenset())
PROBES: Final = frozenset({"/health/live", "/health/ready"})  # answered without the store
# Elements of the dashboard that refresh by themselves, by the id that htmx sends.
POLLING_ELEMENTS: Final = frozenset({"job-story", "nav", "runs", "view", "workers"})
RENEWAL: Final = "/renewal"  # ends the path of a refresh that is a form, for what it shows is long
PUBLIC_ROUTE: Final[dict[str, Any]] = {"security": []}  # marks a public route in the schema


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def identify(request: Request) -> None:
    """Set ``request.state.actor``; in no thread without credentials, so that probes never wait."""
    if hasattr(request.state, "actor"):
        return
    path, headers = request.scope["path"], request.headers
    has_credentials = path not in PROBES and not CREDENTIALS.isdisjoint(headers)
    service, actor = service_of(request), None
    if has_credentials and service.identities is not None:
        actor = await service.identities.gather(0, _identify_in_thread, request)
    elif has_credentials:
        actor = await run_in_threadpool(_identify_in_thread, request)
    if actor is None:
        service.requests.take(f"address:{network_of(address_of(request))}")
    request.state.actor = replace(actor or NOBODY, request_id=request.state.request_id)
    if actor is not None:  # others are asked to sign in
        check_parameters(request)  # here, as every route comes by


def _identify_in_thread(request: Request) -> Actor | None:
    actor = _authenticate(request, extend_session=not _is_polling(request))
    if actor is not None:
        service_of(request).requests.take(actor.name)
    return actor


def _authenticate(request: Request, *, extend_session: bool) -> Actor | None:
    service, address = service_of(request), address_of(request)
    if (actor := _actor_by_header(request, service, address)) is not None:
        return actor
    if (token := session_token(request)) is None:
        return None
    actor = service.accounts.session_actor(token, address, used=extend_session)
    if actor is not None and request.method not in SAFE:
        check_origin(request, required=True)
    return actor


def _is_polling(request: Request) -> bool:
    """Whether an open page refreshes itself, which does not extend the session."""
    if request.method not in SAFE and not request.scope["path"].endswith(RENEWAL):
        return False
    accepted = request.headers.get("accept", "")
    polling: frozenset[str] = request.app.state.polling_elements
    return accepted == "text/event-stream" or request.headers.get("hx-trigger") in polling


class SignInRequired(Exception):  # not an error: a step on the way to the page
    """The page follows after the sign-in."""


class GuardedRouter(APIRouter):
    """A router that identifies the actor; its routes need no other router to be served."""

    def __init__(self, **options: Any) -> None:
        given = {"redirect_slashes": False, **options}
        given["dependencies"] = [Depends(identify), *options.get("dependencies", ())]
        super().__init__(**given)


async def still_signed_in(request: Request, actor: Actor) -> bool:
    """Whether the session or key of a long response is still valid; counts as no request."""
    try:
        current = await run_in_threadpool(_authenticate, request, extend_session=False)
    except Problem:
        return False
    except StoreError:  # an unreachable store signs nobody out
        return True
    return current is not None and current.name == actor.name


def _actor_by_header(request: Request, service: Service, address: str) -> Actor | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    credential = request.headers.get("x-api-key") or bearer
    if not credential:
        return None
    actor, secret = None, service.settings.cron_secret
    if key_id_of(credential) is not None:
        actor = service.accounts.key_actor(credential, address)
    elif credential.startswith(KEY_SESSION_PREFIX):
        actor = service.accounts.key_session_actor(credential, address)
    elif secret is not None and equal_secrets(credential, secret.get_secret_value()):
        actor = cron_actor(address)
    if actor is not None:
        return actor
    service.requests.take(f"address:{network_of(address)}")
    if request.scope["path"].startswith("/api/cron"):
        raise Forbidden("the cron secret is not set or does not match")
    raise NotSignedIn("this key is not valid", code="wrong_key")


def session_token(request: Request) -> str | None:
    return request.cookies.get(_cookie(request)["key"])


def set_session_cookie(request: Request, response: Response, token: str) -> None:
    response.set_cookie(value=token, max_age=SESSION_S, **_cookie(request))


def delete_session_cookie(request: Request, response: Response) -> None:
    response.delete_cookie(**_cookie(request))


def _cookie(request: Request) -> dict[str, Any]:
    secure = is_secure(request)
    name = SECURE_COOKIE if secure else COOKIE
    return {"key": name, "path": "/", "secure": secure, "httponly": True, "samesite": "lax"}


def check_origin(request: Request, *, required: bool) -> None:
    """Refuse what another site's page made a browser send, which adds our cookie to any request."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is None and origin is None and required:
        why = "a request with a session cookie needs the header Sec-Fetch-Site or Origin"
        raise Forbidden(why, code="cross_site")
    is_foreign = origin is not None and not _is_same_origin(request, origin)
    if is_foreign if site is None else site != "same-origin":
        raise Forbidden("the request came from a page on another website", code="cross_site")


def _is_same_origin(request: Request, origin: str) -> bool:
    host = request.headers.get("host", "")
    try:
        parts = urlsplit(origin)
    except ValueError:  # no address at all
        return False
    downgraded = is_secure(request) and parts.scheme != "https"
    return bool(host) and parts.netloc == host and not downgraded


async def change_own_password(request: Request, actor: Actor, current: str, new: str) -> tuple[str, int]:
    """Change the password of a signed-in user: a new session's token, and how many ended."""
    service, token = service_of(request), session_token(request)
    if token is None:
        raise NotSignedIn("sign in with a user name to change your password", code="no_session")
    service.limit_sign_in(actor.name, address_of(request))
    change = service.accounts.change_own_password
    return await service.sign_ins.run(change, actor, token, current, new)


def is_secure(request: Request) -> bool:
    """Whether the browser uses TLS, to us or to a trusted proxy."""
    protocols = [request.scope.get("scheme")]
    if _is_trusted_proxy(request, _peer(request)):
        protocols += request.headers.getlist("x-forwarded-proto")
    return protocols[-1] == "https"  # the last header is the proxy's own


def address_of(request: Request) -> str:
    """The client's address: the last one that is not a trusted proxy's."""
    peer = _peer(request)
    forwarded = ",".join(request.headers.getlist("x-forwarded-for"))  # some proxies add a header
    hops = [hop.strip() for hop in forwarded.split(",")]
    while _is_trusted_proxy(request, peer) and hops and parse_address(hops[-1]):
        peer = hops.pop()
    return peer


def _peer(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def _is_trusted_proxy(request: Request, address: str) -> bool:
    return is_in_networks(address, service_of(request).settings.trusted_proxies)


@lru_cache(maxsize=4_096)
def is_in_networks(address: str, networks: str) -> bool:
    """Whether an address is in one of the networks, which are separated by commas."""
    parsed, named = parse_address(address), filter(None, map(str.strip, networks.split(",")))
    return parsed is not None and any(parsed in ip_network(text, strict=False) for text in named)
