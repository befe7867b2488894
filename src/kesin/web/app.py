"""The app: routes, middleware, and one response shape for every error."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match, Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from kesin.engine.validation import BadInput, invalid_field
from kesin.foundation.extras import missing_extra
from kesin.foundation.logs import Logger
from kesin.foundation.problems import Invalid, NotSignedIn, Problem, Unavailable
from kesin.foundation.version import __version__
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.web.auth import POLLING_ELEMENTS, GuardedRouter, SignInRequired, identify
from kesin.web.dependencies import problem_response
from kesin.web.middleware import RequestMiddleware, store_unavailable
from kesin.web.routes import operator, probes
from kesin.web.routing import LateRoutes
from kesin.web.schemas import ErrorBody
from kesin.web.service import Service
from kesin.web.validation import invalid_request

log = Logger("kesin.http")

_ERROR_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorBody, "description": "The request cannot be parsed"},
    401: {"model": ErrorBody, "description": "Not signed in, or the key is invalid"},
    403: {"model": ErrorBody, "description": "You don't have permission"},
    404: {"model": ErrorBody, "description": "It does not exist, or you have no access"},
    405: {"model": ErrorBody, "description": "The path does not support this method"},
    408: {"model": ErrorBody, "description": "The body did not arrive in time"},
    409: {"model": ErrorBody, "description": "It already exists, or has changed since you read it"},
    413: {"model": ErrorBody, "description": "Too large"},
    422: {"model": ErrorBody, "description": "The request can be parsed, but is not valid"},
    429: {"model": ErrorBody, "description": "Too many requests; Retry-After says when to retry"},
    500: {"model": ErrorBody, "description": "Internal error; search the log for the request id"},
    503: {"model": ErrorBody, "description": "Temporarily unavailable"},
}
_CODES: Final = {404: "not_found", 405: "method_not_allowed"}
# SQLite has one writer and Python one interpreter lock: the default of 40 threads only makes them
# wait for each other (`make load` measures it).
SQLITE_THREADS: Final = 4
_STATIC: Final = Path(str(files("kesin.web") / "static"))
_SCRIPTS: Final = "dashboard/scripts.js"  # those of every page, in this order
_SCRIPT_FILES: Final = (
    *("vendor/htmx.min.js", "vendor/idiomorph-ext.min.js"),
    *(f"dashboard/{name}.js" for name in ("zone", "dashboard", "offline", "keys", "sort")),
)
_OWN_ROUTERS: Final = (*operator.ROUTERS, probes.router)
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


def create_app(service: Service, *, late: bool = False) -> FastAPI:
    """The app of a service, which it starts and stops; ``late``: most routes load when needed."""

    @asynccontextmanager
    async def running(_app: FastAPI) -> AsyncIterator[None]:
        if service.settings.database_file is not None:
            current_default_thread_limiter().total_tokens = SQLITE_THREADS
        await run_in_threadpool(service.start)
        try:
            yield
        finally:
            await asyncio.to_thread(service.stop)  # the routes' threads may all be busy

    app = FastAPI(
        title="Kesin",
        version=__version__,
        summary="Durable work queues in which every job provably ends",
        docs_url=None,
        openapi_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=running,
        dependencies=[Depends(identify)],
        # We have our own metrics and logs; to look for others takes 3 % of a small request.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.service = service
    for router in sorted(_OWN_ROUTERS, key=lambda one: one is not operator.enqueue_router):
        app.router.routes.extend(router.routes)
    app.mount("/static", _StaticFiles(directory=_STATIC), name="static")
    app.state.polling_elements = POLLING_ELEMENTS
    app.add_middleware(RequestMiddleware, service=service, render_problem=_render_refusal)
    _handle_problems(app)
    load = partial(_load_routes, app, service)
    app.router.routes.extend([LateRoutes(app.router.routes, load)] if late else load())
    return app


class _StaticFiles(StaticFiles):
    """The files, and the scripts of every page as one: each file more costs a page some ms."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        if path == _SCRIPTS and scope["method"] in {"GET", "HEAD"}:
            return Response(_joined_scripts(), media_type="text/javascript")
        return await super().get_response(path, scope)


@cache
def _joined_scripts() -> bytes:
    return b"\n".join((_STATIC / name).read_bytes() for name in _SCRIPT_FILES)


