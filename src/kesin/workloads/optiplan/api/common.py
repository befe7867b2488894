"""HTTP dependencies and responses that all routes of the workload share.

Every invalid request is reported with the seed's code E_VALIDATION, whether FastAPI or the
workload's own parser rejects it.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel

from kesin.web import dependencies
from kesin.web.dependencies import JSON, UNCACHED
from kesin.workloads.optiplan.orders.payload import FieldProblem, validation_problem

PRIVATE_HEADERS: Final = {"cache-control": UNCACHED}  # orders hold names and phones


class OrderRoute(APIRoute):
    """A route that reports invalid parameters as E_VALIDATION, like invalid bodies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with FastAPI's validation errors translated."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as problem:
                errors = [(error["loc"][1:], error["msg"]) for error in problem.errors()]
                raise validation_problem(
                    [FieldProblem(tuple(loc), f"{msg[:1].lower()}{msg[1:]}") for loc, msg in errors]
                ) from None

        return handle


def parse_json(body: bytes, kind: str) -> Any:
    if kind != JSON:
        sent = f"not as {kind or 'nothing'}"
        raise FieldProblem((), f"must be sent as {JSON}, {sent}").as_problem()
    try:
        return json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        raise FieldProblem((), f"is no JSON: {problem}").as_problem() from None


def json_response(body: BaseModel, status: int = 200) -> Response:
    """A JSON response that no cache stores."""
    return dependencies.json_response(body, status, cache_control=UNCACHED)
