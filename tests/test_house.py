from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]
LINES_MAX = 500


def test_imports_run_downwards_only():
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_no_source_file_is_too_long_to_read():
    files = [path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".sql"}]
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in files}
    assert {path: length for path, length in lengths.items() if length > LINES_MAX} == {}
