"""Around every request: an id, limits, security headers, a log line with nothing personal."""

import asyncio
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog
from fastapi import Request
from fastapi.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from kesin.foundation.logs import Logger
from kesin.foundation.problems import NotSignedIn, Problem, RequestTimeout, TooLarge, Unavailable
from kesin.store.errors import StoreTrouble, StoreUnreachable
from kesin.web.auth import identify, is_secure
from kesin.web.bodies import body_limit_of, is_sign_in_required
from kesin.web.dependencies import SIGN_IN
from kesin.web.service import Service

log = Logger("kesin.http")

RenderProblem = Callable[[Request, Problem, int], Response]  # how a refused request is answered

DRAIN_BYTES: Final = 32 << 20  # of a refused body, read and discarded
DRAIN_S: Final = 5.0
_MAX_LENGTH_DIGITS: Final = 15
_PORT: Final = re.compile(r":[0-9]*$")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
FRAMING_CSP: Final = f"{CSP}; frame-src 'self'"  # for pages that show our documents in a frame
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


@dataclass(frozen=True, slots=True)
class RequestMiddleware:
    """The outermost ASGI layer."""

    app: ASGIApp
    service: Service
    render_problem: RenderProblem

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await _Exchange(self, scope, receive, send).run()
        else:
            await self.app(scope, receive, send)


