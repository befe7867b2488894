"""Cancels, early and late: an order is cancelled or cut, never both."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline import delivery, program, workbook
from kesin.workloads.optiplan.pipeline import runner as runner_module
from kesin.workloads.optiplan.pipeline.delivery import put_in_inbox
from kesin.workloads.optiplan.pipeline.program import ProgramEnded
from kesin.workloads.optiplan.pipeline.shared_folder import FolderUnavailable
from tests.workloads.optiplan.at_the_saw import claimed, put, retry, sent, take, timed_out
from tests.workloads.optiplan.workbench import ME, InstantProgram, Workbench, open_bench

pytestmark = pytest.mark.usefixtures("instant")


def test_a_cancel_withdraws_every_file(bench: Workbench):
    job = sent(bench, bench.two_batches())
    assert len(bench.files("inbox", job)) == 2
    assert bench.orders.cancel(ME, job.id).error_code == "E_CANCELLED"
    assert list((bench.paths.machine_drop_folder / "inbox").iterdir()) == []
    assert bench.saw.process_inbox() == 0
    bench.poll()
    assert bench.reload(job).state == "FAILED"


def test_a_cancel_is_refused_once_the_machine_has_the_file(bench: Workbench):
    job = sent(bench, bench.order())
    [name] = bench.files("inbox", job)
    hand, before = take(bench, name), bench.moves(job)
    for place in (hand, bench.paths.processed / name):
        hand.rename(place)
        with pytest.raises(OrderProblem, match="the saw has already taken the order") as refused:
            bench.orders.cancel(ME, job.id)
        assert refused.value.code is OptiCode.JOB_NOT_CANCELLABLE
    assert bench.moves(job) == before
    bench.until(job, "DONE")


def test_a_cancel_of_a_job_in_hand_is_made_by_its_runner(bench: Workbench):
    job = sent(bench, bench.order())
    held = claimed(bench, job)
    bench.orders.cancel(ME, job.id)
    assert bench.files("inbox", job), "nobody else touches what a runner has in hand"
    bench.queue.move(held, "wait", run_in_s=1)
    bench.poll()
    assert bench.reload(job).error_code == "E_CANCELLED"
    assert bench.files("inbox", job) == []


def test_a_cancel_requested_in_the_middle_of_a_pass_stops_it_at_the_next_step(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
):
    def cancel_meanwhile(*args: object, **how: object) -> object:
        bench.orders.cancel(ME, job.id)
        return write(*args, **how)  # type: ignore[arg-type]

    write = workbook.write_batches
    monkeypatch.setattr(runner_module, "write_batches", cancel_meanwhile)
    job = bench.order()
    bench.poll()
    assert bench.reload(job).error_code == "E_CANCELLED"
    assert bench.states(job) == ["NEW", "PREPARED", "FAILED"]


def test_a_cancel_wins_over_a_failure_of_the_same_step(bench: Workbench, monkeypatch: pytest.MonkeyPatch):
    def cancel_meanwhile(*args: object) -> ProgramEnded:
        bench.orders.cancel(ME, job.id)
        return ProgramEnded(1, False, "")

    job = bench.until(bench.order(), "OPTI_RUNNING")
    monkeypatch.setattr(program, "read_state", cancel_meanwhile)
    bench.poll()
    assert bench.reload(job).error_code == "E_CANCELLED"


def test_a_saw_that_is_faster_than_the_cancel_has_the_order(bench: Workbench, monkeypatch: pytest.MonkeyPatch):
    def taken_meanwhile(machine: Path, planned: object) -> None:
        put_in_inbox(machine, planned)  # type: ignore[arg-type]
        bench.orders.cancel(ME, job.id)
        bench.saw.process_inbox()

    monkeypatch.setattr(delivery, "put_in_inbox", taken_meanwhile)
    job = bench.order()
    bench.until(job, "DONE")
    bench.assert_delivered_once(job)


def test_no_runner_gets_the_job_while_its_cancel_takes_the_file_back(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def meanwhile(*args: object, **how: object) -> object:
        with ThreadPoolExecutor(1) as another:
            drained.append(another.submit(bench.worker.drain).result())
        return withdraw(*args, **how)  # type: ignore[arg-type]

    drained: list[int] = []
    withdraw = delivery.withdraw
    with open_bench("postgres", tmp_path / "other", request) as bench:
        InstantProgram(bench, monkeypatch)
        job = sent(bench, bench.order())
        bench.clock.advance(31)
        monkeypatch.setattr(delivery, "withdraw", meanwhile)
        bench.orders.cancel(ME, job.id)
        assert drained == [0]
        bench.poll()
        assert bench.reload(job).error_code == "E_CANCELLED"
        assert bench.files("inbox", job) == []


def test_a_runner_that_slept_puts_nothing_back_that_a_cancel_took(bench: Workbench, monkeypatch: pytest.MonkeyPatch):
    def slept(machine: Path) -> None:
        bench.lose_runner()
        bench.orders.cancel(ME, job.id)

    job = sent(bench, bench.order())
    monkeypatch.setattr(delivery, "check_inbox_exists", slept)
    bench.poll()
    assert bench.reload(job).error_code == "E_CANCELLED"
    assert bench.files("inbox", job) == []


def test_a_cancel_withdraws_the_rest_of_a_refused_attempt_that_could_not_be_withdrawn_before(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
):
    def away(*args: object, **how: object) -> None:
        raise FolderUnavailable("unplugged", details={"place": str(args[0])})

    job = sent(bench, bench.two_batches())
    put(bench, bench.files("inbox", job)[0], "failed")
    with monkeypatch.context() as patched:
        patched.setattr(delivery, "withdraw", away)
        bench.poll()
    retry(bench, timed_out(bench, job, "E_DROP_DIR_UNWRITABLE"))
    assert bench.files("inbox", job)
    assert bench.orders.cancel(ME, job.id).error_code == "E_CANCELLED"
    assert bench.files("inbox", job) == []
