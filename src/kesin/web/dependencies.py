"""What routes are given and answer with, of the service and of every workload.

The actor of the request is set by `identify` in `auth.py`. Problems that a route raises are turned
into responses by the app.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from kesin.foundation.permissions import Actor
from kesin.foundation.problems import NotSignedIn, Problem

JSON: Final = "application/json"
UNCACHED: Final = "private, no-store"  # the cache-control of personal data


async def require_actor(request: Request) -> Actor:  # async: it needs no thread
    """The actor; a request without credentials is refused. Permissions are not checked here."""
    actor: Actor = request.state.actor
    if not actor.grants:
        raise NotSignedIn("sign in, or send a key as x-api-key or Authorization: Bearer")
    return actor


async def read_body(request: Request) -> bytes:
    """The unparsed body, for routes that take several formats."""
    return await request.body()


async def read_media_type(request: Request) -> str:
    """The media type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


SignedInActor = Annotated[Actor, Depends(require_actor)]
RawBody = Annotated[bytes, Depends(read_body)]
MediaType = Annotated[str, Depends(read_media_type)]


def json_response(
    body: BaseModel, status: int = 200, *, exclude_unset: bool = False, **headers: str
) -> Response:
    """The body as JSON, written in the handler's thread and not validated again."""
    text = body.model_dump_json(by_alias=True, exclude_unset=exclude_unset)
    return Response(text, status, _header_names(headers), media_type=JSON)


def problem_response(problem: Problem, **headers: str) -> Response:
    """The service's error response for a problem, with additional headers."""
    return JSONResponse(problem.body(), problem.status, _header_names(headers))


def _header_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
