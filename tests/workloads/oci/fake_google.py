"""Google as a local server: tokens, uploadClickConversions, events:ingest, requestStatus.

Requests are read and answers are built with the classes of the official client libraries, so what
is tested is Google's own shape. It behaves well by default: ``row_errors`` and
``event_errors`` judge single conversions, ``then`` and ``tokens_then`` take whole requests over,
with an answer or with one of ``google_faults``.
"""

import json
import re
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

import httpx
from google.protobuf import json_format

from kesin.workloads.oci.google.credentials import GoogleCredentials
from kesin.workloads.oci.google.http import BoundedHttpClient
from tests.workloads.oci import fake_data_manager
from tests.workloads.oci.fake_adjustments import AdjustmentsApi
from tests.workloads.oci.fake_data_manager import DataManagerApi, error_body
from tests.workloads.oci.fake_reports import ReportsApi
from tests.workloads.oci.google_library import VERSION, google_module


@cache
def _message(module: str, name: str) -> Any:
    """A message of the library, imported when a test wants it."""
    return getattr(google_module(module), name).pb()


def _upload_message(kind: str) -> Any:
    module = "services.types.conversion_upload_service"
    return _message(module, f"UploadClickConversions{kind}")()


_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d")
_UPLOAD = re.compile(r"/(v\d+)/customers/(\d+):uploadClickConversions")
_ADJUST = re.compile(r"/(v\d+)/customers/(\d+):uploadConversionAdjustments")
_SEARCH = re.compile(r"/(v\d+)/customers/(\d+)/googleAds:search")


class Wrong(NamedTuple):
    """An error: the enum by its field in ``ErrorCode``, a value of it, the field it is about."""

    group: str
    value: str
    field: str = "gclid"
    message: str = ""


class Came(NamedTuple):
    """A request as it came; the names of headers are in lower case."""

    path: str
    headers: dict[str, str]
    body: Any


class Whole(NamedTuple):
    """An answer to a whole request; a body that is no bytes is sent as JSON."""

    status: int
    body: Any = b""
    headers: dict[str, str] = {}  # noqa: RUF012  # never changed


Doing = Callable[["Handler"], None]  # something else than an answer


def upload_error(value: str, field: str = "gclid") -> Wrong:
    return Wrong("conversion_upload_error", value, field)


