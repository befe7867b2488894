"""The short id on a part's label: ``B7Q4TXA7K2-12-3`` is an order, its part 12 and piece 3 of that.

The order's ten characters hold the millisecond of its job's id and nine more bits of that, so they
never change, and nothing has to be stored. A scanner on a keyboard of another language may type
another separator, so any will do; 0, 1, I and O do not occur.
"""

import re
from dataclasses import dataclass
from typing import Final, Self

from kesin.engine.queue import Queue
from kesin.foundation.ids import first_id_at
from kesin.store.records import Filter

_ALPHABET: Final = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_TO_BASE_32: Final = str.maketrans(_ALPHABET, "0123456789ABCDEFGHIJKLMNOPQRSTUV")
_CODE_LENGTH: Final = 10
_EPOCH_MS: Final = 1_577_836_800_000  # 2020; the codes repeat after 69 years
_MS_BITS, _MORE_BITS = 41, 9
_SAME_MS: Final = 50  # jobs of one millisecond that are compared
_ORDER_CODE: Final = re.compile(rf"[{_ALPHABET}]{{{_CODE_LENGTH}}}")
_PIECE_ID: Final = re.compile(
    rf"({_ORDER_CODE.pattern})" + r"[^0-9A-Z]+([1-9][0-9]{0,4})" * 2, re.IGNORECASE | re.ASCII
)
_OFFCUT_ID: Final = re.compile(rf"R[{_ALPHABET}]{{8}}", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class PieceId:
    """A piece of an order; part and piece count from 1."""

    order: str
    part: int
    piece: int

    def __str__(self) -> str:
        return f"{self.order}-{self.part}-{self.piece}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read a scanned id, or an address that ends with it; None for anything else."""
        match = _PIECE_ID.fullmatch(text.strip().rpartition("/")[2])
        return cls(match[1].upper(), int(match[2]), int(match[3])) if match else None


def find_offcut_id(text: str) -> str:
    """Return the offcut's id in a scanned text, or in an address; empty for anything else."""
    match = _OFFCUT_ID.fullmatch(text.strip().rpartition("/")[2])
    return match[0].upper() if match else ""


def order_code(job_id: str) -> str:
    digits = job_id.replace("-", "")
    ms, more = int(digits[:12], 16) - _EPOCH_MS, int(digits[-3:], 16) % (1 << _MORE_BITS)
    value = ms % (1 << _MS_BITS) << _MORE_BITS | more
    shifts = range(5 * (_CODE_LENGTH - 1), -1, -5)
    return "".join(_ALPHABET[value >> shift & 31] for shift in shifts)


def find_orders(queue: Queue, code: str) -> list[str]:
    """Return the jobs with this code: nearly always one, as two need the same millisecond."""
    if not _ORDER_CODE.fullmatch(code):
        return []
    value = int(code.translate(_TO_BASE_32), 32)
    at_us = (_EPOCH_MS + (value >> _MORE_BITS)) * 1_000
    page = queue.jobs(Filter(), limit=_SAME_MS, cursor=first_id_at(at_us + 1_000))
    return [job.id for job in page.jobs if order_code(job.id) == code]
