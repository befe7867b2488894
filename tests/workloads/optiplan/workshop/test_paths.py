"""The paths: defaults, and as the workshop configures them."""

import json
from itertools import product
from pathlib import Path

import pytest

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline.xlsx_template import read_template
from kesin.workloads.optiplan.workshop.paths import create_folders, load_paths, paths_json, read_paths

KEYS = [
    "optiplanningExePath",
    "optiplanningImportFolder",
    "optiplanningExportFolder",
    "optiplanningRulesFolder",
    "machineDropFolder",
    "tempFolder",
    "xlsxTemplatePath",
]


def test_on_first_start_everything_lies_below_the_data_directory(tmp_path: Path):
    paths = load_paths(tmp_path / "paths.json", windows=False)
    stored = json.loads((tmp_path / "paths.json").read_text("utf-8"))
    assert list(stored) == list(paths_json(paths)) == KEYS
    assert paths.built_in_optimiser
    assert stored["optiplanningExePath"] == paths_json(paths)["optiplanningExePath"] == "built-in"
    for key in KEYS[1:]:
        assert Path(paths_json(paths)[key]).is_relative_to(tmp_path)
    read_template(paths.template)


def test_a_second_start_changes_nothing(tmp_path: Path):
    paths = load_paths(tmp_path / "paths.json")
    paths.template.write_bytes(b"the workshop's own")
    assert load_paths(tmp_path / "paths.json") == paths
    assert paths.template.read_bytes() == b"the workshop's own"
    paths.template.unlink()
    load_paths(tmp_path / "paths.json")
    assert not paths.template.exists()  # a removed template is not restored


def test_the_data_directory_can_be_moved_and_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = load_paths(tmp_path / "a" / "paths.json")
    (tmp_path / "a").rename(tmp_path / "b")
    after = load_paths(tmp_path / "b" / "paths.json")
    assert after.import_folder == tmp_path / "b" / before.import_folder.relative_to(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    assert load_paths(Path("kesin-data/paths.json")).inbox.is_absolute()


def test_on_windows_optiplanning_is_where_it_installs_itself(tmp_path: Path):
    paths = load_paths(tmp_path / "paths.json", windows=True)
    assert not paths.built_in_optimiser
    assert str(paths.exe).endswith("C:/Biesse/OptiPlanning/System/OptiPlanning.exe")
    assert read_paths(paths_json(paths), tmp_path / "elsewhere") == paths


def test_the_folders_can_be_made_twice(tmp_path: Path):
    paths = load_paths(tmp_path / "paths.json")
    assert len(create_folders(paths, tmp_path)) == 8
    assert create_folders(paths, tmp_path) == []
    for folder in (paths.import_folder, paths.export_folder, paths.temp_folder):
        assert folder.is_dir()
    assert sorted(folder.name for folder in paths.machine_drop_folder.iterdir()) == ["failed", "inbox", "processed"]
    assert (paths.inbox, paths.processed, paths.failed) == tuple(
        paths.machine_drop_folder / name for name in ("inbox", "processed", "failed")
    )


def test_a_path_that_is_none_is_named(tmp_path: Path):
    good = paths_json(load_paths(tmp_path / "paths.json"))
    for key, value in product(KEYS, ("", "  ", 5, None, "nul\x00", "x" * 1001)):
        with pytest.raises(OrderProblem, match=key):
            read_paths({**good, key: value}, tmp_path)


def test_unknown_and_missing_keys_are_named_with_the_file(tmp_path: Path):
    file = tmp_path / "paths.json"
    body = paths_json(load_paths(file))
    del body["tempFolder"]
    file.write_text(json.dumps({**body, "tmpFolder": "x"}))
    with pytest.raises(OrderProblem) as caught:
        load_paths(file)
    assert caught.value.code is OptiCode.CONFIG_UNAVAILABLE
    for word in (str(file), "tempFolder: is missing", "tmpFolder: is not a known field"):
        assert word in caught.value.message
