"""The launch command, and what may be missing for it."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline.program import ProgramLaunch, build_launch
from kesin.workloads.optiplan.workshop.paths import Paths, load_paths

FILES = [Path("/in/a b.xlsx"), Path("/in/c.xlsx")]


def built_in(folder: Path) -> Paths:
    return load_paths(folder / "paths.json", windows=False)


@pytest.fixture
def installed(tmp_path: Path) -> Paths:
    exe = tmp_path / "System" / "OptiPlanning.exe"
    exe.parent.mkdir()
    exe.touch()
    return replace(built_in(tmp_path), exe=exe)


def test_out_of_the_box_the_built_in_optimiser_is_started(tmp_path: Path):
    paths = built_in(tmp_path)
    command = [sys.executable, "-m", "kesin.workloads.optiplan.optimizer", "--language", "tr"]
    command += ["--out", str(paths.export_folder), "/in/a b.xlsx", "/in/c.xlsx"]
    expected = ProgramLaunch(tuple(command), tuple(FILES), None)
    assert build_launch("A", paths, FILES, own_options=("--language", "tr")) == expected


def test_a_program_is_started_with_the_files_in_its_own_folder_or_missed_by_name(installed: Paths):
    assert installed.exe is not None
    trigger = build_launch("A", installed, FILES)
    assert trigger.command == (str(installed.exe), "/in/a b.xlsx", "/in/c.xlsx")
    assert trigger.working_folder == installed.exe.parent
    installed.exe.unlink()
    for make in (lambda: None, installed.exe.mkdir):
        make()
        with pytest.raises(OrderProblem, match=r"OptiPlanning\.exe.*optiplanningExePath") as caught:
            build_launch("A", installed, FILES)
        assert caught.value.code == OptiCode.OPTI_MODE_A_RUNNER_MISSING


def test_the_macro_is_opened_by_the_configured_command(installed: Paths):
    assert installed.exe is not None
    macro = installed.exe.with_name("RunOptiPlanning.xls")
    macro.touch()
    template = "excel /e {macro} '--book={macro}'"
    command = ("excel", "/e", str(macro), f"--book={macro}", "/in/a b.xlsx", "/in/c.xlsx")
    assert build_launch("B", installed, FILES, template).command == command


def test_a_macro_or_its_command_that_is_not_there_is_missed(installed: Paths, tmp_path: Path):
    for paths in (installed, built_in(tmp_path)):
        with pytest.raises(OrderProblem, match=r"RunOptiPlanning\.xls must be next to") as caught:
            build_launch("B", paths, FILES, "excel {macro}")
        assert caught.value.code == OptiCode.OPTI_MODE_B_MACRO_MISSING
    assert installed.exe is not None
    installed.exe.with_name("RunOptiPlanning.xls").touch()
    with pytest.raises(OrderProblem, match=r"configure one, with \{macro\}") as caught:
        build_launch("B", installed, FILES)
    assert caught.value.code == OptiCode.OPTI_RUNNER_FAILED
