"""Actions on many jobs: what they would do, their batches, and their result."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter, Outcome

if TYPE_CHECKING:
    from kesin.engine.queue import Queue


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The result of a bulk action: how many jobs moved, and how many were refused, by reason."""

    moved: int
    already: int
    refused: dict[str, int]
    outcomes: list[Outcome]

    @classmethod
    def of(cls, outcomes: list[Outcome]) -> "BulkResult":
        """Count the outcomes."""
        results = Counter([outcome.result for outcome in outcomes])
        others = [one for one in outcomes if one.result not in ("moved", "already")]
        refused = Counter([one.reason or one.result for one in others])
        return cls(results["moved"], results["already"], dict(refused), outcomes)


@dataclass(frozen=True, slots=True)
class ActionPreview:
    """What a bulk action would do; nothing was changed."""

    counts: dict[tuple[str, str], int]  # (state, reason) → jobs; '' means they would move

    @property
    def matched(self) -> int:
        return sum(self.counts.values())

    @property
    def would_move(self) -> int:
        return sum(self.moving.values())

    @property
    def moving(self) -> dict[str, int]:
        """State → how many jobs would move."""
        return {state: n for (state, reason), n in self.counts.items() if not reason}

    @property
    def staying(self) -> dict[tuple[str, str], int]:
        """(state, reason) → how many jobs would not move."""
        return {key: n for key, n in self.counts.items() if key[1]}

    @property
    def by_state(self) -> dict[str, int]:
        """State → all matching jobs."""
        return _summed((state, n) for (state, _), n in self.counts.items())

    @property
    def by_reason(self) -> dict[str, int]:
        """Reason → jobs that would not move; ``already``: they are in the target state."""
        return _summed((reason, n) for (_, reason), n in self.staying.items())


def _summed(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for name, n in counts:
        sums[name] += n
    return dict(sums)


def id_batches(queue: "Queue", ids: Sequence[str] | None, where: Filter | None) -> Iterator[Sequence[str]]:
    """These ids, or pages of those that match, each read before it is acted on; none twice."""
    if where is None:
        chosen = list(ids or ())
        yield from (chosen[n : n + MAX_PAGE] for n in range(0, len(chosen), MAX_PAGE))
        return
    cursor: str | None = ""
    while cursor is not None:
        page = queue.store.jobs(queue.name, where, limit=MAX_PAGE, cursor=cursor or None)
        if page.jobs:
            yield [job.id for job in page.jobs]
        cursor = page.cursor
