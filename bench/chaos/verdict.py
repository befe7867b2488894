"""The journal held against what the queue says: lost, doubled, stuck."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench.chaos.journal import Run, Story
from bench.chaos.sides.side import Fate


@dataclass(frozen=True, slots=True)
class Verdict:
    """One run of one queue under one fault."""

    jobs: int  # acknowledged
    lost: int  # neither done nor known to the queue
    recorded_twice: int  # more than one success in its records
    wrong_hands: int  # it took the success of a worker that had lost the job to another
    stuck: int  # not at rest when patience ended
    failed: int  # given up, though no handler failed
    ran_again: int  # handler begun more than once
    ended_again: int  # and came to its end more than once
    recovery_s: float | None  # from the last fault to the last success of what was there at it
    gone: int  # worker processes that ended by themselves

    @property
    def doubled(self) -> int:
        return self.recorded_twice + self.wrong_hands

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.stuck or self.failed)

    def line(self) -> dict[str, Any]:
        return {**asdict(self), "doubled": self.doubled}


def judge(story: Story, fates: Mapping[str, Fate], fault: float, gone: int) -> Verdict:
    nobody = Fate(None)
    each = [(fates.get(job, nobody), story.runs.get(job, [])) for job in story.sent]
    lost = sum(_lost(fate, runs) for fate, runs in each)
    stuck = sum(fate.state in ("waiting", "running") for fate, _ in each)
    there = [fates.get(job, nobody) for job, at in story.sent.items() if at <= fault]
    last = max((at for fate in there for at in fate.successes), default=fault)
    return Verdict(
        jobs=len(each),
        lost=lost,
        recorded_twice=sum(len(fate.successes) > 1 for fate, _ in each),
        wrong_hands=sum(len(fate.successes) == 1 and in_wrong_hands(fate.successes[0], runs) for fate, runs in each),
        stuck=stuck,
        failed=sum(fate.state == "failed" for fate, _ in each),
        ran_again=sum(len(runs) > 1 for _, runs in each),
        ended_again=sum(sum(run.ended is not None for run in runs) > 1 for _, runs in each),
        recovery_s=None if lost or stuck else max(last - fault, 0.0),
        gone=gone,
    )


def _lost(fate: Fate, runs: list[Run]) -> bool:
    return fate.state is None and not any(run.ended for run in runs)


def in_wrong_hands(success: float, runs: list[Run]) -> bool:
    """Whether the latest to begin was still in the middle when the success was recorded."""
    begun = [run for run in runs if run.began <= success]
    if not begun:
        return False
    holder = max(begun, key=lambda run: run.began)
    return holder.ended is None or holder.ended > success
