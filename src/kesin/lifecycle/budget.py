"""Backoff: delays are looked up, never computed with powers: every store gives the same number."""

from dataclasses import dataclass
from typing import Literal

SECOND_US = 1_000_000
MINUTE_S = 60
HOUR_S = 3_600
DAY_S = 86_400

# Odd 32-bit constants (Knuth's multiplicative hash and the golden ratio): one multiply and one add
# spread consecutive attempts, and the products stay far below 2^63, the stores' largest integer.
JITTER_MULTIPLIER = 2_654_435_761
JITTER_STEP = 40_503
JITTER_MODULUS = 4_294_967_296

MAX_DELAY_S = 366 * DAY_S
MAX_JITTER_S = JITTER_MODULUS // SECOND_US  # the hash yields no larger number


@dataclass(frozen=True, slots=True)
class Backoff:
    """The seconds to wait before each further attempt.

    ``counts`` names the counter that picks the delay: ``attempts`` since the budget was last
    renewed (minus one, for the failed attempt), or ``retries`` (``retry_count`` before this move
    increments it).
    """

    delays_s: tuple[int, ...]
    jitter_s: int = 0
    counts: Literal["attempts", "retries"] = "attempts"

    def __post_init__(self) -> None:
        if not self.delays_s:
            raise ValueError("a backoff needs at least one delay, got none")
        for delay in self.delays_s:
            if not 0 <= delay <= MAX_DELAY_S:
                raise ValueError(f"a delay must be in 0…{MAX_DELAY_S} s, got {delay}")
        if not 0 <= self.jitter_s <= MAX_JITTER_S:
            raise ValueError(f"jitter_s must be in 0…{MAX_JITTER_S}, got {self.jitter_s}")

    def delay_us(self, count: int, salt: int) -> int:
        """The delay in microseconds after ``count`` earlier attempts or retries, with jitter."""
        index = min(max(count, 0), len(self.delays_s) - 1)
        mixed = (salt * JITTER_MULTIPLIER + max(count, 0) * JITTER_STEP) % JITTER_MODULUS
        return self.delays_s[index] * SECOND_US + mixed % (self.jitter_s * SECOND_US + 1)

    def __str__(self) -> str:
        shown = ", ".join(str(delay) for delay in self.delays_s)
        jitter = f" + 0…{self.jitter_s}" if self.jitter_s else ""
        return f"backoff({shown}{jitter} s by {self.counts})"


def doubling(first_s: int, longest_s: int, *, jitter_s: int = 0) -> Backoff:
    """A backoff of ``min(first · 2ⁿ, longest)``; the list ends with the longest delay."""
    if not 0 < first_s <= longest_s:
        raise ValueError(f"first_s and longest_s must satisfy 0 < first_s <= longest_s, got {first_s} and {longest_s}")
    delays = [first_s]
    while delays[-1] < longest_s:
        delays.append(min(delays[-1] * 2, longest_s))
    return Backoff(tuple(delays), jitter_s=jitter_s)
