"""Attempt caps and backoff: how often a job is tried again, and after how long.

A delay is looked up, never computed with powers, so every store and the plain Python model give
the same number: the n-th delay of the schedule (the last one repeats), plus a jitter drawn from
the job's own salt. The salt is random, so jobs spread out; it is stored, so a replay is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SECOND_US = 1_000_000
MINUTE_S = 60
HOUR_S = 3_600
DAY_S = 86_400

# Odd 32-bit constants (Knuth's multiplicative hash and the golden ratio): one multiply and one add
# spread consecutive tries, and the products stay far below 2^63, the stores' largest integer.
JITTER_MULTIPLIER = 2_654_435_761
JITTER_STEP = 40_503
JITTER_MODULUS = 4_294_967_296

LONGEST_DELAY_S = 366 * DAY_S
LARGEST_JITTER_S = JITTER_MODULUS // SECOND_US  # the mix yields no larger number


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds to wait before each further try.

    ``counts`` names the counter that picks the delay: ``attempts`` since the budget was last
    renewed (less one, as the try that failed was counted), or ``retries`` (``retry_count`` before
    this move raises it).
    """

    delays_s: tuple[int, ...]
    jitter_s: int = 0
    counts: Literal["attempts", "retries"] = "attempts"

    def __post_init__(self) -> None:
        if not self.delays_s:
            raise ValueError("a backoff needs at least one delay, got none")
        for delay in self.delays_s:
            if not 0 <= delay <= LONGEST_DELAY_S:
                raise ValueError(f"a delay must lie in 0…{LONGEST_DELAY_S} s, got {delay}")
        if not 0 <= self.jitter_s <= LARGEST_JITTER_S:
            raise ValueError(f"jitter_s must lie in 0…{LARGEST_JITTER_S}, got {self.jitter_s}")

    def delay_us(self, tries: int, salt: int) -> int:
        """The wait in microseconds after ``tries`` earlier tries, jitter included."""
        index = min(max(tries, 0), len(self.delays_s) - 1)
        return self.delays_s[index] * SECOND_US + jitter_us(self.jitter_s, tries, salt)

    def __str__(self) -> str:
        shown = ", ".join(str(delay) for delay in self.delays_s)
        jitter = f" + 0…{self.jitter_s}" if self.jitter_s else ""
        return f"backoff({shown}{jitter} s by {self.counts})"


def jitter_us(jitter_s: int, tries: int, salt: int) -> int:
    """A wait in 0…jitter_s that only the job's salt and the number of the try decide."""
    if jitter_s == 0:
        return 0
    mixed = (salt * JITTER_MULTIPLIER + max(tries, 0) * JITTER_STEP) % JITTER_MODULUS
    return mixed % (jitter_s * SECOND_US + 1)


def doubling(first_s: int, longest_s: int, *, jitter_s: int = 0) -> Backoff:
    """``min(first · 2ⁿ, longest)``: the schedule ends where it stops growing."""
    if not 0 < first_s <= longest_s:
        raise ValueError(f"need 0 < first_s <= longest_s, got {first_s} and {longest_s}")
    delays = [first_s]
    while delays[-1] < longest_s:
        delays.append(min(delays[-1] * 2, longest_s))
    return Backoff(tuple(delays), jitter_s=jitter_s)
