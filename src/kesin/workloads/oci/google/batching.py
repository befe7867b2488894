"""Rows into requests, and requests that are refused as a whole into smaller ones.

A request that Google refuses without naming a row is halved until the guilty ones stand alone.
Nothing is recorded by a refused request, so sending its rows again is safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from kesin.lifecycle.errors import Category
from kesin.store.limits import MAX_MESSAGE
from kesin.workloads.oci.google.channel import (
    MAX_ROWS,
    NOT_SENT,
    Accepted,
    Refused,
    Row,
    Sent,
    Trouble,
)
from kesin.workloads.oci.google.client import Failure
from kesin.workloads.oci.google.error_table import CIRCUIT_OPEN, REQUEST_REFUSED

MAX_REQUESTS: Final = 64  # of one call

Part = Sequence[int]  # positions of rows


class Reply(NamedTuple):
    """What one request brought: an answer a row, or None for a row to be sent again."""

    rows: Sequence[Accepted | Refused | None]
    trouble: Trouble | None = None
    request_id: str = ""


Send = Callable[[Sequence[Row]], Reply | Failure]


def in_chunks(count: int) -> list[Part]:
    """As few requests as possible."""
    return [range(start, min(start + MAX_ROWS, count)) for start in range(0, count, MAX_ROWS)]


def without_twins(rows: Sequence[Row]) -> list[Part]:
    """Requests in which no two rows share an order id, or a click and a second.

    Google refuses both twins of one request; one after the other, it takes the first.
    """
    seen: dict[tuple[str, ...] | str, int] = {}
    layers: list[list[int]] = []
    for position, row in enumerate(rows):
        conversion = row.conversion
        click = (*conversion.click, str(conversion.at_us))
        layer = max(seen.get(click, 0), seen.get(conversion.order_id, 0))
        seen[click] = seen[conversion.order_id] = layer + 1
        if layer == len(layers):
            layers.append([])
        layers[layer].append(position)
    return [[layer[one] for one in chunk] for layer in layers for chunk in in_chunks(len(layer))]


class _Delivery:
    """The answers of one call as they come in."""

    def __init__(self, rows: Sequence[Row], send: Send) -> None:
        self._rows = rows
        self._send = send
        self.answers: dict[int, Accepted | Refused] = {}
        self.asked = 0
        self._tried: set[int] = set()
        self.passed = False  # whether Google took any request
        self.halved: Refused | None = None  # why it was necessary to look for the guilty
        self.trouble: Trouble | None = None
        self.request_ids: list[str] = []

    def ask(self, part: Part) -> Iterator[Part]:
        """Send these rows; what is to be sent once more comes back."""
        self.asked += 1
        self._tried.update(part)
        reply = self._send([self._rows[one] for one in part])
        if isinstance(reply, Failure):
            yield from self._failed(part, reply)
            return
        self.passed = True
        if reply.request_id:
            self.request_ids.append(reply.request_id)
        self.trouble = reply.trouble
        again = []
        for position, answer in zip(part, reply.rows, strict=True):
            if answer is None:
                again.append(position)
            else:
                self.answers[position] = answer
        if again:
            yield again

    def _failed(self, part: Part, failure: Failure) -> Iterator[Part]:
        if failure.trouble is None and len(part) > 1:
            self.halved = failure.refused
            middle = len(part) // 2
            yield part[:middle]
            yield part[middle:]
            return
        self.trouble = failure.trouble
        self.answers.update(dict.fromkeys(part, failure.refused))

    def leave(self, part: Part) -> None:
        """Answer for rows that are not asked about any more."""
        for position in part:
            self.answers[position] = self._left(position)

    def _left(self, position: int) -> Refused:
        if self.trouble is None and self.halved is not None and position in self._tried:
            message = f"refused with others, and not yet alone: {self.halved.message}"
            return Refused(REQUEST_REFUSED, message[:MAX_MESSAGE], Category.TRANSIENT)
        message = "not sent: the request before it ended in trouble"
        if self.trouble is None:
            message = f"not sent: {MAX_REQUESTS} requests are enough for one call"
        return Refused(CIRCUIT_OPEN, message, Category.TRANSIENT, NOT_SENT)


def deliver(rows: Sequence[Row], parts: Sequence[Part], send: Send) -> Sent:
    """Send all parts, until one ends in trouble."""
    todo = deque(parts)
    delivery = _Delivery(rows, send)
    while todo:
        part = todo.popleft()
        if delivery.trouble is not None or delivery.asked >= MAX_REQUESTS:
            delivery.leave(part)
        else:
            todo.extendleft(reversed(list(delivery.ask(part))))
    if delivery.halved is not None and not delivery.passed and delivery.asked >= MAX_REQUESTS:
        return _refused_whatever(len(rows), delivery.halved)
    answers = [delivery.answers[position] for position in range(len(rows))]
    return Sent(answers, delivery.trouble, tuple(delivery.request_ids))


def _refused_whatever(count: int, refused: Refused) -> Sent:
    """Every request was refused, whoever was in it: no single row is to blame."""
    message = f"every request is refused: {refused.message}"[:MAX_MESSAGE]
    row = Refused(REQUEST_REFUSED, message, Category.TRANSIENT, refused.note)
    return Sent([row] * count, Trouble("TRANSIENT", REQUEST_REFUSED, message))
