"""Groups rows into requests, and splits requests that Google refuses as a whole.

A request that Google refuses without naming a row is halved until the bad rows are alone. A
refused request records nothing, so sending its rows again is safe.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from kesin.foundation.messages import Message, shorten
from kesin.lifecycle.errors import Category
from kesin.store.limits import MAX_MESSAGE
from kesin.workloads.oci.google.channel import (
    MAX_ROWS,
    NOT_SENT,
    ConnectionTrouble,
    RequestFailure,
    RowAccepted,
    RowRefused,
    UploadResult,
    UploadRow,
)
from kesin.workloads.oci.google.error_table import CIRCUIT_OPEN, REQUEST_REFUSED

MAX_REQUESTS: Final = 64  # of one delivery

Positions = Sequence[int]  # of rows in a delivery


class RequestReply(NamedTuple):
    """The response to one request: an outcome per row, or None for a row to send again."""

    rows: Sequence[RowAccepted | RowRefused | None]
    trouble: ConnectionTrouble | None = None
    request_id: str = ""


Send = Callable[[Sequence[UploadRow]], RequestReply | RequestFailure]


def chunk_positions(count: int) -> list[Positions]:
    """Split so many rows into as few requests as possible."""
    return [range(start, min(start + MAX_ROWS, count)) for start in range(0, count, MAX_ROWS)]


def separate_twins(rows: Sequence[UploadRow]) -> list[Positions]:
    """Split the rows so that no request has two with the same order id, or click and second.

    Google refuses both twins of a request; sent one after the other, it takes the first.
    """
    seen: dict[tuple[str, ...] | str, int] = {}
    layers: list[list[int]] = []
    for position, row in enumerate(rows):
        conversion = row.conversion
        action = conversion.action.id if conversion.action else ""  # each has its own conversions
        click = (*conversion.traces, str(conversion.at_us), action)
        layer = max(seen.get(click, 0), seen.get(conversion.order_id, 0))
        seen[click] = seen[conversion.order_id] = layer + 1
        if layer == len(layers):
            layers.append([])
        layers[layer].append(position)
    chunks = ((layer, chunk) for layer in layers for chunk in chunk_positions(len(layer)))
    return [[layer[index] for index in chunk] for layer, chunk in chunks]


class _Delivery:
    """The outcomes of one delivery as its requests are answered."""

    def __init__(self, rows: Sequence[UploadRow], send: Send) -> None:
        self._rows = rows
        self._send = send
        self.outcomes: dict[int, RowAccepted | RowRefused] = {}
        self.request_count = 0
        self._tried: set[int] = set()
        self.any_taken = False  # whether Google took any request
        self.split_reason: RowRefused | None = None  # why a request was halved
        self.trouble: ConnectionTrouble | None = None
        self.request_ids: list[str] = []

    def send(self, part: Positions) -> Iterator[Positions]:
        """Send these rows; yields the parts to send again."""
        self.request_count += 1
        self._tried.update(part)
        reply = self._send([self._rows[position] for position in part])
        if isinstance(reply, RequestFailure):
            yield from self._handle_failure(part, reply)
            return
        self.any_taken = True
        if reply.request_id:
            self.request_ids.append(reply.request_id)
        self.trouble = reply.trouble
        resend = []
        for position, outcome in zip(part, reply.rows, strict=True):
            if outcome is None:
                resend.append(position)
            else:
                self.outcomes[position] = outcome
        if resend:
            yield resend

    def _handle_failure(self, part: Positions, failure: RequestFailure) -> Iterator[Positions]:
        if failure.trouble is None and len(part) > 1:
            self.split_reason = failure.refused
            middle = len(part) // 2
            yield part[:middle]
            yield part[middle:]
            return
        self.trouble = failure.trouble
        self.outcomes.update(dict.fromkeys(part, failure.refused))

    def skip(self, positions: Positions) -> None:
        """Give an outcome to rows that are not sent any more."""
        for position in positions:
            self.outcomes[position] = self._skipped(position)

    def _skipped(self, position: int) -> RowRefused:
        if self.trouble is None and self.split_reason is not None and position in self._tried:
            why = "refused with others, and not yet alone: %(problem)s"
            return _refused_for(why, self.split_reason)
        message = "not sent: the request before it ended in trouble"
        if self.trouble is None:
            message = Message("not sent: %(n)s requests are enough for one call", n=MAX_REQUESTS)
        return RowRefused(CIRCUIT_OPEN, message, Category.TRANSIENT, NOT_SENT)


def deliver(rows: Sequence[UploadRow], parts: Sequence[Positions], send: Send) -> UploadResult:
    """Send all parts until one ends in trouble."""
    pending = deque(parts)
    delivery = _Delivery(rows, send)
    while pending:
        part = pending.popleft()
        if delivery.trouble is not None or delivery.request_count >= MAX_REQUESTS:
            delivery.skip(part)
        else:
            pending.extendleft(reversed(list(delivery.send(part))))
    reason = None if delivery.any_taken else delivery.split_reason
    if reason is not None and delivery.request_count >= MAX_REQUESTS:
        return _refuse_all(len(rows), reason)
    outcomes = [delivery.outcomes[position] for position in range(len(rows))]
    return UploadResult(outcomes, delivery.trouble, tuple(delivery.request_ids))


def _refused_for(why: str, refused: RowRefused) -> RowRefused:
    """The outcome of a row that Google refused together with others."""
    message = shorten(Message(why, problem=Message(refused.message)), MAX_MESSAGE)
    return RowRefused(REQUEST_REFUSED, message, Category.TRANSIENT)


def _refuse_all(count: int, refused: RowRefused) -> UploadResult:
    """Refuse all rows: every request was refused, so no single row is to blame."""
    refusal = _refused_for("every request is refused: %(problem)s", refused)
    trouble = ConnectionTrouble("TRANSIENT", refusal.code, refusal.message)
    return UploadResult([replace(refusal, note=refused.note)] * count, trouble)
