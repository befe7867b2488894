"""A runner that crashes at any point of a pass loses nothing, and nothing is cut twice."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from kesin.lifecycle.model import Job
from tests.workloads.optiplan.at_the_saw import claimed, put, retry, sent, timed_out
from tests.workloads.optiplan.crashes import Crasher, SimulatedCrash
from tests.workloads.optiplan.workbench import GOOD, ME, InstantProgram, Workbench

BAD = "<Solutions>"
OTHER = GOOD.replace("5.88", "11.76")


@pytest.fixture
def crasher(instant: InstantProgram, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Crasher:
    crasher = Crasher(monkeypatch)
    crasher.step = 1 if request.config.getoption("--long") else 4
    return crasher


def crashing_everywhere(
    bench: Workbench, crasher: Crasher, prepare: Callable[[], Job], *, saw: bool, step: int = 4
) -> Iterator[tuple[Job, str]]:
    """Run order after order; each runner crashes some effects later, until none crashes.

    The saw works between two polls if asked to, and otherwise at the end.
    """
    for effects in count(0, min(step, crasher.step)):
        job = prepare()
        where = ""
        try:
            with crasher.armed(effects):
                for _ in range(4):
                    bench.poll(bench.new_worker())
                    if saw:
                        bench.saw.process_inbox()
        except SimulatedCrash as crash:
            where = str(crash)
            if saw:
                bench.saw.process_inbox()
            bench.lose_runner()
            bench.worker = bench.new_worker()
        yield job, f"{where}, effect {effects}"
        if not where:
            assert effects > 2, "nothing was watched"
            return


@pytest.mark.parametrize("saw", [True, pytest.param(False, marks=pytest.mark.long)], ids=["saw at once", "saw late"])
def test_an_order_is_done_and_cut_once_wherever_its_runner_died(
    bench: Workbench, instant: InstantProgram, crasher: Crasher, saw: bool
):
    for job, where in crashing_everywhere(bench, crasher, bench.order, saw=saw, step=2):
        bench.until(job, "DONE")
        bench.assert_delivered_once(job)
        assert instant.starts[job.id] <= 2, where


@pytest.mark.long
def test_an_order_of_two_files_is_cut_once_wherever_its_runner_died(bench: Workbench, crasher: Crasher):
    def ready() -> Job:
        return running(bench, bench.two_batches())

    for job, _ in crashing_everywhere(bench, crasher, ready, saw=True):
        bench.until(job, "DONE")
        bench.assert_delivered_once(job)


def test_an_earlier_attempt_that_the_machine_took_is_not_sent_again_wherever_the_runner_crashed(
    bench: Workbench, instant: InstantProgram, crasher: Crasher
):
    def taken_after_all() -> Job:
        instant.solution = GOOD
        job = timed_out(bench, sent(bench, bench.two_batches()))
        bench.saw.process_inbox()
        instant.solution = OTHER
        return running(bench, retry(bench, job))

    for job, _ in crashing_everywhere(bench, crasher, taken_after_all, saw=True):
        bench.until(job, "DONE")
        bench.assert_delivered_once(job)
        assert not any("_try" in name for name in bench.files("processed", job))


def test_an_earlier_attempt_in_the_inbox_gives_way_to_the_new_one_wherever_the_runner_crashed(
    bench: Workbench, instant: InstantProgram, crasher: Crasher
):
    def still_there() -> Job:
        instant.solution = GOOD
        job = timed_out(bench, sent(bench, bench.order()))
        instant.solution = OTHER
        return running(bench, retry(bench, job))

    for job, where in crashing_everywhere(bench, crasher, still_there, saw=False):
        bench.until(job, "XML_READY")
        bench.poll()
        bench.until(job, "DONE")
        bench.assert_delivered_once(job)
        assert bench.files("processed", job)[0].endswith("_try2.xml"), where


def test_of_an_attempt_refused_in_part_the_rest_is_sent_once_wherever_the_runner_crashed(
    bench: Workbench, crasher: Crasher
):
    def refused_in_part() -> Job:
        job = sent(bench, bench.two_batches())
        put(bench, bench.files("inbox", job)[0], "failed")
        bench.saw.process_inbox()
        return job

    for job, where in crashing_everywhere(bench, crasher, refused_in_part, saw=False, step=2):
        if bench.reload(job).state == "XML_READY":
            bench.poll()
        assert bench.reload(job).error_code == "E_OSI_ACK_FAILED", where
        assert bench.files("inbox", job) == [], where  # the rest is withdrawn
        bench.until(retry(bench, job), "DONE")
        bench.assert_delivered_once(job)


def test_a_cancel_holds_or_the_order_is_cut_wherever_the_runner_crashed(bench: Workbench, crasher: Crasher):
    def cancelled_in_hand() -> Job:
        job = sent(bench, bench.order())
        bench.orders.cancel(ME, claimed(bench, job).id)
        bench.lose_runner()
        return job

    for job, where in crashing_everywhere(bench, crasher, cancelled_in_hand, saw=False):
        bench.poll()
        bench.saw.process_inbox()
        bench.poll()
        assert bench.reload(job).error_code == "E_CANCELLED", where
        assert bench.files("processed", job) == []


def test_a_bad_xml_is_reported_as_such_wherever_the_runner_crashed(
    bench: Workbench, instant: InstantProgram, crasher: Crasher
):
    instant.solution = BAD
    set_aside = bench.paths.export_folder / "failed"

    def ready() -> Job:
        return running(bench, bench.order())

    for job, where in crashing_everywhere(bench, crasher, ready, saw=False):
        bench.until(job, "FAILED")
        assert bench.reload(job).error_code == "E_XML_INVALID", where
        assert len(list(set_aside.glob(f"{job.id}*"))) == 1


def running(bench: Workbench, job: Job) -> Job:
    """Its program has ended, and no runner has polled yet."""
    return bench.until(job, "OPTI_RUNNING")
