"""The mark of a copy on the queue it fills: who fills it, and how its counters stood.

A copy counts nothing, every other write is counted with it: so counters that stand as the copy left
them prove that whatever is there came by copies. The mark stays when a copy is broken off, and the
next one knows by it what it may go on from. Of two copies, the one that marked last goes on.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from kesin.store.contract import Store
from kesin.store.directory import Fact
from kesin.store.metadata import Facts, facts_of
from kesin.store.records import Flow
from kesin.store.transfer.copier import Copier

WORKLOAD: Final = "store copy"


class Disturbed(Exception):
    """Somebody moved jobs where a copy goes."""


class TakenOver(Exception):
    """Another copy fills this queue now."""


class Mark(NamedTuple):
    """What a copy leaves on its target while it runs."""

    token: str
    counters: str  # a digest of them
    since: int  # when its source was paused, which tells sources apart


class Ground:
    """A queue that a copy fills; what is written here is undone where somebody else wrote."""

    def __init__(self, store: Store, queue: str) -> None:
        self._store, self._queue = store.home(queue), queue
        self._token = uuid.uuid4().hex
        self._seen: Mark | None = None  # the latest that this copy found or made
        self._stood: list[Flow] = []
        self._since = 0

    def _facts(self) -> Facts:
        return facts_of(self._store)

    def flows(self) -> list[Flow]:
        """The counters, in one order."""
        return sorted(self._store.flows(self._queue))

    def look(self) -> None:
        """Take in the counters and the mark as they are."""
        self._stood, self._seen = self.flows(), self._mark()

    def is_as_left(self) -> bool:
        """Whether an earlier copy marked this queue, and nothing moved since."""
        return self._seen is not None and self._seen.counters == _digest(self._stood)

    def is_taken(self, since: int) -> bool:
        """Whether another copy of the source paused then marked this queue since ``look``."""
        now, seen = self._mark(), self._seen
        return now is not None and now.since == since and (seen is None or now.token != seen.token)

    def take(self, since: int) -> None:
        """Mark it, in a transaction, unless somebody came since ``look``."""
        if self._hold() != self._seen:
            raise TakenOver
        if self.flows() != self._stood:
            raise Disturbed
        self._since = since
        self._put(self._stood)

    def leave(self) -> None:
        """Take the mark away."""
        self._facts().drop_fact(WORKLOAD, "", self._queue)

    @contextmanager
    def held(self) -> Iterator[None]:
        """No other copy writes meanwhile."""
        with self._store.transaction():
            found = self._hold()
            if found is None or found.token != self._token:
                raise TakenOver
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """What is written inside stays if nothing but copies came here until its end."""
        with self.held():
            yield
            if self.flows() != self._stood:
                raise Disturbed

    def put_flows(self, copier: Copier, flows: Sequence[Flow]) -> None:
        """Write the counters, and remember in the mark that it was us."""
        with self.held():
            if not copier.put_flows(self._queue, flows, instead_of=self._stood):
                raise Disturbed
            self._stood = list(flows)
            self._put(flows)

    def _mark(self) -> Mark | None:
        return _mark_of(self._facts().fact(WORKLOAD, "", self._queue))

    def _hold(self) -> Mark | None:
        return _mark_of(self._facts().hold_fact(WORKLOAD, "", self._queue, 0))

    def _put(self, flows: Sequence[Flow]) -> None:
        mark = Mark(self._token, _digest(flows), self._since)
        self._facts().put_fact(Fact(WORKLOAD, "", self._queue, json.dumps(mark), 0))
        self._seen = mark


def _mark_of(fact: Fact | None) -> Mark | None:
    """The mark; what is none of ours counts as none, so nothing is gone on from."""
    try:
        said = json.loads(fact.value) if fact is not None else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, list) or [type(one) for one in said] != [str, str, int]:
        return None
    return Mark(*said)


def _digest(flows: Sequence[Flow]) -> str:
    return hashlib.sha256(json.dumps(list(flows)).encode()).hexdigest()
