import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from kesin import Queue, Sweeper, task_lifecycle
from kesin.engine import sweeper
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.vocabulary import STAGES, Stage
from kesin.store.errors import StoreError, StoreUnreachable
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads import lifecycles
from tests.engine.conftest import Spy, only, states
from tests.store.checking import checking_lifecycle

DAY_S = 86_400


class Rounds:
    """Replaces the sweeper's stop event: a wait moves the clock; it is set at the end time."""

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


Passes = list[tuple[float, tuple[Stage, ...]]]


def run_for(sweeper: Sweeper, clock: ManualClock, seconds: float) -> tuple[Passes, list[float]]:
    """Run the sweeper; (seconds since the start, stages) of every pass, and the waits between."""
    passes: Passes = []
    start, sweep, rounds = clock.monotonic(), sweeper.sweep, Rounds(clock, seconds)

    def record(stages: Any = STAGES) -> Any:
        passes.append((round(clock.monotonic() - start, 3), tuple(stages)))
        return sweep(stages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeper, "sweep", record)
        patch.setattr(sweeper, "_stop", rounds)
        sweeper.run()
    return passes, rounds.waited


@pytest.fixture
def lost(queue: Queue, clock: ManualClock) -> Callable[[int], None]:
    """Leaves so many jobs claimed by a worker that died."""

    def leave(jobs: int) -> None:
        for n in range(jobs):
            queue.enqueue({"n": n})
        queue.claim("dead", limit=jobs)
        clock.advance(queue.lifecycle.lease_seconds)

    return leave


# One pass


def test_scheduled_moves_run_stage_by_stage(store: SqliteStore, clock: ManualClock):
    assert STAGES == ("settle", "cap", "recover", "expire", "revive", "timeout", "prune")
    for name, make in lifecycles().items():
        queue = Queue(name, make(), store, clock=clock)
        sweeps = Spy(queue, "sweep")
        Sweeper([queue]).sweep()
        stages = [STAGES.index(move.stage) for (move,) in sweeps.values("args")]
        assert (stages, len(stages)) == (sorted(stages), len(queue.lifecycle.scheduled_moves)), name


def test_a_job_whose_worker_died_is_ready_again(queue: Queue, store: SqliteStore, lost: Callable[[int], None]):
    lost(1)
    compactions = Spy(store, "compact")
    assert Sweeper([queue]).sweep(("cap", "prune")).total == 0, "only the requested stages are swept"
    swept = Sweeper([queue]).sweep()
    assert swept.total == 1
    assert swept.moved["work", "recover"] == 1
    assert (only(queue).state, only(queue).attempt_count) == ("ready", 1)
    assert compactions.values("args") == [("work",)] * 2, "in every pass"


def test_a_pass_goes_on_batch_by_batch_until_nothing_is_left(
    queue: Queue, store: SqliteStore, lost: Callable[[int], None]
):
    lost(5)
    sweeps = Spy(store, "sweep")
    assert Sweeper([queue], batch=2).sweep(("recover",)).total == 5
    assert sweeps.values("limit") == [2] * 4  # 2, 2 and 1 jobs; the other kind of recovery has none


# Continuously


def test_each_stage_is_swept_at_its_own_interval(queue: Queue, clock: ManualClock):
    passes, _ = run_for(Sweeper([queue]), clock, 3_700)
    minutely = ("settle", "cap", "recover", "revive", "timeout")
    assert passes[0] == (0, STAGES)
    assert [at for at, stages in passes if "recover" in stages] == [60 * n for n in range(62)]
    assert [at for at, stages in passes if "prune" in stages] == [0, 3_600]
    assert [at for at, stages in passes if "expire" in stages] == [0, 3_600]
    assert {stages for at, stages in passes if at % 3_600} == {minutely}


def test_intervals_can_be_set(queue: Queue, clock: ManualClock):
    sweeper = Sweeper([queue], every_s={"recover": 5, "prune": 20})
    passes, _ = run_for(sweeper, clock, 41)
    assert [at for at, stages in passes if "recover" in stages] == [5 * n for n in range(9)]
    assert [at for at, stages in passes if "prune" in stages] == [0, 20, 40]
    assert [at for at, stages in passes if "cap" in stages] == [0]


def test_the_sweeper_survives_errors_of_the_store_and_waits_longer_each_time(
    queue: Queue, store: SqliteStore, clock: ManualClock
):
    sweeps = Spy(store, "sweep", [StoreError("gone"), ValueError("odd"), StoreError("gone")])
    sweeper = Sweeper([queue])
    passes, waits = run_for(sweeper, clock, 30)
    assert sweeps.failures == []
    assert [stages for _, stages in passes[:4]] == [STAGES] * 4  # no stage counts as done
    assert waits[0] < waits[2]
    assert sweeper.last_success is not None


