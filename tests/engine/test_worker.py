import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kesin import Done, Failed, Job, Queue, Run, StaleClaim, Sweeper, Wait, Worker, task_lifecycle
from kesin.foundation.clock import ManualClock
from kesin.store.contract import StoreError, StoreUnreachable
from kesin.store.sqlite import SqliteStore
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from tests.engine.conftest import PATIENCE_S, Meeting, moves, only, states

Start = Callable[[Worker], Worker]
SECOND = 1_000_000


def fill(queue: Queue, jobs: int, **told: Any) -> list[str]:
    return [queue.enqueue({"n": n}, **told).id for n in range(jobs)]


class Spy:
    """Keeps what is asked of one method of a store, and may fail in its place."""

    def __init__(self, store: Any, method: str, failures: Sequence[Exception] = ()) -> None:
        self.told: list[dict[str, Any]] = []
        self.failures = list(failures)
        self.made = threading.Semaphore(0)
        self._real = getattr(store, method)
        setattr(store, method, self)

    def __call__(self, *args: Any, **told: Any) -> Any:
        self.told.append({"args": args, **told})
        if self.failures:
            raise self.failures.pop(0)
        answer = self._real(*args, **told)
        self.made.release()
        return answer

    def values(self, name: str) -> list[Any]:
        return [told[name] for told in self.told]


# Batches


def test_quick_jobs_come_in_ever_larger_batches(queue: Queue, store: SqliteStore):
    fill(queue, 40)
    claims = Spy(store, "claim")
    assert Worker(queue, lambda _job: None).drain() == 40
    assert claims.values("limit") == [1, 2, 4, 8, 16, 32, 16]
    assert states(queue) == {"done": 40}


def test_a_batch_is_never_larger_than_asked_for(queue: Queue, store: SqliteStore):
    fill(queue, 20)
    claims = Spy(store, "claim")
    Worker(queue, lambda _job: None, batch=4).drain()
    assert max(claims.values("limit")) == 4


def test_slow_jobs_make_batches_shrink_until_they_come_singly(
    queue: Queue, store: SqliteStore, clock: ManualClock
):
    fill(queue, 40)
    claims = Spy(store, "claim")
    handled = []

    def handler(job: Job) -> None:
        handled.append(job.id)
        if len(handled) > 15:  # the batch of sixteen
            clock.advance(1)

    Worker(queue, handler).drain()
    assert claims.values("limit")[:8] == [1, 2, 4, 8, 16, 8, 4, 2]


def test_an_empty_queue_makes_the_next_claim_small_again(queue: Queue, store: SqliteStore):
    worker = Worker(queue, lambda _job: None)
    fill(queue, 7)
    worker.drain()
    claims = Spy(store, "claim")
    fill(queue, 1)
    worker.drain()
    assert claims.values("limit")[0] == 1


def test_jobs_are_handled_the_longest_due_first(queue: Queue, clock: ManualClock):
    now = clock.time_us
    for due in (30, 10, 20, 40):
        queue.enqueue({"due": due}, run_at=now - due)
    handled: list[int] = []

    def together(jobs: Sequence[Job]) -> list[None]:
        return [handled.append(job.data["due"]) for job in jobs]  # type: ignore[func-returns-value]

    Worker(queue, batch_handler=together).drain()
    assert handled == [40, 30, 20, 10]


def test_only_the_named_tenants_are_served(queue: Queue):
    fill(queue, 2, tenant="ankara")
    fill(queue, 2, tenant="izmir")
    assert Worker(queue, lambda _job: None, tenants=["izmir"]).drain() == 2
    assert queue.stats().tenants["ankara"]["ready"] == 2


# Results


def test_results_wait_no_longer_than_half_a_second(queue: Queue, clock: ManualClock):
    fill(queue, 7)  # batches of one, two and four
    seen: list[dict[str, int]] = []

    def handler(_job: Job) -> None:
        seen.append(states(queue))
        if len(seen) > 3:
            clock.advance(0.3)

    Worker(queue, handler).drain()
    finished = [counts.get("done", 0) for counts in seen]
    assert finished == [0, 1, 1, 3, 3, 5, 5]


