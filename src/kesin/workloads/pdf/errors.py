"""What can go wrong with a PDF, in the seed's words; one of our own stays inside."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final


class PdfErrorCode(StrEnum):
    """What a user of the API may be told."""

    BROWSER_LAUNCH_FAILED = "BROWSER_LAUNCH_FAILED"
    NAVIGATION_TIMEOUT = "NAVIGATION_TIMEOUT"
    TEMPLATE_ERROR = "TEMPLATE_ERROR"
    UNSUPPORTED_PLATFORM = "UNSUPPORTED_PLATFORM"
    UNKNOWN = "UNKNOWN"


ARTIFACT_WRITE_FAILED: Final = "ARTIFACT_WRITE_FAILED"

TRANSIENT_ERRORS: Final = frozenset(
    {PdfErrorCode.BROWSER_LAUNCH_FAILED, PdfErrorCode.NAVIGATION_TIMEOUT}
)
MAX_RETRIES: Final = 2


class RenderFailed(Exception):
    """No PDF came of it; the code decides whether it is tried again."""

    def __init__(
        self, code: str, message: str, *, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = str(code)
        self.message = message
        self.details = dict(details or {})


def shown(code: str | None) -> PdfErrorCode | None:
    """The code as it is told outside: what is ours alone is UNKNOWN there."""
    if code is None:
        return None
    try:
        return PdfErrorCode(code)
    except ValueError:
        return PdfErrorCode.UNKNOWN


def should_retry(error_code: PdfErrorCode, retry_count: int) -> bool:
    """Whether a failure is worth another try: passing ones, twice."""
    return error_code in TRANSIENT_ERRORS and retry_count < MAX_RETRIES
