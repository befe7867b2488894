"""What the routes of the service and of every workload are given and answer with."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Annotated, Any, Final, ParamSpec, TypeVar

from fastapi import Depends, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool

from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Forbidden, NotSignedIn, Problem
from kesin.web import bodies
from kesin.web.auth import identify, service_of

P = ParamSpec("P")
T = TypeVar("T")
JSON: Final = "application/json"
UNCACHED: Final = "private, no-store"  # the cache-control of personal data
SIGN_IN: Final = "sign in, or send a key as x-api-key or Authorization: Bearer"


@bodies.requires_sign_in
async def require_actor(request: Request) -> Actor:  # async: it needs no thread
    """The actor; a request without credentials is refused. Permissions are not checked here."""
    actor: Actor = request.state.actor
    if not actor.grants:
        raise NotSignedIn(SIGN_IN)
    return actor


@bodies.takes_large_bodies()
async def read_body(request: Request) -> bytes:
    """The unparsed body, for routes that take files or several formats."""
    body = await request.body()
    if bodies.is_large(body):
        await run_in_threadpool(bodies.check_values, body)
    return body


def require_cron(request: Request, action: str, queue: str | None = None) -> Actor:
    """The actor that knows the cron secret; raises Forbidden for any other."""
    actor: Actor = request.state.actor
    if not actor.has("cron"):
        if actor.grants:  # an anonymous caller gets no audit line: it could fill the log
            service_of(request).accounts.note(actor, action, allowed=False, queue=queue)
        raise Forbidden("the cron secret is not set or does not match")
    return actor


async def run_with_body(request: Request, body: bytes, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what parses and handles a body: in a thread, for a large body in the import pool."""
    if bodies.is_large(body):
        return await service_of(request).imports.run(call, *args, **kwargs)
    return await run_in_threadpool(call, *args, **kwargs)


async def read_media_type(request: Request) -> str:
    """The media type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


class DirectRoute(bodies.LargeBodyRoute):
    """Calls its endpoint itself with a small valid body: FastAPI takes longer than the rest."""

    def takes(self, request: Request) -> bool:
        """Whether the values of the path are known to be valid."""
        return not request.path_params

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler, field = super().get_route_handler(), self.body_field
        if field is None:
            return handler
        kind: Any = field.field_info.annotation
        parse = TypeAdapter(kind).validate_json

        async def handle(request: Request) -> Response:
            body = await request.body()
            plain = bodies.is_json(request) and self.takes(request)
            if bodies.is_large(body) or request.scope["query_string"] or not plain:
                return await handler(request)
            try:
                value = parse(body)
            except ValidationError:
                return await handler(request)
            await identify(request)
            actor, values = await require_actor(request), request.path_params.values()
            response: Response = await self.endpoint(request, actor, *values, value)
            return response

        return handle


SignedInActor = Annotated[Actor, Depends(require_actor)]
RawBody = Annotated[bytes, Depends(read_body)]
MediaType = Annotated[str, Depends(read_media_type)]

IgnoreColumns = Annotated[
    list[Annotated[str, Query(max_length=2_000)]] | None,
    Query(
        alias="ignoreColumns",
        max_length=100,
        description="names of unknown columns to ignore, separated by commas or repeated; a file with any"
        " other unknown column is refused",
    ),
]


def json_response(body: BaseModel, status: int = 200, **headers: str) -> Response:
    """The body as JSON, written in the handler's thread and not validated again."""
    text = body.model_dump_json(by_alias=True)
    return Response(text, status, _header_names(headers), media_type=JSON)


def problem_response(problem: Problem, status: int | None = None, /, **headers: str) -> JSONResponse:
    all_headers = {**problem.headers, **_header_names(headers)}
    return JSONResponse(problem.body(), status or problem.status, all_headers)


def csv_response(name: str, chunks: Iterable[str]) -> StreamingResponse:
    """A CSV of this name that no cache stores."""
    disposition = f'attachment; filename="{name}.csv"'
    headers = {"content-disposition": disposition, "cache-control": UNCACHED}
    return StreamingResponse(chunks, 200, headers, "text/csv; charset=utf-8")


def _header_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