def test_a_failed_pass_is_no_success(queue: Queue, store: SqliteStore, clock: ManualClock):
    Spy(store, "sweep", [StoreError("gone")] * 1_000)
    sweeper = Sweeper([queue])
    run_for(sweeper, clock, 100)
    assert sweeper.last_success is None


def test_stop_ends_the_sweeper_after_the_current_batch(
    queue: Queue, store: SqliteStore, lost: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
):
    lost(5)
    sweeper = Sweeper([queue], batch=1)
    sweep = store.sweep

    def sweep_and_stop(*args: Any, **kwargs: Any) -> int:
        moved = sweep(*args, **kwargs)
        if moved:
            sweeper.stop()
        return moved

    monkeypatch.setattr(store, "sweep", sweep_and_stop)
    sweeper.run()
    assert states(queue) == {"ready": 1, "running": 4}


def test_a_sweeper_without_queues_does_nothing():
    assert Sweeper([]).sweep().total == 0


def test_after_sweep_is_called_when_jobs_have_expired_and_not_before(queue: Queue) -> None:
    calls: list[str] = []
    sweeper = Sweeper([queue], after_sweep={"work": lambda: calls.append("work")})
    sweeper.sweep(("recover", "cap"))
    assert calls == []
    sweeper.sweep(("recover", "expire"))
    assert calls == ["work"]


def test_after_sweep_that_fails_does_not_stop_the_sweep(store: SqliteStore, clock: ManualClock) -> None:
    calls: list[str] = []

    def fail() -> None:
        raise OSError("the storage is away")

    queues = [Queue(name, task_lifecycle(), store, clock=clock) for name in ("a", "b")]
    sweeper = Sweeper(queues, after_sweep={"a": fail, "b": lambda: calls.append("b")})
    sweeper.sweep()
    assert calls == ["b"]


def test_after_sweep_that_takes_long_does_not_delay_the_sweep(store: SqliteStore) -> None:
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


def test_an_unreachable_store_does_not_keep_the_others_from_being_swept(store: SqliteStore, clock: ManualClock):
    there, away = (Queue(name, task_lifecycle(), store, clock=clock) for name in ("there", "away"))
    there.enqueue({})
    there.claim("dead")
    clock.advance(there.lifecycle.lease_seconds)

    Spy(away, "sweep", [StoreUnreachable("Redis is not reachable")] * 100)
    calls: list[str] = []

    def fail() -> None:
        raise StoreUnreachable("Redis is not reachable")

    sweeper = Sweeper([away, there], periodic={"away": fail, "there": lambda: calls.append("x")})
    swept = sweeper.sweep(("recover",))
    assert (swept.total, swept.unreachable, calls) == (1, ["away"], ["x"])
    with pytest.raises(StoreUnreachable):  # no queue was reached
        Sweeper([away]).sweep()


def test_the_error_of_a_queue_is_raised_after_the_others_were_swept(store: SqliteStore, clock: ManualClock):
    bad, good = (Queue(name, task_lifecycle(), store, clock=clock) for name in ("bad", "good"))
    good.enqueue({})
    good.claim("dead")
    clock.advance(good.lifecycle.lease_seconds)

    Spy(bad, "sweep", [ValueError("odd")] * 100)
    with pytest.raises(ValueError, match="odd"):
        Sweeper([bad, good]).sweep()
    assert states(good) == {"ready": 1}


def test_periodic_calls_run_between_the_stages_too(queue: Queue, clock: ManualClock):
    times: list[float] = []
    start = clock.monotonic()
    sweeper = Sweeper([queue], periodic={"work": lambda: times.append(clock.monotonic() - start)})
    run_for(sweeper, clock, 12)
    assert [round(at) for at in times] == [0, 5, 10]


def test_jobs_in_states_that_its_rules_do_not_know_are_reported_by_a_sweeper(monkeypatch):
    """It runs on under earlier rules while others have put a job into a state that is new."""
    logged: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(sweeper.log, "warning", lambda event, **which: logged.append((event, which)))
    with closing(SqliteStore(":memory:")) as store:
        earlier = Queue("work", task_lifecycle(), store)
        newer = Queue("work", checking_lifecycle(), store)
        ids = [newer.enqueue({}).id for _ in range(3)]
        Sweeper([earlier]).sweep()
        assert logged == []
        assert newer.act("check", ids=ids[:2], actor="ada").moved == 2
        Sweeper([newer]).sweep()
        Sweeper([earlier]).sweep(("recover",))  # it is asked seldom, with what is pruned
        assert logged == []
        Sweeper([earlier]).sweep(("prune",))
    unknown = {"queue": "work", "jobs": {"checking": 2}}
    assert logged == [("jobs_in_unknown_states", unknown)]