def test_results_of_one_kind_are_written_in_one_statement(queue: Queue, store: SqliteStore):
    fill(queue, 30)
    applied = Spy(store, "apply")

    def together(jobs: Sequence[Job]) -> list[Any]:
        return [Failed("E") if job.data["n"] % 3 == 0 else Done(job.data["n"]) for job in jobs]

    worker = Worker(queue, batch_handler=together, batch=30)
    worker.drain()
    assert sorted(told["args"][1] for told in applied.told) == ["complete", "retry"]
    assert states(queue) == {"done": 20, "ready": 10}
    assert worker.completed == 30


def test_a_worker_tells_when_it_last_got_through_to_the_store(queue: Queue, clock: ManualClock):
    worker = Worker(queue, lambda _job: None)
    assert worker.last_success is None
    clock.advance(5)
    worker.drain()
    assert worker.last_success == clock.monotonic()


# Batch handlers


def test_a_batch_handler_gets_a_whole_batch_at_once(queue: Queue):
    fill(queue, 25)
    sizes: list[int] = []

    def together(jobs: Sequence[Job]) -> list[None]:
        sizes.append(len(jobs))
        return [None] * len(jobs)

    assert Worker(queue, batch_handler=together, batch=10).drain() == 25
    assert sizes == [10, 10, 5]
    assert states(queue) == {"done": 25}


@pytest.mark.parametrize("answers", [0, 2, 4])
def test_the_wrong_number_of_answers_fails_the_whole_batch(queue: Queue, answers: int):
    fill(queue, 3)
    Worker(queue, batch_handler=lambda _jobs: [None] * answers, batch=3).drain()
    jobs = queue.jobs().jobs
    assert {job.state for job in jobs} == {"ready"}
    assert {job.error_code for job in jobs} == {"RuntimeError"}
    assert f"3 jobs went in, {answers} answers came out" in (jobs[0].error_message or "")


@pytest.mark.parametrize("problem", [Failed("NO_PAPER", "empty"), KeyError("x")])
def test_what_a_batch_handler_raises_is_the_answer_of_every_job(queue: Queue, problem: Exception):
    def together(_jobs: Sequence[Job]) -> list[None]:
        raise problem

    fill(queue, 3)
    Worker(queue, batch_handler=together, batch=3).drain()
    codes = {job.error_code for job in queue.jobs().jobs}
    assert codes == {"NO_PAPER" if isinstance(problem, Failed) else "KeyError"}


# Running out of attempts


def test_a_job_that_always_fails_rests_with_its_last_words(queue: Queue, clock: ManualClock):
    [job_id] = fill(queue, 1)
    said = iter(["first", "second", "third"])

    def handler(_job: Job) -> None:
        raise ValueError(next(said))

    for _ in range(5):
        Worker(queue, handler).drain()
        clock.advance(200)
    job = only(queue)
    assert (job.state, job.attempt_count, job.error_message) == ("failed", 3, "third")
    assert moves(queue, job_id) == ["enqueue", "claim", "retry", "claim", "retry", "claim", "retry"]


# The second argument of a handler


def test_a_handler_may_take_the_run_as_its_second_argument(queue: Queue):
    runs: list[Run] = []

    def handler(_job: Job, run: Run) -> None:
        runs.append(run)
        assert not run.lost
        assert not run.stopping

    [job_id] = fill(queue, 1)
    Worker(queue, handler).drain()
    assert runs[0].job.id == job_id


def test_a_handler_with_an_optional_second_argument_gets_the_job_alone(queue: Queue):
    def handler(job: Job, again: object = None) -> None:
        assert again is None

    fill(queue, 1)
    Worker(queue, handler).drain()
    assert states(queue) == {"done": 1}


def test_moves_in_the_middle_of_the_work_are_made_under_the_claim(
    store: SqliteStore, clock: ManualClock
):
    orders = Queue("orders", optiplan_lifecycle(), store, clock=clock)

    def handler(_job: Job, run: Run) -> Done:
        for call in ("prepare", "import", "run", "collect", "validate", "deliver"):
            assert run.move(call, note={"step": call}).result == "moved"
        return Done({"plates": 3})

    orders.enqueue({})
    Worker(orders, handler, name="runner").drain()
    job = only(orders)
    assert (job.state, job.result, job.attempt_count) == ("DONE", '{"plates":3}', 1)
    steps = orders.events(job.id)[2:-1]
    assert {event.worker for event in steps} == {"runner"}
    assert steps[0].note == '{"step":"prepare"}'


