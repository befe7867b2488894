"""`kesin optiplan …` as people and scripts use it."""

import json
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import typer

from kesin.foundation.settings import load_settings
from kesin.workloads.common.cli import local_operator, open_workload
from kesin.workloads.optiplan.cli import app
from kesin.workloads.optiplan.pipeline.runner import build_worker
from kesin.workloads.optiplan.service import OrderService
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.rules import default_rules, rules_json
from tests.cli.conftest import Kesin, _logs_as_before, _own_settings, kesin, programs  # noqa: F401  # fixtures
from tests.cli.programs import Answer, Programs, wait_until
from tests.workloads.optiplan.order_bodies import back, order, part
from tests.workloads.optiplan.stock.racks import put_offcut
from tests.workloads.optiplan.workbooks import sheet_of

ROWS: list[list[Any]] = [
    ["18MM", "210*280"],
    ["RENK: Beyaz"],
    ["", 722, 580, 6, 1, "x", "", "", "", "", "", "yan"],
    ["", 600, 495, 4],
]
PHONE = "0555 123 45 67"
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.fixture
def optiplan(kesin: Kesin) -> Kesin:  # noqa: F811
    def run(*words: object) -> Answer:
        return kesin("optiplan", *words)

    return run


@pytest.fixture
def xlsx(tmp_path: Path) -> Path:
    file = tmp_path / "Ayşe Yılmaz.xlsx"
    file.write_bytes(sheet_of(ROWS))
    return file


def brought(optiplan: Kesin, file: Path, *words: object) -> Answer:
    return optiplan("import", file, "--order-id", "S-1", "--phone", PHONE, *words)


# Options


def test_every_command_answers_as_json_too():
    expected = {"import", "optimize", "saw-simulator", "customers", "doctor"}
    assert set(COMMANDS) == expected
    for name, group in COMMANDS.items():
        for inner, command in (getattr(group, "commands", None) or {"": group}).items():
            assert "as_json" in [option.name for option in command.params], (name, inner)


# Orders


def test_a_list_is_brought_once(optiplan: Kesin, xlsx: Path):
    first = brought(optiplan, xlsx)
    assert first.code == 0
    assert "order 'S-1', 10 pieces, is queued" in first.out
    assert "no customer has this phone number" in first.err
    again = json.loads(brought(optiplan, xlsx, "--json").out)
    assert again == {
        "id": first.out.partition(":")[0],
        "state": "NEW",
        "new": False,
        "pieces": 10,
        "customer_known": False,
    }


def test_an_order_as_json_is_brought(optiplan: Kesin, tmp_path: Path):
    file = tmp_path / "order.json"
    file.write_text(json.dumps(order(order_id="S-1")))
    body = json.loads(optiplan("import", file, "--order-id", "S-1", "--json").out)
    assert (body["new"], body["pieces"]) == (True, 4)
    other = optiplan("import", file, "--order-id", "S-2")
    assert other.code != 0
    assert "has the order 'S-1', but --order-id is 'S-2'" in other.err


def test_every_bad_row_is_reported_and_nothing_is_created(optiplan: Kesin, tmp_path: Path):
    file = tmp_path / "list.csv"
    rows = [*ROWS, ["", 600, "wide", 4], ["", 0, 1, 1]]
    file.write_text("\n".join(";".join(map(str, [*row, *[""] * 12][:12])) for row in rows))
    answer = brought(optiplan, file)
    assert (answer.code, answer.out) == (2, "")
    assert "row 5, column C: " in answer.err
    assert "row 6, column B: " in answer.err
    with open_workload("optiplan") as context:
        assert context.queue.jobs().jobs == []


def test_a_file_that_cannot_be_read_and_a_list_without_a_phone_are_reported(optiplan: Kesin, xlsx: Path):
    for name in ("nothing.xlsx", "."):
        answer = brought(optiplan, Path(name))
        assert (answer.code, "cannot be read" in answer.err) == (2, True)
    answer = optiplan("import", xlsx, "--order-id", "S-1")
    assert (answer.code, "--phone" in answer.err) == (2, True)


def test_mode_and_colour_may_be_said_beside_the_list(optiplan: Kesin, tmp_path: Path):
    file = tmp_path / "plain.xlsx"
    file.write_bytes(sheet_of([ROWS[0], *ROWS[2:]]))
    assert brought(optiplan, file).code == 2
    body = json.loads(brought(optiplan, file, "--color", "Meşe", "--mode", "C", "--json").out)
    with open_workload("optiplan") as context:
        job = context.queue.job(body["id"])
    assert job is not None
    assert (job.payload["mode"], job.payload["order"]["parts"][0]["color"]) == ("C", "Meşe")


# Plans


