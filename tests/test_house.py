import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from importlinter.cli import lint_imports
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LINES_MAX = 500


def test_imports_run_downwards_only():
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_no_source_file_is_too_long_to_read():
    files = [path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".sql"}]
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in files}
    assert {path: length for path, length in lengths.items() if length > LINES_MAX} == {}


def test_the_pinned_libraries_install_on_the_oldest_python_we_promise():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=") + ".0"
    pinned = re.findall(r"(?m)^([^=#\s]+)==", (ROOT / "constraints.txt").read_text("utf-8"))
    names = {canonicalize_name(name) for name in pinned}
    found = [one for one in distributions() if canonicalize_name(one.name) in names]
    assert len(found) > len(names) / 2
    allowed = {one.name: SpecifierSet(one.metadata["Requires-Python"] or "") for one in found}
    assert [name for name, pythons in allowed.items() if oldest not in pythons] == []
