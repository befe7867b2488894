"""The size of request bodies, the parsing of large ones outside the event loop, and forms."""

import json
import re
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import parse_qs

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from kesin.foundation.problems import TooLarge
from kesin.web.auth import service_of

SMALL_BODY_BYTES: Final = 65_536
ANY_SIZE: Final = sys.maxsize  # KESIN_BODY_LIMIT alone is the limit
# Parsing holds the interpreter lock, and its time grows with the values more than with the bytes.
MAX_VALUES: Final = 1_000_000
MAX_CONTAINERS: Final = 200_000
_JSON_TYPE: Final = re.compile(r"application/(.*\+)?json")

Dependency = TypeVar("Dependency", bound=Callable[..., Any])


def takes_large_bodies(max_bytes: int = ANY_SIZE, limit: str = "max_body_bytes") -> Callable[[Dependency], Dependency]:
    """Mark a dependency that reads large bodies; ``own_body_bytes`` may exceed KESIN_BODY_LIMIT."""

    def mark(dependency: Dependency) -> Dependency:
        setattr(dependency, limit, max_bytes)
        return dependency

    return mark


def requires_sign_in(dependency: Dependency) -> Dependency:
    """Mark a dependency that refuses anonymous callers: their bodies are not read."""
    dependency.requires_sign_in = True  # type: ignore[attr-defined]
    return dependency


def body_limit_of(route: object, body_limit: int) -> int:
    """The largest body of a route, in bytes: its own limit, else at most ``body_limit``."""
    parts = (route, *_dependencies(route))
    limits = (getattr(part, "max_body_bytes", 0) for part in parts)
    own = max(getattr(part, "own_body_bytes", 0) for part in parts)
    return own or min(max(SMALL_BODY_BYTES, *limits), body_limit)


def is_sign_in_required(route: object) -> bool:
    return any(getattr(call, "requires_sign_in", False) for call in _dependencies(route))


def _dependencies(route: object) -> Iterator[object]:
    dependant = getattr(route, "dependant", None)
    pending = [] if dependant is None else [dependant]
    while pending:
        part: Dependant = pending.pop()
        yield part.call
        pending += part.dependencies


def is_large(body: bytes) -> bool:
    """Whether parsing the body takes long enough to be done in a pool."""
    return len(body) > SMALL_BODY_BYTES


def announced_bytes(request: Request) -> int:
    """The length of the body as its header says; without one, any."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdigit() else ANY_SIZE


def check_values(body: bytes) -> None:
    """Raise TooLarge for a large body with very many values, before it is parsed."""
    if not is_large(body):
        return
    containers = body.count(b"[") + body.count(b"{")
    if containers > MAX_CONTAINERS or body.count(b",") > MAX_VALUES:
        raise TooLarge("a request may have at most %(most)s values", most=MAX_VALUES)


class LargeBodyRoute(APIRoute):
    """A route that accepts batches as JSON; large batches are parsed in the pool for imports."""

    max_body_bytes: ClassVar[int] = ANY_SIZE

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which receives large bodies already parsed and validated."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            body = b"" if self.body_field is None else await request.body()
            if not is_large(body) or not is_json(request):
                return await handler(request)
            value = await service_of(request).imports.run(self._parse, body)
            return await handler(_ParsedRequest(request, value))

        return handle

    def _parse(self, body: bytes) -> Any:
        """Parse and validate a body as FastAPI does; raises RequestValidationError."""
        check_values(body)
        assert self.body_field is not None  # noqa: S101  # checked by the caller
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as problem:
            why = getattr(problem, "msg", "Too deeply nested, or not UTF-8")
            place = {"loc": ("body", getattr(problem, "pos", 0)), "input": {}}
            error = {"type": "json_invalid", "msg": "JSON decode error", "ctx": {"error": why}}
            raise RequestValidationError([{**error, **place}]) from None
        value, errors = self.body_field.validate(document, {}, loc=("body",))
        if errors:
            raise RequestValidationError(errors)
        return value


class _ParsedRequest(Request):
    """A request whose body is parsed already; FastAPI takes a validated model as it is."""

    def __init__(self, request: Request, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._value = value

    async def body(self) -> bytes:
        return b"parsed"

    async def json(self) -> Any:
        return self._value


def is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return _JSON_TYPE.fullmatch(kind) is not None


async def read_form(request: Request, *, max_bytes: int, max_fields: int) -> dict[str, list[str]]:
    """The fields with all their values; raises TooLarge."""
    body = await request.body()
    if len(body) > max_bytes:
        raise TooLarge("a form may be at most %(most)s bytes", most=max_bytes)
    if is_large(body):
        return await run_in_threadpool(_parse_fields, body, max_fields)
    return _parse_fields(body, max_fields)


def form_reader(max_bytes: int, max_fields: int) -> Callable[[Request], Coroutine[Any, Any, dict[str, str]]]:
    """A dependency that reads the first value of each field of a form; raises TooLarge."""

    @takes_large_bodies(max_bytes)
    async def read(request: Request) -> dict[str, str]:
        fields = await read_form(request, max_bytes=max_bytes, max_fields=max_fields)
        return {name: values[0] for name, values in fields.items()}

    return read


def _parse_fields(body: bytes, max_fields: int) -> dict[str, list[str]]:
    text = body.decode("utf-8", "replace")
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=max_fields)
    except ValueError:
        raise TooLarge("a form may have at most %(most)s fields", most=max_fields) from None


def first_value(fields: Mapping[str, Sequence[str]], name: str) -> str:
    """The first value of a field, stripped; empty if it was not sent."""
    return next(iter(fields.get(name, ())), "").strip()
