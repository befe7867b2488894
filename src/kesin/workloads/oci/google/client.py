"""Authorised requests to Google, in groups, and what their failures and trials mean.

A request that is refused as a whole records nothing, and is halved and sent again.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain
from typing import Any, Final, NamedTuple

from kesin.foundation.messages import Message, shorten
from kesin.lifecycle.errors import Category
from kesin.store.limits import MAX_MESSAGE
from kesin.workloads.oci.conversions.conversion import Conversion
from kesin.workloads.oci.google import http
from kesin.workloads.oci.google.channel import (
    MAX_ROWS,
    NOT_SENT,
    Channel,
    ConnectionTrouble,
    Finding,
    RequestFailure,
    RowAccepted,
    RowRefused,
    TroubleKind,
    UploadResult,
    UploadRow,
)
from kesin.workloads.oci.google.classify import CIRCUIT_OPEN, REQUEST_REFUSED, classify_response
from kesin.workloads.oci.google.credentials import AccessTokens, GoogleCredentials, TokenRefused
from kesin.workloads.oci.google.http import GoogleResponse


class GoogleChannel(Channel):
    """What the channels to Google share: an address, and requests with a site's access token."""

    def __init__(self, client: http.BoundedHttpClient, tokens: AccessTokens, base_url: str) -> None:
        self._http = client
        self._tokens = tokens
        self._base_url = base_url

    def precheck(self, credentials: GoogleCredentials) -> ConnectionTrouble | None:
        """The problem with the access token, if none was issued."""
        try:
            self._tokens.get(credentials)
        except TokenRefused as problem:
            return _token_failure(problem).trouble
        return None

    def _send(
        self,
        credentials: GoogleCredentials,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        **request: Any,
    ) -> GoogleResponse | RequestFailure:
        """Send a request; if Google rejects the token, send it once more with a new one."""
        for is_last in (False, True):
            try:
                token = self._tokens.get(credentials)
            except TokenRefused as problem:
                return _token_failure(problem)
            all_headers = {**(headers or {}), "Authorization": f"Bearer {token}"}
            url = f"{self._base_url}/{path}"
            response = self._http.request(method, url, headers=all_headers, **request)
            if isinstance(response, http.NoResponse):
                sent = response.code != http.UNSENDABLE
                kind: TroubleKind = "TRANSIENT" if sent else "AUTH"
                return _failure(response.code, response.message, kind, sent=sent)
            if is_last or response.status != http.UNAUTHENTICATED:
                return response
            self._tokens.forget(credentials, token)
        raise AssertionError("the second attempt returns")


def failure_of(response: GoogleResponse) -> RequestFailure:
    """The failure of a response that is not 200."""
    refused, kind = classify_response(response.status, response.body)
    refused = replace(refused, note=event_note(response.request_id))
    if kind is None:
        return RequestFailure(refused)
    wait_s = http.retry_after_s(response)
    return RequestFailure(refused, ConnectionTrouble(kind, refused.code, refused.message, wait_s))


def event_note(request_id: str, **more: Any) -> dict[str, Any] | None:
    """Build the note of a row's event, for Google support."""
    return {"requestId": request_id, **more} if request_id else more or None


def _failure(code: str, message: str, kind: TroubleKind, *, sent: bool) -> RequestFailure:
    refused = RowRefused(code, message, Category(kind), None if sent else NOT_SENT)
    return RequestFailure(refused, ConnectionTrouble(kind, code, message))


def _token_failure(problem: TokenRefused) -> RequestFailure:
    kind: TroubleKind = "TRANSIENT" if problem.transient else "AUTH"
    return _failure(problem.code, problem.message, kind, sent=False)


MAX_REQUESTS: Final = 64  # of one delivery

Positions = Sequence[int]  # of rows in a delivery


class RequestReply(NamedTuple):
    """The response to one request: an outcome per row, or None for a row to send again."""

    rows: Sequence[RowAccepted | RowRefused | None]
    trouble: ConnectionTrouble | None = None
    request_id: str = ""


Send = Callable[[Sequence[UploadRow]], RequestReply | RequestFailure]


def chunk_positions(rows: Positions) -> list[Positions]:
    """Split these rows into as few requests as possible."""
    return [rows[start : start + MAX_ROWS] for start in range(0, len(rows), MAX_ROWS)]


def separate_twins(rows: Sequence[UploadRow]) -> list[Positions]:
    """Split rows with the same order id, or click and second: together, Google refuses both."""
    seen: dict[tuple[str, ...] | str, int] = {}
    layers: list[list[int]] = []
    for position, row in enumerate(rows):
        conversion = row.conversion
        # Each action has its own conversions.
        click = (*conversion.traces, str(conversion.at_us), conversion.action_id)
        layer = max(seen.get(click, 0), seen.get(conversion.order_id, 0))
        seen[click] = seen[conversion.order_id] = layer + 1
        if layer == len(layers):
            layers.append([])
        layers[layer].append(position)
    return [*chain.from_iterable(map(chunk_positions, layers))]


