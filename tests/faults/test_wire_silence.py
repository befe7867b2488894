"""A line that is open and silent, or slow: no wait lasts forever, and all go on after it."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import quote

import pytest

from kesin.engine.queue import Queue, apply_changes
from kesin.engine.results import Done
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.foundation.clock import SystemClock
from kesin.lifecycle.model import Change, Job
from kesin.store.errors import StoreUnreachable
from kesin.store.postgres.store import PostgresStore
from tests.cli.programs import wait_until
from tests.engine.conftest import Meeting
from tests.faults.promise import check_promise
from tests.faults.proxy import How, listens
from tests.faults.wires import LEASE_S, PATIENCE_S, SOON_S, TASK, End, Wire, held, open_near, until_back


def complete(queue: Queue, job: Job) -> str:
    change = Change(job.id, job.claim_seq, result="1")
    return apply_changes(queue, "complete", [change], actor="worker")[0].result


def complete_together(queue: Queue, job: Job) -> str:
    with queue.store.transaction():
        return complete(queue, job)


@pytest.mark.parametrize(
    ("ask", "nth", "how", "again"),
    [
        (complete, 1, "mute", "already"),
        (complete_together, 3, "swallow", "moved"),
        pytest.param(complete, 1, "swallow", "moved", marks=pytest.mark.long),
        pytest.param(complete_together, 3, "mute", "already", marks=pytest.mark.long),
    ],
)
def test_a_call_that_is_not_answered_ends_and_is_settled_by_asking_again(
    hasty: Wire, ask: Callable[[Queue, Job], str], nth: int, how: How, again: str
):
    near, far = hasty.queues()
    job = held(far)
    hasty.proxy.fail(how, nth=nth)
    with pytest.raises(StoreUnreachable):
        ask(near, job)
    if how == "mute":
        assert hasty.proxy.answered.wait(PATIENCE_S)
    hasty.proxy.mend()
    assert until_back(lambda: ask(near, job)) == again
    check_promise(hasty.far, far.name, TASK, [job.id])


def test_those_at_work_outlive_a_line_that_goes_silent_and_go_on(hasty: Wire):
    near, far = hasty.queues(clock=SystemClock())
    meeting = Meeting(Done(1))
    worker = Worker(near, meeting, threads=2, poll_s=0.05, lease_seconds=2)
    sweeper = Sweeper([near], every_s=dict.fromkeys(("cap", "recover", "revive"), 0.05))
    sweeping = threading.Thread(target=sweeper.run)
    first = far.enqueue({}).id
    worker.start()
    sweeping.start()
    meeting.wait()
    hasty.proxy.silence()  # a job is at work, the other lane asks, the sweeper sweeps
    meeting.go_on.set()
    wait_until(lambda: hasty.proxy.knocks)
    swept = sweeper.last_success
    second = far.enqueue({}).id
    hasty.proxy.mend()
    wait_until(lambda: far.stats().states["done"] == 2)
    wait_until(lambda: sweeper.last_success != swept)
    assert worker.alive
    sweeper.stop()
    worker.stop()
    worker.join()
    sweeping.join(PATIENCE_S)
    assert not worker.alive
    assert not sweeping.is_alive()
    check_promise(hasty.far, far.name, TASK, [first, second])


def test_a_store_behind_a_silent_line_is_closed_and_leaves_no_thread(hasty: Wire, end: End):
    before = set(threading.enumerate())
    store = open_near(end, hasty.proxy, response_timeout_s=SOON_S, listen=True)
    queue = Queue(hasty.queues()[1].name, TASK, store)
    store.wait(queue.name, store.notification_count(queue.name), 0)
    wait_until(lambda: hasty.proxy.listeners)
    hasty.proxy.silence()
    with pytest.raises(StoreUnreachable):
        queue.stats()
    wait_until(lambda: hasty.proxy.knocks)
    store.close()
    hasty.proxy.mend()
    for thread in set(threading.enumerate()) - before:
        if thread.name != "proxy":
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), thread.name


def test_an_answer_that_comes_late_is_right_and_a_claim_renewed_meanwhile_is_kept(wire: Wire):
    near, far = wire.queues()
    job, late = held(far), held(far)
    far.clock.advance(LEASE_S / 2)  # type: ignore[attr-defined]
    wire.proxy.fail("hold")
    with ThreadPoolExecutor() as beside:
        answer = beside.submit(complete, near, late)
        assert wire.proxy.struck.wait(PATIENCE_S)
        assert near.renew([job]) == {job.id}
        far.clock.advance(LEASE_S - 1)  # type: ignore[attr-defined]
        assert Sweeper([near]).sweep(("recover",)).total == 0
        assert complete(near, job) == "moved"
        assert not answer.done()
        wire.proxy.release()
        assert answer.result(PATIENCE_S) == "moved"
    check_promise(wire.far, far.name, TASK, [job.id, late.id])


@pytest.mark.parametrize("fault", ["cut", "silence"])
def test_a_listener_whose_line_fails_listens_again(hasty: Wire, fault: str):
    near, far = hasty.queues()
    hears(near, far)
    wait_until(lambda: hasty.proxy.listeners == 1)
    if fault == "cut":
        hasty.proxy.cut()
    else:
        hasty.proxy.silence()
        wait_until(lambda: hasty.proxy.knocks)
        hasty.proxy.mend()
    wait_until(lambda: hasty.proxy.listeners == 2)
    hears(near, far)
    hears(near, far)  # once it may have been the coming back that was heard


def hears(near: Queue, far: Queue) -> None:
    """A wait that does not end by time, but because somebody else enqueued."""
    since = near.store.notification_count(near.name)
    far.enqueue({})

    def heard() -> bool:
        near.store.wait(near.name, since, 0)
        return near.store.notification_count(near.name) != since

    wait_until(heard)


def test_work_is_found_while_nobody_hears_of_it(hasty: Wire):
    near, far = hasty.queues(clock=SystemClock())
    hasty.proxy.rule = lambda call: "swallow" if listens(call) else "pass"
    worker = Worker(near, lambda _: Done(1), poll_s=0.05)
    worker.start()
    wait_until(hasty.proxy.struck.is_set)
    ids = [far.enqueue({}).id for _ in range(3)]
    wait_until(lambda: far.stats().states["done"] == 3)
    worker.stop()
    worker.join()
    check_promise(hasty.far, far.name, TASK, ids)


@pytest.mark.parametrize("kind", ["postgres"], indirect=True, scope="module")
def test_what_postgres_has_no_time_for_is_told_like_a_server_that_is_away(end: End):
    """A lock not had in time; a transaction left alone for too long, in the middle of it."""
    job = held(Queue("locked", TASK, end.store))
    impatient = quote("-clock_timeout=50 -cidle_in_transaction_session_timeout=50")
    with closing(PostgresStore(f"{end.url}&options={impatient}", listen=False)) as store:
        queue = Queue("locked", TASK, store)
        with end.store.transaction():
            assert end.store.renew("locked", [(job.id, job.claim_seq)], lease_us=10**9)
            with pytest.raises(StoreUnreachable, match="lock timeout"):
                complete(queue, job)
        with store.transaction() as connection:
            select.select([connection.fileno()], [], [], PATIENCE_S)  # the server hangs up
            with pytest.raises(StoreUnreachable):
                queue.stats()
        assert until_back(lambda: complete(queue, job)) == "moved"
