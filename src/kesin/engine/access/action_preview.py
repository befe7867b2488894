"""What a bulk action would do, counted by state and reason."""

from collections import Counter
from dataclasses import dataclass


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
        sums: Counter[str] = Counter()
        for (state, _), n in self.counts.items():
            sums[state] += n
        return dict(sums)

    @property
    def by_reason(self) -> dict[str, int]:
        """Reason → jobs that would not move; ``already``: they are in the target state."""
        sums: Counter[str] = Counter()
        for (_, reason), n in self.staying.items():
            sums[reason] += n
        return dict(sums)