class GoogleServer(AdjustmentsApi, DataManagerApi, ReportsApi):
    """Use it as a context manager; every attribute may be changed while it runs."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.google = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        short_cut = partial(httpx.Client, mounts={self.url: _ShortCut(self)})
        self._clients = patch.object(httpx, "Client", short_cut)
        self.reset()

    def reset(self) -> None:
        """Behave well again and forget every request."""
        self.over.set()  # ends the requests that are still being answered
        self.over = threading.Event()
        self.account = "1234567890"
        self.manager = ""  # when set, requests must name it
        self.action = "customers/1234567890/conversionActions/987654321"
        self.actions: list[dict[str, Any]] = []  # more of them, with the fields of Google's message
        self.listed_as: dict[str, Any] = {"name": "Phone sale", "status": "ENABLED"}  # the first
        self.refresh_token = "the-refresh-token"
        self.client_secret = "the-client-secret"
        self.token_life_s = 3_599
        self.row_errors: Callable[[dict[str, Any]], Iterable[Wrong]] = lambda _row: ()
        self.came: list[Came] = []  # requests to the APIs, not those for tokens
        self.token_requests: list[dict[str, str]] = []
        self._clicks: set[tuple[str, str]] = set()
        self._next: deque[Whole | Doing] = deque()
        self._next_tokens: deque[Whole | Doing] = deque()
        self._valid: set[str] = set()
        AdjustmentsApi.reset(self)
        DataManagerApi.reset(self)
        ReportsApi.reset(self)

    def __enter__(self) -> Self:
        _upload_message("Request")  # else the first request would wait for the imports
        fake_data_manager.package()
        self._thread.start()
        self._clients.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.stop()
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    # For tests

    @property
    def url(self) -> str:
        """The base of both APIs."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def credentials(self, **changes: str) -> GoogleCredentials:
        """Credentials that work here, unless they are changed."""
        given = {
            "customer_id": self.account,
            "client_id": "client.apps.example",
            "client_secret": self.client_secret,
            "refresh_token": self.refresh_token,
            "conversion_action_resource_name": self.action,
            "login_customer_id": self.manager,
        }
        return GoogleCredentials.parse({**given, **changes})

    def then(self, *answers: Whole | Doing | partial[Whole]) -> None:
        """Answer the next API requests so, one each; afterwards it behaves well again.

        A `partial` is an answer that is made only now, of messages of the library.
        """
        self._next.extend(one() if isinstance(one, partial) else one for one in answers)

    def tokens_then(self, *answers: Whole | Doing) -> None:
        """The same for requests of tokens."""
        self._next_tokens.extend(answers)

    def expire_tokens(self) -> None:
        """Invalidate all tokens issued so far."""
        self._valid.clear()

    @property
    def uploads(self) -> list[list[dict[str, Any]]]:
        """The conversions or events of every request that has some."""
        bodies = [one.body for one in self.came if isinstance(one.body, dict)]
        return [body.get("conversions") or body.get("events") or [] for body in bodies]

    # The endpoints

    def is_to_answer(self, path: str) -> bool:
        """Whether the next request of this path has a whole answer."""
        scripted = self._next_tokens if path == "/token" else self._next
        return not scripted or isinstance(scripted[0], Whole)

    def answer(self, came: Came) -> Whole | Doing:
        path = urlsplit(came.path).path
        if path == "/token":
            return self._token(came.body)
        self.came.append(came)
        with self._lock:
            return self._next.popleft() if self._next else self._api(path, came)

    def _api(self, path: str, came: Came) -> Whole:
        is_valid = came.headers.get("authorization", "").removeprefix("Bearer ") in self._valid
        if path in ("/v1/events:ingest", "/v1/requestStatus:retrieve"):
            return self._data_manager(path, came, is_valid=is_valid)
        if not is_valid:
            wrong = Wrong("authentication_error", "OAUTH_TOKEN_INVALID", "")
            return refusal(401, "UNAUTHENTICATED", wrong)
        if upload := _UPLOAD.fullmatch(path):
            return self._upload(upload[1], upload[2], came)
        if adjust := _ADJUST.fullmatch(path):
            denied = self._denied(adjust[1], adjust[2], came)
            return denied or Whole(*self.adjust(came.body), {"request-id": f"a-{len(self.came)}"})
        if search := _SEARCH.fullmatch(path):
            return self._search(search[1], search[2], came)
        return Whole(404, b"<html>not here</html>")

    def _data_manager(self, path: str, came: Came, *, is_valid: bool) -> Whole:
        if not is_valid:
            expired = ("UNAUTHENTICATED", "ACCESS_TOKEN_EXPIRED")
            return Whole(*fake_data_manager.refused(401, *expired, domain="googleapis.com"))
        if path.endswith("events:ingest"):
            return Whole(*self.ingest(came.body, f"ingest-{len(self.came)}"))
        query = parse_qs(urlsplit(came.path).query)
        return Whole(*self.status({name: values[0] for name, values in query.items()}))

    def _token(self, form: dict[str, str]) -> Whole | Doing:
        with self._lock:
            self.token_requests.append(form)
            if self._next_tokens:
                return self._next_tokens.popleft()
            if form.get("client_secret") != self.client_secret:
                return Whole(401, {"error": "invalid_client", "error_description": "Unauthorized"})
            if form.get("refresh_token") != self.refresh_token:
                body = {"error": "invalid_grant", "error_description": "Token has been revoked."}
                return Whole(400, body)
            token = f"access-{len(self.token_requests)}"
            self._valid.add(token)
            return Whole(200, {"access_token": token, "expires_in": self.token_life_s})

    @property
    def action_ids(self) -> list[str]:
        """The ids of all conversion actions of the account, whatever their status."""
        return [self.action.rpartition("/")[2], *(str(action["id"]) for action in self.actions)]

    def _denied(self, version: str, customer: str, came: Came) -> Whole | None:
        if version != VERSION:
            return refusal(400, "INVALID_ARGUMENT", Wrong(
                "request_error", "UNSUPPORTED_VERSION", ""))  # fmt: skip
        if customer != self.account or came.headers.get("login-customer-id", "") != self.manager:
            return refusal(403, "PERMISSION_DENIED", Wrong(
                "authorization_error", "USER_PERMISSION_DENIED", ""))  # fmt: skip
        return None

    def _search(self, version: str, customer: str, came: Came) -> Whole:
        """Answer GAQL; every field must be one of Google's."""
        if denied := self._denied(version, customer, came):
            return denied
        service = "services.types.google_ads_service"
        asked = self.parse(came.body, _message(service, "SearchGoogleAdsRequest")())
        response = _message(service, "SearchGoogleAdsResponse")()
        if strange := self.report(asked.query, asked.page_token, response):
            self.malformed += strange
            return refusal(400, "INVALID_ARGUMENT", Wrong("query_error", "UNRECOGNIZED_FIELD", ""))
        return Whole(200, json_format.MessageToDict(response))

    def _upload(self, version: str, customer: str, came: Came) -> Whole:
        if denied := self._denied(version, customer, came):
            return denied
        try:
            asked = self.parse(came.body, _upload_message("Request"))
        except json_format.ParseError as problem:
            return Whole(400, error_body(400, "INVALID_ARGUMENT", str(problem)))
        if not asked.partial_failure:
            return refusal(400, "INVALID_ARGUMENT", Wrong(
                "partial_failure_error", "PARTIAL_FAILURE_MODE_REQUIRED", ""))  # fmt: skip
        rows = came.body["conversions"]
        if len(rows) > 2_000:
            return refusal(400, "INVALID_ARGUMENT", Wrong(
                "conversion_upload_error", "TOO_MANY_CONVERSIONS_IN_REQUEST", ""))  # fmt: skip
        wrong = self._judged(rows)
        if not asked.validate_only:
            for index, row in enumerate(rows):
                if index not in wrong:
                    self.recorded[row["orderId"]] = row
                    self._clicks.add(_click_of(row))
        response = upload_response(rows, wrong, results=not asked.validate_only)
        return Whole(200, response, {"request-id": f"request-{len(self.came)}"})

    def _judged(self, rows: list[dict[str, Any]]) -> dict[int, list[Wrong]]:
        orders = Counter(row["orderId"] for row in rows)
        clicks = Counter(_click_of(row) for row in rows)
        wrong: dict[int, list[Wrong]] = {}
        for index, row in enumerate(rows):
            found = list(self.row_errors(row))
            if row["conversionAction"].rpartition("/")[2] not in self.action_ids:
                found.append(upload_error("NO_CONVERSION_ACTION_FOUND", "conversion_action"))
            if "NoRealClick" in row.get("gclid", ""):
                found.append(upload_error("UNPARSEABLE_GCLID"))
            if not _TIME.fullmatch(row["conversionDateTime"]):
                value = "INVALID_STRING_DATE_TIME_SECONDS_WITH_OFFSET"
                found.append(Wrong("date_error", value, "conversion_date_time"))
            if orders[row["orderId"]] > 1:
                found.append(upload_error("DUPLICATE_ORDER_ID", "order_id"))
            elif clicks[_click_of(row)] > 1:
                found.append(upload_error("DUPLICATE_CLICK_CONVERSION_IN_REQUEST"))
            elif row["orderId"] in self.recorded:
                found.append(upload_error("ORDER_ID_ALREADY_IN_USE", "order_id"))
            elif _click_of(row) in self._clicks:
                found.append(upload_error("CLICK_CONVERSION_ALREADY_EXISTS"))
            if found:
                wrong[index] = found
        return wrong


