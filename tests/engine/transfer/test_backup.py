"""Backups: a snapshot of a single moment, complete or absent, and restored unchanged."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from kesin import Queue, task_lifecycle
from kesin.engine.new_job import NewJob
from kesin.engine.queue import apply_changes
from kesin.engine.replay import verify
from kesin.engine.transfer import backup
from kesin.engine.transfer.backup import BackupFile, back_up
from kesin.engine.transfer.restore import read_backup, restore
from kesin.lifecycle.model import Change
from kesin.store.directory import MetadataEntry
from kesin.store.errors import StoreError
from kesin.store.metadata import metadata_for
from kesin.store.open import open_store
from kesin.store.sql.store import SqlStore
from kesin.store.transfer import dump_for, dump_postgres, dump_sqlite
from kesin.store.transfer.dump import BackupRefused, DumpManifest, RestoreRefused
from kesin.store.transfer.dump_postgres import PostgresDump
from kesin.store.transfer.dump_sqlite import SqliteDump

STRANGE = ("a b.pdf", "back\\slash.pdf", "line\nbreak.pdf", "ş.pdf", os.fsdecode(b"\xff.pdf"))
# Backs up, restores or enqueues in processes that kill themselves after so many steps.
DYING = """
import json, os, signal, sys
from pathlib import Path
from kesin import Queue, task_lifecycle
from kesin.engine.transfer.backup import BackupFile, back_up
from kesin.engine.transfer.restore import read_backup, restore
from kesin.store.open import open_store
from kesin.store.transfer import dump_for, dump_postgres, dump_sqlite
dump_sqlite.PAGES_PER_STEP = 9
for line in sys.stdin:
    steps, action, address, folder, files = json.loads(line)
    pid = os.fork()
    if pid:
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
    def advance(_bytes):
        global steps
        steps -= 1
        if steps < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    dump, places = dump_for(address), [BackupFile("a", Path(files))]
    if action == "enqueue":
        queue = Queue("task", task_lifecycle(), open_store(address, migrate=False))
        advance([queue.enqueue(n) for n in range(2)])
    elif action == "backup":
        back_up(dump, Path(folder), places, [], lambda _total: advance)
    else:
        saved, watch = read_backup(Path(folder)), lambda _total: advance
        restore(saved, dump, places, lambda _store: None, watch, replace=True)
    os._exit(0)
