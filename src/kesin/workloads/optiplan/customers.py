"""The workshop's customers: a name by a phone number, and nothing else decides."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kesin.foundation.text import canonical_json
from kesin.store.directory import Directory, Fact

WORKLOAD: Final = "optiplan"
PLACE: Final = "customers"


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer of the workshop, found by phone and by nothing else."""

    name: str
    phone: str  # normalised


class Customers:
    """Kept in the store, so that every process knows the same ones."""

    def __init__(self, directory: Directory, now: Callable[[], int]) -> None:
        self._directory = directory
        self._now = now

    def find(self, phone: str) -> Customer | None:
        """Who has this normalised phone."""
        fact = self._directory.fact(WORKLOAD, PLACE, phone) if phone else None
        return None if fact is None else _customer(fact)

    def put(self, customer: Customer) -> bool:
        """Keep a customer; False if the phone was known, and has a new name now."""
        known = self.find(customer.phone) is not None
        value = canonical_json({"name": customer.name})
        self._directory.put_fact(Fact(WORKLOAD, PLACE, customer.phone, value, self._now()))
        return not known

    def drop(self, phone: str) -> bool:
        """Forget one; whether there was any."""
        return self._directory.drop_fact(WORKLOAD, PLACE, phone)

    def all(self) -> list[Customer]:
        """Everybody, by phone."""
        return [_customer(one) for one in self._directory.facts(WORKLOAD, site=PLACE)]

    def page(self, *, limit: int, cursor: str | None = None) -> tuple[list[Customer], str | None]:
        """The first after this phone, and the phone to go on after; None at the end."""
        found = [one for one in self.all() if cursor is None or one.phone > cursor]
        found.sort(key=lambda one: one.phone)
        return found[:limit], found[limit - 1].phone if len(found) > limit else None


def _customer(fact: Fact) -> Customer:
    return Customer(str(json.loads(fact.value)["name"]), fact.name)
