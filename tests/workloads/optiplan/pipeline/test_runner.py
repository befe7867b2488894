"""One pass of an order, in each mode, with programs that succeed and programs that fail."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.pipeline import program
from tests.workloads.optiplan.at_the_saw import retry
from tests.workloads.optiplan.order_bodies import back, part
from tests.workloads.optiplan.programs import is_alive, record
from tests.workloads.optiplan.workbench import GOOD, ME, MINUTE, InstantProgram, Workbench, open_bench

SOLVE_ALL = "for file in files: solve(file)"
HANG = "signal.pause()"
TIME_LIMIT_S = 0.4


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workbench]:
    with open_bench("sqlite", tmp_path, request) as bench:
        yield bench
        program.end_current(bench.workshop.run_folder)


def failed(bench: Workbench, job: Job) -> tuple[str | None, str]:
    bench.until(job, "FAILED")
    return bench.reload(job).error_code, bench.reload(job).error_message or ""


# The whole lifecycle


def test_what_a_person_must_mend_holds_the_order_until_it_is_approved(bench: Workbench, instant: InstantProgram):
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("E_CRM_NO_MATCH", {}, {"customer_phone": "0555 000 00 00"}),
        ("E_PLATE_SIZE_MISSING", {"defaultPlateSize": None}, {}),
        ("E_TRIM_RULE_MISSING", {"trimByThickness": {"8": 5}}, {}),
    ]
    bench.workshop.rules()
    before = bench.workshop.rules_file.read_text()
    for code, rules, order in cases:
        bench.change_rules(**rules)
        job = bench.order(**order)
        assert bench.until(job, "HOLD").error_code == code
        assert list(bench.paths.import_folder.glob(f"{job.id}*")) == []
        bench.workshop.rules_file.write_text(before)
        bench.orders.add_customer(ME, "Can", "0555 000 00 00")
        bench.orders.approve(ME, job.id, confirmed=True)
        bench.until(job, "DONE")


def test_what_the_changed_rules_or_the_folder_do_not_allow_stops_the_order(bench: Workbench, instant: InstantProgram):
    held, failed_part = bench.order(back(thickness_mm=18)), bench.order(part(edge_up="2mm"))
    no_saw = bench.order(saw_profile="sliding saw")
    bench.change_rules(edgeMapping={"Bant Yok": None}, saw_profiles={"beam saw": {}})  # after the orders came
    assert bench.until(held, "HOLD").error_code == "E_BACKING_THICKNESS_UNKNOWN"
    assert failed(bench, failed_part)[0] == "E_EDGE_MAPPING_UNKNOWN"
    code, message = failed(bench, no_saw)
    assert (code, "saw_profile: must be one of" in message) == ("E_VALIDATION", True)
    bench.paths.import_folder.rmdir()
    bench.paths.import_folder.write_text("a file in its place")
    assert failed(bench, bench.order())[0] == "E_EXPORT_DIR_UNWRITABLE"


# Mode A


def test_mode_a_runs_the_program_with_all_files_and_waits_for_the_xml_of_what_it_only_starts(bench: Workbench):
    bench.install("print(len(files))")
    job = bench.two_batches()
    bench.until(job, "OPTI_RUNNING")
    bench.wait_for_program()
    ended = program.read_state(bench.workshop.run_folder, job.id, 1)
    assert isinstance(ended, program.ProgramEnded)
    assert ended.tail == "2\n"
    for length in range(10, len(GOOD), 30):  # they grow from poll to poll
        bench.solve(job, GOOD[:length])
        bench.poll()
        assert bench.reload(job).state == "OPTI_RUNNING"
    bench.solve(job)
    bench.until(job, "DONE")
    assert bench.progress(job).runs == 1
    bench.assert_delivered_once(job)


def test_mode_a_fails_with_the_output_of_the_program_and_a_retry_ignores_its_half_written_xml(bench: Workbench):
    bench.install("solve(files[0], '<Solutions><Solu'); print('no licence'); sys.exit(7)")
    job = bench.order()
    code, message = failed(bench, job)
    assert code == "E_OPTI_RUNNER_FAILED"
    assert message.endswith("ended with 7: no licence")
    bench.install(SOLVE_ALL)
    bench.until(retry(bench, job), "DONE")
    bench.assert_delivered_once(job)
    assert len(list((bench.paths.export_folder / "old").iterdir())) == 1


def test_mode_a_ends_a_program_that_hangs(request: pytest.FixtureRequest, tmp_path: Path):
    limit = {"optiplan_program_timeout_s": TIME_LIMIT_S}
    with open_bench("sqlite", tmp_path, request, **limit) as bench:
        bench.install(HANG)
        code, message = failed(bench, bench.order())
        assert code == "E_OPTI_RUNNER_FAILED"
        assert "took too long" in message


def test_mode_a_without_its_program_fails_until_it_is_there(bench: Workbench, instant: InstantProgram):
    exe = bench.install(SOLVE_ALL)
    exe.rename(exe.with_suffix(".away"))
    job = bench.order(opti_mode="A")
    assert failed(bench, job)[0] == "E_OPTI_MODE_A_RUNNER_MISSING"
    exe.with_suffix(".away").rename(exe)
    bench.until(retry(bench, job), "DONE")


def test_an_order_planned_by_hand_ends_the_earlier_program_in_its_slot_too(bench: Workbench):
    bench.install(HANG)
    slow, next_job = bench.order(opti_mode="A"), bench.order(opti_mode="C")
    bench.until(slow, "OPTI_RUNNING", polls=1)
    hanging = record(bench.workshop.run_folder)["pid"]
    bench.orders.cancel(ME, slow.id)
    assert is_alive(hanging)
    bench.poll()
    bench.solve(next_job)
    bench.orders.approve(ME, next_job.id, confirmed=True)
    bench.poll()
    assert not is_alive(hanging)
    bench.until(next_job, "DONE")


# Mode B


def test_a_macro_command_with_an_open_quote_is_reported_and_ignored_in_mode_a(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with open_bench("sqlite", tmp_path, request, optiplan_macro_command='open "it') as bench:
        InstantProgram(bench, monkeypatch)
        bench.install("")
        bench.until(bench.order(), "DONE")
        code, message = failed(bench, bench.order(opti_mode="B"))
    assert code == "E_OPTI_RUNNER_FAILED"
    assert "KESIN_OPTIPLAN_MACRO_COMMAND" in message


def test_mode_b_runs_the_macro_through_the_command(request: pytest.FixtureRequest, tmp_path: Path):
    opener = tmp_path / "excel.py"
    command = f"{sys.executable} -IS {opener} {{macro}}"
    with open_bench("sqlite", tmp_path, request, optiplan_macro_command=command) as bench:
        exe = bench.install("")
        exe.with_name("RunOptiPlanning.xls").write_text("a macro")
        opener.write_text(exe.read_text() + "macro = files.pop(0)\nassert macro.read_text() == 'a macro'\n" + SOLVE_ALL)
        job = bench.two_batches(opti_mode="B")
        bench.until(job, "DONE")
        bench.assert_delivered_once(job)


# Mode C


def test_mode_c_holds_for_the_operator_and_goes_on_with_the_xml_made_before_the_approval(
    bench: Workbench, instant: InstantProgram
):
    job = bench.two_batches(opti_mode="C")
    held = bench.until(job, "HOLD")
    assert held.error_code == "E_OPERATOR_TRIGGER_REQUIRED"
    assert bench.states(job) == ["NEW", "PREPARED", "OPTI_IMPORTED", "HOLD"]
    bench.solve(job)
    bench.orders.approve(ME, job.id, confirmed=True)
    bench.poll()
    assert bench.reload(job).state == "OPTI_RUNNING"  # the same at two polls
    bench.until(job, "DONE")
    assert bench.moves(job).count("hold_for_operator") == 1
    assert bench.progress(job).runs == 1  # the plan made by hand
    bench.assert_delivered_once(job)


def test_mode_c_leaves_what_the_operator_has_imported_and_a_retry_does_not_hold_again(
    bench: Workbench, instant: InstantProgram
):
    job = bench.order(opti_mode="C")
    bench.until(job, "HOLD")
    [file] = [bench.paths.import_folder / name for name in bench.progress(job).files]
    file.write_bytes(b"as the operator left it")
    bench.change_rules(trimByThickness={"18": 12})
    bench.orders.approve(ME, job.id, confirmed=True)
    bench.poll()
    assert file.read_bytes() == b"as the operator left it"
    bench.clock.advance(20 * MINUTE)
    bench.sweep()
    assert failed(bench, job)[0] == "E_OPTI_XML_TIMEOUT"
    retry(bench, job)
    bench.solve(job)
    bench.until(job, "DONE")
    assert bench.moves(job).count("hold_for_operator") == 1
