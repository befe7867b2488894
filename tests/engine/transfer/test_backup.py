"""Files of a backup: what was there at the moment of the database is in it."""

import os
import subprocess
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import pytest

from kesin import Queue, task_lifecycle
from kesin.engine.transfer import backup
from kesin.engine.transfer.backup import BackupFile, back_up
from kesin.engine.transfer.restore import read_backup, restore
from kesin.store.errors import StoreError
from kesin.store.open import open_store
from kesin.store.transfer import dump_postgres
from kesin.store.transfer.dump import BackupRefused, DumpManifest, RestoreRefused
from kesin.store.transfer.dump_postgres import PostgresDump
from kesin.store.transfer.dump_sqlite import SqliteDump

STRANGE = ("a b.pdf", "back\\slash.pdf", "line\nbreak.pdf", "ş.pdf", os.fsdecode(b"\xff.pdf"))


@pytest.fixture
def dump(tmp_path):
    open_store(tmp_path / "k.db").close()
    return SqliteDump(tmp_path / "k.db")


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "artifacts"
    (place / "deep").mkdir(parents=True)
    return place


def unseen(_total):
    return nullcontext(lambda _more: None)


def test_files_that_come_go_and_change_meanwhile_are_in_it(dump, folder, tmp_path):
    for name in ("swept.pdf", "rules.json", "deep/kept.pdf"):
        (folder / name).write_text("before")
    (folder / ".put-half").write_text("half done")
    (folder / "link").symlink_to("rules.json")

    class Busy(SqliteDump):
        def write(self, *args):
            """Dump the database while jobs are being handled."""
            (folder / "swept.pdf").unlink()
            (folder / "deep" / "new.pdf").write_text("new")
            fresh = folder / ".rules"
            fresh.write_text("after!")
            fresh.replace(folder / "rules.json")
            return super().write(*args)

    manifest = back_up(Busy(dump.path), tmp_path / "b", [BackupFile("a", folder)], ["x"], unseen)
    files = tmp_path / "b" / "files" / "a"
    found = {
        path.relative_to(files).as_posix(): path.read_text()
        for path in files.rglob("*")
        if path.is_file()
    }
    assert found == {
        "swept.pdf": "before",
        "rules.json": "after!",
        "deep/kept.pdf": "before",
        "deep/new.pdf": "new",
    }
    assert (manifest.files, manifest.vanished, manifest.left_out) == (4, [], ["x"])
    assert read_backup(tmp_path / "b").manifest == manifest


def test_a_file_that_is_swept_before_it_is_copied_is_told(dump, folder, tmp_path, monkeypatch):
    for name in ("a.pdf", "b.pdf"):
        (folder / name).write_text(name)

    @contextmanager
    def sweeping(_total):
        yield lambda _more: (folder / "b.pdf").unlink(missing_ok=True)

    found = [(f"a/{file.name}", file, file.stat()) for file in sorted(folder.glob("*.pdf"))]
    monkeypatch.setattr(backup, "list_files", lambda _: found)  # listed, and then swept
    manifest = back_up(dump, tmp_path / "b", [BackupFile("a", folder)], [], sweeping)
    assert (manifest.files, manifest.vanished) == (1, ["a/b.pdf"])
    assert read_backup(tmp_path / "b").manifest == manifest


def test_names_of_any_letters_are_written_as_sha256sum_reads_them(dump, folder, tmp_path):
    for name in STRANGE:
        (folder / name).write_text("x")
    back_up(dump, tmp_path / "b", [BackupFile("a", folder)], [], unseen)
    command = ["sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS"]
    assert subprocess.run(command, cwd=tmp_path / "b", check=False).returncode == 0
    assert read_backup(tmp_path / "b").manifest.files == len(STRANGE)


