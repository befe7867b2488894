"""Sign in and out: JSON for programs, pages for users."""

from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool

from kesin.foundation.permissions import Actor
from kesin.foundation.problems import NotSignedIn, TooManyRequests
from kesin.web import auth, schemas
from kesin.web.bodies import form_reader
from kesin.web.dashboard.frame.page import any_context
from kesin.web.dashboard.frame.routes import safe_path
from kesin.web.dependencies import SignedInActor

router = auth.GuardedRouter(tags=["session"])
MAX_FORM_BYTES = 4_096
MAX_FIELDS = 10
_read_fields = form_reader(MAX_FORM_BYTES, MAX_FIELDS)


@router.post("/api/session", status_code=201, openapi_extra=auth.PUBLIC_ROUTE)
async def sign_in(request: Request, response: Response, credentials: schemas.Credentials) -> schemas.Who:
    """Sign in; the response sets a session cookie. Any earlier session in this browser ends."""
    auth.check_origin(request, required=False)
    actor, token = await _sign_in(request, credentials.name, credentials.password)
    auth.set_session_cookie(request, response, token)
    return who_body(actor)


@router.get("/api/session")
def show_session(actor: SignedInActor) -> schemas.Who:
    """The signed-in user, or the API key."""
    return who_body(actor)


@router.delete("/api/session")
def sign_out(
    request: Request,
    response: Response,
    actor: SignedInActor,
    everywhere: Annotated[bool, Query()] = False,  # noqa: FBT002  # a query parameter
) -> schemas.Ended:
    """Sign out of this session or, with ``everywhere``, of all your sessions."""
    token = auth.session_token(request)
    if token is None:
        raise NotSignedIn("there is no session to end", code="no_session")
    ended = auth.service_of(request).accounts.sign_out(actor, token, everywhere=everywhere)
    auth.delete_session_cookie(request, response)
    return schemas.Ended(sessions_ended=ended)


@router.get("/", include_in_schema=False)
def redirect_to_dashboard() -> RedirectResponse:
    return RedirectResponse("/dashboard", status_code=303)


@router.get("/sign-in", response_class=HTMLResponse, include_in_schema=False)
def sign_in_page(request: Request) -> HTMLResponse:
    actor: Actor = request.state.actor
    next_path = safe_path(request.query_params.get("next", ""))
    signed_in = actor if actor.grants else None
    ended = signed_in is None and auth.session_token(request) is not None
    return _page(request, actor=signed_in, ended=ended, next=next_path)


@router.post("/sign-in", response_class=HTMLResponse, include_in_schema=False)
async def sign_in_form(request: Request) -> Response:
    """Sign in with the submitted form; a wrong password shows the form again."""
    auth.check_origin(request, required=True)
    fields = await _read_fields(request)
    name, password = fields.get("name", ""), fields.get("password", "")
    try:
        _, token = await _sign_in(request, name, password)
    except (NotSignedIn, TooManyRequests) as problem:
        return _page(request, problem=problem, next=safe_path(fields.get("next", "")))
    response = RedirectResponse(safe_path(fields.get("next", "")), status_code=303)
    auth.set_session_cookie(request, response, token)
    return response


@router.post("/sign-out", response_class=HTMLResponse, include_in_schema=False)
async def sign_out_form(request: Request) -> Response:
    auth.check_origin(request, required=True)
    actor: Actor = request.state.actor
    token = auth.session_token(request)
    everywhere = (await _read_fields(request)).get("everywhere") == "1"
    if token is not None and actor.grants:
        accounts = auth.service_of(request).accounts
        await run_in_threadpool(accounts.sign_out, actor, token, everywhere=everywhere)
    response = RedirectResponse("/sign-in", status_code=303)
    auth.delete_session_cookie(request, response)
    return response


def _page(request: Request, **values: Any) -> HTMLResponse:
    context = {"actor": None, "ended": False, "problem": None, **values}
    return any_context(request).page("sign_in.html", **context)


def who_body(actor: Actor) -> schemas.Who:
    return schemas.Who(
        name=actor.name,
        grants=sorted(actor.grants),
        all_sites=actor.all_sites or actor.is_admin,
        sites=sorted(actor.sites),
        queues=sorted(actor.queues),
    )


async def _sign_in(request: Request, name: str, password: str) -> tuple[Actor, str]:
    service = auth.service_of(request)
    service.limit_sign_in(name, auth.address_of(request))
    return await service.sign_ins.run(_start_session, request, name, password)


def _start_session(request: Request, name: str, password: str) -> tuple[Actor, str]:
    service, address = auth.service_of(request), auth.address_of(request)
    token, actor = service.accounts.sign_in(name, password, address, request.state.request_id)
    previous_token = auth.session_token(request)
    if previous_token is not None:
        service.accounts.sign_out(actor, previous_token)
    return actor, token