def test_a_slot_that_is_taken_is_an_answer_and_not_an_exception(
    store: SqliteStore, clock: ManualClock
):
    orders = Queue("orders", optiplan_lifecycle(), store, clock=clock)
    seen: list[str] = []

    def handler(_job: Job, run: Run) -> Any:
        run.move("prepare")
        run.move("import")
        seen.append(run.move("run").result)
        return Wait(30)

    orders.enqueue({})
    orders.enqueue({})
    Worker(orders, handler).drain()
    assert seen == ["moved", "busy"]
    assert states(orders) == {"OPTI_IMPORTED": 1, "OPTI_RUNNING": 1}


# Losing the lease


def steal(queue: Queue, clock: ManualClock) -> Job:
    """Let the lease run out and give the job to somebody else."""
    clock.advance(queue.lifecycle.lease_seconds + 1)
    assert Sweeper([queue]).sweep(("recover",)).total == 1
    [job] = queue.claim("thief")
    return job


def test_a_lost_lease_is_told_and_the_finish_refused_as_stale_and_noted(
    queue: Queue, clock: ManualClock
):
    lost: list[bool] = []

    def handler(_job: Job, run: Run) -> Done:
        stolen = steal(queue, clock)
        lost.append(run.lost)
        worker.leases.renew()
        lost.append(run.lost)
        assert stolen.worker == "thief"
        return Done("too late")

    [job_id] = fill(queue, 1)
    worker = Worker(queue, handler, name="slow")
    worker.drain()
    assert lost == [False, True]
    job = only(queue)
    assert (job.state, job.worker, job.result) == ("running", "thief", None)
    [note] = queue.notes(job_id)
    assert (note.kind, note.actor, note.details) == ("stale", "slow", "complete")
    assert worker.completed == 0
    assert worker.leases.held() == []


def test_a_move_under_a_lost_claim_is_a_stale_claim(store: SqliteStore, clock: ManualClock):
    orders = Queue("orders", optiplan_lifecycle(), store, clock=clock)
    problems: list[str] = []

    def handler(_job: Job, run: Run) -> Any:
        steal(orders, clock)
        try:
            run.move("prepare")
        except StaleClaim as problem:
            problems.append(str(problem))
            raise

    orders.enqueue({})
    Worker(orders, handler).drain()
    [problem] = problems
    assert "prepare" in problem
    assert only(orders).worker == "thief"


def test_the_run_of_a_lost_claim_stays_lost_when_the_same_worker_gets_the_job_again(
    queue: Queue, clock: ManualClock
):
    lost: list[bool] = []

    def handler(_job: Job, run: Run) -> None:
        clock.advance(queue.lifecycle.lease_seconds + 1)
        Sweeper([queue]).sweep(("recover",))
        worker.leases.renew()
        lost.append(run.lost)
        worker.leases.take(queue.claim(worker.name))  # as another lane does
        lost.append(run.lost)

    fill(queue, 1)
    worker = Worker(queue, handler, name="w")
    worker.drain()
    assert lost == [True, True]


# Stopping


def test_a_graceful_stop_finishes_the_job_at_hand(queue: Queue, running: Start):
    fill(queue, 3)
    meeting = Meeting(Done("in time"))
    worker = running(Worker(queue, meeting, poll_s=1_000))
    meeting.wait()
    worker.stop()
    meeting.go_on.set()
    worker.join()
    assert states(queue) == {"done": 1, "ready": 2}
    assert len(meeting.jobs) == 1


def test_a_stop_in_the_middle_of_a_batch_releases_the_rest_of_it(queue: Queue):
    fill(queue, 7)
    handled: list[str] = []

    def handler(job: Job) -> None:
        handled.append(job.id)
        if len(handled) == 5:  # the second of the batch of four
            worker.stop()

    worker = Worker(queue, handler)
    worker.drain()
    assert states(queue) == {"done": 5, "ready": 2}
    for job in queue.jobs().jobs:
        if job.state == "ready":
            assert moves(queue, job.id) == ["enqueue", "claim", "release"]
            assert (job.attempt_count, job.attempt_base, job.return_count) == (1, 1, 1)


