import threading
from collections.abc import Callable
from typing import Any

import pytest

from kesin import Queue, Sweeper, Worker, task_lifecycle
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.vocabulary import STAGES, Stage
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads import lifecycles
from tests.engine.conftest import only, states

DAY_S = 86_400


class Rounds:
    """Stands in for the sweeper's stop event: waiting lets the clock run, until it is enough."""

    def __init__(self, clock: ManualClock, until_s: float) -> None:
        self.clock = clock
        self.until_s = clock.monotonic() + until_s
        self.waited: list[float] = []

    def is_set(self) -> bool:
        return self.clock.monotonic() >= self.until_s

    def set(self) -> None:
        self.until_s = 0

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.clock.advance(seconds)
        return self.is_set()


def recorded(sweeper: Sweeper, clock: ManualClock) -> list[tuple[float, tuple[Stage, ...]]]:
    """(seconds since now, stages) of every pass the sweeper makes."""
    passes: list[tuple[float, tuple[Stage, ...]]] = []
    start, sweep = clock.monotonic(), sweeper.sweep

    def watched(stages: Any = STAGES) -> Any:
        passes.append((round(clock.monotonic() - start, 3), tuple(stages)))
        return sweep(stages)

    sweeper.sweep = watched  # type: ignore[method-assign]
    return passes


@pytest.fixture
def lost(queue: Queue, clock: ManualClock) -> Callable[[int], None]:
    """Leaves so many jobs behind with a worker that died."""

    def leave(jobs: int) -> None:
        for n in range(jobs):
            queue.enqueue({"n": n})
        queue.claim("dead", limit=jobs)
        clock.advance(queue.lifecycle.lease_seconds)

    return leave


# One pass


@pytest.mark.parametrize("name", lifecycles())
def test_the_clocks_moves_are_made_stage_by_stage(
    store: SqliteStore, clock: ManualClock, name: str
):
    queue = Queue(name, lifecycles()[name](), store, clock=clock)
    made: list[Stage | None] = []
    sweep = queue.sweep

    def watched(move: Any, **kwargs: Any) -> int:
        made.append(move.stage)
        return sweep(move, **kwargs)

    queue.sweep = watched  # type: ignore[method-assign]
    Sweeper([queue]).sweep()
    places = [STAGES.index(stage) for stage in made if stage]
    assert places == sorted(places)
    assert len(made) == len(queue.lifecycle.scheduled_moves)
    assert STAGES == ("cap", "recover", "expire", "revive", "timeout", "prune")


def test_a_job_whose_worker_died_is_ready_again(queue: Queue, lost: Callable[[int], None]):
    lost(1)
    swept = Sweeper([queue]).sweep()
    assert swept.total == 1
    assert swept.moved["work", "recover"] == 1
    assert (only(queue).state, only(queue).attempt_count) == ("ready", 1)


def test_a_pass_goes_on_batch_by_batch_until_nothing_is_left(
    queue: Queue, store: SqliteStore, lost: Callable[[int], None]
):
    lost(5)
    limits: list[int] = []
    sweep = store.sweep

    def watched(*args: Any, **kwargs: Any) -> int:
        limits.append(kwargs["limit"])
        return sweep(*args, **kwargs)

    store.sweep = watched  # type: ignore[method-assign]
    assert Sweeper([queue], batch=2).sweep(("recover",)).total == 5
    assert set(limits) == {2}
    assert len(limits) == 3 + 1  # two, two, one; and the other kind of recovery found none


def test_only_the_stages_asked_for_are_swept(queue: Queue, lost: Callable[[int], None]):
    lost(1)
    assert Sweeper([queue]).sweep(("cap", "prune")).total == 0
    assert Sweeper([queue]).sweep(("recover",)).total == 1


def test_one_pass_serves_several_queues(queue: Queue, store: SqliteStore, clock: ManualClock):
    other = Queue("other", task_lifecycle(lease_seconds=60), store, clock=clock)
    for swept_queue in (queue, other):
        swept_queue.enqueue({})
        swept_queue.claim("dead")
    clock.advance(60)
    swept = Sweeper([queue, other]).sweep()
    assert swept.moved["work", "recover"] == swept.moved["other", "recover"] == 1