def test_an_order_is_planned_here_and_now(optiplan: Kesin, tmp_path: Path):
    file = tmp_path / "mutfak.json"
    parts = [part(edge_up="1mm"), back(id="b1", length_cm=50, width_cm=40)]
    file.write_text(json.dumps(order(*parts)))
    out = tmp_path / "plans"
    answer = optiplan("optimize", file, "--out", out, "--lang", "tr")
    assert answer.code == 0, answer.err
    assert {file.name for file in out.iterdir()} == {
        f"mutfak_{kind}_Beyaz_{mm}mm.{ending}"
        for kind, mm in (("GOVDE", 18), ("ARKALIK", 8))
        for ending in ("xml", "svg", "pdf")
    }
    [head, *rows, _] = answer.out.splitlines()
    assert head.split()[:4] == ["BATCH", "MATERIAL", "PIECES", "BOARDS"]
    assert len(rows) == 2


def test_import_files_are_planned_as_they_are(optiplan: Kesin, xlsx: Path, tmp_path: Path):
    brought(optiplan, xlsx, "--mode", "C")
    optiplan("customers", "add", "Ayşe", PHONE)
    with open_workload("optiplan") as context:
        service = OrderService(context)
        worker = build_worker(service.workshop, service.queue)
        worker.threads = 1
        worker.drain()
    [file] = Workshop(load_settings()).paths().import_folder.glob("*.xlsx")
    answer = optiplan("optimize", file, "--out", tmp_path / "here", "--json")
    [plan] = json.loads(answer.out)
    assert (plan["pieces"], plan["boards"], plan["least_boards"]) == (10, 1, 1)
    assert plan["band_metres"] == {"1 mm": 4.33}
    assert (tmp_path / "here" / f"{file.stem}.pdf").read_bytes().startswith(b"%PDF-")


