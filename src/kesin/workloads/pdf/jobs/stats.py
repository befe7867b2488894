"""What is counted beside the moves: failures by code, and how long renders took.

The numbers lie in the store and change in the transaction that moves the job, so every process's
work is in them once, and neither a restart nor pruning lowers them.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Change
from kesin.store.directory import Fact
from kesin.store.metadata import Facts
from kesin.store.records import Outcome
from kesin.workloads.pdf.errors import PdfErrorCode, shown

WORKLOAD: Final = "pdf"
FACT: Final = "ledger"
BUCKETS_S: Final = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)


@dataclass(frozen=True, slots=True)
class Numbers:
    """What was counted so far."""

    failures: Mapping[str, int] = field(default_factory=dict)  # by the code told outside
    buckets: Sequence[int] = (0,) * (len(BUCKETS_S) + 1)  # each on its own; the last is beyond
    seconds: float = 0.0


class Ledger:
    """Counts what a finish says."""

    def __init__(self, facts: Facts, now: Callable[[], int]) -> None:
        self._facts = facts
        self._now = now

    def note(self, call: str, changes: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        """Count what really moved. To be called in the transaction that moves it."""
        if call not in {"succeed", "fail"}:
            return
        told = {change.id: change for change in changes}
        moved = [told[one.id] for one in outcomes if one.result == "moved"]
        if not moved:
            return
        held = self._facts.hold_fact(WORKLOAD, "", FACT, self._now())
        before = _numbers(held.value)
        failures, buckets, seconds = dict(before.failures), list(before.buckets), before.seconds
        for change in moved:
            if call == "fail":
                code = str(shown(change.error_code) or PdfErrorCode.UNKNOWN)
                failures[code] = failures.get(code, 0) + 1
                continue
            lasted_s = float(json.loads(change.result or "{}").get("seconds") or 0)
            buckets[bisect_left(BUCKETS_S, lasted_s)] += 1
            seconds += lasted_s
        value: dict[str, Any] = {"failures": failures, "buckets": buckets, "seconds": seconds}
        self._facts.put_fact(Fact(WORKLOAD, "", FACT, canonical_json(value), self._now()))

    def read(self) -> Numbers:
        """As it stands."""
        fact = self._facts.fact(WORKLOAD, "", FACT)
        return Numbers() if fact is None else _numbers(fact.value)


def _numbers(value: str) -> Numbers:
    kept = json.loads(value) or {}
    buckets = kept.get("buckets") or []
    if len(buckets) != len(BUCKETS_S) + 1:  # another version had other limits
        buckets = [0] * (len(BUCKETS_S) + 1)
    return Numbers(kept.get("failures") or {}, buckets, float(kept.get("seconds") or 0))