def test_an_attempt_is_returned_at_most_twice_in_a_budget(queue: Queue, clock: ManualClock):
    [job_id] = fill(queue, 1)
    for _ in range(3):
        worker = Worker(queue, lambda _job: None, name="w")
        jobs = queue.claim("w")
        worker.leases.take(jobs)
        worker.give_back(jobs)
    job = only(queue)
    assert moves(queue, job_id) == ["enqueue", *["claim", "release"] * 2, "claim"]
    assert (job.state, job.attempt_count, job.attempt_base, job.return_count) == (
        "running",
        3,
        2,
        2,
    )
    clock.advance(61)
    Sweeper([queue]).sweep()
    assert (only(queue).state, only(queue).attempts_left) == ("ready", 2)


def test_what_outlives_the_grace_period_is_released_and_its_late_finish_refused(
    queue: Queue, running: Start
):
    [job_id] = fill(queue, 1)
    meeting = Meeting(Done("late"))
    worker = running(Worker(queue, meeting, grace_s=0, name="slow"))
    meeting.wait()
    worker.stop()
    worker.join()
    assert (only(queue).state, only(queue).attempt_base) == ("ready", 1)
    meeting.go_on.set()
    for lane in worker._lanes:
        lane.join(PATIENCE_S)
    assert only(queue).state == "ready"
    assert only(queue).result is None
    assert [note.kind for note in queue.notes(job_id)] == ["stale"]


def test_a_stopped_worker_claims_no_more(queue: Queue, store: SqliteStore, running: Start):
    worker = running(Worker(queue, lambda _job: None, threads=3, poll_s=1_000))
    worker.stop()
    store.resume(queue.name)
    worker.join()
    fill(queue, 3)
    assert states(queue) == {"ready": 3}


def test_a_worker_that_waits_for_work_stops_at_once(queue: Queue, running: Start):
    worker = running(Worker(queue, lambda _job: None, threads=2, poll_s=1_000, grace_s=PATIENCE_S))
    worker.stop()
    worker.join()
    assert not any(lane.is_alive() for lane in worker._lanes)


def test_what_is_claimed_after_the_grace_period_is_given_back(
    queue: Queue, store: SqliteStore, running: Start
):
    """A lane may have been on its way to the store when the worker was told to stop."""
    fill(queue, 1)
    asking, go_on = threading.Event(), threading.Event()
    claim = store.claim

    def slow(*args: Any, **details: Any) -> list[Job]:
        asking.set()
        assert go_on.wait(PATIENCE_S)
        return claim(*args, **details)

    store.claim = slow  # type: ignore[method-assign]
    ran: list[Job] = []

    def together(jobs: Sequence[Job]) -> list[Done]:
        ran.extend(jobs)
        return [Done()] * len(jobs)

    worker = running(Worker(queue, batch_handler=together, poll_s=1_000, grace_s=0))
    assert asking.wait(PATIENCE_S)
    worker.stop()
    worker.join()
    go_on.set()
    for lane in worker._lanes:
        lane.join(PATIENCE_S)
    assert (ran, states(queue)) == ([], {"ready": 1})


@pytest.fixture
def own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        assert signal.getsignal(number) is handler, "the worker kept a signal for itself"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("own_signals")
def test_a_signal_stops_a_running_worker_gracefully(queue: Queue, number: signal.Signals):
    fill(queue, 3)

    def handler(_job: Job) -> None:
        if not worker.stopping:
            os.kill(os.getpid(), number)
            stopped.wait(PATIENCE_S)

    worker = Worker(queue, handler, poll_s=0.05)
    stopped = worker._stop
    worker.run()
    assert states(queue)["done"] >= 1
    assert queue.stats().states["running"] == 0


