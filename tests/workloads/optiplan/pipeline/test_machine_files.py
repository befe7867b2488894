"""The files of a machine: exactly those that the saw profile asks for, as one delivery."""

import json
from functools import cache
from pathlib import Path

import pytest

from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.optimizer.__main__ import main
from kesin.workloads.optiplan.optimizer.input import read_batch
from kesin.workloads.optiplan.optimizer.optimise import optimise
from kesin.workloads.optiplan.optimizer.output import plan_files
from kesin.workloads.optiplan.optimizer.output.plan_files import write_plans
from kesin.workloads.optiplan.workshop.rules import load_rules, save_rules
from kesin.workloads.optiplan.workshop.saw_rules import MachineFile
from tests.workloads.optiplan.at_the_saw import retry
from tests.workloads.optiplan.machine_files.test_ptx import cross_first
from tests.workloads.optiplan.optimizer.orders import QUICK, batch, row
from tests.workloads.optiplan.workbench import ME, Workbench

STEM = "_GOVDE_Beyaz_18mm"
optimise_once = cache(optimise)


@pytest.fixture(autouse=True)
def _no_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_files, "print_plans", lambda *_: b"%PDF-")


def choose(bench: Workbench, *kinds: MachineFile) -> None:
    file = bench.workshop.rules_file
    rules = load_rules(file)
    profile = rules.saw_profiles[rules.saw_profile].model_copy(update={"machine_files": kinds})
    profiles = {**rules.saw_profiles, rules.saw_profile: profile}
    save_rules(file, rules.model_copy(update={"saw_profiles": profiles}))


def running(bench: Workbench, **order: str) -> Job:
    """An order that waits for the files of the operator's program."""
    job = bench.until(bench.order(opti_mode="C", **order), "HOLD")
    bench.orders.approve(ME, job.id, confirmed=True)
    return bench.until(job, "OPTI_RUNNING")


def write(bench: Workbench, job: Job, *kinds: MachineFile) -> None:
    """Write the files as the optimiser does."""
    for file in sorted(bench.paths.import_folder.glob(f"{job.id}_*.xlsx")):
        plans = [optimise_once(demand, QUICK) for demand in read_batch(file)]
        write_plans(bench.paths.export_folder, file.stem, plans, machine_files=kinds)


def sent(bench: Workbench, *kinds: MachineFile) -> Job:
    """An order in XML_READY with its files in the inbox."""
    choose(bench, *kinds)
    job = running(bench)
    write(bench, job, *kinds)
    bench.until(job, "XML_READY")
    bench.poll()
    return job


def inbox(bench: Workbench, job: Job) -> list[str]:
    names = (file.name for file in bench.paths.inbox.iterdir() if not file.name.startswith("."))
    return sorted(name.removeprefix(job.id) for name in names)


def move(bench: Workbench, suffix: str, folder: str) -> None:
    [file] = bench.paths.inbox.glob(f"[!.]*{STEM}{suffix}")
    file.rename(bench.paths.machine_drop_folder / folder / file.name)


def test_exactly_the_chosen_files_are_sent_and_the_order_is_done_once_all_are_processed(bench: Workbench):
    cases: list[tuple[tuple[MachineFile, ...], list[str]]] = [
        (("ptx",), [".ptx"]),
        (("xml", "ptx"), [".ptx", ".xml"]),
        (("csv",), [".csv", ".parts.csv"]),
        (("xml", "ptx", "csv"), [".csv", ".parts.csv", ".ptx", ".xml"]),
    ]
    for kinds, suffixes in cases:
        job = sent(bench, *kinds)
        assert inbox(bench, job) == [f"{STEM}{suffix}" for suffix in suffixes]
        for suffix in suffixes:
            [source] = bench.paths.export_folder.glob(f"{job.id}{STEM}{suffix}")
            assert source.read_bytes() == (bench.paths.inbox / source.name).read_bytes()
            assert bench.reload(job).state == "XML_READY"
            move(bench, suffix, "processed")
            bench.poll()
        assert bench.reload(job).state == "DONE", kinds


def test_an_order_is_sent_the_files_of_its_own_saw_profile(bench: Workbench):
    choose(bench, "ptx")
    job = running(bench, saw_profile="sliding saw")
    write(bench, job, "xml")
    bench.until(job, "XML_READY")
    bench.poll()
    assert inbox(bench, job) == [f"{STEM}.xml"]


def test_a_cancel_withdraws_all_files_or_none(bench: Workbench):
    job = sent(bench, "xml", "ptx", "csv")
    bench.orders.cancel(ME, job.id)
    assert inbox(bench, job) == []
    job = sent(bench, "xml", "ptx")
    move(bench, ".ptx", "processed")
    with pytest.raises(OrderProblem, match="the saw has already taken the order"):
        bench.orders.cancel(ME, job.id)
    assert inbox(bench, job) == [f"{STEM}.xml"]


def test_a_retry_sends_what_was_refused_beside_what_was_taken_and_never_files_of_another_plan(bench: Workbench):
    for another_plan in (False, True):
        job = sent(bench, "xml", "ptx")
        move(bench, ".xml", "processed")
        move(bench, ".ptx", "failed")
        bench.poll()
        assert bench.reload(job).error_code == "E_OSI_ACK_FAILED"
        if another_plan:
            for file in bench.paths.import_folder.glob(f"{job.id}_*.json"):
                file.write_text(json.dumps({**json.loads(file.read_text()), "trim_mm": 20}))
            write(bench, job, "xml", "ptx")
            failed = bench.until(retry(bench, job), "FAILED")
            assert failed.error_code == "E_OSI_ACK_FAILED"
            assert "another plan for this order: reissue the order" in (failed.error_message or "")
            assert inbox(bench, job) == []
        else:
            bench.until(retry(bench, job), "XML_READY")
            bench.poll()
            assert inbox(bench, job) == [f"{STEM}_try2.ptx"]
            bench.until(job, "DONE")


def test_a_plan_of_optiplanning_has_no_ptx_and_the_order_says_what_to_do(bench: Workbench):
    choose(bench, "xml", "ptx")
    job = running(bench)
    bench.solve(job)
    failed = bench.until(job, "FAILED")
    assert failed.error_code == "E_MACHINE_FILE_MISSING"
    assert "set machine_files to xml" in (failed.error_message or "")
    assert inbox(bench, job) == []


def test_a_file_of_an_earlier_plan_is_deleted(tmp_path: Path):
    write_plans(tmp_path, "b", [cross_first()], machine_files=("xml", "ptx", "csv"))
    assert {"b.ptx", "b.csv", "b.parts.csv"} <= {file.name for file in tmp_path.iterdir()}
    write_plans(tmp_path, "b", [cross_first()])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["b.pdf", "b.svg", "b.xml"]


def test_the_optimiser_writes_the_kinds_that_it_is_started_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = batch(tmp_path / "b.xlsx", [row()])
    file.with_suffix(".json").write_text('{"plate_w_mm": 2100, "plate_h_mm": 2800}')
    command = [str(file), "--out", str(tmp_path), "--machine-files"]
    assert main([*command, "xml,ptx"]) == 0
    assert {"b.xml", "b.ptx"} <= {each.name for each in tmp_path.iterdir()}
    assert not (tmp_path / "b.csv").exists()
    with pytest.raises(SystemExit):
        main([*command, "ptx,dxf"])
    assert "must be some of xml, ptx and csv, got ['dxf']" in capsys.readouterr().err
