"""HTTP requests to Google, bounded in size and time; a failure is a value, never raised."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kesin.foundation.messages import Message
from kesin.foundation.text import decode_json, storable

if TYPE_CHECKING:
    import httpx

OK: Final = 200
BAD_REQUEST: Final = 400
UNAUTHENTICATED: Final = 401
UNSENDABLE: Final = "REQUEST_UNSENDABLE"
MAX_RESPONSE_BYTES: Final = 32 * 2**20  # two thousand errors are about two million
MAX_DIGITS: Final = 9  # of a count
MAX_RETRY_AFTER_S: Final = 86_400.0
_DEADLINE_TIMEOUTS: Final = 4  # a whole response may take this many timeouts
_DELAY: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s")


class GoogleResponse(NamedTuple):
    """A response; ``body`` is text if it is not JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def request_id(self) -> str:
        for name in ("request-id", "x-request-id", "x-goog-request-id"):
            if request_id := self.headers.get(name):
                return request_id[:200]
        request_ids = (text_at(detail, "requestId") for detail in details_of(self.body))
        return storable(next(filter(None, request_ids), ""))[:200]


class NoResponse(NamedTuple):
    """No response, or a partial one: it is unknown what Google did."""

    code: str
    message: str


class BoundedHttpClient:
    """An HTTP client with limits on time and size; its first request imports httpx."""

    def __init__(self, timeout_s: float, *, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._timeout_s = timeout_s

    @cached_property
    def client(self) -> "httpx.Client":
        """The connections, which threads share from their first requests on."""
        import httpx  # it takes time, and most processes send none

        return httpx.Client(timeout=self._timeout_s, follow_redirects=False)

    def request(self, method: str, url: str, **options: Any) -> GoogleResponse | NoResponse:
        """Send one request. Redirects are not followed: they would leak the token."""
        import httpx

        deadline = self.monotonic() + _DEADLINE_TIMEOUTS * self._timeout_s
        try:
            with self.client.stream(method, url, **options) as response:
                content = bytearray()
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > MAX_RESPONSE_BYTES:
                        return NoResponse("UNREADABLE_RESPONSE", "the response is too long")
                    if self.monotonic() > deadline:
                        return NoResponse("TIMEOUT", "the response took too long")
                body = decode_json(content.decode("utf-8", "replace"))
                return GoogleResponse(response.status_code, response.headers, body)
        except httpx.TimeoutException as problem:
            code, why, name = "TIMEOUT", "no response in time: %(problem)s", type(problem).__name__
        except httpx.HTTPError as error:
            code, why, name = "CONNECTION_FAILED", "no response: %(problem)s", type(error).__name__
        except (httpx.InvalidURL, ValueError) as problem:  # invalid characters in a header or URL
            name, why = type(problem).__name__, "the request cannot be sent (%(problem)s)"
            code = UNSENDABLE
        return NoResponse(code, Message(why, problem=name))


def details_of(body: Any) -> list[dict[str, Any]]:
    """The details of a request error or of a partial failure."""
    return objects(dig(dig(body, "error") or dig(body, "partialFailureError"), "details"))


def retry_after_s(response: GoogleResponse) -> float | None:
    """The wait Google asks for, in a header or in the details of a quota error."""
    header = response.headers.get("retry-after", "").strip()
    if header.isdecimal() and header.isascii():
        return _bounded(float(header[:10]))
    waits = [] if not header else [_seconds_until(header, response.headers.get("date", ""))]
    delays = map(_DELAY.fullmatch, _retry_delays(response.body))
    waits += [_bounded(float(delay[1])) for delay in delays if delay]
    return max((wait for wait in waits if wait is not None), default=None)


def _seconds_until(moment: str, date: str) -> float | None:
    """The seconds until an HTTP date, by the clock of the server that wrote it."""
    try:
        wait = parsedate_to_datetime(moment) - parsedate_to_datetime(date)
        return _bounded(wait.total_seconds())
    except (TypeError, ValueError, OverflowError):
        return None


def _bounded(seconds: float) -> float | None:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S) if math.isfinite(seconds) else None


def _retry_delays(body: Any) -> Iterator[str]:
    """Every ``retryDelay`` in an error body: of ``QuotaErrorDetails`` or of ``RetryInfo``."""
    for detail in details_of(body):
        yield text_at(detail, "retryDelay")
        for error in objects(detail.get("errors")):
            yield text_at(error, "details", "quotaErrorDetails", "retryDelay")


def dig(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def count_of(value: Any) -> int:
    """A count, which JSON has as text; 0 for what is none, since Google leaves out zeros."""
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else 0


def text_at(value: Any, *path: str) -> str:
    """The text at this path, or none."""
    text = dig(value, *path)
    return text if isinstance(text, str) else ""