def test_a_spent_job_is_capped_before_anything_is_recovered(queue: Queue, clock: ManualClock):
    """The lease of the last attempt runs out: it fails, and does not become ready once more."""
    queue.enqueue({}, max_attempts=1)
    queue.claim("dead")
    clock.advance(60)
    Sweeper([queue]).sweep()
    job = only(queue)
    assert (job.state, job.error_code) == ("failed", "MAX_ATTEMPTS")


def test_finished_jobs_are_pruned_when_they_are_old_enough(queue: Queue, clock: ManualClock):
    queue.enqueue({})
    Worker(queue, lambda _job: None).drain()
    clock.advance(30 * DAY_S - 1)
    assert Sweeper([queue]).sweep().total == 0
    clock.advance(1)
    assert Sweeper([queue]).sweep().moved["work", "prune"] == 1
    assert states(queue) == {}
    assert queue.jobs().jobs == []
    gone = [flow for flow in queue.store.move_counts("work") if flow.to_state == ""]
    assert [(flow.move, flow.n) for flow in gone] == [("prune", 1)]


def test_the_counters_are_compacted_in_every_pass(queue: Queue, store: SqliteStore):
    compacted: list[str] = []
    store.compact = lambda name: compacted.append(name) or 0  # type: ignore[method-assign,func-returns-value]
    Sweeper([queue]).sweep()
    assert compacted == ["work"]


# For ever


def test_each_stage_is_swept_at_its_own_interval(queue: Queue, clock: ManualClock):
    sweeper = Sweeper([queue])
    sweeper._stop = Rounds(clock, until_s=3_700)  # type: ignore[assignment]
    passes = recorded(sweeper, clock)
    sweeper.run()
    minutely = ("cap", "recover", "revive", "timeout")
    assert passes[0] == (0, STAGES)
    assert [at for at, stages in passes if "recover" in stages] == [60 * n for n in range(62)]
    assert [at for at, stages in passes if "prune" in stages] == [0, 3_600]
    assert [at for at, stages in passes if "expire" in stages] == [0, 3_600]
    assert {stages for at, stages in passes if at % 3_600} == {minutely}


def test_intervals_can_be_set(queue: Queue, clock: ManualClock):
    sweeper = Sweeper([queue], every_s={"recover": 5, "prune": 20})
    sweeper._stop = Rounds(clock, until_s=41)  # type: ignore[assignment]
    passes = recorded(sweeper, clock)
    sweeper.run()
    assert [at for at, stages in passes if "recover" in stages] == [5 * n for n in range(9)]
    assert [at for at, stages in passes if "prune" in stages] == [0, 20, 40]
    assert [at for at, stages in passes if "cap" in stages] == [0]


def test_the_sweeper_outlives_errors_of_the_store_and_waits_longer_each_time(
    queue: Queue, store: SqliteStore, clock: ManualClock
):
    problems = [StoreError("gone"), ValueError("odd"), StoreError("gone")]
    sweep = store.sweep

    def flaky(*args: Any, **kwargs: Any) -> int:
        if problems:
            raise problems.pop(0)
        return sweep(*args, **kwargs)

    store.sweep = flaky  # type: ignore[method-assign]
    sweeper = Sweeper([queue])
    sweeper._stop = rounds = Rounds(clock, until_s=30)  # type: ignore[assignment]
    passes = recorded(sweeper, clock)
    sweeper.run()
    assert problems == []
    assert [stages for _, stages in passes[:4]] == [STAGES] * 4  # nothing was taken for done
    assert rounds.waited[0] < rounds.waited[2]
    assert sweeper.last_success is not None


def test_a_failed_pass_is_no_success(queue: Queue, store: SqliteStore, clock: ManualClock):
    def broken(*_args: Any, **_told: Any) -> int:
        raise StoreError("gone")

    store.sweep = broken  # type: ignore[method-assign]
    sweeper = Sweeper([queue])
    sweeper._stop = Rounds(clock, until_s=100)  # type: ignore[assignment]
    sweeper.run()
    assert sweeper.last_success is None


def test_stop_ends_the_sweeper_after_the_batch_at_hand(
    queue: Queue, store: SqliteStore, lost: Callable[[int], None]
):
    lost(5)
    sweeper = Sweeper([queue], batch=1)
    sweep = store.sweep

    def stopping(*args: Any, **kwargs: Any) -> int:
        moved = sweep(*args, **kwargs)
        if moved:
            sweeper.stop()
        return moved

    store.sweep = stopping  # type: ignore[method-assign]
    sweeper.run()
    assert states(queue) == {"ready": 1, "running": 4}


