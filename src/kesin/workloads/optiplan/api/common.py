"""Who stands at the door of the workload, and what its routes share.

Whatever is wrong with a request is told with the code the seed has for it, E_VALIDATION, whether
the framework finds it or we do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel

from kesin.foundation.permissions import Actor
from kesin.foundation.problems import NotSignedIn
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.orders.payload import FieldProblem, refused

JSON: Final = "application/json"
PRIVATE: Final = {"cache-control": "private, no-store"}  # orders have names and phones in them


async def asker(request: Request) -> Actor:
    """Whoever asks; one without any right is sent to sign in."""
    actor: Actor = request.state.actor
    if not actor.grants:
        raise NotSignedIn("sign in, or send a key as x-api-key or Authorization: Bearer")
    return actor


async def whole_body(request: Request) -> bytes:
    """The body as it came: we read it ourselves, and strictly."""
    return await request.body()


async def content_type(request: Request) -> str:
    """What the body says it is, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


Asker = Annotated[Actor, Depends(asker)]
Body = Annotated[bytes, Depends(whole_body)]
ContentType = Annotated[str, Depends(content_type)]


class OrderRoute(APIRoute):
    """A route whose bad parameters are told as E_VALIDATION, like bad bodies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with the framework's refusals in our words."""
        handler = super().get_route_handler()

        async def told(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as problem:
                raise _in_our_words(problem) from None

        return told


def _in_our_words(problem: RequestValidationError) -> OrderProblem:
    return refused(
        [
            FieldProblem(tuple(one["loc"][1:]), f"{one['msg'][:1].lower()}{one['msg'][1:]}")
            for one in problem.errors()
        ]
    )


def json_of(body: bytes, kind: str) -> Any:
    """The JSON value in a body; raises OrderProblem for everything else."""
    if kind != JSON:
        raise refused([FieldProblem((), f"must be sent as {JSON}, not as {kind or 'nothing'}")])
    try:
        return json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        raise refused([FieldProblem((), f"is no JSON: {problem}")]) from None


def sent(body: BaseModel, status: int = 200) -> Response:
    """The body as it is sent: written here, in the handler's thread, and not checked again."""
    return Response(body.model_dump_json(), status, dict(PRIVATE), media_type=JSON)
