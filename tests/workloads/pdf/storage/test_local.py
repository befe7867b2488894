"""Artifacts in a folder: durable before they are visible, and never outside of it."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kesin.foundation import files
from kesin.foundation.clock import wall_clock_us
from kesin.workloads.pdf.storage.base import BadKey, KeyTaken, StorageDown
from kesin.workloads.pdf.storage.local import MARKER, LocalStorage
from tests.workloads.pdf.storages import HOUR_US, KEY, PDF, operations_of


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "artifacts"


@pytest.fixture
def local(folder) -> LocalStorage:
    return LocalStorage(folder)


def names_in(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def test_files_are_private_and_their_folder_may_move(local, folder):
    local.put_bytes(KEY, b"x", PDF)
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    moved = folder.rename(folder.with_name("elsewhere"))
    assert LocalStorage(moved).get_bytes(KEY) == b"x"


def test_a_key_in_use_is_neither_overwritten_nor_crossed(local):
    local.put_bytes(KEY, b"first", PDF)
    for key in (KEY, "pdfs", f"{KEY}/below"):
        with pytest.raises(KeyTaken):
            local.put_bytes(key, b"second", PDF)
    assert local.exists(f"{KEY}/below") is False
    assert local.get_bytes(KEY) == b"first"


def test_everything_is_on_the_disk_before_it_has_its_name(local, folder, monkeypatch):
    done = []
    sync, replace = os.fsync, os.replace

    def name(handle: int) -> str:
        return Path(f"/proc/self/fd/{handle}").resolve().relative_to(folder.parent).as_posix()

    def note_sync(handle: int) -> None:
        done.append(("sync", name(handle)))
        sync(handle)

    def note_rename(source: str, target: Path) -> None:
        assert Path(source).read_bytes() == b"whole"
        done.append(("rename", Path(source).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_rename)
    local.put_bytes("pdfs/a/1.pdf", b"whole", PDF)
    hidden = done[3][1]
    assert done == [
        ("sync", "artifacts"),
        ("sync", "artifacts/pdfs"),
        ("sync", f"artifacts/pdfs/a/{hidden}"),
        ("rename", hidden),
        ("sync", "artifacts/pdfs/a"),
    ]


CRASH = """
import os, sys
from pathlib import Path
from typing import Any
from kesin.workloads.pdf.storage.local import LocalStorage
setattr(os, sys.argv[2], lambda *_: os._exit(9))
LocalStorage(Path(sys.argv[1])).put_bytes("pdfs/a/1.pdf", b"never whole", "application/pdf")
"""


@pytest.mark.parametrize("call", [pytest.param("fsync", marks=pytest.mark.long), "replace"])
def test_a_crash_before_the_rename_leaves_no_object_and_is_cleaned_up_later(local, folder, call):
    (folder / "pdfs" / "a").mkdir(parents=True)
    crashed = subprocess.run([sys.executable, "-c", CRASH, folder, call], check=False)
    assert crashed.returncode == 9
    assert len(names_in(folder)) == 2  # the marker, and the file that was never renamed
    assert local.exists("pdfs/a/1.pdf") is False
    assert list(local.list()) == []
    now = wall_clock_us()
    assert local.delete_partial_writes(now - HOUR_US) == 0
    assert len(names_in(folder)) == 2
    local.put_bytes("pdfs/a/1.pdf", b"whole", PDF)
    assert local.delete_partial_writes(now + HOUR_US) == 1
    assert local.get_bytes("pdfs/a/1.pdf") == b"whole"
    assert local.delete("pdfs/a/1.pdf")
    assert list(folder.iterdir()) == [folder / MARKER]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_nothing_behind(local, folder, monkeypatch, call):
    local.put_bytes("pdfs/a/0.pdf", b"x", PDF)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(StorageDown, match="No space left"):
        local.put_bytes("pdfs/a/1.pdf", b"x", PDF)
    assert names_in(folder) == [MARKER, "pdfs/a/0.pdf"]


def test_a_folder_that_vanishes_while_it_is_written_into_is_made_again_but_not_forever(local, monkeypatch):
    write, vanished = files.write_atomically, set[Path]()

    def write_late(path: Path, data: bytes, **options: Any) -> None:
        if not vanished:
            vanished.add(path.parent)
            path.parent.rmdir()
        write(path, data, **options)

    monkeypatch.setattr(files, "write_atomically", write_late)
    local.put_bytes(KEY, b"x", PDF)
    assert local.get_bytes(KEY) == b"x"

    def never(path: Path, *_: object, **__: object) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(files, "write_atomically", never)
    with pytest.raises(StorageDown, match="keeps vanishing"):
        local.put_bytes("another.pdf", b"x", PDF)


@pytest.mark.parametrize("mount_point_stays", [True, False])
def test_a_disk_that_is_not_mounted_is_down_not_empty(local, folder, tmp_path, mount_point_stays):
    local.put_bytes(KEY, b"x", PDF)
    folder.rename(tmp_path / "away")
    if mount_point_stays:
        folder.mkdir()
    for call in [*operations_of(local), lambda: local.delete_partial_writes(0)]:
        with pytest.raises(StorageDown, match="mount its disk"):
            call()
    if mount_point_stays:
        assert list(folder.iterdir()) == []
        folder.rmdir()
    (tmp_path / "away").rename(folder)
    assert local.get_bytes(KEY) == b"x"


def test_a_disk_that_fails_is_down_not_empty(local, monkeypatch):
    local.put_bytes(KEY, b"x", PDF)

    def broken(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "stat", broken)
    monkeypatch.setattr(os, "lstat", broken)
    with pytest.raises(StorageDown, match="Input/output error"):
        local.exists(KEY)


def test_a_folder_that_cannot_be_read_is_not_empty(local, monkeypatch):
    local.put_bytes(KEY, b"x", PDF)

    def closed(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", closed)
    for call in (lambda: list(local.list()), lambda: local.delete_partial_writes(0)):
        with pytest.raises(StorageDown, match="Permission denied"):
            call()


def test_a_link_out_of_the_folder_is_not_followed(local, folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "1.pdf").write_bytes(b"secret")
    (folder / "pdfs").mkdir()
    (folder / "pdfs" / "a").symlink_to(outside)
    (folder / "pdfs" / "b.pdf").symlink_to(outside / "1.pdf")
    (folder / "circle").symlink_to(folder / "circle")
    (folder / "notes of mine.txt").write_text("x")
    (folder / ".DS_Store").write_text("x")
    for key in ("pdfs/a/1.pdf", "pdfs/a/2.pdf", "pdfs/b.pdf"):
        for call in (local.get_bytes, local.exists, local.delete):
            with pytest.raises(BadKey, match="leads out"):
                call(key)
        with pytest.raises(BadKey, match="leads out"):
            local.put_bytes(key, b"x", PDF)
    with pytest.raises(StorageDown):
        local.exists("circle")
    assert list(local.list()) == []  # nor is a foreign file
    assert (outside / "1.pdf").read_bytes() == b"secret"


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageDown, match="cannot be used"):
        LocalStorage(tmp_path / "file")
