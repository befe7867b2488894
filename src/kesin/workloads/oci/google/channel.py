"""What a way to Google must offer; `google_ads.py` and `data_manager.py` are two of them.

A channel never raises for anything the network or Google does: every outcome is a `Sent` with one
answer a row. What follows from an answer is decided by the error table, not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

from kesin.lifecycle.errors import Category
from kesin.workloads.oci.conversions.conversion import Conversion
from kesin.workloads.oci.google.credentials import Credentials

TroubleKind = Literal["TRANSIENT", "RATE_LIMIT", "AUTH"]
State = Literal["SUCCESS", "PARTIAL_SUCCESS", "FAILURE", "PROCESSING", "UNKNOWN"]

MAX_ROWS: Final = 2_000  # in one request, on both channels
NOT_SENT: Final[Mapping[str, Any]] = {"sent": False}  # the note of a row that never left


class Row(NamedTuple):
    """A conversion on its way, with the job it belongs to."""

    job_id: str
    conversion: Conversion
    attempts: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """Google has it; with a code, it had it already."""

    code: str | None = None
    message: str = ""
    note: Mapping[str, Any] | None = None  # request id and whatever helps Google's support


@dataclass(frozen=True, slots=True)
class Refused:
    """Google did not take it, or nobody knows whether it did."""

    code: str
    message: str
    category: Category
    note: Mapping[str, Any] | None = None

    @property
    def was_sent(self) -> bool:
        """Whether the row left at all; one that did not costs no attempt."""
        return self.note is None or self.note.get("sent", True) is not False


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something wrong with the site's connection as a whole: its breaker is told."""

    kind: TroubleKind
    code: str
    message: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of each row, in the order they were given."""

    rows: Sequence[Accepted | Refused]
    trouble: Trouble | None = None
    request_ids: tuple[str, ...] = ()


class Status(NamedTuple):
    """What became of an accepted request; details count events by Google's reason."""

    status: State
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a check."""

    name: str
    ok: bool
    detail: str
    advice: str = ""
    code: str = ""  # of what is wrong


class Channel(Protocol):
    """A way to Google."""

    def ready(self, credentials: Credentials) -> Trouble | None:
        """What would keep every row from leaving; asked before any is claimed."""
        ...

    def upload(self, credentials: Credentials, rows: Sequence[Row]) -> Sent:
        """Send these conversions; at most ``MAX_ROWS`` go into one request."""
        ...

    def check(self, credentials: Credentials) -> list[Finding]:
        """Try token, account and conversion action without recording anything."""
        ...


@runtime_checkable
class AnsweredLater(Protocol):
    """A channel that tells of an accepted request only afterwards what became of it."""

    def status(self, credentials: Credentials, request_id: str) -> Status:
        """How an accepted request ended; UNKNOWN while Google does not say."""
        ...
