"""Runners that lose their claim, stop, or run on another machine; and how often they poll."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.engine.results import Act
from kesin.lifecycle.model import Job
from kesin.store.errors import StoreUnreachable
from kesin.workloads.optiplan.pipeline import delivery, program, solution
from kesin.workloads.optiplan.pipeline import runner as runner_module
from kesin.workloads.optiplan.pipeline.program import ProgramEnded, ProgramRunning
from kesin.workloads.optiplan.pipeline.progress import OrderProgress
from kesin.workloads.optiplan.pipeline.runner import Runner
from tests.workloads.optiplan.workbench import GOOD, ME, MINUTE, InstantProgram, Workbench, open_bench


@pytest.fixture(params=["sqlite", "postgres"])
def each_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workbench]:
    with open_bench(request.param, tmp_path, request) as bench:
        yield bench


def once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, happening: Callable[[], object]) -> None:
    """Run an interruption just before the next call of this function."""
    original = getattr(owner, name)

    def interrupted(*args: Any, **how: Any) -> Any:
        monkeypatch.setattr(owner, name, original)
        happening()
        return original(*args, **how)

    monkeypatch.setattr(owner, name, interrupted)


# Lost claims

STEPS = [
    (runner_module, "write_batches"),
    (program, "start"),
    (solution, "find_xml"),
    (solution, "check_xml"),
    (delivery, "add_attempt"),
    (delivery, "put_in_inbox"),
    (delivery, "read_ack"),
]


@pytest.mark.parametrize("each_bench", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True)
@pytest.mark.parametrize(("owner", "name"), STEPS, ids=[name for _, name in STEPS])
def test_a_runner_that_slept_through_its_lease_changes_nothing_any_more(
    each_bench: Workbench, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
):
    bench = each_bench
    InstantProgram(bench, monkeypatch)
    progress: list[OrderProgress] = []

    def overtaken() -> None:
        bench.lose_runner()
        for _ in range(4):
            bench.poll(bench.new_worker("here"))
            bench.saw.process_inbox()
        assert bench.reload(job).state == "DONE"
        progress.append(bench.progress(job))

    job = bench.order()
    once(monkeypatch, owner, name, overtaken)
    for _ in range(3):
        bench.poll()
    assert bench.reload(job).state == "DONE"
    assert [bench.progress(job)] == progress
    bench.assert_delivered_once(job)


def test_a_runner_that_slept_does_not_write_over_what_the_next_one_noted(
    each_bench: Workbench, monkeypatch: pytest.MonkeyPatch
):
    bench = each_bench
    InstantProgram(bench, monkeypatch)
    job = bench.until(bench.order(opti_mode="C"), "HOLD")
    bench.orders.approve(ME, job.id, confirmed=True)
    bench.poll()
    bench.solve(job)

    def overtaken() -> None:
        bench.lose_runner()
        for _ in range(2):
            bench.poll(bench.new_worker())

    once(monkeypatch, solution, "find_xml", overtaken)
    bench.poll()
    assert bench.reload(job).state == "XML_READY"
    assert len(bench.progress(job).deliveries) == 1
    bench.until(job, "DONE")


def test_a_store_that_is_away_for_a_moment_fails_no_order(
    bench: Workbench, instant: InstantProgram, monkeypatch: pytest.MonkeyPatch
):
    def away() -> None:
        raise StoreUnreachable("gone for the moment")

    job = bench.order()
    for call in ("move", "job", "renew", "events"):
        once(monkeypatch, Queue, call, away)
        bench.poll()
    bench.until(job, "DONE")
    bench.assert_delivered_once(job)
    assert "FAILED" not in bench.states(job)


# Graceful stops


def test_a_stopped_runner_gives_the_job_back_and_the_next_goes_on(bench: Workbench, instant: InstantProgram):
    job = bench.until(bench.order(), "OPTI_RUNNING")
    timer = bench.reload(job).timer_at
    bench.clock.advance(31)
    [held] = bench.queue.claim(bench.worker.name, ids=[job.id])
    bench.worker.leases.take([held])
    bench.worker.stop()
    bench.worker.join()
    assert (bench.reload(job).state, bench.reload(job).timer_at) == ("OPTI_RUNNING", timer)
    bench.worker = bench.new_worker()
    bench.until(job, "DONE")


def test_a_runner_released_in_the_middle_of_a_pass_is_refused_from_then_on(
    bench: Workbench, instant: InstantProgram, monkeypatch: pytest.MonkeyPatch
):
    job = bench.order()
    once(monkeypatch, runner_module, "write_batches", lambda: bench.worker.release_claims(bench.worker.leases.held()))
    bench.clock.advance(31)
    bench.worker.run_once()
    assert bench.states(job) == ["NEW", "PREPARED", "NEW"]
    assert bench.reload(job).attempt_count == bench.reload(job).attempt_base
    bench.until(job, "DONE")


# Two machines


def test_the_program_is_looked_after_on_the_machine_that_started_it_until_a_retry(
    bench: Workbench, instant: InstantProgram
):
    job = bench.order()
    here, there = bench.new_worker("here"), bench.new_worker("there")
    instant.next = [ProgramRunning(1)]
    bench.poll(here)
    for _ in range(3):
        bench.poll(there)
    assert bench.reload(job).state == "OPTI_RUNNING"
    assert instant.starts[job.id] == 1
    instant.ends[job.id, 1] = ProgramEnded(0, timed_out=False, tail="")
    bench.solve(job)
    bench.poll(there)
    assert bench.reload(job).state == "OPTI_RUNNING"
    bench.poll(here)
    assert bench.reload(job).state == "XML_READY"
    bench.until(job, "DONE")

    job = bench.order()
    instant.next = [ProgramRunning(1)]
    bench.poll(here)
    bench.clock.advance(20 * MINUTE)
    bench.sweep()
    assert bench.reload(job).error_code == "E_OPTI_XML_TIMEOUT"
    instant.ends.clear()  # that machine is gone
    bench.orders.retry(ME, job.id)
    bench.clock.advance(MINUTE)
    bench.worker = there
    bench.until(job, "DONE")
    assert bench.progress(job).program == {"run": 2, "host": "there"}


# How often


def test_an_order_that_waits_for_the_slot_is_not_woken_while_it_is_taken(bench: Workbench, instant: InstantProgram):
    instant.next = [ProgramRunning(1)]
    first, second = bench.order(), bench.order()
    bench.poll()
    before = bench.moves(second)
    for _ in range(8):
        bench.poll()
    assert bench.reload(second).state == "OPTI_IMPORTED"
    assert bench.moves(second) == before
    instant.ends[first.id, 1] = ProgramEnded(0, timed_out=False, tail="")
    bench.solve(first, GOOD)
    bench.until(first, "DONE")
    bench.until(second, "DONE")


def test_an_order_that_finds_the_slot_just_taken_waits(
    bench: Workbench, instant: InstantProgram, monkeypatch: pytest.MonkeyPatch
):
    first, second = bench.order(), bench.order()
    runner = Runner(bench.workshop, bench.queue, host="here")
    bench.clock.advance(1)
    held = {job.id: job for job in bench.queue.claim("both", limit=2)}
    runs = {job.id: bench.new_worker().run_of(job) for job in held.values()}
    runner(held[first.id], runs[first.id])
    result = runner(held[second.id], runs[second.id])
    assert (bench.reload(first).state, bench.reload(second).state) == ("OPTI_RUNNING", "OPTI_IMPORTED")
    assert not isinstance(result, Act)
    bench.lose_runner()
    bench.until(first, "DONE")
    bench.until(second, "DONE")


def test_an_unreadable_order_fails(bench: Workbench):
    made = bench.queue.enqueue({"order": {"parts": []}})
    bench.poll()
    job: Job = bench.reload(made.id)
    assert (job.state, job.error_code) == ("FAILED", "E_VALIDATION")
