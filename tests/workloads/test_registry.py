"""The registry: built-in workloads, plug-in packages, and packages that cannot be loaded."""

import inspect
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from kesin.engine.proof_cache import proof_of
from kesin.workloads import ENTRY_POINTS, built_in, lifecycles, workloads
from tests.workloads.conftest import COURIER

WORKING = """
from kesin.lifecycle.task import task_lifecycle
from kesin.engine.workload import Workload

MINE = Workload("{name}", task_lifecycle, "brought along")
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Leave on the path what pip leaves there: a module, and a note of its entry point."""
    monkeypatch.syspath_prepend(tmp_path)

    def leave(package: str, code: str | None, point: str) -> None:
        if code is not None:
            Path(tmp_path, f"{package}.py").write_text(code, "utf-8")
            monkeypatch.delitem(sys.modules, package, raising=False)
        note = tmp_path / f"{package}-1.0.dist-info"
        note.mkdir()
        (note / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (note / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{point}\n")

    return leave


def events(said) -> list[tuple[str, str]]:
    return [(line["event"], line["package"]) for line in said]


def test_each_built_in_workload_has_a_proved_lifecycle_and_comes_first():
    names = ["oci", "oci_adjustments", "pdf", "pdf_batches", "pdf_webhooks", "optiplan"]
    assert list(workloads())[: len(names)] == names
    for workload in built_in():
        assert lifecycles()[workload.name] is workload.lifecycle
        assert proof_of(workload.lifecycle())


def test_a_plug_in_is_found_through_its_entry_point(install, said):
    install("ferry_package", WORKING.format(name="ferry"), "anything = ferry_package:MINE")
    assert workloads()["ferry"].summary == "brought along"
    assert said == []


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("raise RuntimeError('half installed')", id="it raises"),
        pytest.param("import a_package_that_is_not_there", id="something it needs is missing"),
        pytest.param("this is no python", id="it cannot be read"),
        pytest.param("THEIRS = None", id="the name is not in it"),
        pytest.param(None, id="there is no such module"),
    ],
)
def test_a_broken_package_is_logged_and_the_others_are_loaded(code, install, said):
    install("wreck_package", code, "wreck = wreck_package:MINE")
    install("ferry_package", WORKING.format(name="ferry"), "ferry = ferry_package:MINE")
    names = {*workloads()}
    assert "ferry" in names
    assert "wreck" not in names
    assert events(said) == [("workload_not_loaded", "wreck_package")]
    assert said[0]["exc_info"] is True


def test_an_entry_point_without_a_workload_or_with_a_taken_name_is_logged_and_skipped(install, said):
    install("odd_package", "MINE = 'a string'", "odd = odd_package:MINE")
    install("thief_package", WORKING.format(name="pdf"), "pdf = thief_package:MINE")
    found = workloads()
    assert "odd" not in found
    assert found["pdf"] is built_in()[2]
    assert sorted(events(said)) == [("not_a_workload", "odd_package"), ("workload_name_taken", "thief_package")]


def test_the_courier_plugs_in_as_its_project_file_says(install, said):
    project = tomllib.loads((COURIER / "pyproject.toml").read_text("utf-8"))["project"]
    [(name, target)] = project["entry-points"][ENTRY_POINTS].items()
    install("kesin_courier_installed", None, f"{name} = {target}")
    courier = workloads()["courier"]
    assert courier.name == name
    assert courier.worker is not None
    assert courier.routes is not None
    assert proof_of(courier.lifecycle())
    assert said == []


@pytest.mark.parametrize("workload", ["oci", "optiplan", "pdf"])
def test_what_is_imported_at_its_first_use_is_there(workload):
    package = import_module(f"kesin.workloads.{workload}")
    places = re.findall(r'_(?:later|attribute)\("([\w.]+):(\w+)"\)', inspect.getsource(package))
    assert len(places) > 3
    for module, name in places:
        assert hasattr(import_module(f"{package.__name__}.{module}"), name), (module, name)