def test_a_disk_that_fails_in_the_middle_leaves_nothing(dump, folder, tmp_path):
    (folder / "a.pdf").write_text("x")

    @contextmanager
    def full(_total):
        def advance(_more):
            raise OSError(28, "No space left on device")

        yield advance

    with pytest.raises(BackupRefused, match="nothing was backed up: No space left on device"):
        back_up(dump, tmp_path / "b", [BackupFile("a", folder)], [], full)
    assert not list(Path(tmp_path).glob("b*"))


def test_a_folder_that_is_no_backup_is_refused(tmp_path):
    with pytest.raises(StoreError, match="is no backup of kesin"):
        read_backup(tmp_path)


def test_a_file_that_differs_is_overwritten_only_where_that_was_asked_for(dump, folder, tmp_path):
    rules, kept = folder / "rules.json", [BackupFile("a", folder)]
    rules.write_text("then")
    back_up(dump, tmp_path / "b", kept, [], unseen)
    rules.write_text("now")
    found, empty = read_backup(tmp_path / "b"), SqliteDump(tmp_path / "new.db")
    with pytest.raises(RestoreRefused, match=r"rules\.json would be overwritten"):
        restore(found, empty, kept, lambda _store: None, unseen, replace=False)
    assert (rules.read_text(), empty.path.exists()) == ("now", False)
    restore(found, empty, kept, lambda _store: None, unseen, replace=True)
    assert rules.read_text() == "then"


def test_a_manifest_that_cannot_be_understood_is_told(dump, tmp_path):
    back_up(dump, tmp_path / "b", [], [], unseen)
    (tmp_path / "b" / "manifest.json").write_text('{"format": "1"}')
    sums = tmp_path / "b" / "SHA256SUMS"
    digest = backup.digest_of(tmp_path / "b" / "manifest.json")
    lines = [line for line in sums.read_text().splitlines() if "manifest" not in line]
    sums.write_text("".join(f"{one}\n" for one in (*lines, f"{digest}  manifest.json")))
    with pytest.raises(RestoreRefused, match=r"manifest\.json cannot be understood"):
        read_backup(tmp_path / "b")


def test_names_in_a_manifest_reach_no_statement_and_no_other_file(postgres_server, tmp_path):
    url = postgres_server.create_database("crafted")  # no other connection may use it
    dump = PostgresDump(url, schema="crafted")
    for tables in ({"../job": ["id"]}, {"job": ["id) FROM STDIN; DROP TABLE job; --"]}):
        crafted = DumpManifest("postgres", {1: "x"}, {}, [], tables)
        with pytest.raises(RestoreRefused, match="has no such table"):
            dump.restore(tmp_path, crafted, lambda _: None, lambda _: None, replace=False)


def test_who_is_just_hanging_up_is_waited_for_and_who_stays_is_not(postgres_server, monkeypatch):
    url = postgres_server.create_database("leaving")
    dump, looked = PostgresDump(url), PostgresDump._other_connections
    with closing(open_store(url, migrate=True)) as store:
        monkeypatch.setattr(dump_postgres, "DISCONNECT_WAIT_S", dump_postgres.DISCONNECT_POLL_S)
        with pytest.raises(RestoreRefused, match=r"in use \(connections of kesin: 1\)"):
            dump.check_target(replace=True)
        monkeypatch.undo()

        def last(connection):
            found = looked(connection)
            store.close()
            return found

        monkeypatch.setattr(PostgresDump, "_other_connections", staticmethod(last))
        dump.check_target(replace=True)


def test_a_database_is_refused_for_what_would_be_lost_and_for_nothing_else(dump):
    with closing(open_store(dump.path)) as store:
        Queue("task", task_lifecycle(), store)
    dump.check_target(replace=False)
    with closing(open_store(dump.path)) as store:
        Queue("task", task_lifecycle(), store).enqueue(1)
    with pytest.raises(RestoreRefused, match="holds 1 jobs of task: restore elsewhere"):
        dump.check_target(replace=False)
    dump.check_target(replace=True)
