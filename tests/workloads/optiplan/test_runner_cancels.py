"""Cancels, early and late: an order is cancelled or cut, never both."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.pipeline import delivery_attempts
from kesin.workloads.optiplan.pipeline import runner as runner_module
from kesin.workloads.optiplan.pipeline.delivery import drop
from kesin.workloads.optiplan.pipeline.program import Ended
from kesin.workloads.optiplan.pipeline.shared_folder import FolderAway
from tests.workloads.optiplan.at_the_saw import claimed, put, retry, sent, take, timed_out
from tests.workloads.optiplan.workbench import ME, InstantProgram, Workbench, opened_bench

pytestmark = pytest.mark.usefixtures("instant")


def test_a_cancel_takes_the_file_back(bench: Workbench):
    job = sent(bench, bench.order())
    assert bench.desk.cancel(ME, job.id).error_code == "E_CANCELLED"
    assert list((bench.paths.machine_drop_folder / "inbox").iterdir()) == []


@pytest.mark.parametrize("how", ["cut", "in hand"])
def test_a_cancel_is_refused_once_the_machine_has_the_file(bench: Workbench, how: str):
    job = sent(bench, bench.order())
    [name] = bench.files("inbox", job)
    hand = take(bench, name)
    if how == "cut":
        hand.rename(bench.paths.processed / name)
    with pytest.raises(OrderProblem, match="the machine has taken it"):
        bench.desk.cancel(ME, job.id)
    if how == "in hand":
        hand.rename(bench.paths.processed / name)
    bench.until(job, "DONE")


def test_a_cancel_of_two_files_is_all_or_nothing(bench: Workbench):
    job = sent(bench, bench.two_batches())
    first, second = bench.files("inbox", job)
    put(bench, first, "processed")
    with pytest.raises(OrderProblem):
        bench.desk.cancel(ME, job.id)
    assert bench.files("inbox", job) == [second]
    bench.until(job, "DONE")
    bench.delivered_once(job)


def test_a_cancel_of_a_job_in_hand_is_made_by_its_runner(bench: Workbench):
    job = sent(bench, bench.order())
    held = claimed(bench, job)
    bench.desk.cancel(ME, job.id)
    assert bench.files("inbox", job), "nobody else touches what a runner has in hand"
    bench.queue.move(held, "wait", run_in_s=1)
    bench.look()
    assert bench.seen(job).error_code == "E_CANCELLED"
    assert bench.files("inbox", job) == []


def test_a_cancel_asked_for_in_the_middle_of_a_pass_stops_it_at_the_next_step(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
):
    def asked_meanwhile(*args: object, **how: object) -> object:
        bench.desk.cancel(ME, job.id)
        return write(*args, **how)  # type: ignore[arg-type]

    write = runner_module.write_batches
    monkeypatch.setattr(runner_module, "write_batches", asked_meanwhile)
    job = bench.order()
    bench.look()
    assert bench.seen(job).error_code == "E_CANCELLED"
    assert bench.states(job) == ["NEW", "PREPARED", "FAILED"]


def test_a_cancel_wins_over_a_failure_of_the_same_step(
    bench: Workbench, instant: InstantProgram, monkeypatch: pytest.MonkeyPatch
):
    def asked_meanwhile(*args: object) -> Ended:
        bench.desk.cancel(ME, job.id)
        return Ended(1, False, "")

    job = bench.until(bench.order(), "OPTI_RUNNING")
    monkeypatch.setattr(runner_module.program, "look", asked_meanwhile)
    bench.look()
    assert bench.seen(job).error_code == "E_CANCELLED"


def test_a_saw_that_is_faster_than_the_cancel_has_the_order(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
):
    def taken_meanwhile(machine: Path, delivery: object) -> None:
        drop(machine, delivery)  # type: ignore[arg-type]
        bench.desk.cancel(ME, job.id)
        bench.saw.pass_once()

    monkeypatch.setattr(runner_module, "drop", taken_meanwhile)
    job = bench.order()
    bench.until(job, "DONE")
    bench.delivered_once(job)


def test_no_runner_gets_the_job_while_its_cancel_takes_the_file_back(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def meanwhile(*args: object, **how: object) -> object:
        with ThreadPoolExecutor(1) as another:
            looked.append(another.submit(bench.worker.drain).result())
        return take_back(*args, **how)  # type: ignore[arg-type]

    looked: list[int] = []
    take_back = delivery_attempts.withdraw
    with opened_bench("postgres", tmp_path / "other", request) as bench:
        InstantProgram(bench, monkeypatch)
        job = sent(bench, bench.order())
        bench.clock.advance(11)
        monkeypatch.setattr(delivery_attempts, "withdraw", meanwhile)
        bench.desk.cancel(ME, job.id)
        assert looked == [0]
        bench.look()
        assert bench.seen(job).error_code == "E_CANCELLED"
        assert bench.files("inbox", job) == []


def test_a_runner_that_slept_puts_nothing_back_that_a_cancel_took(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
):
    def slept(machine: Path) -> None:
        bench.die()
        bench.desk.cancel(ME, job.id)

    job = sent(bench, bench.order())
    monkeypatch.setattr(runner_module, "check_there", slept)
    bench.look()
    assert bench.seen(job).error_code == "E_CANCELLED"
    assert bench.files("inbox", job) == []


def test_a_cancel_takes_back_the_rest_of_a_refused_try_that_could_not_be_taken_back_before(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
):
    def away(*args: object, **how: object) -> None:
        raise FolderAway("unplugged")

    job = sent(bench, bench.two_batches())
    put(bench, bench.files("inbox", job)[0], "failed")
    with monkeypatch.context() as patched:
        patched.setattr(runner_module, "withdraw", away)
        bench.look()
    retry(bench, timed_out(bench, job))
    assert bench.files("inbox", job)
    assert bench.desk.cancel(ME, job.id).error_code == "E_CANCELLED"
    assert bench.files("inbox", job) == []


def test_an_order_cancelled_after_a_refusal_in_part_leaves_nothing_to_cut(bench: Workbench):
    job = sent(bench, bench.two_batches())
    put(bench, bench.files("inbox", job)[0], "failed")
    bench.until(job, "FAILED")
    bench.desk.retry(ME, job.id)
    assert bench.desk.cancel(ME, job.id).error_code == "E_CANCELLED"
    bench.saw.pass_once()
    assert bench.files("processed", job) == []
