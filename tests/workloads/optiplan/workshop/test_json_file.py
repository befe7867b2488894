"""Atomic file writes."""

import os
from pathlib import Path

import pytest

from kesin.workloads.optiplan.workshop.json_file import remove_unfinished, write_atomically


def test_a_file_is_written_and_replaced(tmp_path: Path):
    file = tmp_path / "deep" / "er" / "x.json"
    write_atomically(file, b"one")
    write_atomically(file, b"two")
    assert file.read_bytes() == b"two"
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str):
    file = tmp_path / "x.json"
    write_atomically(file, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if step == "fsync" else Path, step, full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_others_may_read_what_is_written(tmp_path: Path):
    before = os.umask(0o022)
    try:
        write_atomically(tmp_path / "x", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644


def test_what_a_killed_process_left_is_dropped(tmp_path: Path):
    for name in (".job1_a.xlsx.00ff.tmp", ".job2_a.xlsx.00ff.tmp", "job1_a.xlsx", "job1.tmp"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path, "job1_")
    assert sorted(file.name for file in tmp_path.iterdir()) == [".job2_a.xlsx.00ff.tmp", "job1.tmp", "job1_a.xlsx"]
