"""The app: routes, manners around them, and one shape for everything that goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.staticfiles import StaticFiles

import kesin
from kesin.engine.validation import BadInput
from kesin.foundation.extras import needed
from kesin.foundation.logs import Logger
from kesin.foundation.problems import Invalid, Problem, TooMany, Unavailable
from kesin.store.errors import StoreError, StoreTrouble, StoreUnreachable
from kesin.web.auth import identify
from kesin.web.dashboard import dashboard_routes
from kesin.web.dashboard.frame.page import SentToSignIn, failure, to_sign_in
from kesin.web.dashboard.queues.charts import Trends
from kesin.web.middleware import Manners
from kesin.web.routes import operator, probes, session, sites
from kesin.web.schemas import ErrorBody
from kesin.web.service import Service

log = Logger("kesin.http")

_REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorBody, "description": "Not understood"},
    401: {"model": ErrorBody, "description": "Nobody is signed in, or the key is wrong"},
    403: {"model": ErrorBody, "description": "Not yours to do"},
    404: {"model": ErrorBody, "description": "No such thing for you"},
    405: {"model": ErrorBody, "description": "Not with this method"},
    409: {"model": ErrorBody, "description": "It is there already, or changed meanwhile"},
    413: {"model": ErrorBody, "description": "Too large"},
    422: {"model": ErrorBody, "description": "Understood, and not valid"},
    429: {"model": ErrorBody, "description": "Too often; Retry-After says when to come back"},
    500: {"model": ErrorBody, "description": "Our fault; the request id finds it in the log"},
    503: {"model": ErrorBody, "description": "Not now"},
}
_CODES: Final = {404: "not_found", 405: "method_not_allowed"}
# One writer and one interpreter lock: 40 threads, the default, only wait for each other and answer
# later (`make load` tells).
SQLITE_THREADS: Final = 4
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


def create_app(service: Service) -> FastAPI:
    """The app over a service that is not started yet; starting and stopping is the app's."""

    @asynccontextmanager
    async def running(_app: FastAPI) -> AsyncIterator[None]:
        if service.settings.database_file is not None:
            current_default_thread_limiter().total_tokens = SQLITE_THREADS
        await run_in_threadpool(service.start)
        try:
            yield
        finally:
            await asyncio.to_thread(service.stop)  # the routes' own threads may all be taken

    app = FastAPI(
        title="Kesin",
        version=kesin.__version__,
        summary="Durable work queues in which every job provably ends",
        docs_url=None,
        redoc_url=None,
        lifespan=running,
        dependencies=[Depends(identify)],
    )
    app.state.service = service
    service.every_minute.append(Trends(service.accounts.directory, service.queues).note)
    static = Path(str(files("kesin.web") / "static"))
    ours = (operator.router, session.router, sites.router, probes.router)
    for router in ours:
        app.router.routes.extend(router.routes)
    app.router.routes.extend(dashboard_routes())
    theirs = [
        workload.routes(service.house(workload))
        for workload in service.workloads.values()
        if workload.routes is not None
    ]
    for router in theirs:
        app.include_router(router)

    @app.get("/docs", include_in_schema=False)
    def docs() -> FileResponse:
        """The API, readable and tryable; its assets are ours."""
        return FileResponse(static / "docs.html")

    app.mount("/static", StaticFiles(directory=static), name="static")
    app.add_middleware(Manners, service=service, told=_refused)
    _handle_problems(app)
    _describe(app, (*ours, *theirs))
    return app