def _click_of(row: dict[str, Any]) -> tuple[str, str]:
    clicks = [row[kind] for kind in ("gclid", "wbraid", "gbraid") if kind in row]
    people = [str(one) for one in row.get("userIdentifiers", ())]
    assert len(clicks) == 1 or (people and not clicks), "one click id is sent, or who it was"
    return (clicks or people)[0], row["conversionDateTime"] + row["conversionAction"]


# Answers, built from Google's own classes


def failure(
    errors: Iterable[tuple[int | None, Wrong]], request_id: str = "inside", *, field: str = "conversions"
) -> Any:
    """A `GoogleAdsFailure` of errors at these positions of this field."""
    message = _message("errors.types.errors", "GoogleAdsFailure")(request_id=request_id)
    for index, wrong in errors:
        error = message.errors.add(message=wrong.message or f"What {wrong.value} means.")
        group = error.error_code.DESCRIPTOR.fields_by_name[wrong.group]
        is_number = wrong.value.isdecimal()  # of a value that the package does not have yet
        number = wrong.value if is_number else group.enum_type.values_by_name[wrong.value].number
        setattr(error.error_code, wrong.group, int(number))
        if index is not None:
            error.location.field_path_elements.add(field_name=field, index=index)
        if wrong.field:
            error.location.field_path_elements.add(field_name=wrong.field)
    return message


