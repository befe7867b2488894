"""One exchange with Google over HTTP, bounded in size and time.

Whatever the network does becomes a value: nothing here raises for it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

import httpx

from kesin.foundation.text import storable

OK: Final = 200
UNAUTHENTICATED: Final = 401
UNSENDABLE: Final = "REQUEST_UNSENDABLE"
MAX_ANSWER: Final = 32 * 2**20  # bytes; two thousand errors are about two million
LONGEST_WAIT_S: Final = 86_400.0
TIMEOUT_S: Final = 60.0  # for a client that has none
_DEADLINE: Final = 4  # an answer as a whole may take so many times the timeout
_DELAY: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s")


class Answer(NamedTuple):
    """What came back; ``body`` is None where it is no JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def request_id(self) -> str:
        """Google's name for the request, for its support."""
        for name in ("request-id", "x-request-id", "x-goog-request-id"):
            if found := self.headers.get(name):
                return found[:200]
        for detail in details_of(self.body):
            found = detail.get("requestId")
            if isinstance(found, str):
                return storable(found)[:200]
        return ""


class Unreached(NamedTuple):
    """No answer, or half of one: nobody knows what Google did."""

    code: str
    message: str


class Wire:
    """An HTTP client with its limits."""

    def __init__(self, client: httpx.Client, *, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._timeout_s = client.timeout.read or TIMEOUT_S

    def exchange(self, method: str, url: str, **request: Any) -> Answer | Unreached:
        """Ask once. Redirects are not followed: they would carry the token elsewhere."""
        ends_at = self._monotonic() + _DEADLINE * self._timeout_s
        try:
            with self._client.stream(
                method, url, timeout=self._timeout_s, follow_redirects=False, **request
            ) as response:
                content = bytearray()
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > MAX_ANSWER:
                        return Unreached("UNREADABLE_RESPONSE", "the answer is too long")
                    if self._monotonic() > ends_at:
                        return Unreached("TIMEOUT", "the answer took too long")
                return Answer(response.status_code, response.headers, read_json(bytes(content)))
        except httpx.TimeoutException as problem:
            return Unreached("TIMEOUT", f"no answer in time ({type(problem).__name__})")
        except httpx.HTTPError as problem:
            return Unreached("CONNECTION_FAILED", f"no answer ({type(problem).__name__})")
        except (httpx.InvalidURL, ValueError) as problem:  # a header or address with odd signs
            message = f"the request cannot be sent ({type(problem).__name__})"
            return Unreached(UNSENDABLE, message)


def read_json(content: bytes) -> Any:
    """The value, or None if it is no JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def details_of(body: Any) -> list[dict[str, Any]]:
    """The details of an error, whether it is one of the request or of some of its rows."""
    told = body if isinstance(body, dict) else {}
    error = told.get("error") or told.get("partialFailureError")
    details = error.get("details") if isinstance(error, dict) else None
    return [one for one in details if isinstance(one, dict)] if isinstance(details, list) else []


def retry_after_s(answer: Answer) -> float | None:
    """How long Google asks to wait: in a header, or in the details of a quota error."""
    given = answer.headers.get("retry-after", "").strip()
    if given.isdecimal() and given.isascii():
        return _bounded(float(given[:10]))
    asked = [] if not given else [_until(given, answer.headers.get("date", ""))]
    asked += [_delay(one) for one in _delays(answer.body)]
    known = [one for one in asked if one is not None]
    return max(known, default=None)


def _until(given: str, date: str) -> float | None:
    """An HTTP date, measured by the clock of the server that wrote it."""
    try:
        return _bounded(
            (parsedate_to_datetime(given) - parsedate_to_datetime(date)).total_seconds()
        )
    except (TypeError, ValueError, OverflowError):
        return None


def _delay(given: Any) -> float | None:
    found = _DELAY.fullmatch(given) if isinstance(given, str) else None
    return _bounded(float(found[1])) if found else None


def _bounded(seconds: float) -> float | None:
    return min(max(seconds, 0.0), LONGEST_WAIT_S) if math.isfinite(seconds) else None


def _delays(body: Any) -> Iterator[Any]:
    """Every ``retryDelay`` in an error body: of ``QuotaErrorDetails`` or of ``RetryInfo``."""
    for detail in details_of(body):
        yield detail.get("retryDelay")
        errors = detail.get("errors")
        for one in errors if isinstance(errors, list) else ():
            more = one.get("details") if isinstance(one, dict) else None
            quota = more.get("quotaErrorDetails") if isinstance(more, dict) else None
            if isinstance(quota, dict):
                yield quota.get("retryDelay")
