"""The layout of the code: floors, rooms, sizes, and no workload named outside its folder."""

import ast
import re
import tomllib
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import distributions
from pathlib import Path

import grimp
from importlinter.cli import lint_imports
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.databases import EVERY_CASE, ON_EACH

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
MAX_LINES = 450
MAX_MODULES = 20  # in one folder
# Whatever lists workloads by name: the registry, their settings, scopes and extras.
MAY_NAME_WORKLOADS = {
    "kesin/workloads/__init__.py",
    "kesin/foundation/settings.py",
    "kesin/foundation/permissions.py",
    "kesin/foundation/extras.py",
}
WORKLOAD_NAMES = frozenset({"oci", "oci_adjustments", "pdf", "pdf_batches", "pdf_webhooks", "optiplan"})


def test_imports_run_downwards_only():
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_imports_have_no_circle():
    """At the top or inside a function; imports for types alone do not run."""
    modules = grimp.build_graph("kesin", exclude_type_checking_imports=True, cache_dir=None)
    graph = {name: modules.find_modules_directly_imported_by(name) for name in modules.modules}
    assert len(graph) > 400
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as problem:
        circle = problem.args[1]
    else:
        circle = []
    assert circle == []


def test_no_source_file_is_too_long_to_read_and_no_folder_too_full_to_survey():
    files = [path for path in SOURCE.rglob("*") if path.suffix in {".py", ".sql"}]
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in files}
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}
    counts = Counter(path.parent for path in SOURCE.rglob("*.py"))
    assert {folder: count for folder, count in counts.items() if count > MAX_MODULES} == {}


def test_a_class_name_means_one_thing():
    names = Counter(
        name for path in SOURCE.rglob("*.py") for name in re.findall(r"(?m)^\s*class (\w+)", path.read_text("utf-8"))
    )
    assert names["Lifecycle"] == 1
    assert [name for name, count in names.items() if count > 1] == []


def test_nothing_outside_a_workload_names_it():
    """The engine, the service, the dashboard and the commands ask the Workload objects."""
    naming = set()
    for path in SOURCE.rglob("*.py"):
        where = path.relative_to(SOURCE).as_posix()
        if where in MAY_NAME_WORKLOADS or re.match(r"kesin/workloads/(oci|pdf|optiplan)/", where):
            continue
        text = path.read_text("utf-8")
        if not any(name in text for name in WORKLOAD_NAMES):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and node.value in WORKLOAD_NAMES:
                naming.add((where, node.value))
    assert naming == set()


def test_tests_named_for_every_database_exist():
    paths = list((ROOT / "tests").rglob("test_*.py"))
    functions = {name for path in paths for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)}
    assert {path.stem for path in paths} | functions >= ON_EACH | EVERY_CASE


def test_the_pinned_libraries_install_on_the_oldest_python_we_promise():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=") + ".0"
    pinned = re.findall(r"(?m)^([^=#\s]+)==", (ROOT / "constraints.txt").read_text("utf-8"))
    names = {canonicalize_name(name) for name in pinned}
    installed = [package for package in distributions() if canonicalize_name(package.name) in names]
    assert len(installed) > len(names) / 2
    allowed = {package.name: SpecifierSet(package.metadata["Requires-Python"] or "") for package in installed}
    assert [name for name, pythons in allowed.items() if oldest not in pythons] == []
