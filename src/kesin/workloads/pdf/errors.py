"""Error codes of PDF jobs (the public ones of the seed, and internal ones), and their advice."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid, Problem
from kesin.workloads.common.advice import AdviceTexts

ADVICE: Final = AdviceTexts("kesin.workloads.pdf")  # also for batches and webhooks


class PdfErrorCode(StrEnum):
    """The error codes that the API returns."""

    BROWSER_LAUNCH_FAILED = "BROWSER_LAUNCH_FAILED"
    NAVIGATION_TIMEOUT = "NAVIGATION_TIMEOUT"
    TEMPLATE_ERROR = "TEMPLATE_ERROR"
    UNSUPPORTED_PLATFORM = "UNSUPPORTED_PLATFORM"
    UNKNOWN = "UNKNOWN"
    MISSING_GLYPHS = "MISSING_GLYPHS"  # this and the next are ours; the others are the seed's
    NOT_CONFORMING = "NOT_CONFORMING"
    PASSWORD_GONE = "PASSWORD_GONE"  # noqa: S105  # a code


ARTIFACT_WRITE_FAILED: Final = "ARTIFACT_WRITE_FAILED"
TEMPLATE_TOO_COSTLY: Final = "TEMPLATE_TOO_COSTLY"
PICTURES_TOO_LARGE: Final = "PICTURES_TOO_LARGE"
DOCUMENT_TOO_SLOW: Final = "DOCUMENT_TOO_SLOW"
DOCUMENT_TOO_COSTLY: Final = "DOCUMENT_TOO_COSTLY"
UPLOAD_GONE: Final = "UPLOAD_GONE"
HTML_REFUSED: Final = "HTML_REFUSED"

# Internal codes that are finer than a public one; the rest are UNKNOWN outside.
_PUBLIC: Final = {
    TEMPLATE_TOO_COSTLY: PdfErrorCode.TEMPLATE_ERROR,
    PICTURES_TOO_LARGE: PdfErrorCode.TEMPLATE_ERROR,
    DOCUMENT_TOO_SLOW: PdfErrorCode.NAVIGATION_TIMEOUT,
    DOCUMENT_TOO_COSTLY: PdfErrorCode.TEMPLATE_ERROR,
    UPLOAD_GONE: PdfErrorCode.TEMPLATE_ERROR,
    HTML_REFUSED: PdfErrorCode.TEMPLATE_ERROR,
}

TRANSIENT_ERRORS: Final = frozenset({PdfErrorCode.BROWSER_LAUNCH_FAILED, PdfErrorCode.NAVIGATION_TIMEOUT})
MAX_RETRIES: Final = 2

Details = Mapping[str, Any] | None


class RenderFailed(Exception):
    """Rendering failed; the code decides whether the job is retried."""

    def __init__(self, code: str, message: str, *, details: Details = None, **values: object) -> None:
        self.message = Message(message, **values) if values else message
        super().__init__(f"{code}: {self.message}")
        self.code = str(code)
        self.details = dict(details or {})


def invalid_fields(problems: Sequence[tuple[str, str, str]], code: str | None = None) -> Invalid:
    """Build the Problem of fields, each with a message and a rule."""
    fields = [dict(zip(("field", "message", "rule"), problem, strict=True)) for problem in problems]
    (name, problem, _), *_ = problems
    why, details = Message(problem), {"fields": fields}
    return Invalid("%(field)s %(problem)s", details=details, code=code, field=name, problem=why)


class Gone(Problem, status=410, code="gone"):
    """What was asked for existed, and is no longer."""


class TemplateError(RenderFailed):
    """The document can never be printed: its template, variables or options are to blame."""

    def __init__(self, message: str, *, details: Details = None, **values: object) -> None:
        super().__init__(PdfErrorCode.TEMPLATE_ERROR, message, details=details, **values)


def public_code(code: str | None) -> PdfErrorCode | None:
    if code is None:
        return None
    if code in PdfErrorCode.__members__:
        return PdfErrorCode(code)
    return _PUBLIC.get(code, PdfErrorCode.UNKNOWN)


def should_retry(error_code: PdfErrorCode, retry_count: int) -> bool:
    return error_code in TRANSIENT_ERRORS and retry_count < MAX_RETRIES
