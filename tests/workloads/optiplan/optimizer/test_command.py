"""The program that mode A runs: files in, XML out, one sentence when it cannot."""

import json
import resource
import runpy
import sys
from importlib import import_module
from xml.etree import ElementTree as ET

import pytest

from kesin.workloads.optiplan.optimizer import __main__ as program
from kesin.workloads.optiplan.optimizer.optimise import WrongPlan
from kesin.workloads.optiplan.workshop.rules import default_rules, rules_json
from tests.workloads.optiplan.optimizer.orders import batch, row

RULES = rules_json(default_rules())


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(RULES), "utf-8")
    return ["--rules", str(path)]


def test_files_become_the_same_xml_drawing_and_paper_each_time(tmp_path, rules, capfd):
    """In this process: test_whole_way starts it as the workload does."""
    body = batch(tmp_path / "j1_GOVDE_Mese_18mm.xlsx", [row("yan", 720, 560, 4, 1, edges=(1,) * 4)])
    back = batch(tmp_path / "j1_ARKALIK_Beyaz_8mm.xlsx", [row("arka", 700, 500, 2, trim="5.00")])
    assert program.main([str(body), str(back), "--out", str(tmp_path / "sol"), *rules]) == 0
    assert capfd.readouterr() == ("", "")
    names = {f"{path.stem}.{suffix}" for path in (body, back) for suffix in ("xml", "svg", "pdf")}
    assert {path.name for path in (tmp_path / "sol").iterdir()} == names
    root = ET.parse(tmp_path / "sol" / f"{body.stem}.xml").getroot()
    pieces = list(root.iter("Piece"))
    assert len(pieces) == 4
    assert {(piece.get("part"), piece.get("length"), piece.get("width")) for piece in pieces} == {("yan", "718", "558")}
    layout = next(root.iter("Layout"))
    assert (layout.get("trimLeft"), layout.get("kerf")) == ("10", "4")
    assert program.main([str(body), "--out", str(tmp_path / "again"), *rules]) == 0
    for file in (tmp_path / "again").iterdir():
        assert file.read_bytes() == (tmp_path / "sol" / file.name).read_bytes()


def test_what_cannot_be_planned_writes_nothing_and_is_named(tmp_path, rules, capsys):
    good = batch(tmp_path / "a.xlsx", [row()])
    bad = batch(tmp_path / "b.xlsx", [row("boy", 2800, 2070, 50)])
    (tmp_path / "x").mkdir()
    twin = batch(tmp_path / "x" / "a.xlsx", [row()])
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({**RULES, "kerf": 4}), "utf-8")
    for files, its_rules, message in (
        ([good, bad], rules, "part 'boy' (2800 × 2070 mm) is larger than the board"),
        ([good, twin], rules, "a: two files of this name were given"),
        ([good], ["--rules", str(wrong)], "wrong.json: kerf: is not a known field"),
    ):
        arguments = [*map(str, files), "--out", str(tmp_path / "sol"), *its_rules]
        assert program.main(arguments) == program.EXIT_UNPLANNABLE
        output = capsys.readouterr().err
        assert (output.count("\n"), message in output) == (1, True)
        assert not (tmp_path / "sol").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: files, --out"),
        (["b.xlsx", "--out", "x", "--time-limit", "0"], "more than 0 and at most 3600"),
        (["b.xlsx", "--out", "x", "--time-limit", "nan"], "more than 0 and at most 3600"),
        (["b.xlsx", "--out", "x", "--language", "fr"], "invalid choice"),
    ],
)
def test_a_wrong_call_says_so_in_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as left:
        program.main(arguments)
    output = capsys.readouterr().err
    assert left.value.code == program.EXIT_USAGE
    assert message in output
    assert output.count("\n") == 1


def test_a_folder_that_cannot_be_written_to_is_reported(tmp_path, rules, capsys):
    file = batch(tmp_path / "b.xlsx", [row()])
    (tmp_path / "sol").write_text("a file", "utf-8")
    assert program.main([str(file), "--out", str(tmp_path / "sol"), *rules]) == program.EXIT_USAGE
    assert "sol" in capsys.readouterr().err


def test_a_plan_the_checker_refuses_is_never_written(tmp_path, rules, capsys, monkeypatch):
    optimise = import_module("kesin.workloads.optiplan.optimizer.optimise")  # not the function
    monkeypatch.setattr(optimise, "find_faults", lambda plan: ["kerf"])
    file = batch(tmp_path / "b.xlsx", [row()])
    assert program.main([str(file), "--out", str(tmp_path / "sol"), *rules]) == program.EXIT_DEFECT
    assert capsys.readouterr().err.endswith(": kerf\n")
    assert not (tmp_path / "sol").exists()
    assert issubclass(WrongPlan, AssertionError)


def test_the_program_limits_its_memory_and_says_when_an_order_needs_more(tmp_path, rules, capsys, monkeypatch):
    limits = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limit: limits.append((kind, limit[0])))
    monkeypatch.setattr(sys, "argv", ["optimizer", "--help"])
    with pytest.raises(SystemExit):
        runpy.run_path(program.__file__, run_name="__main__")
    assert limits == [(resource.RLIMIT_AS, program.MEMORY_BYTES)]

    def plan(*_):
        raise MemoryError

    monkeypatch.setattr("kesin.workloads.optiplan.optimizer.run.PlanningRun.plan", plan)
    body = batch(tmp_path / "j1_GOVDE_Mese_18mm.xlsx", [row("yan", 720, 560, 4)])
    capsys.readouterr()
    assert program.main([str(body), "--out", str(tmp_path / "sol"), *rules]) == program.EXIT_UNPLANNABLE
    assert "more than 2048 MB of memory: split the order" in capsys.readouterr().err
