"""A worker that runs sweeps its queue: nothing else is needed for a crash to heal."""

from __future__ import annotations

from collections.abc import Callable

from kesin import ManualClock, Queue, Worker
from kesin.engine.sweeper import STAGE_INTERVALS_S
from tests.engine.conftest import PATIENCE_S, Meeting, Start, fill, job_of, moves


def test_a_running_worker_recovers_the_job_of_one_that_died(queue: Queue, clock: ManualClock, running: Start):
    [job_id] = fill(queue, 1)
    queue.claim("dead", lease_seconds=5)
    clock.advance(6)
    meeting = Meeting()
    running(Worker(queue, meeting, poll_s=0.05))
    meeting.wait()
    meeting.go_on.set()
    assert moves(queue, job_id)[:4] == ["enqueue", "claim", "recover", "claim"]
    assert job_of(queue, job_id).attempt_count == 2


def test_claims_are_recovered_each_half_lease_and_the_rest_as_usual(queue: Queue, running: Start):
    for lease_s, recover_s in ((4, 2), (600, 60)):
        worker = running(Worker(queue, lambda _job: None, poll_s=0.05, lease_seconds=lease_s))
        assert worker._sweeper is not None
        assert worker._sweeper.every_s == {**STAGE_INTERVALS_S, "recover": recover_s}


def test_the_pauses_of_many_workers_differ(queue: Queue, running: Start):
    workers = [running(Worker(queue, lambda _job: None, poll_s=0.05)) for _ in range(4)]
    pauses = set()
    for worker in workers:
        assert worker._sweeper is not None
        for _ in range(int(PATIENCE_S * 100)):
            if due := worker._sweeper.due_in_s():
                break
            worker.pause(0.01)
        assert 0 < due["recover"] <= 30
        pauses.add(due["recover"])
    assert len(pauses) == 4


def test_only_a_worker_that_runs_and_was_not_told_otherwise_sweeps(queue: Queue, running: Start):
    fill(queue, 2)
    for turn in (Worker.run_once, Worker.drain):
        worker = Worker(queue, lambda _job: None)
        turn(worker)
        assert worker._sweeper is None
    worker = Worker(queue, lambda _job: None)
    worker.stop()
    assert running(worker)._sweeper is None
    assert running(Worker(queue, lambda _job: None, sweep=False))._sweeper is None


def test_a_worker_stopped_by_its_first_thread_sweeps_no_more(queue: Queue):
    class Hasty(Worker):
        def thread_target(self, number: int) -> Callable[[], None]:
            self.stop()
            return super().thread_target(number)

    worker = Hasty(queue, lambda _job: None, poll_s=0.05)
    worker.start()
    worker.join()
    assert worker._sweeper_thread is not None
    assert not worker._sweeper_thread.is_alive()