@pytest.mark.usefixtures("own_signals")
def test_a_second_signal_gives_everything_back_at_once(queue: Queue):
    fill(queue, 1)
    ended = threading.Event()

    def handler(_job: Job) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        assert worker._stop.wait(PATIENCE_S)
        while worker.grace_s and not ended.wait(0.01):  # until somebody took notice
            os.kill(os.getpid(), signal.SIGTERM)
        assert ended.wait(PATIENCE_S)

    worker = Worker(queue, handler, grace_s=600, poll_s=0.05)
    patience = threading.Timer(5, ended.set)  # a worker that waits the grace period out fails
    patience.start()
    try:
        worker.run()
        released = only(queue)
    finally:
        patience.cancel()
        ended.set()
        for lane in worker._lanes:
            lane.join(PATIENCE_S)
    assert (released.state, released.attempt_base) == ("ready", 1)


# Errors of the store


def test_a_lane_outlives_errors_of_the_store_and_waits_longer_each_time(
    queue: Queue, store: SqliteStore, running: Start
):
    fill(queue, 1)
    claims = Spy(store, "claim", [StoreError("gone"), ValueError("odd"), StoreError("gone")])
    meeting = Meeting()
    worker = Worker(queue, meeting, poll_s=1_000)
    pauses: list[float] = []
    worker.pause = pauses.append  # type: ignore[method-assign,assignment]
    running(worker)
    meeting.wait()
    meeting.go_on.set()
    assert claims.made.acquire(timeout=PATIENCE_S)
    assert len(pauses) == 3
    assert all(0 < pause <= 60 for pause in pauses)
    assert pauses[0] < pauses[2]  # twice as long each time, give or take half


def test_answers_are_written_again_when_the_store_was_away(queue: Queue, store: SqliteStore):
    fill(queue, 1)
    Spy(store, "apply", [StoreUnreachable("gone")] * 50)
    worker = Worker(queue, lambda _job: Done(1))
    pauses: list[float] = []
    worker.pause = pauses.append  # type: ignore[method-assign,assignment]
    worker.drain()
    assert states(queue) == {"done": 1}
    assert len(pauses) == 50
    assert pauses[0] < 0.2
    assert 0.9 < pauses[-1] <= 3  # longer each time, but never long


@pytest.mark.parametrize("grace_s", [0.0, 600.0])
def test_an_answer_is_given_up_when_the_grace_period_is_over(
    queue: Queue, store: SqliteStore, clock: ManualClock, running: Start, grace_s: float
):
    fill(queue, 1)
    spy = Spy(store, "apply", [StoreUnreachable("gone")] * 10_000)
    worker = running(Worker(queue, lambda _job: Done(1), grace_s=grace_s))
    while not spy.told:
        assert not threading.Event().wait(0.001)
    worker.stop()
    if grace_s:
        tried = len(spy.told)
        while len(spy.told) < tried + 2:  # it goes on
            assert not threading.Event().wait(0.001)
        clock.advance(grace_s)
    worker.join()  # and says nothing of a claim that cannot be given back
    for lane in worker._lanes:
        lane.join(PATIENCE_S)
        assert not lane.is_alive()
    assert states(queue) == {"running": 1}


def test_an_answer_that_got_through_before_the_line_broke_counts_once(
    queue: Queue, store: SqliteStore
):
    [job_id] = fill(queue, 1)
    real, broken = store.apply, []

    def breaks_after_the_commit(*args: Any, **told: Any) -> Any:
        outcomes = real(*args, **told)
        if not broken:
            broken.append(outcomes)
            raise StoreUnreachable("the answer never arrived")
        return outcomes

    store.apply = breaks_after_the_commit  # type: ignore[method-assign]
    worker = Worker(queue, lambda _job: Done(1))
    worker.pause = lambda _seconds: None  # type: ignore[method-assign]
    worker.drain()
    assert moves(queue, job_id) == ["enqueue", "claim", "complete"]
    assert queue.notes(job_id) == []


def test_what_could_not_be_written_is_recovered_when_its_lease_is_over(
    queue: Queue, store: SqliteStore, clock: ManualClock
):
    fill(queue, 1)
    spy = Spy(store, "apply", [StoreError("the disk is full")])
    worker = Worker(queue, lambda _job: Done(1))
    with pytest.raises(StoreError):
        worker.drain()
    assert spy.failures == []
    assert states(queue) == {"running": 1}
    assert worker.leases.held() == []  # and so nothing renews it
    clock.advance(61)
    Sweeper([queue]).sweep()
    worker.drain()
    assert states(queue) == {"done": 1}
    assert only(queue).attempt_count == 2