"""
_numbers = count()


@pytest.fixture
def dump(tmp_path, ready_file):
    return SqliteDump(Path(shutil.copyfile(ready_file, tmp_path / "k.db")))


@pytest.fixture(params=["sqlite", "postgres"])
def new_database(request, tmp_path, ready_file):
    """Creates databases of a kind, with the schema; their addresses."""

    def make():
        number = next(_numbers)
        if request.param == "sqlite":
            return str(shutil.copyfile(ready_file, tmp_path / f"{number}.db"))
        server, ready = map(request.getfixturevalue, ("postgres_server", "ready_postgres"))
        return server.create_database(f"transfer_{os.getpid()}_{number}", like=ready)

    return make


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "artifacts"
    (place / "deep").mkdir(parents=True)
    return place


@pytest.fixture(scope="module")
def killed():
    """Runs an action that kills itself after so many steps; whether it did."""
    with subprocess.Popen(
        [sys.executable, "-c", DYING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def run(steps, *arguments):
            stdin.write(json.dumps([steps, *map(str, arguments)]) + "\n")
            stdin.flush()
            code = int(stdout.readline())
            assert code in (0, -9)
            return code == -9

        yield run
        stdin.close()


def unseen(_total):
    return lambda _more: None


def write_backup(dump, target, *files):
    return back_up(dump, target, files, [], unseen)


def put_back(folder, dump, *places, replace=False):
    restore(read_backup(folder), dump, places, lambda _store: None, unseen, replace=replace)


def enqueue(address, jobs):
    with closing(open_store(address, migrate=False)) as store:
        Queue("task", task_lifecycle(), store).enqueue_many([NewJob(n) for n in range(jobs)])


def replayed_jobs(address):
    """How many jobs there are; all of them replay, and the counters agree."""
    with closing(open_store(address, migrate=False)) as store:
        queue = Queue("task", task_lifecycle(), store)
        report = verify(store, "task")
        assert (report.differences, report.counters) == ([], "agree")
        return queue.stats().total


# Snapshots


def test_a_backup_is_a_snapshot_of_its_start(new_database, tmp_path, monkeypatch):
    monkeypatch.setattr(dump_sqlite, "PAGES_PER_STEP", 5)
    source, target, writes = new_database(), new_database(), []
    enqueue(source, 50)
    with closing(open_store(source, migrate=False)) as store:
        queue = Queue("task", task_lifecycle(), store)

        def move_jobs(_bytes):
            queue.enqueue_many([NewJob(n) for n in range(5)])
            changes = [Change(job.id, job.claim_seq) for job in queue.claim("w", limit=10)]
            writes.extend(apply_changes(queue, "complete", changes, actor="w"))

        manifest = back_up(dump_for(source), tmp_path / "b", [], [], lambda _total: move_jobs)
    assert len(writes) > 20
    assert manifest.queues == {"task": {"ready": 50}}
    put_back(tmp_path / "b", dump_for(target))
    assert replayed_jobs(target) == 50


def test_files_that_change_during_the_backup_are_in_it(dump, folder, tmp_path):
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

    entries = [BackupFile("a", folder)]
    manifest = back_up(Busy(dump.path), tmp_path / "b", entries, ["x"], unseen)
    files = tmp_path / "b" / "files" / "a"
    contents = {str(p.relative_to(files)): p.read_text() for p in files.rglob("*") if p.is_file()}
    assert contents == {"swept.pdf": "before", "rules.json": "after!", "deep/kept.pdf": "before", "deep/new.pdf": "new"}
    assert (manifest.files, manifest.vanished, manifest.left_out) == (4, [], ["x"])
    assert read_backup(tmp_path / "b").manifest == manifest
    keys = "format database schema queues secret_keys tables audit_head kesin made_at files bytes"
    assert [*manifest.as_record()] == [*keys.split(), "vanished", "left_out"], "format 1"


def test_a_file_deleted_before_it_is_copied_is_listed(dump, folder, tmp_path, monkeypatch):
    for name in ("a.pdf", "b.pdf"):
        (folder / name).write_text(name)

    def sweeping(_total):
        return lambda _more: (folder / "b.pdf").unlink(missing_ok=True)

    listed = [(f"a/{file.name}", file, file.stat()) for file in sorted(folder.glob("*.pdf"))]
    monkeypatch.setattr(backup, "list_files", lambda _: listed)  # listed, and then swept
    manifest = back_up(dump, tmp_path / "b", [BackupFile("a", folder)], [], sweeping)
    assert (manifest.files, manifest.vanished) == (1, ["a/b.pdf"])
    assert read_backup(tmp_path / "b").manifest == manifest


def test_sha256sum_can_check_files_of_any_name(dump, folder, tmp_path):
    for name in STRANGE:
        (folder / name).write_text("x")
    write_backup(dump, tmp_path / "b", BackupFile("a", folder))
    command = ["sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS"]
    assert subprocess.run(command, cwd=tmp_path / "b", check=False).returncode == 0
    assert read_backup(tmp_path / "b").manifest.files == len(STRANGE)


# Interruptions


def test_a_killed_backup_or_restore_leaves_nothing_incomplete(new_database, killed, folder, tmp_path, request):
    every = 1 if request.config.getoption("--long") else 2  # of the steps of a restore
    address, target, part = new_database(), tmp_path / "b", tmp_path / "b.part"
    pdf = folder / "1.pdf"
    pdf.write_bytes(bytes(1_300_000))
    enqueue(address, 40)
    for steps in (0, 3):  # among the files, and in the database
        assert killed(steps, "backup", address, target, folder)
        assert not target.exists()
        with pytest.raises(BackupRefused, match=r"b\.part exists"):
            write_backup(dump_for(address), target)
        shutil.rmtree(part)
    assert not killed(1_000, "backup", address, target, folder)

    pdf.unlink()
    assert killed(0, "enqueue", address, target, folder)  # leaves its log and connection behind
    jobs: list[int] = []
    while killed(len(jobs) * every, "restore", address, target, folder):
        jobs.append(replayed_jobs(address))
        Path(f"{tmp_path}/.{Path(address).name}.restoring").unlink(missing_ok=True)
    assert len(jobs) >= 4
    assert jobs in ([42] * len(jobs), [42] * (len(jobs) - 1) + [40])  # SQLite: its last step is all
    assert (replayed_jobs(address), pdf.exists()) == (40, True)


def test_a_full_disk_leaves_nothing(dump, folder, tmp_path):
    (folder / "a.pdf").write_text("x")

    def fail(_more):
        raise OSError(28, "No space left on device")

    with pytest.raises(BackupRefused, match="nothing was backed up: No space left on device"):
        back_up(dump, tmp_path / "b", [BackupFile("a", folder)], [], lambda _total: fail)
    assert not list(tmp_path.glob("b*"))


# Refusals


def test_a_backup_that_cannot_succeed_is_refused_at_once(new_database, folder, tmp_path, monkeypatch):
    dump, entry = dump_for(new_database()), BackupFile("a", folder)
    (tmp_path / "taken").mkdir()
    for target, reason in (
        ("taken", "a backup never overwrites a file"),
        ("none/b", "there is no folder"),
        ("artifacts/b", "choose a folder outside it"),
    ):
        with pytest.raises(BackupRefused, match=reason):
            write_backup(dump, tmp_path / target, entry)
    write_backup(dump, tmp_path / "b", entry)
    full = shutil.disk_usage("/")._replace(free=1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(BackupRefused, match="has 1 bytes free, but this needs about"):
        write_backup(dump, tmp_path / "c", entry)
    if dump.kind == "sqlite":
        with pytest.raises(RestoreRefused, match="has 1 bytes free"):
            put_back(tmp_path / "b", dump, replace=True)
    assert not list(tmp_path.glob("*.part"))


def test_a_damaged_backup_is_refused_with_the_damaged_file(dump, folder, tmp_path):
    pdf = "files/a/1.pdf"
    (folder / "1.pdf").write_bytes(b"%PDF")
    write_backup(dump, tmp_path / "b", BackupFile("a", folder))

    def flip(name):
        def damage(copy):
            content = bytearray((copy / name).read_bytes())
            content[len(content) // 2] ^= 1
            (copy / name).write_bytes(content)

        return damage

    def empty_manifest(copy):
        (copy / "manifest.json").write_text('{"format": "1"}')
        digest = backup.digest_of(copy / "manifest.json")
        lines = [s for s in (copy / "SHA256SUMS").read_text().splitlines() if "manifest" not in s]
        (copy / "SHA256SUMS").write_text("\n".join([*lines, f"{digest}  manifest.json"]) + "\n")

    damages = [
        *((flip(n), f"{n} has changed since it was") for n in ("database/kesin.db", pdf, "manifest.json")),
        (flip("SHA256SUMS"), "is damaged: "),
        (empty_manifest, r"manifest\.json cannot be read"),
        (lambda copy: (copy / pdf).unlink(), f"{pdf} is missing"),
        (lambda copy: (copy / "more").touch(), "more does not belong to it"),
        (lambda copy: (copy / "link").symlink_to("/"), "is not a regular file"),
        (lambda copy: (copy / "SHA256SUMS").unlink(), "is not a Kesin backup: it has no SHA256"),
    ]
    for number, (damage, reason) in enumerate(damages):
        copy = tmp_path / f"damaged-{number}"
        shutil.copytree(tmp_path / "b", copy)
        damage(copy)
        with pytest.raises(RestoreRefused, match=reason):
            read_backup(copy)


def test_a_newer_schema_is_backed_up_and_not_restored(new_database, tmp_path):
    address = new_database()
    with closing(open_store(address, migrate=False)) as store, store.transaction():
        assert isinstance(store, SqlStore)
        now = "now()" if address.startswith("postgresql") else "1"
        table = store.dialect.table("schema_migration")
        store._rows(f"INSERT INTO {table} VALUES (9999, 'later', 'x', {now})", {})
    write_backup(dump_for(address), tmp_path / "b")  # it only reads
    with pytest.raises(StoreError, match="at version 9999 but this version of Kesin supports only"):
        read_backup(tmp_path / "b")


def test_a_restore_into_a_database_in_use_is_refused(new_database, tmp_path, monkeypatch):
    address = new_database()
    dump = dump_for(address)
    with closing(open_store(address, migrate=False)) as store:
        store.ping()
        monkeypatch.setattr(dump_postgres, "DISCONNECT_WAIT_S", dump_postgres.DISCONNECT_POLL_S)
        with pytest.raises(RestoreRefused, match="in use"):
            dump.check_target(replace=True)
    monkeypatch.undo()
    dump.check_target(replace=True)


def test_a_restore_waits_for_a_closing_connection(postgres_server, monkeypatch):
    url = postgres_server.create_database("leaving")
    count_connections = PostgresDump._other_connections
    with closing(open_store(url, migrate=True)) as store:

        def close_after(connection):
            number = count_connections(connection)
            store.close()
            return number

        monkeypatch.setattr(PostgresDump, "_other_connections", staticmethod(close_after))
        PostgresDump(url).check_target(replace=True)


def test_jobs_and_files_are_replaced_only_with_replace(dump, folder, tmp_path):
    rules, entry = folder / "rules.json", BackupFile("a", folder)
    rules.write_text("then")
    write_backup(dump, tmp_path / "b", entry)
    rules.write_text("now")
    empty = SqliteDump(tmp_path / "new.db")
    with pytest.raises(RestoreRefused, match=r"rules\.json would be overwritten"):
        put_back(tmp_path / "b", empty, entry)
    assert (rules.read_text(), empty.path.exists()) == ("now", False)
    put_back(tmp_path / "b", empty, entry, replace=True)
    assert rules.read_text() == "then"
    with closing(open_store(empty.path)) as store:
        Queue("task", task_lifecycle(), store)
    empty.check_target(replace=False)  # an empty queue is nothing to lose
    enqueue(empty.path, 1)
    with pytest.raises(RestoreRefused, match=r"holds jobs of task \(1\): restore elsewhere"):
        put_back(tmp_path / "b", empty, entry)


def test_a_damaged_database_is_not_replaced_and_a_missing_one_not_backed_up(dump, tmp_path):
    write_backup(dump, tmp_path / "b")
    dump.path.write_bytes(b"no database" * 1_000)
    with pytest.raises(RestoreRefused, match="move it away"):
        put_back(tmp_path / "b", dump, replace=True)
    dump.path.unlink()
    with pytest.raises(BackupRefused, match="there is no database at"):
        write_backup(dump, tmp_path / "c")
    put_back(tmp_path / "b", dump)


def test_postgres_restores_neither_sqlite_files_nor_crafted_names(postgres_server, dump, tmp_path):
    url = postgres_server.create_database("crafted")  # no other connection may use it
    postgres = PostgresDump(url, schema="crafted")
    with pytest.raises(BackupRefused, match="nothing to back up"):
        write_backup(postgres, tmp_path / "b")
    write_backup(dump, tmp_path / "b")
    with pytest.raises(RestoreRefused, match="a SQLite file, but the settings use PostgreSQL"):
        put_back(tmp_path / "b", postgres)
    for tables in ({"../job": ["id"]}, {"job": ["id) FROM STDIN; DROP TABLE job; --"]}):
        crafted = DumpManifest("postgres", {1: "x"}, {}, [], tables, None)
        with pytest.raises(RestoreRefused, match="has no such table"):
            postgres.restore(tmp_path, crafted, lambda _: None, lambda _: None, replace=False)


def test_passwords_of_jobs_are_in_no_backup(new_database, tmp_path):
    source, target = new_database(), new_database()
    with closing(open_store(source)) as store:
        for workload, value in (("pdf_transient", "sealed-here"), ("pdf", "kept")):
            metadata_for(store).put_metadata(MetadataEntry(workload, "", "a job", value, 5))
    back_up(dump_for(source), tmp_path / "b", [], [], lambda _total: lambda _bytes: None)
    for file in (tmp_path / "b" / "database").iterdir():
        data = file.read_bytes()
        text = gzip.decompress(data) if file.suffix == ".gz" else data
        assert b"sealed-here" not in text
    saved, nothing = read_backup(tmp_path / "b"), lambda _total: lambda _bytes: None
    restore(saved, dump_for(target), [], lambda _store: None, nothing, replace=True)
    with closing(open_store(target)) as store:
        assert [each.value for each in metadata_for(store).metadata_entries("pdf")] == ["kept"]
        assert metadata_for(store).metadata_entries("pdf_transient") == []
