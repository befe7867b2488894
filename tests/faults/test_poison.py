"""One job among thousands that harms its worker: it ends, and the others are done."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.results import Done
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.foundation.clock import ManualClock
from kesin.foundation.logs import MAX_TRACEBACK_LENGTH, Logger, set_up_logs
from kesin.lifecycle.model import Job
from kesin.lifecycle.task import task_lifecycle
from kesin.store.contract import Store
from kesin.store.limits import MAX_MESSAGE
from kesin.store.sqlite.store import SqliteStore
from tests.apart import PATIENCE_S, crew
from tests.faults.cast import LEASE_S, Address
from tests.faults.conftest import fill
from tests.faults.poison import POISONS, work_or_die
from tests.faults.promise import PromiseReport, check_promise

JOBS = 400
PLACE = 200  # of the poison job in the queue: amid large batches
MOST_DEATHS = 20


@dataclass
class PoisonRun:
    """What became of the jobs."""

    poison: str
    deaths: int = 0
    attempts: Counter[tuple[str, int]] = field(default_factory=Counter)
    failed: list[Job] = field(default_factory=list)
    report: PromiseReport = field(default_factory=PromiseReport)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PoisonRun:
    """Worker after worker, each dies of the same job; the clock takes back what they held."""
    address = Address("sqlite", str(tmp_path_factory.mktemp("poison") / "work.db"))
    with closing(address.open()) as store:
        queue = address.queue(store)
        ids = fill(queue, JOBS)
        run = PoisonRun(ids[PLACE])
        while run.deaths < MOST_DEATHS:
            ahead_s = run.deaths * 2 * LEASE_S
            if _worked(address, run.poison, ahead_s):
                break
            run.deaths += 1
            later = address.queue(store, ahead_s=ahead_s + 2 * LEASE_S)
            Sweeper([later]).sweep(("cap", "recover"))
        run.report = check_promise(store, queue.name, queue.lifecycle, ids)
        for job, _events in store.scan(queue.name):
            run.attempts[job.state, job.attempt_count - job.attempt_base] += 1
            run.failed += [job] if job.state == "failed" else []
    return run


def _worked(address: Address, poison: str, ahead_s: float) -> bool:
    """Whether a process found nothing left to do, and not its death."""
    with crew() as start:
        code = start(work_or_die, address, poison, ahead_s).wait()
        assert code in (0, -signal.SIGKILL)
        return code == 0


def test_a_job_that_kills_its_worker_ends_when_its_budget_is_spent(run):
    [poison] = [job for job in run.failed if job.id == run.poison]
    assert run.deaths == poison.max_attempts
    assert (poison.error_code, poison.error_category) == ("MAX_ATTEMPTS", "PERMANENT")
    assert poison.attempt_count - poison.attempt_base == poison.max_attempts
    assert run.report.states["done"] + run.report.states["failed"] == JOBS
    assert run.report.most_attempts >= poison.max_attempts


def test_no_neighbour_fails_with_it(run):
    assert [job.id for job in run.failed] == [run.poison], run.attempts


# What a handler can do to a worker short of killing it


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    with closing(SqliteStore(tmp_path / "work.db")) as store:
        yield store


def test_whatever_a_handler_does_its_neighbours_are_done_and_the_lane_goes_on(store):
    """All kinds of poison in one batch, worked on by a lane of a running worker."""
    queue = Queue("work", task_lifecycle(max_attempts=1), store)
    kinds = list(POISONS)
    names = [name for kind in kinds for name in (kind, "harmless")]
    ids = [one.id for one in queue.enqueue_many(NewJob({"kind": name}) for name in names)]

    last = threading.Event()

    def handler(job: Job) -> Any:
        if job.id == ids[-1]:
            last.set()
        kind = job.payload["kind"]
        return None if kind == "harmless" else POISONS[kind][0](job)

    worker = Worker(queue, handler)
    with capture_logs():
        worker.start()
        assert last.wait(PATIENCE_S)
        assert worker.alive
        worker.stop()
        worker.join()
    found = queue.find(ids)
    got = {found[id_].payload["kind"]: found[id_].error_code for id_ in ids}
    assert got == {"harmless": None} | {kind: POISONS[kind][1] for kind in kinds}
    assert queue.stats().states == {"ready": 0, "running": 0, "done": len(kinds), "failed": len(kinds)}
    assert all(len(job.error_message or "") <= MAX_MESSAGE for job in found.values())
    check_promise(store, "work", queue.lifecycle, ids)


def test_a_log_line_does_not_hold_all_that_a_handler_throws(capsys):
    set_up_logs("json")
    try:
        POISONS["says too much"][0](None)  # type: ignore[arg-type]
    except ValueError:
        Logger("tests").warning("handler_raised", exc_info=True)
    finally:
        structlog.reset_defaults()
    line = json.loads(capsys.readouterr().err)
    assert line["event"] == "handler_raised"
    assert MAX_TRACEBACK_LENGTH < len(line["exception"]) < 2 * MAX_TRACEBACK_LENGTH


def test_a_job_that_never_ends_is_taken_from_its_worker_and_done_once(store):
    """Its lease is renewed until ``max_run_seconds``, and no longer; then somebody else has it."""
    clock = ManualClock()
    rules = task_lifecycle(max_attempts=2, lease_seconds=LEASE_S)
    queue = Queue("work", rules, store, clock=clock)
    [stuck] = fill(queue, 1)
    began, go_on = threading.Event(), threading.Event()

    def block(_job: Job) -> Done:
        began.set()
        assert go_on.wait(PATIENCE_S)
        return Done("too late")

    blocked = Worker(queue, block, name="blocked")
    lane = threading.Thread(target=blocked.drain)
    with capture_logs() as log_lines:
        lane.start()
        assert began.wait(PATIENCE_S)
        renewals = 0
        while not blocked.leases.is_lost(queue.job(stuck)):  # type: ignore[arg-type]
            clock.advance(LEASE_S / 2)
            blocked.leases.renew()
            renewals += 1
            assert renewals <= rules.max_run_seconds / LEASE_S * 2 + 2
        assert Sweeper([queue]).sweep(("recover",)).total == 1
        assert Worker(queue, lambda _job: Done("in time"), name="heir").drain() == 1
        go_on.set()
        lane.join(PATIENCE_S)
    assert renewals > LEASE_S / 10
    assert "result_refused" in [line["event"] for line in log_lines]
    job = queue.job(stuck)
    assert job is not None
    assert (job.state, job.result_json) == ("done", '"in time"')
    check_promise(store, "work", rules, [stuck])