# Being woken


def test_a_job_enqueued_in_the_same_process_wakes_the_worker_at_once(
    queue: Queue, store: SqliteStore, running: Start
):
    waits = Spy(store, "wait")
    meeting = Meeting()
    meeting.go_on.set()
    running(Worker(queue, meeting, poll_s=10_000))
    while not waits.told:
        assert not threading.Event().wait(0.001)
    fill(queue, 1)
    meeting.wait()


def test_a_job_that_nobody_announced_is_found_by_polling(clock: ManualClock, tmp_path: Path):
    path = tmp_path / "shared.db"
    with closing(SqliteStore(path)) as here, closing(SqliteStore(path)) as there:
        ours = Queue("work", task_lifecycle(), here, clock=clock)
        theirs = Queue("work", task_lifecycle(), there, clock=clock)
        waits = Spy(here, "wait")
        meeting = Meeting()
        meeting.go_on.set()
        worker = Worker(ours, meeting, poll_s=0.05)
        worker.start()
        try:
            assert waits.made.acquire(timeout=PATIENCE_S)
            pulse = here.pulse("work")
            theirs.enqueue({})
            assert here.pulse("work") == pulse
            meeting.wait()
        finally:
            worker.stop()
            worker.join()


def test_polls_are_spread_so_that_workers_do_not_march_in_step(
    queue: Queue, store: SqliteStore, running: Start
):
    waited: list[float] = []
    enough = threading.Event()

    def wait(_queue: str, _since: int, timeout_s: float) -> None:
        waited.append(timeout_s)
        if len(waited) >= 20:
            enough.set()
            threading.Event().wait(0.01)

    store.wait = wait  # type: ignore[method-assign]
    running(Worker(queue, lambda _job: None, poll_s=10))
    assert enough.wait(PATIENCE_S)
    assert all(5 <= seconds <= 15 for seconds in waited)
    assert len(set(waited)) > 10


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(queue: Queue, running: Start):
    queue.pause(actor="operator", reason="stock-taking")
    fill(queue, 2)
    assert Worker(queue, lambda _job: None).drain() == 0
    meeting = Meeting()
    meeting.go_on.set()
    running(Worker(queue, meeting, poll_s=10_000))
    assert queue.resume()
    meeting.wait(2)
    assert not queue.resume()


def test_a_paused_tenant_leaves_the_others_alone(queue: Queue):
    fill(queue, 2, tenant="ankara")
    fill(queue, 2, tenant="izmir")
    queue.pause(actor="operator", tenant="ankara")
    assert Worker(queue, lambda _job: None).drain() == 2
    assert queue.stats().tenants["izmir"]["done"] == 2


# Threads


def test_several_lanes_share_the_work_and_never_a_job(queue: Queue, running: Start):
    ids = fill(queue, 200)
    lock, handled, finished = threading.Lock(), [], threading.Event()

    def handler(job: Job) -> None:
        with lock:
            handled.append(job.id)
            if len(handled) == len(ids):
                finished.set()

    worker = running(Worker(queue, handler, threads=4, batch=10))
    assert finished.wait(PATIENCE_S)
    worker.stop()
    worker.join()
    assert sorted(handled) == sorted(ids)
    assert states(queue) == {"done": 200}
    assert worker.completed == 200


# Making one


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ({}, "handler"),
        ({"handler": print, "batch_handler": print}, "handler"),
        ({"handler": print, "threads": 0}, "threads must be positive, got 0"),
        ({"handler": print, "batch": -1}, "batch must be positive, got -1"),
        ({"handler": print, "poll_s": 0}, "poll_s must be positive, got 0"),
    ],
)
def test_a_worker_that_cannot_work_is_refused(queue: Queue, told: dict[str, Any], complaint: str):
    with pytest.raises(ValueError, match=complaint):
        Worker(queue, **told)


def test_every_worker_has_a_name_of_its_own(queue: Queue):
    names = {Worker(queue, lambda _job: None).name for _ in range(5)}
    assert len(names) == 5
    assert Worker(queue, lambda _job: None, name="w").name == "w"
