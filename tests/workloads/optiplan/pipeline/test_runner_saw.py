"""Orders and the saw: stale files, refusals, unavailable shares, late cancels."""

from pathlib import Path

import pytest

from kesin.foundation.problems import Unavailable
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.pipeline import solution
from tests.workloads.optiplan.at_the_saw import put, retry, sent, take, timed_out
from tests.workloads.optiplan.workbench import GOOD, ME, InstantProgram, Workbench, open_bench

OTHER = GOOD.replace("5.88", "11.76")

pytestmark = pytest.mark.usefixtures("instant")


def test_a_solution_changed_after_it_was_checked_is_not_sent(bench: Workbench, monkeypatch: pytest.MonkeyPatch):
    def checked_then_changed(path: Path, xsd: Path | None) -> object:
        checked = check(path, xsd)
        path.write_text(OTHER)
        return checked

    check = solution.check_xml
    monkeypatch.setattr(solution, "check_xml", checked_then_changed)
    job = bench.until(bench.order(), "FAILED")
    assert job.error_code == "E_OPTI_RUNNER_FAILED"
    assert bench.files("inbox") == []
    monkeypatch.undo()


# Invalid solutions


def test_a_bad_solution_fails_for_good_and_is_kept_and_a_reissue_goes_its_own_way(
    bench: Workbench, instant: InstantProgram
):
    instant.solution = "<a>"
    old = bench.until(bench.order(), "FAILED")
    assert old.error_code == "E_XML_INVALID"
    [file] = (bench.paths.export_folder / "failed").iterdir()
    assert file.read_text() == "<a>"
    assert bench.files("inbox") == []
    with pytest.raises(OrderProblem, match="reissue"):
        bench.orders.retry(ME, old.id)
    instant.solution = GOOD
    new = bench.orders.reissue(ME, old.id).job
    bench.until(new, "DONE")
    bench.assert_delivered_once(new)


def test_a_schema_that_cannot_be_read_spoils_no_solution(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    xsd = tmp_path / "away.xsd"
    (tmp_path / "other").mkdir()
    with open_bench("sqlite", tmp_path / "other", request, optiplan_xsd=xsd) as bench:
        InstantProgram(bench, monkeypatch)
        job = bench.until(bench.order(), "FAILED")
        assert job.error_code == "E_CONFIG_UNAVAILABLE"
        assert not (bench.paths.export_folder / "failed").exists()


# Refusals and attempts


def test_of_an_attempt_refused_in_part_only_the_refused_file_is_sent_again(bench: Workbench):
    job = sent(bench, bench.two_batches())
    back, body = bench.files("inbox", job)
    put(bench, back, "failed")
    hand = take(bench, body)
    assert bench.until(job, "FAILED").error_code == "E_OSI_ACK_FAILED"
    sent(bench, retry(bench, job))
    assert bench.files("inbox", job) == [back.replace(".xml", "_try2.xml")]
    bench.saw.process_inbox()
    bench.poll()
    assert bench.reload(job).state == "XML_READY"  # the order is not cut yet
    hand.rename(bench.paths.processed / body)
    bench.until(job, "DONE")
    bench.assert_delivered_once(job)


def test_a_part_that_was_cut_is_not_cut_again_with_an_xml_for_all(bench: Workbench):
    job = sent(bench, bench.two_batches())
    back, body = bench.files("inbox", job)
    put(bench, back, "failed")
    put(bench, body, "processed")
    bench.until(job, "FAILED")
    bench.until(retry(bench, job), "OPTI_RUNNING")
    for stem in bench.progress(job).stems:
        (bench.paths.export_folder / f"{stem}.xml").unlink()
    (bench.paths.export_folder / f"{job.id}.xml").write_text(GOOD)
    assert bench.until(job, "FAILED").error_code == "E_OSI_ACK_FAILED"
    assert bench.files("inbox", job) == []


def test_an_attempt_taken_after_its_time_is_never_sent_twice(bench: Workbench, instant: InstantProgram):
    job = timed_out(bench, sent(bench, bench.order()))
    [name] = bench.files("inbox", job)
    hand = take(bench, name)
    instant.solution = OTHER  # the new XML differs
    bench.until(retry(bench, job), "XML_READY")
    bench.poll()
    assert bench.files("inbox", job) == []
    assert bench.reload(job).state == "XML_READY"
    hand.rename(bench.paths.processed / name)
    bench.until(job, "DONE")
    assert bench.files("processed", job) == [name]
    assert (bench.paths.processed / name).read_text() == GOOD


def test_an_attempt_in_hand_that_is_refused_after_all_is_sent_again(bench: Workbench):
    job = timed_out(bench, sent(bench, bench.order()))
    [name] = bench.files("inbox", job)
    hand = take(bench, name)
    bench.until(retry(bench, job), "XML_READY")
    hand.rename(bench.paths.failed / name)
    assert bench.until(job, "FAILED").error_code == "E_OSI_ACK_FAILED"
    bench.until(retry(bench, job), "DONE")
    bench.assert_delivered_once(job)


def test_a_reissue_withdraws_what_the_old_job_left_in_the_inbox(bench: Workbench):
    old = timed_out(bench, sent(bench, bench.order()))
    new = bench.orders.reissue(ME, old.id).job
    assert bench.files("inbox", old) == []
    bench.until(new, "DONE")
    assert bench.files("processed", old) == []


# Unavailable shares


def unplugged(bench: Workbench) -> Path:
    machine = bench.paths.machine_drop_folder
    return machine.rename(machine.with_name("unplugged"))


def plugged_in(bench: Workbench) -> None:
    machine = bench.paths.machine_drop_folder
    assert not machine.exists(), "somebody made a folder in the share's place"
    machine.with_name("unplugged").rename(machine)


def test_while_the_share_is_away_a_cancel_is_refused_and_a_retry_sends_nothing_beside_what_lies_there(
    bench: Workbench, instant: InstantProgram
):
    job = sent(bench, bench.order())
    unplugged(bench)
    with pytest.raises(Unavailable):
        bench.orders.cancel(ME, job.id)
    assert bench.reload(job).state == "XML_READY"
    timed_out(bench, job)
    instant.solution = OTHER
    retry(bench, job)
    for _ in range(4):
        bench.poll()
    assert bench.reload(job).state == "XML_READY"
    plugged_in(bench)
    bench.until(job, "DONE")
    bench.assert_delivered_once(job)


def test_rules_that_cannot_be_read_for_a_while_cost_a_waiting_order_nothing(bench: Workbench):
    job = sent(bench, bench.order())
    rules = bench.workshop.rules_file.read_text()
    bench.workshop.rules_file.write_text("{")
    bench.saw.process_inbox()
    bench.poll()
    assert bench.reload(job).state == "XML_READY"
    bench.workshop.rules_file.write_text(rules)
    bench.until(job, "DONE")
