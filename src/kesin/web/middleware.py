"""Manners around every request: an id, a limit on its size and time, headers, a line in the log.

One plain ASGI layer, so that it also holds for what the framework answers itself. Nothing personal
is logged: the route, not the address asked for; no query, no body, no header.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final

import structlog
from fastapi import Request
from fastapi.responses import JSONResponse, Response

from kesin.foundation.logs import Logger
from kesin.foundation.problems import Problem, TooLarge, Unavailable
from kesin.web.auth import is_secure
from kesin.web.service import Service

log = Logger("kesin.http")

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Told = Callable[[Request, Problem, int], Response]  # how a refusal reads

LINGER_BYTES: Final = 32 << 20  # of a body that is refused, read and dropped
LINGER_S: Final = 5.0
_MOST_DIGITS: Final = 15
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
FRAMING_CSP: Final = f"{CSP}; frame-src 'self'"  # of a page that shows a document of ours
HEADERS: Final = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
HSTS: Final = (b"strict-transport-security", b"max-age=31536000; includeSubDomains")


class Manners:
    """The outermost layer."""

    def __init__(self, app: App, service: Service, told: Told | None = None) -> None:
        self._app = app
        self._service = service
        self._told = told or _as_json

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await _Exchange(self._app, self._service, scope, receive, send, told=self._told).run()


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, app: App, service: Service, scope: Scope, receive: Receive, send: Send, *, told: Told
    ) -> None:
        self._app = app
        self._service = service
        self._told = told
        self._scope = scope
        self._receive = receive
        self._send = send
        self._status = 0
        self._got = 0
        self._passed = 0  # pieces of the answer that are on their way
        self._too_large = False
        self._comes_more = False  # of the body
        self._refused = False
        self._refused_at: float | None = None  # what comes after it is dropped
        self._headers = dict(scope["headers"])
        given = self._headers.get(b"x-request-id", b"").decode("latin-1")
        self._id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = self._id

    async def run(self) -> None:
        service = self._service
        began = service.clock.monotonic()
        structlog.contextvars.bind_contextvars(request_id=self._id)
        service.metrics.open_requests.inc()
        try:
            await self._within_limits()
        finally:
            service.metrics.open_requests.dec()
            ended = service.clock.monotonic() if self._refused_at is None else self._refused_at
            lasted_s = ended - began
            route = self._route()
            service.metrics.answered(self._scope["method"], route, self._status, lasted_s)
            log.info(
                "request",
                method=self._scope["method"],
                route=route,
                status=self._status,
                ms=round(lasted_s * 1_000, 1),
            )
            structlog.contextvars.unbind_contextvars("request_id")

    async def _within_limits(self) -> None:
        limit = self._service.settings.body_limit
        length = self._headers.get(b"content-length", b"0")
        if length.isdigit() and (len(length) > _MOST_DIGITS or int(length) > limit):
            waits = b"expect" in self._headers  # to be asked for its body
            await self._refuse(_too_large(limit), comes_more=not waits)
            return
        timeout_s = self._service.settings.request_timeout_s
        task = asyncio.ensure_future(self._app(self._scope, self._counted, self._polished))
        try:
            await self._in_time(task, None if self._streams() else timeout_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.done():  # a thread cannot be stopped: answer, and let it end on its own
            log.warning("request_timed_out", route=self._route())
            task.add_done_callback(_forget)
            if self._status:  # nobody reads the rest of it
                task.cancel()
            await self._refuse(Unavailable(f"no answer within {timeout_s:g} s", code="timeout"))
            return
        if self._too_large:
            await self._refuse(_too_large(limit), comes_more=self._comes_more)
        elif (problem := task.exception()) is not None:
            await self._failed(problem)

    async def _in_time(self, task: asyncio.Future[None], limit_s: float | None) -> None:
        """Wait for the answer; a long one has this time for each piece, or slow lines had none."""
        passed = -1
        while not task.done() and self._passed != passed:
            passed = self._passed
            await asyncio.wait({task}, timeout=limit_s)

    async def _failed(self, problem: BaseException) -> None:
        """Our fault: told without a word of what it was; the log has it."""
        log.exception("request_failed", problem=problem, route=self._route())  # noqa: LOG004
        told = Problem(
            "something failed here; the log knows more under this request id",
            code="internal",
            details={"request_id": self._id},
        )
        await self._refuse(told, status=500)

    def _streams(self) -> bool:
        """Whether the answer is meant to go on for ever."""
        return bool(str(self._scope["path"]).endswith("/events"))

    def _route(self) -> str:
        """The route's pattern: the path itself may name a job or a site."""
        return str(getattr(self._scope.get("route"), "path", "unmatched"))

    async def _counted(self) -> Message:
        message = await self._receive()
        self._got += len(message.get("body", b""))
        self._comes_more = message.get("more_body", False)
        limit = self._service.settings.body_limit
        if self._got > limit:
            self._too_large = True
            raise _too_large(limit)
        return message

    async def _polished(self, message: Message) -> None:
        """Pass the answer on, with our headers; what comes after a refusal is dropped."""
        if self._refused or self._too_large:
            return
        await self._pass_on(message)

    async def _pass_on(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = list(message.get("headers", []))
            there = {name for name, _ in headers}
            headers += [(name, value) for name, value in HEADERS if name not in there]
            headers.append((b"x-request-id", self._id.encode()))
            if b"cache-control" not in there:
                fixed = str(self._scope["path"]).startswith("/static/") and self._status < 400  # noqa: PLR2004
                headers.append((b"cache-control", b"max-age=3600" if fixed else b"no-store"))
            if is_secure(Request(self._scope)):
                headers.append(HSTS)
            message = {**message, "headers": headers}
        await self._send(message)
        self._passed += 1

    async def _refuse(
        self, problem: Problem, status: int | None = None, *, comes_more: bool = False
    ) -> None:
        self._refused = True
        if self._status:  # the answer has begun: it can only be cut
            return
        code = status or problem.status
        answer = self._told(Request(self._scope), problem, code)
        headers = [*answer.raw_headers, (b"connection", b"close")]
        await self._pass_on({"type": "http.response.start", "status": code, "headers": headers})
        body = {"type": "http.response.body", "body": answer.body}
        if comes_more:
            await self._pass_on({**body, "more_body": True})
            self._refused_at = self._service.clock.monotonic()
            await self._drop_the_rest()
            body["body"] = b""
        await self._pass_on(body)

    async def _drop_the_rest(self) -> None:
        """Read on for a while: who still sends when the line is cut never sees the answer.

        A proxy makes a 502 of it.
        """
        dropped = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while dropped < LINGER_BYTES:
                    message = await self._receive()
                    if not message.get("more_body"):  # all of it, or whoever sent it is gone
                        return
                    dropped += len(message.get("body", b""))


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"a request holds at most {limit} bytes")


def _as_json(_request: Request, problem: Problem, status: int) -> Response:
    return JSONResponse(problem.body(), status_code=status)


def _forget(task: asyncio.Future[None]) -> None:
    """Look at how it ended, so that nobody complains that nobody looked."""
    if not task.cancelled():
        task.exception()
