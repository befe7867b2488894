"""What Kesin promises whoever dies: one checker, asked after every fault.

It reads the history and not the code that made it. The store keeps a job from being finished by
somebody who lost it; here that is looked for once more, in what was written down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from kesin.engine.replay import verify
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Job
from kesin.store.contract import Store
from kesin.store.records import Event
from kesin.store.sqlite.store import SqliteStore


@dataclass(slots=True)
class PromiseReport:
    """What was found where the promise held, to be printed."""

    jobs: int = 0
    untold: int = 0  # jobs whose producer died between the commit and the answer
    pruned: int = 0
    claims: int = 0  # but those that were given back: what may be poison is claimed again, alone
    lost_claims: int = 0  # ended by the clock, because their lease was over
    most_attempts: int = 0  # that one job used of its budget
    states: Counter[str] = field(default_factory=Counter)
    last_at: int = 0  # when the last job came to rest


def check_promise(
    store: Store, queue: str, lifecycle: Lifecycle, answered_ids: Collection[str], *, at_rest: bool = True
) -> PromiseReport:
    """Nothing is lost, nothing done twice, no budget overdrawn, and the history gives the rows.

    ``answered_ids`` are those that producers have received. There may be more jobs: of a producer
    that died before it was answered. With ``at_rest=False`` jobs may still be under way.
    """
    home = store.store_for(queue)
    report = PromiseReport(pruned=sum(flow.n for flow in home.move_counts(queue) if not flow.to_state))
    seen: set[str] = set()
    holders: dict[tuple[str, str], str] = {}
    for job, events in home.scan(queue):
        assert job.id not in seen, f"{job.id} is there twice"
        seen.add(job.id)
        state = lifecycle.state[job.state]
        assert not at_rest or state.terminal or state.resting, f"{job.id} is left {job.state}"
        if job.dedup_key is not None and state.holds_key:
            rival = holders.setdefault((job.tenant, job.dedup_key), job.id)
            assert rival == job.id, f"{rival} and {job.id} hold the key {job.dedup_key}"
        _check_history(lifecycle, job, events)
        _count(report, lifecycle, job, events)
    assert len(set(answered_ids)) == len(answered_ids), "two jobs were answered with one id"
    lost = set(answered_ids) - seen
    assert len(lost) <= report.pruned, f"lost: {sorted(lost)}"
    report.untold = len(seen - set(answered_ids))
    audit = verify(home, queue)
    assert not audit.differences, "; ".join(map(str, audit.differences))
    assert audit.counters == "agree", audit.counters
    counted = Counter({name: n for name, n in home.stats(queue).states.items() if n})
    assert counted == report.states, f"counted {counted}, found {report.states}"
    if isinstance(home, SqliteStore):
        trouble = home._read("PRAGMA integrity_check", {})
        trouble += home._read("PRAGMA foreign_key_check", {})
        assert trouble == [("ok",)], trouble
    return report


def _count(report: PromiseReport, lifecycle: Lifecycle, job: Job, events: Sequence[Event]) -> None:
    report.jobs += 1
    report.states[job.state] += 1
    report.claims += sum((event.claim == 1) - (event.move == "release") for event in events)
    report.lost_claims += sum(_by_the_clock(lifecycle, event) for event in events)
    used = (event.attempt - event.attempt_base for event in events)
    report.most_attempts = max(report.most_attempts, *used)
    report.last_at = max(report.last_at, job.moved_at)


def _check_history(lifecycle: Lifecycle, job: Job, events: Sequence[Event]) -> None:
    story = f"{job.id}: {[(one.seq, one.move, one.to_state, one.actor) for one in events]}"
    whole = [event.seq for event in events] == list(range(1, len(events) + 1))
    assert whole, f"not without a gap: {story}"
    assert events[-1].seq == job.seq, story
    assert events[-1].to_state == job.state, story
    successes, holder, before = 0, None, 0
    for event in events:
        assert event.at >= before, f"time runs back in {story}"
        before = event.at
        used = event.attempt - event.attempt_base
        assert 0 <= used <= event.max_attempts, f"{used} attempts at {event.seq} in {story}"
        assert event.return_count <= lifecycle.max_returns, f"too many returns in {story}"
        if lifecycle.state[event.to_state].success and event.from_state != event.to_state:
            successes += 1
        if _needs_the_claim(lifecycle, event):
            assert event.actor == holder, f"{event.seq} is not made by {holder}, in {story}"
        if event.claim == 1:
            assert holder is None, f"{event.seq} takes what {holder} holds, in {story}"
            holder = event.worker
        elif event.claim == 0:
            holder = None
    assert successes <= 1, f"completed {successes} times: {story}"


def _moves(lifecycle: Lifecycle, event: Event) -> list[Move]:
    """The declared moves that this event can be."""
    found = [
        move
        for move in lifecycle.moves
        if move.name == event.move
        and (event.from_state in move.sources or move.creates)
        and move.target(event.from_state) == event.to_state
    ]
    assert found, f"{event.move} from {event.from_state} to {event.to_state} is not declared"
    return found


def _needs_the_claim(lifecycle: Lifecycle, event: Event) -> bool:
    return all(move.guard("holds_claim") for move in _moves(lifecycle, event))


def _by_the_clock(lifecycle: Lifecycle, event: Event) -> bool:
    moves = _moves(lifecycle, event)
    return event.claim == 0 and all(move.guard("lease_over") for move in moves)