def test_what_cannot_be_planned_is_reported(optiplan: Kesin, tmp_path: Path):
    files = [tmp_path / folder / "order.json" for folder in ("large", "north", "south")]
    for file, length_cm in zip(files, (500, 60, 50), strict=True):
        file.parent.mkdir()
        file.write_text(json.dumps(order(part(), part(id="p2", color="Meşe", length_cm=length_cm))))
    answer = optiplan("optimize", files[0], "--out", tmp_path / "out")
    assert (answer.code, "larger than its board" in answer.err) == (2, True)
    assert not (tmp_path / "out").exists()
    answer = optiplan("optimize", *files[1:], "--out", tmp_path / "out")
    assert (answer.code, "another file has the same name" in answer.err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_the_effort_and_the_saw_of_a_plan_may_be_chosen(optiplan: Kesin, tmp_path: Path):
    file, out = tmp_path / "mutfak.json", tmp_path / "out"
    file.write_text(json.dumps(order(effort="thorough")))
    chosen = ("--effort", "quick", "--profile", "sliding saw")
    assert optiplan("optimize", file, "--out", out, *chosen).code == 0
    [xml] = out.glob("*.xml")
    best = next(ET.parse(xml).getroot().iter("Solution"))
    assert (best.get("effort"), best.get("profile")) == ("quick", "sliding saw")
    answer = optiplan("optimize", file, "--out", out, "--profile", "laser")
    assert (answer.code, "saw_profile must be one of" in answer.err) == (1, True)


# Customers


def test_customers_come_and_go(optiplan: Kesin):
    assert optiplan("customers", "list").out == "there are no customers yet\n"
    assert optiplan("customers", "add", "Ayşe", PHONE).out == "+905551234567 Ayşe added\n"
    body = json.loads(optiplan("customers", "add", "A. Y.", "+90 555 123 45 67", "--json").out)
    assert body == {"name": "A. Y.", "phone": "+905551234567", "new": False}
    assert json.loads(optiplan("customers", "list", "--json").out) == [{"name": "A. Y.", "phone": "+905551234567"}]
    assert optiplan("customers", "remove", PHONE).out == "+905551234567 A. Y. removed\n"
    gone = optiplan("customers", "remove", PHONE)
    assert (gone.code, "no customer has the phone" in gone.err) == (1, True)
    assert optiplan("customers", "add", "Ayşe", "none").code == 1


# The saw, the doctor


def test_the_saw_takes_what_lies_in_the_inbox(optiplan: Kesin):
    paths = Workshop(load_settings()).paths()
    (paths.inbox / "a.xml").write_text("<a><b/></a>")
    assert optiplan("saw-simulator", "--once").out == "the saw took 1 file\n"
    assert json.loads(optiplan("saw-simulator", "--once", "--json").out) == {"moved": 0}
    assert (paths.processed / "a.xml").exists()


def test_the_saw_runs_until_it_is_stopped(programs: Programs):  # noqa: F811
    paths = Workshop(load_settings()).paths()
    (paths.inbox / "a.xml").write_text("<a><b/></a>")
    saw = programs.start("optiplan", "saw-simulator", "--every", "0.1")
    wait_until((paths.processed / "a.xml").exists)
    saw.signal(signal.SIGTERM)
    assert saw.end() == 0


def test_the_doctor_finds_a_new_workshop_well_and_tries_to_write(optiplan: Kesin):
    answer = optiplan("doctor")
    assert answer.code == 0, answer.out
    checks = {check["name"]: check for check in json.loads(optiplan("doctor", "--json").out)}
    assert checks["optimiser"]["detail"] == "built in"
    assert checks["mode"]["detail"].startswith("A: ")
    assert {"rules", "paths", "template", "import folder", "saw inbox"} <= checks.keys()
    inbox = Workshop(load_settings()).paths().inbox
    assert [file.name for file in inbox.iterdir()] == []
    inbox.rmdir()
    inbox.symlink_to("/proc/self")  # where not even root can create files
    assert wrong(optiplan).keys() == {"saw inbox"}


def wrong(optiplan: Kesin) -> dict[str, str]:
    answer = optiplan("doctor", "--json")
    failed = {check["name"]: check["detail"] for check in json.loads(answer.out) if not check["ok"]}
    assert answer.code == (1 if failed else 0)
    return failed


def test_the_doctor_names_what_is_wrong(optiplan: Kesin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    workshop = Workshop(load_settings())
    paths = workshop.paths()
    paths.template.write_bytes(b"no workbook")
    paths.import_folder.rmdir()
    paths.import_folder.write_text("no folder")
    body = json.loads(workshop.paths_file.read_text())
    body["optiplanningExePath"] = str(tmp_path / "OptiPlanning.exe")
    workshop.paths_file.write_text(json.dumps(body))
    rules = rules_json(default_rules()) | {"optiModeDefault": "A"}
    workshop.rules_file.write_text(json.dumps(rules))
    monkeypatch.setenv("KESIN_OPTIPLAN_XSD", str(tmp_path / "none.xsd"))
    assert wrong(optiplan).keys() == {"template", "import folder", "optimiser", "XSD"}
    rules["optiModeDefault"] = "B"
    workshop.rules_file.write_text(json.dumps(rules))
    assert "RunOptiPlanning.xls" in wrong(optiplan)["optimiser"]
    monkeypatch.setenv("KESIN_OPTIPLAN_MACRO_COMMAND", "excel '{macro}")
    assert "KESIN_OPTIPLAN_MACRO_COMMAND" in wrong(optiplan)["optimiser"]
    rules["optiModeDefault"] = "A"
    workshop.rules_file.write_text(json.dumps(rules))
    assert "OptiPlanning.exe" in wrong(optiplan)["optimiser"]  # no macro is needed
    del rules["optiModeDefault"]
    workshop.rules_file.write_text(json.dumps(rules))
    assert "OptiPlanning.exe" in wrong(optiplan)["optimiser"]  # also if an operator starts it
    workshop.rules_file.write_text("{}")
    workshop.paths_file.write_text("{}")
    assert wrong(optiplan).keys() == {"rules", "paths"}


def test_the_doctor_warns_of_rules_that_are_hardly_meant_and_of_offcuts_in_doubt(optiplan: Kesin):
    rules = rules_json(default_rules()) | {"cm_to_mm_multiplier": 1}
    rules |= {"trimByThickness": {"18": 900}}
    del rules["kerf_mm"]
    workshop = Workshop(load_settings())
    workshop.paths()
    workshop.rules_file.write_text(json.dumps(rules))
    with open_workload("optiplan") as context:
        offcut = put_offcut(context.queue, "doubt", state="IN_DOUBT")
    answer = optiplan("doctor")
    assert answer.code == 0  # warnings
    for warning in ("kerf_mm is missing", "cm_to_mm_multiplier is 1", "lose 900 mm", f"{offcut} is in doubt"):
        assert warning in " ".join(answer.out.split())


def test_the_doctor_names_blocked_orders(optiplan: Kesin, xlsx: Path):
    assert optiplan("customers", "add", "Ayşe", PHONE).code == 0
    job_id = json.loads(brought(optiplan, xlsx, "--json", "--mode", "C").out)["id"]
    with open_workload("optiplan") as context:
        service = OrderService(context)
        worker = build_worker(service.workshop, service.queue)
        worker.drain()
        service.approve(local_operator(), job_id, confirmed=True)
        service.workshop.paths().export_folder.rmdir()
        worker.drain()
    found = wrong(optiplan)
    waiting = f"{job_id} is waiting in OPTI_RUNNING: E_EXPORT_DIR_UNWRITABLE, "
    assert found["orders"].startswith(waiting)
