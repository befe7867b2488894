"""The workshop's customers, identified by phone number."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kesin.foundation.text import canonical_json
from kesin.store.directory import Directory, MetadataEntry

WORKLOAD: Final = "optiplan"
SITE: Final = "customers"


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer of the workshop; the phone number identifies it."""

    name: str
    phone: str  # normalised


class Customers:
    """The customers in the store, shared by all processes."""

    def __init__(self, directory: Directory, now: Callable[[], int]) -> None:
        self._directory = directory
        self._now = now

    def find(self, phone: str) -> Customer | None:
        """Return the customer with this normalised phone."""
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

    def all(self) -> list[Customer]:
        """Return all customers, ordered by phone."""
        entries = self._directory.metadata_entries(WORKLOAD, site=SITE)
        return sorted(map(_read_customer, entries), key=lambda customer: customer.phone)


def _read_customer(entry: MetadataEntry) -> Customer:
    return Customer(str(json.loads(entry.value)["name"]), entry.name)
