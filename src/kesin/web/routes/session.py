"""Signing in and out: for programs as JSON, for people as a page."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool

from kesin.engine.access.accounts import SESSION_S
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import NotSignedIn, TooMany
from kesin.web import schemas
from kesin.web.auth import (
    OPEN,
    Asker,
    address_of,
    check_origin,
    drop_session,
    guarded_router,
    service_of,
    session_token,
    set_session,
)
from kesin.web.dashboard.frame.page import unknown_looker
from kesin.web.dashboard.frame.routes import safe_path
from kesin.web.forms import firsts, read_form

router = guarded_router(tags=["session"])
MOST_FORM_BYTES = 4_096
MOST_FIELDS = 10


@router.post("/api/session", status_code=201, openapi_extra=OPEN)
def sign_in(request: Request, response: Response, credentials: schemas.Credentials) -> schemas.Who:
    """Sign in; the session comes as a cookie. Any session you had before ends."""
    check_origin(request, required=False)
    actor, token = _sign_in(request, credentials.name, credentials.password)
    set_session(request, response, token, SESSION_S)
    return who(actor)


@router.get("/api/session")
def show_session(actor: Asker) -> schemas.Who:
    """Who you are to the service."""
    return who(actor)


@router.delete("/api/session")
def sign_out(
    request: Request,
    response: Response,
    actor: Asker,
    everywhere: Annotated[bool, Query()] = False,  # noqa: FBT002  # a query parameter
) -> schemas.Ended:
    """Sign out, here or everywhere."""
    token = session_token(request)
    if token is None:
        raise NotSignedIn("there is no session to end", code="no_session")
    ended = service_of(request).accounts.sign_out(actor, token, everywhere=everywhere)
    drop_session(request, response)
    return schemas.Ended(sessions_ended=ended)


@router.get("/", include_in_schema=False)
def front_door() -> RedirectResponse:
    """Whoever types the bare address means the dashboard."""
    return RedirectResponse("/dashboard", status_code=303)


@router.get("/sign-in", response_class=HTMLResponse, include_in_schema=False)
def sign_in_page(request: Request) -> HTMLResponse:
    """The form, or who is signed in."""
    actor: Actor = request.state.actor
    wanted = safe_path(request.query_params.get("next", ""))
    signed_in = actor if actor.grants else None
    ended = signed_in is None and session_token(request) is not None
    return _page(request, actor=signed_in, ended=ended, next=wanted)


@router.post("/sign-in", response_class=HTMLResponse, include_in_schema=False)
async def sign_in_form(request: Request) -> Response:
    """The form, filled in; a wrong password shows it again."""
    check_origin(request, required=True)
    fields = await _form(request)
    name, password = fields.get("name", ""), fields.get("password", "")
    try:
        _, token = await run_in_threadpool(_sign_in, request, name, password)
    except (NotSignedIn, TooMany) as problem:
        wanted = safe_path(fields.get("next", ""))
        again = _page(request, status=problem.status, told=_in_words(request, problem), next=wanted)
        if isinstance(problem, TooMany):
            again.headers["retry-after"] = str(problem.retry_after_s)
        return again
    answer = RedirectResponse(safe_path(fields.get("next", "")), status_code=303)
    set_session(request, answer, token, SESSION_S)
    return answer


@router.post("/sign-out", response_class=HTMLResponse, include_in_schema=False)
async def sign_out_form(request: Request) -> Response:
    """The button on the page."""
    check_origin(request, required=True)
    actor: Actor = request.state.actor
    token = session_token(request)
    everywhere = (await _form(request)).get("everywhere") == "1"
    if token is not None and actor.grants:
        accounts = service_of(request).accounts
        await run_in_threadpool(accounts.sign_out, actor, token, everywhere=everywhere)
    answer = RedirectResponse("/sign-in", status_code=303)
    drop_session(request, answer)
    return answer


def _page(request: Request, *, status: int = 200, **values: Any) -> HTMLResponse:
    """The sign-in page in the language of whoever is there."""
    told = {"actor": None, "ended": False, "told": None, **values}
    return unknown_looker(request).page("sign_in.html", status=status, **told)


def _in_words(request: Request, problem: NotSignedIn | TooMany) -> str:
    say = unknown_looker(request).say
    if isinstance(problem, TooMany):
        return say("Too many tries. Wait %(n)s seconds, then try again.", n=problem.retry_after_s)
    return say("The name or the password is wrong.")


def who(actor: Actor) -> schemas.Who:
    """An actor as it is told to itself."""
    return schemas.Who(
        name=actor.name,
        grants=sorted(actor.grants),
        all_sites=actor.all_sites or actor.is_admin,
        sites=sorted(actor.sites),
        queues=sorted(actor.queues),
    )


def _sign_in(request: Request, name: str, password: str) -> tuple[Actor, str]:
    service = service_of(request)
    address = address_of(request)
    service.limit_sign_in(name, address)
    token, actor = service.accounts.sign_in(name, password, address, request.state.request_id)
    before = session_token(request)
    if before is not None:
        service.accounts.sign_out(actor, before)
    return actor, token


async def _form(request: Request) -> dict[str, str]:
    return firsts(await read_form(request, most_bytes=MOST_FORM_BYTES, most_fields=MOST_FIELDS))
