"""What a simulated worker owes its claims: each is worked on once at most, and answered for.

The store would not notice: a job that is worked on twice, or whose answer is thrown away, looks
there like one whose worker died. So the workers themselves are watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kesin.engine.expected import broken
from kesin.lifecycle.model import Change, Job
from kesin.store.records import Outcome

_OF: Final = "of"  # the job a handler worked on, in what it answers

_Claim = tuple[str, int]


def signed(job: Job, n: int) -> dict[str, str | int]:
    """A result that tells whose it is."""
    return {_OF: job.id, "n": n}


class Conduct:
    """One worker's claims, from the moment they are given to it."""

    def __init__(self) -> None:
        self._open: dict[_Claim, str | None] = {}  # the call that a handler answered with, if any
        self._worked: set[_Claim] = set()
        self._kept: set[_Claim] = set()  # could not be given back: worked on, or left to run out
        self._at_hand: _Claim | None = None

    def given(self, jobs: Sequence[Job]) -> None:
        """It has these claims."""
        self._open.update(((job.id, job.claim_seq), None) for job in jobs)

    def begin(self, job: Job) -> None:
        """Its handler is called."""
        claim = (job.id, job.claim_seq)
        if claim in self._worked:
            broken("conduct", f"{job.id} was worked on twice under one claim")
        if claim not in self._open:
            broken("conduct", f"{job.id} was worked on after its claim was given up")
        self._worked.add(claim)
        self._at_hand = claim

    def end(self, *, releases: bool) -> None:
        """Its handler answered, or threw."""
        if self._at_hand in self._open:
            self._open[self._at_hand] = "release" if releases else "an answer"
        self._at_hand = None

    def sent(self, call: str, changes: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        """It asked for these moves; those of a handler at work are not its answer."""
        for change, outcome in zip(changes, outcomes, strict=True):
            if change.result and f'"{_OF}"' in change.result and change.id not in change.result:
                broken("conduct", f"{change.id} was given the result of another: {change.result}")
            claims = [one for one in self._open if one[0] == change.id]
            if self._at_hand in claims:
                continue
            for claim in claims:
                if call == "release" and self._open[claim] == "an answer":
                    broken("conduct", f"{change.id} was given back after it was worked on")
                if call == "release" and not outcome.done:
                    self._kept.add(claim)
                else:
                    del self._open[claim]

    def rest(self, held: Sequence[Job]) -> None:
        """Its turn is over, and nothing came in between."""
        if left := self._open.keys() - self._kept:
            broken("conduct", f"{min(left)[0]} was claimed and never answered for")
        if held:
            broken("conduct", f"the lease of {held[0].id} is renewed after its answer")
