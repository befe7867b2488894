"""The files of a machine: exactly those that the saw profile asks for, as one delivery."""

import json
from pathlib import Path

import pytest

from kesin.workloads.optiplan.optimizer.__main__ import main
from kesin.workloads.optiplan.optimizer.input import read_batch
from kesin.workloads.optiplan.optimizer.optimise import optimise
from kesin.workloads.optiplan.optimizer.output.plan_files import write_plans
from kesin.workloads.optiplan.workshop.rules import load_rules, save_rules
from kesin.workloads.optiplan.workshop.saw_rules import MachineFile
from tests.web.conftest import ROOT
from tests.workloads.optiplan.floor import PHONE, Floor
from tests.workloads.optiplan.optimizer.orders import QUICK, batch, row

Kinds = tuple[MachineFile, ...]


def choose(floor: Floor, *kinds: MachineFile) -> None:
    file = floor.workshop.rules_file
    rules = load_rules(file)
    profile = rules.saw_profiles[rules.saw_profile].model_copy(update={"machine_files": kinds})
    profiles = {**rules.saw_profiles, rules.saw_profile: profile}
    save_rules(file, rules.model_copy(update={"saw_profiles": profiles}))


def write(floor: Floor, job_id: str, *kinds: MachineFile) -> None:
    """Write the files as the optimiser does."""
    for file in sorted(floor.paths.import_folder.glob(f"{job_id}_*.xlsx")):
        plans = [optimise(demand, QUICK) for demand in read_batch(file)]
        write_plans(floor.paths.export_folder, file.stem, plans, machine_files=kinds)


def sent(floor: Floor, *kinds: MachineFile) -> str:
    """Create an order in XML_READY with its files in the inbox."""
    choose(floor, *kinds)
    job_id = floor.running()
    write(floor, job_id, *kinds)
    floor.later()
    floor.later()
    return job_id


def inbox(floor: Floor, job_id: str) -> list[str]:
    names = (file.name for file in floor.paths.inbox.iterdir() if not file.name.startswith("."))
    return sorted(name.removeprefix(job_id) for name in names)


def move(floor: Floor, suffix: str, folder: str) -> None:
    [file] = floor.paths.inbox.glob(f"[!.]*{suffix}")
    target = floor.paths.machine_drop_folder / folder / file.name
    target.parent.mkdir(exist_ok=True)
    file.rename(target)


STEM = "_GOVDE_Beyaz_18mm"


@pytest.mark.parametrize(
    ("kinds", "suffixes"),
    [
        (("ptx",), [".ptx"]),
        (("xml", "ptx"), [".ptx", ".xml"]),
        (("csv",), [".csv", ".parts.csv"]),
        (("xml", "ptx", "csv"), [".csv", ".parts.csv", ".ptx", ".xml"]),
    ],
)
def test_exactly_the_chosen_files_are_sent(own_floor: Floor, kinds: Kinds, suffixes: list[str]):
    job_id = sent(own_floor, *kinds)
    assert inbox(own_floor, job_id) == [f"{STEM}{suffix}" for suffix in suffixes]
    for suffix in suffixes:
        [source] = own_floor.paths.export_folder.glob(f"{job_id}{STEM}{suffix}")
        assert source.read_bytes() == (own_floor.paths.inbox / source.name).read_bytes()
    own_floor.saw.process_inbox()
    own_floor.later()
    assert own_floor.state(job_id) == "DONE"


def test_an_order_is_sent_the_files_of_its_own_saw_profile(own_floor: Floor):
    choose(own_floor, "ptx")
    own_floor.orders.add_customer(ROOT, "Ayşe", PHONE)
    job_id = own_floor.new(saw_profile="sliding saw")
    own_floor.work()
    own_floor.act(job_id, "approve", confirm=True)
    own_floor.work()
    write(own_floor, job_id, "xml")
    own_floor.later()
    own_floor.later()
    assert inbox(own_floor, job_id) == [f"{STEM}.xml"]


def test_an_order_is_done_when_the_machine_has_processed_every_file(own_floor: Floor):
    job_id = sent(own_floor, "xml", "ptx")
    move(own_floor, ".xml", "processed")
    own_floor.later()
    assert own_floor.state(job_id) == "XML_READY"
    move(own_floor, ".ptx", "processed")
    own_floor.later()
    assert own_floor.state(job_id) == "DONE"


def test_a_refused_file_fails_the_order_and_the_others_are_withdrawn(own_floor: Floor):
    job_id = sent(own_floor, "xml", "ptx")
    move(own_floor, ".ptx", "failed")
    own_floor.later()
    assert own_floor.job_body(job_id)["error_code"] == "E_OSI_ACK_FAILED"
    assert inbox(own_floor, job_id) == []


def test_a_cancel_withdraws_all_files(own_floor: Floor):
    job_id = sent(own_floor, "xml", "ptx", "csv")
    assert own_floor.act(job_id, "cancel").status_code == 200
    assert inbox(own_floor, job_id) == []


def test_a_cancel_is_refused_when_the_machine_has_taken_one_of_them(own_floor: Floor):
    job_id = sent(own_floor, "xml", "ptx")
    move(own_floor, ".ptx", "processed")
    assert own_floor.act(job_id, "cancel").status_code == 409
    assert inbox(own_floor, job_id) == [f"{STEM}.xml"]


def retried(floor: Floor, job_id: str) -> None:
    floor.act(job_id, "retry")
    floor.later(3_600)
    floor.later()


def test_a_retry_sends_what_was_refused_beside_what_was_taken(own_floor: Floor):
    job_id = sent(own_floor, "xml", "ptx")
    move(own_floor, ".xml", "processed")
    move(own_floor, ".ptx", "failed")
    own_floor.later()
    retried(own_floor, job_id)
    assert inbox(own_floor, job_id) == [f"{STEM}_try2.ptx"]
    own_floor.saw.process_inbox()
    own_floor.later()
    assert own_floor.state(job_id) == "DONE"


def test_files_of_two_plans_are_never_sent_together(own_floor: Floor):
    job_id = sent(own_floor, "xml", "ptx")
    move(own_floor, ".xml", "processed")
    move(own_floor, ".ptx", "failed")
    own_floor.later()
    for file in own_floor.paths.import_folder.glob(f"{job_id}_*.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "trim_mm": 20}))
    write(own_floor, job_id, "xml", "ptx")
    retried(own_floor, job_id)
    body = own_floor.job_body(job_id)
    assert body["error_code"] == "E_OSI_ACK_FAILED"
    assert "another plan of this order: reissue it" in body["error_message"]
    assert inbox(own_floor, job_id) == []


def test_a_plan_of_optiplanning_has_no_ptx_and_the_order_says_what_to_do(own_floor: Floor):
    choose(own_floor, "xml", "ptx")
    job_id = own_floor.running()
    xml = own_floor.paths.export_folder / f"{job_id}.xml"
    xml.write_text("<Sol><Solution name='p001' best='1' mqBoards='5.88'/></Sol>")
    own_floor.later()
    own_floor.later()
    body = own_floor.job_body(job_id)
    assert (body["state"], body["error_code"]) == ("FAILED", "E_MACHINE_FILE_MISSING")
    assert "set machine_files to xml" in body["error_message"]
    assert inbox(own_floor, job_id) == []


def test_a_file_of_an_earlier_plan_is_deleted(tmp_path: Path):
    from tests.workloads.optiplan.machine_files.test_ptx import cross_first

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