def deliver(rows: Sequence[UploadRow], parts: Sequence[Positions], send: Send) -> UploadResult:
    """Send all parts until one ends in trouble."""
    pending, requests, tried = deque(parts), 0, set[int]()
    outcomes: dict[int, RowAccepted | RowRefused] = {}
    request_ids: list[str] = []  # of the requests that Google took
    trouble: ConnectionTrouble | None = None
    halved: RowRefused | None = None  # why a request was
    while pending:
        part = pending.popleft()
        if trouble or requests >= MAX_REQUESTS:
            outcomes |= {at: _skipped(trouble, halved if at in tried else None) for at in part}
            continue
        requests += 1
        tried.update(part)
        reply = send([rows[at] for at in part])
        if isinstance(reply, RequestReply):
            trouble = reply.trouble
            request_ids.append(reply.request_id)
            replies = dict(zip(part, reply.rows, strict=True))
            outcomes |= {at: outcome for at, outcome in replies.items() if outcome}
            again = [at for at in part if replies[at] is None]
            pending.extendleft([again] if again else [])
        elif reply.trouble is None and len(part) > 1:
            halved, middle = reply.refused, len(part) // 2
            pending.extendleft((part[middle:], part[:middle]))
        else:
            trouble = reply.trouble
            outcomes |= dict.fromkeys(part, reply.refused)
    if halved and not request_ids and requests >= MAX_REQUESTS:  # no single row is to blame
        refusal = _refused_for("every request is refused: %(problem)s", halved)
        trouble = ConnectionTrouble("TRANSIENT", refusal.code, refusal.message)
        return UploadResult([replace(refusal, note=halved.note)] * len(rows), trouble)
    ids = tuple(filter(None, request_ids))
    return UploadResult([outcomes[at] for at in range(len(rows))], trouble, ids)


def _skipped(trouble: ConnectionTrouble | None, halved: RowRefused | None) -> RowRefused:
    """The outcome of a row that is not sent any more, maybe after a request that was halved."""
    if trouble is None and halved is not None:
        return _refused_for("refused with other rows and not yet sent alone: %(problem)s", halved)
    message = "not sent: the request before it failed"
    if trouble is None:
        message = Message("not sent: one run sends at most %(n)s requests", n=MAX_REQUESTS)
    return RowRefused(CIRCUIT_OPEN, message, Category.TRANSIENT, NOT_SENT)


def _refused_for(why: str, refused: RowRefused) -> RowRefused:
    """The outcome of a row that Google refused together with others."""
    message = shorten(Message(why, problem=Message(refused.message)), MAX_MESSAGE)
    return RowRefused(REQUEST_REFUSED, message, Category.TRANSIENT)


# A click id that cannot exist: the conversion is validated and never recorded.
TRIAL_CONVERSION: Final = Conversion(
    external_id="kesin-check",
    order_id="kesin-check",
    gclid="KesinChecksThisAccountNoRealClick",
    wbraid="",
    gbraid="",
    name="Kesin check",
    at=datetime(2026, 1, 1, 12, tzinfo=UTC),
    value=Decimal(1),
    currency="USD",
)

_TOKEN_CODES: Final = ("INVALID_GRANT", "TOKEN_", "OAUTH_TOKEN", "ACCESS_TOKEN", "UNAUTHENTICATED")
_ACTION_CODES: Final = (
    *("NO_CONVERSION_ACTION", "INVALID_CONVERSION_ACTION"),
    *("RESOURCE_NAME_", "RESOURCE_NOT_", "BAD_RESOURCE_ID"),
)
_ADVICE: Final = {
    "token": "Grant consent again and store the new refresh token; tokens expire after"
    " seven days while the consent screen is in testing",
    "account": "Check customer_id and login_customer_id, and that the user may use this account",
    "action": "The action must exist in this account, be enabled and track conversions from clicks",
    "later": "Google's response was inconclusive; try again in a few minutes",
}
_PASSED_DETAILS: Final = {
    "token": "Google issues access tokens",
    "account": "the account can be used",
    "action": "the conversion action accepts uploads",
}


def build_findings(outcome: RequestFailure | RequestReply) -> list[Finding]:
    """Build findings up to the first failure; an error about the trial row itself is not one."""
    rows = [outcome.refused] if isinstance(outcome, RequestFailure) else outcome.rows
    refusals = (each for each in rows if isinstance(each, RowRefused))
    refused = min(refusals, key=lambda each: each.category is not Category.AUTH, default=None)
    passed = [Finding(name, ok=True, detail=detail) for name, detail in _PASSED_DETAILS.items()]
    if refused is None or _is_about_row(outcome, refused):
        return passed
    code, why = refused.code, Message(refused.message)
    name = "action" if code.startswith(_ACTION_CODES) else "account"
    name = "token" if code.startswith(_TOKEN_CODES) else name
    detail = Message("%(field)s: %(problem)s", field=code, problem=why)
    advice = _ADVICE[name if refused.category is Category.AUTH else "later"]
    failed = Finding(name, ok=False, detail=detail, advice=advice, code=code)
    return [*passed[: list(_PASSED_DETAILS).index(name)], failed]


def _is_about_row(outcome: RequestFailure | RequestReply, refused: RowRefused) -> bool:
    if isinstance(outcome, RequestFailure):
        return outcome.trouble is None and refused.code != REQUEST_REFUSED
    unknown_click = "TOO_RECENT" in refused.code or refused.code.endswith("_NOT_FOUND")
    return refused.category in {Category.VALIDATION, Category.PERMANENT} or (
        unknown_click and refused.category is Category.TRANSIENT
    )
