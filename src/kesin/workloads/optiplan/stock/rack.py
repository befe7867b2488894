"""The offcuts in the store: those in the rack, and apart from them those used or scrapped.

A reservation counts only while its order is working; otherwise the offcut reads as in doubt. So no
move of an order has to touch the rack: `settling` does later what follows from it.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from kesin.engine.queue import Queue
from kesin.foundation.text import canonical_json
from kesin.store.directory import Directory, MetadataEntry
from kesin.workloads.optiplan.customers import WORKLOAD
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.stock.offcut import FINAL, Offcut, OffcutFilter

LIVE, PAST = "rack", "rack_past"
ORDERS: Final = "rack_orders"  # those with a plan, until all that follows for the rack is settled
_PART: Final = 500  # read at once


class OffcutsGone(OrderProblem):
    """A plan uses offcuts that are no longer free."""

    def __init__(self, ids: list[str]) -> None:
        why = "the plan uses offcuts that are no longer free: %(offcuts)s; retry the order"
        names = ", ".join(ids)
        super().__init__(OptiCode.OPTI_RUNNER_FAILED, why, {"offcuts": ids}, offcuts=names)


class Rack:
    """The offcuts of the workshop, shared by all processes."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.directory = Directory(queue.store)

    # Reading

    def get(self, offcut_id: str) -> Offcut:
        """Return an offcut as it reads now; raises OrderProblem (404)."""
        read = partial(self.directory.metadata_entry, WORKLOAD, name=offcut_id)
        if (entry := read(site=LIVE) or read(site=PAST)) is None:
            why = "there is no offcut %(offcut)s"
            raise OrderProblem(OptiCode.OFFCUT_NOT_FOUND, why, offcut=offcut_id)
        return self._as_read([_parse(entry)])[0]

    def page(self, where: OffcutFilter, limit: int) -> tuple[list[Offcut], str | None]:
        """Return a page of offcuts by id, as they read now, and the next cursor."""
        found: list[Offcut] = []
        for part in self._parts(PAST if where.state in FINAL else LIVE, where.cursor):
            for offcut in filter(where.matches, self._as_read(map(_parse, part))):
                if len(found) == limit:
                    return found, found[-1].id
                found.append(offcut)
        return found, None

    def free(self) -> list[Offcut]:
        """Return the offcuts that a plan may use."""
        offcuts = (_parse(entry) for part in self._parts(LIVE) for entry in part)
        return [offcut for offcut in offcuts if offcut.state == "FREE"]

    def _parts(self, site: str, after: str = "") -> Iterator[list[MetadataEntry]]:
        while part := self.directory.metadata_page(WORKLOAD, site, after=after, limit=_PART):
            yield part
            after = part[-1].name

    def _as_read(self, offcuts: Iterable[Offcut]) -> list[Offcut]:
        """Mark as in doubt what is reserved for an order that is not working."""
        offcuts = list(offcuts)
        states = self.queue.states([each.reserved_by_job or "" for each in offcuts])
        return [
            each
            if each.state != "RESERVED" or self.is_working(states.get(each.reserved_by_job or ""))
            else each.model_copy(update={"state": "IN_DOUBT"})
            for each in offcuts
        ]

    def is_working(self, state: str | None) -> bool:
        """Whether an order in this state goes on by itself; None: there is no such order."""
        declared = self.queue.lifecycle.state[state] if state else None
        return declared is not None and not (declared.resting or declared.terminal)

    # Changes

    def add(self, offcut: Offcut) -> None:
        """Put an offcut into the rack, unless it was there before, maybe long ago."""
        with self.directory.transaction():
            past = self.directory.metadata_entry(WORKLOAD, PAST, offcut.id)
            if self._lock(offcut.id) is None and past is None:
                self._put(LIVE, offcut)

    def update(self, offcut: Offcut, **changes: Any) -> Offcut:
        """Store a locked offcut with these changes."""
        new = offcut.model_copy(update={**changes, "changed_at": self.queue.now()})
        if new.state in FINAL:
            self.directory.delete_metadata(WORKLOAD, LIVE, new.id)
        self._put(PAST if new.state in FINAL else LIVE, new)
        return new

    def prune(self, before: int) -> int:
        """Delete the records of offcuts used or scrapped before a time; return how many.

        While the order that made an offcut is not settled, its record keeps it from being made twice.
        """
        unsettled = set(self.orders())
        past = [(each.name, _parse(each)) for part in self._parts(PAST) for each in part]
        old = [name for name, each in past if each.changed_at < before and each.made_by_job not in unsettled]
        return sum(self.directory.delete_metadata(WORKLOAD, PAST, name) for name in old)

    def lock_all(self, ids: Iterable[str]) -> list[Offcut]:
        """Lock offcuts, always in the same order; those that are not in the rack are left out."""
        return [offcut for each in sorted(ids) if (offcut := self._lock(each))]

    def _lock(self, offcut_id: str) -> Offcut | None:
        entry = self.directory.lock_metadata(WORKLOAD, LIVE, offcut_id, self.queue.now())
        if entry.value != "null":
            return _parse(entry)
        self.directory.delete_metadata(WORKLOAD, LIVE, offcut_id)
        return None

    def _put(self, site: str, offcut: Offcut) -> None:
        value, at = offcut.model_dump_json(), offcut.changed_at
        self.directory.put_metadata(MetadataEntry(WORKLOAD, site, offcut.id, value, at))

    # Orders

    def reserve(self, job_id: str, attempt: int, batches: Mapping[str, str]) -> None:
        """Reserve the offcuts of a plan, by id with their batch: all of them, or OffcutsGone."""
        with self.directory.transaction():
            earlier = self.lock_order(job_id)
            offcuts = [
                each for each in self.lock_all(batches) if each.state == "FREE" or each.is_reserved_for(job_id, attempt)
            ]
            if gone := sorted(batches.keys() - {each.id for each in offcuts}):
                raise OffcutsGone(gone)
            reserved = {"state": "RESERVED", "reserved_by_job": job_id, "reserved_attempt": attempt}
            for each in offcuts:
                self.update(each, **reserved, reserved_batch=batches[each.id])
            self.keep_order(job_id, {*earlier, *batches})

    def orders(self) -> list[str]:
        """Return the jobs of the orders that are not settled."""
        return [entry.name for part in self._parts(ORDERS) for entry in part]

    def has_order(self, job_id: str) -> bool:
        return self.directory.metadata_entry(WORKLOAD, ORDERS, job_id) is not None

    def lock_order(self, job_id: str) -> list[str]:
        """Lock an order until the transaction ends; returns what was reserved for it."""
        entry = self.directory.lock_metadata(WORKLOAD, ORDERS, job_id, self.queue.now())
        return json.loads(entry.value) or []

    def keep_order(self, job_id: str, offcuts: Collection[str]) -> None:
        value, now = canonical_json(sorted(offcuts)), self.queue.now()
        self.directory.put_metadata(MetadataEntry(WORKLOAD, ORDERS, job_id, value, now))

    def drop_order(self, job_id: str) -> None:
        self.directory.delete_metadata(WORKLOAD, ORDERS, job_id)


def _parse(entry: MetadataEntry) -> Offcut:
    return Offcut.model_validate_json(entry.value)
