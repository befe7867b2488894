"""What can go wrong for somebody who asks, each with a code a program can rely on.

The same problem reads the same on the command line and over HTTP. The message is for a person and
holds nothing that person may not know; the status is HTTP's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Problem(Exception):  # what happened, not an error of ours
    """Something asked for that cannot be had."""

    status = 400
    code = "bad_request"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.details = dict(details or {})

    def body(self) -> dict[str, Any]:
        """As it is sent."""
        told: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details:
            told["details"] = self.details
        return {"error": told}


class Invalid(Problem):
    """The request can be read and makes no sense."""

    status = 422
    code = "invalid"


class Unknown(Problem):
    """No such thing, or none that the asker may know of."""

    status = 404
    code = "not_found"


class NotSignedIn(Problem):
    """Nobody is known to be asking."""

    status = 401
    code = "not_signed_in"


class Refused(Problem):
    """The asker may not do this."""

    status = 403
    code = "forbidden"


class Clash(Problem):
    """It is there already, or not as it was."""

    status = 409
    code = "conflict"


class TooLarge(Problem):
    """More than is taken."""

    status = 413
    code = "too_large"


class TooMany(Problem):
    """Too often; ``retry_after_s`` says when to come back."""

    status = 429
    code = "too_many_requests"

    def __init__(self, message: str, *, retry_after_s: int, code: str | None = None) -> None:
        super().__init__(message, code=code, details={"retry_after_s": retry_after_s})
        self.retry_after_s = retry_after_s


class Unavailable(Problem):
    """Not now: the store is away, or the service is stopping."""

    status = 503
    code = "unavailable"