def _load_routes(app: FastAPI, service: Service) -> list[BaseRoute]:
    """The pages, the routes of workloads and the schema: much is imported for them."""
    from kesin.web.dashboard import dashboard_routes
    from kesin.web.dashboard.frame.templates import build_frame
    from kesin.web.routes import session, sites

    frame = build_frame(service.workloads.values())
    routes: list[BaseRoute] = []
    workload_routers, own = [], len(app.routes)
    for name, workload in service.workloads.items():
        if workload.routes is not None:
            workload_routers.append(workload.routes(service.workload_context(name)))
            if isinstance(workload_routers[-1], GuardedRouter):
                routes += workload_routers[-1].routes
            else:
                app.include_router(workload_routers[-1])

    guarded = GuardedRouter(include_in_schema=False)

    @guarded.get("/docs")
    def docs() -> FileResponse:
        """The API's documentation, with assets served from here."""
        return FileResponse(_STATIC / "docs.html")

    def openapi(_request: Request) -> JSONResponse:
        """The schema, in a thread: the first reading takes seconds."""
        return JSONResponse(app.openapi())

    own_routes = (*session.router.routes, *sites.router.routes, *guarded.routes)
    routes += [*dashboard_routes(frame), *own_routes]
    routes.append(Route("/openapi.json", openapi, include_in_schema=False))
    _forbid_redirects([*app.routes[own:], *routes])
    _set_openapi(app, (*_OWN_ROUTERS, sites.router, session.router, *workload_routers))
    app.state.polling_elements = POLLING_ELEMENTS.union(*(pages.polling_elements for pages in frame.pages.values()))
    app.state.frame = frame
    return routes


def _forbid_redirects(routes: Sequence[BaseRoute]) -> None:
    """Turn off redirects, made of the Host header; refuse mounted apps, which know no actor."""
    for route in routes:
        if isinstance(route, Mount):
            raise TypeError(f"a workload's router mounts {route.path}: give it routes instead")
        if isinstance(router := getattr(route, "original_router", None), Router):
            router.redirect_slashes = False
            _forbid_redirects(router.routes)


def _handle_problems(app: FastAPI) -> None:
    """Register the error handlers: coroutines, so that a refusal needs no thread."""

    @app.exception_handler(SignInRequired)
    async def sign_in_required(request: Request, _problem: Exception) -> Response:
        from kesin.web.dashboard.frame.page import redirect_to_sign_in

        return redirect_to_sign_in(request)

    @app.exception_handler(ClientDisconnect)
    async def caller_left(_request: Request, _problem: Exception) -> Response:
        return Response(status_code=400)  # no one reads it; it is no fault of ours to log

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, problem: Exception) -> JSONResponse:
        assert isinstance(problem, HTTPException)  # noqa: S101  # registered for it
        answer = Problem(str(problem.detail), code=_CODES.get(problem.status_code, "bad_request"))
        headers = dict(problem.headers or {})
        if problem.status_code == 405:  # noqa: PLR2004
            headers = {"Allow": ", ".join(_methods_at(app, request.url.path))}
        return JSONResponse(answer.body(), status_code=problem.status_code, headers=headers)

    @app.exception_handler(Problem)
    @app.exception_handler(RequestValidationError)
    @app.exception_handler(BadInput)
    @app.exception_handler(StoreError)
    @app.exception_handler(ModuleNotFoundError)
    async def refused(request: Request, error: Exception) -> Response:
        problem = _as_problem(error)
        if request.url.path.startswith("/dashboard"):  # a page; JSON is for programs
            from kesin.web.dashboard.frame.page import problem_page

            return await run_in_threadpool(problem_page, request, problem)
        return problem_response(problem)


def _as_problem(error: Exception) -> Problem:
    """The problem to answer with; raises our own bugs, such as an import that no extra brings."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return invalid_request(error.errors())
        case BadInput():
            return invalid_field(error.field, str(error), code=error.code)
        case StoreUnreachable():
            log.warning("store_unreachable", why=str(error))
            return store_unavailable(error)
        case StoreError():
            return Invalid(str(error))
        case ModuleNotFoundError() if needed := missing_extra(error):
            return Unavailable(
                "this needs %(what)s: install it with `pip install 'kesin[%(extra)s]'`",
                code="not_installed",
                what=needed[0],
                extra=needed[1],
            )
        case _:
            raise error


def _render_refusal(request: Request, problem: Problem, status: int) -> Response:
    """The answer to a request whose body was not read, or that timed out in a route."""
    if not request.url.path.startswith("/dashboard") or not hasattr(request.app.state, "frame"):
        return problem_response(problem, status)
    from kesin.web.dashboard.frame.page import problem_page, redirect_to_sign_in

    if problem.code == NotSignedIn.code:
        return redirect_to_sign_in(request)
    return problem_page(request, problem, status=status, bare=True)


def _methods_at(app: FastAPI, path: str) -> list[str]:
    """All methods of a path; the framework names those of one route only."""
    here = {"type": "http", "path": path, "root_path": "", "app": app}
    return [
        method
        for method in _METHODS
        if any(route.matches({**here, "method": method})[0] is Match.FULL for route in app.routes)
    ]


def _set_openapi(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Describe every route's errors and the ways to sign in, when the schema is first read."""

    @cache
    def openapi() -> dict[str, Any]:
        described = APIRouter(responses=_ERROR_RESPONSES)
        for router in routers:
            described.include_router(router)
        about: dict[str, Any] = {"version": app.version, "summary": app.summary}
        schema = get_openapi(title=app.title, routes=described.routes, **about)
        schema.setdefault("components", {})["securitySchemes"] = {
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            "bearer": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": "kesin_session"},
        }
        schema["security"] = [{"key": []}, {"bearer": []}, {"session": []}]
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
