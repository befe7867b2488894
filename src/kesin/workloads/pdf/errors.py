"""Error codes of PDF jobs: the public ones, and one internal code."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final


class PdfErrorCode(StrEnum):
    """The codes that the API returns."""

    BROWSER_LAUNCH_FAILED = "BROWSER_LAUNCH_FAILED"
    NAVIGATION_TIMEOUT = "NAVIGATION_TIMEOUT"
    TEMPLATE_ERROR = "TEMPLATE_ERROR"
    UNSUPPORTED_PLATFORM = "UNSUPPORTED_PLATFORM"
    UNKNOWN = "UNKNOWN"
    MISSING_GLYPHS = "MISSING_GLYPHS"  # ours; the others are the seed's


ARTIFACT_WRITE_FAILED: Final = "ARTIFACT_WRITE_FAILED"

TRANSIENT_ERRORS: Final = frozenset(
    {PdfErrorCode.BROWSER_LAUNCH_FAILED, PdfErrorCode.NAVIGATION_TIMEOUT}
)
MAX_RETRIES: Final = 2


class RenderFailed(Exception):
    """Rendering failed; the code decides whether the job is retried."""

    def __init__(
        self, code: str, message: str, *, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = str(code)
        self.message = message
        self.details = dict(details or {})


def public_code(code: str | None) -> PdfErrorCode | None:
    """Return the public code of an error; an internal code becomes UNKNOWN."""
    if code is None:
        return None
    try:
        return PdfErrorCode(code)
    except ValueError:
        return PdfErrorCode.UNKNOWN


def should_retry(error_code: PdfErrorCode, retry_count: int) -> bool:
    """Whether a failure is retried: transient errors only, up to MAX_RETRIES times."""
    return error_code in TRANSIENT_ERRORS and retry_count < MAX_RETRIES
