"""Problems of requests, with stable codes; a message says only what the caller may know."""

from collections.abc import Mapping
from typing import Any

from kesin.foundation.messages import Message


class Problem(Exception):  # an expected result, so the name does not end in Error
    """A request that cannot be fulfilled; ``values`` fill the placeholders of its message."""

    status = 400
    code = "bad_request"
    headers: Mapping[str, str] = {}  # of the response

    def __init_subclass__(cls, *, status: int | None = None, code: str | None = None) -> None:
        """Set the status and the code of a kind of problem; else they are those of its base."""
        cls.status, cls.code = status or cls.status, code or cls.code

    def __init__(
        self, message: str, *, code: str | None = None, details: Mapping[str, Any] | None = None, **values: object
    ) -> None:
        self.message = Message(message, **values) if values else message
        super().__init__(self.message)
        self.code = code or type(self).code
        self.details = dict(details or {})

    def body(self) -> dict[str, Any]:
        """The JSON body of the response."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details:
            error["details"] = self.details
        return {"error": error}


class Invalid(Problem, status=422, code="invalid"):
    """The request is readable but not valid."""


class NotFound(Problem, status=404, code="not_found"):
    """The object does not exist, or the caller may not see it."""


class NotSignedIn(Problem, status=401, code="not_signed_in"):
    """The caller is not authenticated."""

    headers: Mapping[str, str] = {"www-authenticate": "Bearer"}


class Forbidden(Problem, status=403, code="forbidden"):
    """The caller does not have permission."""


class RequestConflict(Problem, status=409, code="conflict"):
    """The object exists already, or has changed in the meantime."""


class TooLarge(Problem, status=413, code="too_large"):
    """The request is larger than allowed."""


class RequestTimeout(Problem, status=408, code="request_timeout"):
    """The request did not arrive in time."""


class TooManyRequests(Problem, status=429, code="too_many_requests"):
    """The caller exceeds a rate limit; ``retry_after_s`` says when to try again."""

    def __init__(self, message: str, *, retry_after_s: int, code: str | None = None, **values: object) -> None:
        super().__init__(message, code=code, details={"retry_after_s": retry_after_s}, **values)
        self.retry_after_s = retry_after_s
        self.headers = {"retry-after": str(retry_after_s)}


class Unavailable(Problem, status=503, code="unavailable"):
    """Temporarily unavailable: the store is unreachable, or the service is stopping."""
