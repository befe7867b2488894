"""Customers by phone number, normalised here; Turkish unless it begins with ``+`` or ``00``."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

from kesin.engine.queue import Queue
from kesin.foundation.text import canonical_json
from kesin.store.directory import Directory, MetadataEntry
from kesin.store.search import is_found

WORKLOAD: Final = "optiplan"
SITE: Final = "customers"
_PART: Final = 500  # read at once
_MIN_DIGITS: Final = 3  # of a phone, to search by
_COUNTRY: Final = "90"
_NATIONAL_DIGITS: Final = 10
_PLUS: Final = frozenset("+＋")  # noqa: RUF001 - phones set to East Asian keyboards type it


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer of the workshop, identified by the phone number."""

    name: str
    phone: str  # normalised


class Customers:
    """The customers in the store, shared by all processes."""

    def __init__(self, queue: Queue) -> None:
        self._directory = Directory(queue.store)
        self._now = queue.now

    def find(self, phone: str) -> Customer | None:
        entry = self._directory.metadata_entry(WORKLOAD, SITE, phone) if phone else None
        return None if entry is None else _read_customer(entry)

    def save(self, customer: Customer) -> bool:
        """Save a customer; returns False if the phone was known and only its name is replaced."""
        is_known = self.find(customer.phone) is not None
        value = canonical_json({"name": customer.name})
        entry = MetadataEntry(WORKLOAD, SITE, customer.phone, value, self._now())
        self._directory.put_metadata(entry)
        return not is_known

    def delete(self, phone: str) -> bool:
        """Delete a customer; returns whether it existed."""
        return self._directory.delete_metadata(WORKLOAD, SITE, phone)

    def following(self, after: str = "", *, skip: int = 0) -> Iterator[Customer]:
        """Yield the customers behind a phone, ordered by phone; they are read in parts."""
        read = partial(self._directory.metadata_page, WORKLOAD, SITE, limit=_PART)
        while entries := read(after=after, skip=skip):
            yield from map(_read_customer, entries)
            after, skip = entries[-1].name, 0


def means(text: str) -> Callable[[Customer], bool]:
    """Whom a text can mean: by the beginning of a name, or by digits of the phone."""
    digits = normalise_phone(text).lstrip("+0")
    by_phone = len(digits) >= _MIN_DIGITS
    return lambda one: is_found(asdict(one), ("name",), text) or (by_phone and digits in one.phone)


def _read_customer(entry: MetadataEntry) -> Customer:
    return Customer(str(json.loads(entry.value)["name"]), entry.name)


def normalise_phone(text: str) -> str:
    """Return ``+`` and digits, or "" without any but zeros; ``+90 (0) 555 …`` loses its zero."""
    first = next((sign for sign in text if sign in _PLUS or sign.isdecimal()), "")
    digits = "".join(str(int(sign)) for sign in text if sign.isdecimal())
    if not digits.strip("0"):
        return ""
    if digits.startswith("00"):
        digits = digits.lstrip("0")
    elif digits.startswith("0") and len(digits) > _NATIONAL_DIGITS:
        digits = f"9{digits}"
    elif len(digits) == _NATIONAL_DIGITS and (digits[0] == "0" or first not in _PLUS):
        digits = f"{_COUNTRY}{digits}"
    national = digits.removeprefix(_COUNTRY).lstrip("0")
    if digits.startswith(_COUNTRY) and len(national) == _NATIONAL_DIGITS:
        return f"+{_COUNTRY}{national}"
    return f"+{digits}"
