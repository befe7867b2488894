"""The interface of the upload channels, which never raise for what the network or Google does."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, Protocol, Self

from kesin.lifecycle.errors import Category
from kesin.workloads.oci.conversions.conversion import Conversion
from kesin.workloads.oci.conversions.identifiers import hide_clicks
from kesin.workloads.oci.google.credentials import GoogleCredentials

TroubleKind = Literal["TRANSIENT", "RATE_LIMIT", "AUTH"]
RequestState = Literal["SUCCESS", "PARTIAL_SUCCESS", "FAILURE", "PROCESSING", "UNKNOWN"]
BAD_STATES: Final = ("PARTIAL_SUCCESS", "FAILURE")

MAX_ROWS: Final = 2_000  # of one request, on both channels
NOT_SENT: Final[Mapping[str, Any]] = {"sent": False}  # the note of a row that was not sent


class UploadRow(NamedTuple):
    """A conversion to upload, or with ``adjusted`` an adjustment of one, with the job of it."""

    job_id: str
    conversion: Conversion  # of a RESTATE with its new value and currency
    adjusted: tuple[str, datetime] | None = None  # RETRACT or RESTATE, and when


@dataclass(frozen=True, slots=True)
class RowAccepted:
    """Google has the row; with a code, it already had it."""

    code: str | None = None
    message: str = ""
    note: Mapping[str, Any] | None = None  # request id and details for Google support


@dataclass(frozen=True, slots=True)
class RowRefused:
    """Google did not take the row, or it is unknown whether it did."""

    code: str
    message: str
    category: Category
    note: Mapping[str, Any] | None = None

    @property
    def was_sent(self) -> bool:
        """Whether the row was sent; a row that was not costs no attempt."""
        return self.note is None or self.note.get("sent", True) is not False


@dataclass(frozen=True, slots=True)
class ConnectionTrouble:
    """A problem of the site's connection as a whole; its breaker records it."""

    kind: TroubleKind
    code: str
    message: str
    retry_after_s: float | None = None


class RequestFailure(NamedTuple):
    """A request that failed as a whole; without ``trouble``, because of rows not named."""

    refused: RowRefused
    trouble: ConnectionTrouble | None = None


@dataclass(frozen=True, slots=True)
class UploadResult:
    """The outcome of each row, in order, and the trouble with the connection."""

    rows: Sequence[RowAccepted | RowRefused]
    trouble: ConnectionTrouble | None = None
    request_ids: tuple[str, ...] = ()

    def without_clicks(self, clicks: Collection[str]) -> Self:
        """The same with these click ids masked in every message: it may be about other rows."""
        rows = [replace(row, message=hide_clicks(row.message, clicks)) for row in self.rows]
        trouble = self.trouble
        if trouble is not None:
            trouble = replace(trouble, message=hide_clicks(trouble.message, clicks))
        return replace(self, rows=rows, trouble=trouble)


class RequestStatus(NamedTuple):
    """The state of an accepted request; details count events by Google's reason."""

    status: RequestState
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a connection check."""

    name: str
    ok: bool
    detail: str
    advice: str = ""
    code: str = ""  # of the problem


class Channel(Protocol):
    """An upload channel."""

    def precheck(self, credentials: GoogleCredentials) -> ConnectionTrouble | None:
        """The trouble that would stop every row; checked before rows are claimed."""

    def upload(self, credentials: GoogleCredentials, rows: Sequence[UploadRow]) -> UploadResult:
        """Send these conversions or adjustments, at most ``MAX_ROWS`` in one request."""

    def check(self, credentials: GoogleCredentials, *, adjusts: bool = False) -> list[Finding]:
        """Check token, account and action, or an adjustment; nothing is recorded."""
