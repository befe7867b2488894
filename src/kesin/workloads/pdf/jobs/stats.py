"""Counts failures by code and render durations, in the transaction that moves the job."""

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Change
from kesin.store.directory import MetadataEntry
from kesin.store.metadata import MetadataStore
from kesin.store.records import Outcome
from kesin.workloads.pdf.errors import PdfErrorCode, public_code

WORKLOAD: Final = "pdf"
STATS_KEY: Final = "ledger"
BUCKETS_S: Final = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)


@dataclass(slots=True)
class RenderStats:
    """The counters so far."""

    failures: dict[str, int] = field(default_factory=dict)  # by public code
    buckets: list[int] = field(default_factory=list)  # not cumulative; the last has no limit
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if len(self.buckets) != len(BUCKETS_S) + 1:  # none, or written with other buckets
            self.buckets = [0] * (len(BUCKETS_S) + 1)


def count_results(
    facts: MetadataStore,
    now: int,
    action: str,
    changes: Sequence[Change],
    outcomes: Sequence[Outcome],
) -> None:
    """Count the changes that moved a job. Call it in the transaction that moves the jobs."""
    ids = {outcome.id for outcome in outcomes if outcome.result == "moved"}
    if action not in {"succeed", "fail"} or not ids:
        return
    stats = _parse_stats(facts.lock_metadata(WORKLOAD, "", STATS_KEY, now))
    for change in (each for each in changes if each.id in ids):
        if action == "fail":
            code = str(public_code(change.error_code) or PdfErrorCode.UNKNOWN)
            stats.failures[code] = stats.failures.get(code, 0) + 1
            continue
        duration_s = float(json.loads(change.result or "{}").get("seconds") or 0)
        stats.buckets[bisect_left(BUCKETS_S, duration_s)] += 1
        stats.seconds += duration_s
    text = canonical_json(asdict(stats))
    facts.put_metadata(MetadataEntry(WORKLOAD, "", STATS_KEY, text, now))


def read_stats(facts: MetadataStore) -> RenderStats:
    return _parse_stats(facts.metadata_entry(WORKLOAD, "", STATS_KEY))


def _parse_stats(entry: MetadataEntry | None) -> RenderStats:
    return RenderStats(**((entry and json.loads(entry.value)) or {}))