def test_a_sweeper_without_queues_does_nothing_and_harms_nobody():
    assert Sweeper([]).sweep().total == 0


def test_a_chore_is_done_once_the_jobs_of_its_queue_have_expired(queue: Queue) -> None:
    done: list[str] = []
    sweeper = Sweeper([queue], after_sweep={"work": lambda: done.append("work")})
    sweeper.sweep(("recover", "expire"))
    assert done == ["work"]


def test_a_chore_waits_for_the_stage_that_expires(queue: Queue) -> None:
    done: list[str] = []
    sweeper = Sweeper([queue], after_sweep={"work": lambda: done.append("work")})
    sweeper.sweep(("recover", "cap"))
    assert done == []


def test_a_chore_that_fails_does_not_stop_the_sweep(store: SqliteStore, clock: ManualClock) -> None:
    done: list[str] = []

    def fail() -> None:
        raise OSError("the storage is away")

    queues = [Queue(name, task_lifecycle(), store, clock=clock) for name in ("a", "b")]
    sweeper = Sweeper(queues, after_sweep={"a": fail, "b": lambda: done.append("b")})
    sweeper.sweep()
    assert done == ["b"]


def test_a_chore_that_takes_long_does_not_hold_up_the_sweep(store: SqliteStore) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert go_on.wait(20)

    queue = Queue("work", task_lifecycle(), store)  # by the real clock: it really waits
    sweeper = Sweeper([queue], every_s=dict.fromkeys(STAGES, 0.01), after_sweep={"work": slow})
    passes = threading.Semaphore(0)
    sweeper.on_swept = lambda _: passes.release()
    running = threading.Thread(target=sweeper.run, daemon=True)
    running.start()
    try:
        assert begun.wait(20)
        assert all(passes.acquire(timeout=20) for _ in range(3))
        assert [thread.name for thread in threading.enumerate()].count("kesin-after-sweep") == 1
    finally:
        sweeper.stop()
        go_on.set()
        running.join(20)
    assert not running.is_alive()


# Several stores


def test_a_store_that_is_away_keeps_nobody_from_the_others(store: SqliteStore, clock: ManualClock):
    there, away = (Queue(name, task_lifecycle(), store, clock=clock) for name in ("there", "away"))
    there.enqueue({})
    there.claim("dead")
    clock.advance(there.lifecycle.lease_seconds)

    def unreachable(*_: Any, **__: Any) -> int:
        raise StoreUnreachable("Redis is not reachable")

    away.sweep = unreachable  # type: ignore[method-assign]
    errands: list[str] = []

    def fail() -> None:
        raise StoreUnreachable("Redis is not reachable")

    sweeper = Sweeper([away, there], periodic={"away": fail, "there": lambda: errands.append("x")})
    swept = sweeper.sweep(("recover",))
    assert (swept.total, swept.unreachable, errands) == (1, ["away"], ["x"])
    with pytest.raises(StoreUnreachable):  # no queue was reached
        Sweeper([away]).sweep()


def test_a_queue_that_fails_keeps_nobody_from_the_others_and_is_told(
    store: SqliteStore, clock: ManualClock
):
    bad, good = (Queue(name, task_lifecycle(), store, clock=clock) for name in ("bad", "good"))
    good.enqueue({})
    good.claim("dead")
    clock.advance(good.lifecycle.lease_seconds)

    def broken(*_: Any, **__: Any) -> int:
        raise ValueError("odd")

    bad.sweep = broken  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="odd"):
        Sweeper([bad, good]).sweep()
    assert states(good) == {"ready": 1}


def test_errands_are_run_between_the_stages_too(queue: Queue, clock: ManualClock):
    ran: list[float] = []
    start = clock.monotonic()
    sweeper = Sweeper([queue], periodic={"work": lambda: ran.append(clock.monotonic() - start)})
    sweeper._stop = Rounds(clock, 12)  # type: ignore[assignment]
    sweeper.run()
    assert [round(at) for at in ran] == [0, 5, 10]