class _Exchange:
    def __init__(self, layer: RequestMiddleware, scope: Scope, receive: Receive, send: Send) -> None:
        self._app = layer.app
        self._service = layer.service
        self._render_problem = layer.render_problem
        self._scope = scope
        self._receive = receive
        self._send = send
        self._status = 0
        self._limit = layer.service.settings.largest_body
        self._received_bytes = 0
        self._chunks_sent = 0
        self._problem: Problem | None = None  # why the body is not read, or not read on
        self._body_deadline: float | None = None  # set when the caller is admitted
        self._refused = False
        self._refused_at: float | None = None  # the rest of the body is discarded
        self._headers = dict(scope["headers"])
        self._length = self._headers.get(b"content-length", b"0")
        self._more_body = self._length.strip(b"0") != b"" or b"transfer-encoding" in self._headers
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
            lasted_s, ms = ended - began, round((ended - began) * 1_000, 1)
            method, route = self._scope["method"], self._route()
            service.metrics.record_request(method, route, self._status, lasted_s)
            log.info("request", method=method, route=route, status=self._status, ms=ms)
            structlog.contextvars.unbind_contextvars("request_id")

    async def _within_limits(self) -> None:
        try:
            self._check_host()
            self._check_length()
        except Problem as problem:
            await self._refuse(problem)
            return
        timeout_s = self._service.settings.request_timeout_s
        task = asyncio.ensure_future(self._app(self._scope, self._receive_counted, self._send_unless_refused))
        try:
            has_no_end = str(self._scope["path"]).endswith("/events")
            chunks_sent = -1  # each chunk has this much time, so slow clients get long responses
            while not task.done() and self._chunks_sent != chunks_sent:
                chunks_sent = self._chunks_sent
                await asyncio.wait({task}, timeout=None if has_no_end else timeout_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.done():  # a thread cannot be stopped: respond, and let it end by itself
            log.warning("request_timed_out", route=self._route())
            # Retrieved, so that asyncio does not report it as never retrieved.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            if self._status:  # the rest of the response is not read
                task.cancel()
            self._more_body = False  # the task may still read it
            await self._refuse(Unavailable("no response within %(n)s s", code="timeout", n=f"{timeout_s:g}"))
            return
        failure = task.exception()
        if self._problem is not None:
            await self._refuse(self._problem)
        elif failure is not None:
            log.exception("request_failed", problem=failure, route=self._route())  # noqa: LOG004
            why = "an internal error occurred; search the log for this request id"
            details = {"request_id": self._id}
            await self._refuse(Problem(why, code="internal", details=details), status=500)

    def _check_host(self) -> None:
        """Raise a Problem for a request to a host that is not ours, if the settings name ours."""
        allowed = self._service.settings.allowed_host_names
        host = self._headers.get(b"host", b"").decode("latin-1")
        if allowed and _PORT.sub("", host).lower() not in allowed:
            raise Problem("the host name does not belong to this service", code="wrong_host")

    def _check_length(self) -> None:
        """Raise a Problem for a body that announces two lengths, or one above the limit."""
        if b"content-length" in self._headers and b"transfer-encoding" in self._headers:
            raise Problem(  # a proxy in front may have believed the other one
                "a request must not have both a Content-Length and a Transfer-Encoding", code="bad_request"
            )
        length = self._length
        if length.isdigit() and (len(length) > _MAX_LENGTH_DIGITS or int(length) > self._limit):
            raise _too_large(self._limit)

    def _route(self) -> str:
        """The route's pattern; the path itself may name a job or a site."""
        return str(getattr(self._scope.get("route"), "path", "unmatched"))

    async def _receive_counted(self) -> AsgiMessage:
        """Receive for the app: nothing before the caller is admitted, and no more than allowed."""
        if self._problem is None:
            try:
                return await self._receive_within_limits()
            except Problem as problem:
                self._problem = problem
            except StoreUnreachable as problem:
                log.warning("store_unreachable", why=str(problem))
                self._problem = store_unavailable(problem)
        raise self._problem

    async def _receive_within_limits(self) -> AsgiMessage:
        if self._body_deadline is None:
            if self._more_body:
                await self._admit()
            timeout_s = self._service.settings.body_timeout_s
            self._body_deadline = asyncio.get_running_loop().time() + timeout_s
        elif not self._more_body:  # the app waits for the end of the connection
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._body_deadline):
                message = await self._receive()
        except TimeoutError:
            self._more_body = False  # the rest is not waited for
            within = f"{self._service.settings.body_timeout_s:g}"
            raise RequestTimeout("the body did not arrive within %(n)s s", n=within) from None
        self._received_bytes += len(message.get("body", b""))
        self._more_body = message.get("more_body", False)
        if self._received_bytes > self._limit:
            raise _too_large(self._limit)
        return message

    async def _admit(self) -> None:
        """Identify the caller before anything of the body is read; raises a Problem."""
        request = Request(self._scope)
        await identify(request)
        route = self._scope.get("route")
        if not request.state.actor.grants and is_sign_in_required(route):
            raise NotSignedIn(SIGN_IN)
        self._limit = body_limit_of(route, self._service.settings.body_limit)
        self._check_length()

    async def _send_unless_refused(self, message: AsgiMessage) -> None:
        """Send a message of the app, unless the request was refused meanwhile."""
        if self._refused or self._problem is not None:
            return
        await self._send_with_headers(message)

    async def _send_with_headers(self, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = list(message.get("headers", []))
            present = {name for name, _ in headers}
            headers += [(name, value) for name, value in HEADERS if name not in present]
            headers.append((b"x-request-id", self._id.encode()))
            if b"cache-control" not in present:
                cacheable = str(self._scope["path"]).startswith("/static/") and self._status < 400  # noqa: PLR2004
                headers.append((b"cache-control", b"max-age=3600" if cacheable else b"no-store"))
            if is_secure(Request(self._scope)):
                headers.append(HSTS)
            message = {**message, "headers": headers}
        await self._send(message)
        self._chunks_sent += 1

    async def _refuse(self, problem: Problem, status: int | None = None) -> None:
        self._refused = True
        if self._status:  # the response has begun: it can only be cut off
            return
        code = status or problem.status
        response = self._render_problem(Request(self._scope), problem, code)
        headers = [*response.raw_headers, (b"connection", b"close")]
        await self._send_with_headers({"type": "http.response.start", "status": code, "headers": headers})
        body = {"type": "http.response.body", "body": response.body}
        if self._more_body and b"expect" not in self._headers:  # else the client waits with it
            await self._send_with_headers({**body, "more_body": True})
            self._refused_at = self._service.clock.monotonic()
            await self._drain_body()
            body["body"] = b""
        await self._send_with_headers(body)

    async def _drain_body(self) -> None:
        """Read on for a while: a client that still sends sees no response, and its proxy a 502."""
        drained = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while drained < DRAIN_BYTES:
                    message = await self._receive()
                    if not message.get("more_body"):  # complete, or the client has gone
                        return
                    drained += len(message.get("body", b""))


def store_unavailable(problem: Exception) -> Unavailable:
    """The answer while a store does not work; only the log says where the store is."""
    if not isinstance(problem, StoreTrouble):
        return Unavailable("the store is not responding: try again", code="store_away")
    if problem.code == "disk_full":
        return Unavailable("the disk is full and nothing was written: free up disk space", code=problem.code)
    return Unavailable("the store's disk is failing: run `kesin doctor`", code=problem.code)


def _too_large(limit: int) -> TooLarge:
    return TooLarge("a request may be at most %(most)s bytes", most=limit)