def upload_response(
    rows: list[dict[str, Any]], wrong: dict[int, list[Wrong]], *, results: bool = True
) -> dict[str, Any]:
    """The body of a 200: a result a row, empty for those that are wrong, and their errors."""
    response = _upload_message("Response")
    if wrong:
        status = response.partial_failure_error
        status.code, status.message = 3, "Multiple errors, see details."
        failure_message = failure((index, one) for index, found in wrong.items() for one in found)
        status.details.add().Pack(failure_message)
    for index, row in enumerate(rows if results else ()):
        result = response.results.add()
        if index not in wrong:
            for kind in ("gclid", "gbraid", "wbraid"):
                setattr(result, kind, row.get(kind, ""))
            result.conversion_action = row["conversionAction"]
            result.conversion_date_time = row["conversionDateTime"]
    return json_format.MessageToDict(response)


def refusal(code: int, status: str, *wrong: Wrong, index: int | None = None, retry_s: int = 0) -> Whole:
    """A request that is refused as a whole."""
    failure_message = failure((index, one) for one in wrong)
    if retry_s:
        failure_message.errors[0].details.quota_error_details.retry_delay.seconds = retry_s
    body = error_body(code, status, "Request contains an invalid argument.", failure_message)
    return Whole(code, body, {"request-id": "refused"})


# HTTP


def _read(path: str, headers: dict[str, str], content: bytes) -> Came:
    """A request with JSON, a form or nothing in it."""
    if headers.get("content-type") == "application/json":
        return Came(path, headers, json.loads(content))
    form = parse_qs(content.decode())
    return Came(path, headers, {name: values[0] for name, values in form.items()} or None)


def _content_of(answer: Whole) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()


class _ShortCut(httpx.BaseTransport):
    """Whole answers come without a connection, at a third of the cost; for all else there is one."""

    def __init__(self, google: GoogleServer) -> None:
        self._google = google
        self._wire: httpx.HTTPTransport | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not self._google.is_to_answer(request.url.path):
            self._wire = self._wire or httpx.HTTPTransport()
            return self._wire.handle_request(request)
        headers = {name.lower(): value for name, value in request.headers.items()}
        answer = self._google.answer(_read(request.url.raw_path.decode(), headers, request.content))
        assert isinstance(answer, Whole)
        return httpx.Response(answer.status, headers=answer.headers, stream=httpx.ByteStream(_content_of(answer)))

    def close(self) -> None:
        if self._wire:
            self._wire.close()
            self._wire = None


class Handler(BaseHTTPRequestHandler):
    @property
    def google(self) -> GoogleServer:
        return self.server.google  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.google.answer(_read(self.path, headers, content))
        if not isinstance(answer, Whole):
            self.close_connection = True
            answer(self)
            return
        content = _content_of(answer)
        self.send_response_only(answer.status)  # no date of its own
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def http_client(timeout_s: float, monotonic: Callable[[], float]) -> Iterator[BoundedHttpClient]:
    """A client of the server, closed in the end."""
    client = BoundedHttpClient(timeout_s, monotonic=monotonic)
    with closing(client.client):
        yield client