def _handle_problems(app: FastAPI) -> None:
    """Coroutines, because a refusal must not wait for one of the threads it protects."""

    @app.exception_handler(SentToSignIn)
    async def first(request: Request, _problem: Exception) -> Response:
        return to_sign_in(request)

    @app.exception_handler(Problem)
    async def told(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, Problem)  # noqa: S101  # registered for it
        return await _told(request, problem)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, RequestValidationError)  # noqa: S101
        fields = [
            {"field": ".".join(str(part) for part in one["loc"][1:]), "message": one["msg"]}
            for one in problem.errors()
        ]
        shown = jsonable_encoder(fields)
        what = fields[0] if fields else {"field": "", "message": "not valid"}
        message = f"{what['field']}: {what['message']}".strip(": ")
        return await _told(request, Invalid(message, details={"fields": shown}))

    @app.exception_handler(HTTPException)
    async def plain(request: Request, problem: Exception) -> JSONResponse:
        assert isinstance(problem, HTTPException)  # noqa: S101
        told = Problem(str(problem.detail), code=_CODES.get(problem.status_code, "bad_request"))
        headers = dict(problem.headers or {})
        if problem.status_code == 405:  # noqa: PLR2004
            headers = {"Allow": ", ".join(_methods_at(app, request.url.path))}
        return JSONResponse(told.body(), status_code=problem.status_code, headers=headers)

    @app.exception_handler(BadInput)
    async def bad_input(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, BadInput)  # noqa: S101
        details = {"field": problem.field}
        return await _told(request, Invalid(str(problem), code=problem.code, details=details))

    @app.exception_handler(StoreUnreachable)
    async def away(request: Request, problem: Exception) -> Response:
        log.warning("store_unreachable", why=str(problem))
        return await _told(request, _away(problem))

    @app.exception_handler(ModuleNotFoundError)
    async def not_installed(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, ModuleNotFoundError)  # noqa: S101
        return await _told(request, _not_installed(problem))

    @app.exception_handler(StoreError)
    async def store_refused(request: Request, problem: Exception) -> Response:
        return await _told(request, Invalid(str(problem)))


def _not_installed(problem: ModuleNotFoundError) -> Unavailable:
    """What to install, where an extra brings it; any other import that fails is our fault."""
    wanted = needed(problem)
    if wanted is None:
        raise problem
    what, extra = wanted
    return Unavailable(
        f"this needs {what}: install it with `pip install 'kesin[{extra}]'`", code="not_installed"
    )


def _away(problem: Exception) -> Unavailable:
    """What callers are told of a store that does not serve; the log knows where it is."""
    if not isinstance(problem, StoreTrouble):
        return Unavailable("the store does not answer: try again", code="store_away")
    if problem.code == "disk_full":
        return Unavailable("the disk is full, nothing was written: make room", code=problem.code)
    return Unavailable(
        "the disk under the store does not serve: `kesin doctor` says more", code=problem.code
    )


def _refused(request: Request, problem: Problem, status: int) -> Response:
    """What was refused before or after anybody could answer it."""
    if request.url.path.startswith("/dashboard"):
        return failure(request, problem, status=status, bare=True)
    return JSONResponse(problem.body(), status_code=status)


async def _told(request: Request, problem: Problem) -> Response:
    """To people on a page, to programs as JSON."""
    if request.url.path.startswith("/dashboard"):
        return await run_in_threadpool(failure, request, problem)
    return _answer(problem)


def _methods_at(app: FastAPI, path: str) -> list[str]:
    """Every method a path takes; the framework's own answer names those of one route only."""
    here = {"type": "http", "path": path, "root_path": "", "app": app}
    return [
        method
        for method in _METHODS
        if any(route.matches({**here, "method": method})[0] is Match.FULL for route in app.routes)
    ]


def _answer(problem: Problem) -> JSONResponse:
    headers = {}
    if isinstance(problem, TooMany):
        headers["retry-after"] = str(problem.retry_after_s)
    if problem.status == 401:  # noqa: PLR2004
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(problem.body(), status_code=problem.status, headers=headers)


def _describe(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Say what every route may refuse, and how to sign in; for the schema alone, when asked."""
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            told = APIRouter(responses=_REFUSALS)
            for router in routers:
                told.include_router(router)
            made.update(
                get_openapi(
                    title=app.title, version=app.version, summary=app.summary, routes=told.routes
                )
            )
            made.setdefault("components", {})["securitySchemes"] = {
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "kesin_session"},
            }
            made["security"] = [{"key": []}, {"bearer": []}, {"session": []}]
        return made

    app.openapi = openapi  # type: ignore[method-assign]
