"""The result of an action on many jobs."""

from __future__ import annotations

from dataclasses import dataclass

from kesin.store.records import Outcome


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The result of a bulk action: how many jobs moved, and the refusals by reason."""

    moved: int
    already: int
    refused: dict[str, int]
    outcomes: list[Outcome]

    @classmethod
    def of(cls, outcomes: list[Outcome]) -> BulkResult:
        """Count the outcomes."""
        refused: dict[str, int] = {}
        for outcome in outcomes:
            if outcome.result not in ("moved", "already"):
                reason = outcome.reason or outcome.result
                refused[reason] = refused.get(reason, 0) + 1
        moved = sum(outcome.result == "moved" for outcome in outcomes)
        already = sum(outcome.result == "already" for outcome in outcomes)
        return cls(moved, already, refused, outcomes)
