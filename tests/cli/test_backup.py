"""A whole installation backed up while it works, and made again elsewhere."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.vault import Vault
from kesin.engine.queue import Queue
from kesin.engine.replay import verify
from kesin.foundation.encryption import key_ring, new_key
from kesin.foundation.settings import load_settings
from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.store.directory import Directory
from kesin.store.open import open_store
from kesin.store.postgres.store import PostgresStore
from kesin.workloads.optiplan.workshop.config import Workshop
from tests.cli.programs import wait_until
from tests.store.upgrade_rows import kept, put_into_file, put_into_schema

WRITER = """
import sys, threading
from kesin.engine.queue import New, Queue
from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.store.open import open_store
queue = Queue("task", task_lifecycle(), open_store(sys.argv[1], migrate=False))
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
rounds = 0
while not ended.is_set():
    queue.enqueue_many([New(n) for n in range(5)], actor="p")
    claimed = queue.claim("w", limit=5, tenants=["default"])
    queue.apply("complete", [Change(job.id, job.claim_seq) for job in claimed], actor="w")
    rounds += 1
    if rounds == 3:
        print("writing", flush=True)
print(queue.store.stats("task").total, flush=True)
"""
# Runs commands, each in a process that dies without a word after so many reports of progress.
DYING = """
import json, os, signal, sys
from contextlib import contextmanager
import kesin.cli, kesin.cli.commands.audit, kesin.cli.support.context
import kesin.engine.transfer.restore, kesin.store.postgres.store
import kesin.store.transfer.dump_sqlite, kesin.store.transfer.dump_postgres
import kesin.workloads.optiplan.backup, kesin.workloads.pdf.storage.backup
for line in sys.stdin:
    left, *words = json.loads(line)
    pid = os.fork()
    if pid:
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
    def advance(more):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    @contextmanager
    def byte_progress(what, *, shown):
        yield contextmanager(lambda total: iter([advance]))
    sys.modules["kesin.cli.commands.backup"].byte_progress = byte_progress
    kesin.store.transfer.dump_sqlite.PAGES_PER_STEP = 20
    sys.argv[1:] = words
    os.dup2(2, 1)
    kesin.cli.main()
"""
_numbers = count()


@pytest.fixture
def elsewhere(database, request, tmp_path, monkeypatch):
    """Lets the settings name another, empty place of the same kind; its address."""

    def move():
        place = tmp_path / f"elsewhere-{next(_numbers)}"
        monkeypatch.setenv("KESIN_DATA_DIR", str(place))
        address = str(place / "kesin.db")
        if database.startswith("postgresql"):
            server = request.getfixturevalue("postgres_server")
            address = server.create_database(f"back_{os.getpid()}_{next(_numbers)}")
        monkeypatch.setenv("KESIN_DATABASE_URL", address)
        return address

    return move


@pytest.fixture
def artifact(database, tmp_path):
    """A PDF that was made."""
    file = tmp_path / "data" / "artifacts" / "pdfs" / "a" / "1.pdf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"%PDF" + bytes(range(256)) * 5_000)
    return file


@pytest.fixture
def killed(database):
    """Runs a command that is killed after so many steps; whether it came so far."""
    with subprocess.Popen(
        [sys.executable, "-c", DYING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def run(steps, *words):
            process.stdin.write(json.dumps([steps, *words]) + "\n")
            process.stdin.flush()
            code = int(process.stdout.readline())
            assert code in (0, -9)
            return code == -9

        yield run
        process.stdin.close()


def total(address):
    with closing(open_store(address, migrate=False)) as store:
        return sum(flow.n for flow in store.move_counts("task") if flow.move == "enqueue")


def verified(address):
    with closing(open_store(address, migrate=False)) as store:
        store.open("task", task_lifecycle())
        return verify(store, "task")


# The whole way


def populate(kesin, database):
    """Somebody of every kind, and a claim whose worker is gone; a session's token and the claim."""
    lines = "1\n2\n3\n"
    assert kesin("enqueue", "task", "-", "--tenant", "acme", text=lines).code == 0
    assert kesin("enqueue", "task", "1", "--key", "once", "--tenant", "acme").code == 0
    assert kesin("site", "add", "acme").code == 0
    person = ("user", "add", "ayse", "--role", "admin", "--password-stdin")
    assert kesin(*person, text="a long password\n").code == 0
    assert kesin("secrets", "put", "token", text="sealed").code == 0
    paths = Workshop(load_settings()).paths()
    (paths.import_folder / "order.xlsx").write_text("boards")
    (paths.inbox / "cut.xml").write_text("<cut/>")
    with closing(open_store(database, migrate=False)) as store:
        token, _ = Accounts(Directory(store)).sign_in("ayse", "a long password", "::1")
        (held,) = Queue("task", task_lifecycle(), store).claim("gone", limit=1)
    return token, held


def backed_up_while_written(kesin, database):
    """The manifest of a backup to b, between the writes of another process."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, database],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout.readline() == "writing\n"
    before = total(database)
    answer = kesin("backup", "b", "--json")
    after = total(database)
    assert writer.poll() is None
    writer.communicate()
    assert answer.code == 0, answer.err
    assert before <= sum(answer.json["queues"]["task"].values()) <= after
    return answer.json


def people_come_in(store, token):
    accounts = Accounts(Directory(store))
    assert accounts.session_actor(token, "::1") is None
    accounts.sign_in("ayse", "a long password", "::1")
    assert Vault(accounts, key_ring(load_settings())).get("token") == "sealed"
    assert [one.id for one in accounts.directory.sites()] == ["acme"]
    assert "store.restore" in {one.action for one in accounts.directory.audit()}


def jobs_go_on(kesin, store, held):
    queue = Queue("task", task_lifecycle(), store)
    assert queue.enqueue(1, key="once", tenant="acme").result == "duplicate"
    assert queue.claim("new", limit=1) == []
    assert store.paused("task")[0].reason.startswith("restored from b, a backup of ")
    assert kesin("resume", "task").code == 0
    assert queue.job(held.id).state == "running"  # its lease is not over
    (job,) = queue.claim("new", limit=1)
    done = [Change(one.id, one.claim_seq) for one in (held, job)]
    assert {one.result for one in queue.apply("complete", done, actor="w")} == {"moved"}
    store.add_note("task", kind="k", actor="a", job_id=job.id)
    assert kesin("audit", "verify").code == 0


@pytest.mark.usefixtures("artifact")
def test_a_backup_of_a_working_installation_comes_back_whole(
    kesin, database, elsewhere, monkeypatch
):
    monkeypatch.setenv("KESIN_SECRET_KEYS", new_key("k1"))
    token, held = populate(kesin, database)
    manifest = backed_up_while_written(kesin, database)
    jobs = sum(manifest["queues"]["task"].values())
    assert manifest["secret_keys"] == ["k1"]
    assert any("KESIN_SECRET_KEYS" in one for one in manifest["left_out"])
    assert {path.stat().st_mode & 0o077 for path in Path("b").rglob("*")} == {0}
    sums = ["sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS"]
    assert subprocess.run(sums, cwd="b", check=False).returncode == 0
    assert kesin("restore", "b", "--check").lines[-1].startswith("b is whole: ")

    address = elsewhere()
    back = kesin("restore", "b", "--json")
    assert back.code == 0, back.err
    (report,) = [one for one in back.json["queues"] if one["queue"] == "task"]
    assert (report["jobs"], report["different"], report["counters"]) == (jobs, 0, "agree")
    assert back.json["closed_secrets"] == []
    data = load_settings().data_dir
    for name in ("artifacts/pdfs/a/1.pdf", "paths.json", "optiplan/import/order.xlsx"):
        assert (data / name).read_bytes() == Path("data", name).read_bytes()
    assert not list(data.rglob("cut.xml"))  # the saw has it, and would cut it again
    with closing(open_store(address, migrate=False)) as store:
        people_come_in(store, token)
        jobs_go_on(kesin, store, held)

    again = kesin("restore", "b")
    assert (again.code, "add --replace" in again.err) == (1, True)
    monkeypatch.delenv("KESIN_SECRET_KEYS")
    again = kesin("restore", "b", "--replace", "--resume")
    assert again.code == 0, again.err
    assert "secrets do not open, like token: KESIN_SECRET_KEYS needs the keys k1" in again.err
    with closing(open_store(address, migrate=False)) as store:
        assert store.paused("task") == []
        assert len(Queue("task", task_lifecycle(), store).claim("new", limit=1)) == 1
    assert total(address) == jobs


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_backup_of_an_older_schema_is_migrated_where_it_comes_back(
    kind, kesin, request, tmp_path, monkeypatch
):
    tables, _ = kept()
    if kind == "sqlite":
        addresses = [str(tmp_path / "k.db"), str(tmp_path / "new.db")]
        put_into_file(tmp_path / "k.db", 3, tables)
    else:
        server = request.getfixturevalue("postgres_server")
        names = [f"old_{os.getpid()}_{next(_numbers)}" for _ in range(2)]
        addresses = [server.create_database(name) for name in names]
        with closing(PostgresStore(addresses[0], listen=False)) as store:
            put_into_schema(store, 3, tables)
    monkeypatch.setenv("KESIN_DATABASE_URL", addresses[0])
    assert kesin("backup", "b", "--json").json["schema"].keys() == {"1", "2", "3"}
    assert len(kesin("migrate", "--dry-run", "--json").json["outstanding"]) >= 3  # it only read
    monkeypatch.setenv("KESIN_DATABASE_URL", addresses[1])
    answer = kesin("restore", "b")
    assert answer.code == 0, answer.err
    assert "applied 0004_facts" in answer.lines
    assert kesin("migrate", "--dry-run", "--json").json["outstanding"] == []
    with closing(open_store(addresses[1], migrate=False)) as store:
        task = Queue("task", task_lifecycle(), store)
        assert task.stats().states == {"ready": 2, "running": 1, "done": 1, "failed": 1}
        assert Directory(store).users()[0].name == "ayse"


def test_a_backup_tells_what_is_kept_elsewhere(kesin, fill, monkeypatch):
    fill("task", 1)
    monkeypatch.setenv("KESIN_REDIS_URL", "redis://:hush@127.0.0.1:1/0")
    monkeypatch.setenv("KESIN_PDF_ARTIFACTS", "s3://bucket/pdfs")
    monkeypatch.setenv("KESIN_PDF_TEMPLATES", "own")
    answer = kesin("backup", "b")
    assert answer.code == 0, answer.err
    told = [line for line in answer.lines if line.startswith("not in it: ")]
    for what in ("PDFs in s3://bucket/pdfs", "templates in own", "PDF jobs in redis://:…@127"):
        assert any(what in line for line in told)
    assert "hush" not in answer.out + Path("b/manifest.json").read_text()


# Deaths


@pytest.mark.usefixtures("artifact")
def test_a_backup_that_dies_leaves_nothing_under_its_name(kesin, killed, fill):
    fill("task", 3)
    for steps in (0, 3):  # among the files, and in the database
        assert killed(steps, "backup", "b")
        assert not Path("b").exists()
        again = kesin("backup", "b")
        assert (again.code, "b.part is there" in again.err) == (1, True)
        shutil.rmtree("b.part")
    assert not killed(1_000, "backup", "b")
    assert kesin("restore", "b", "--check").code == 0


def test_a_restore_that_dies_leaves_what_was_there(kesin, database, killed, artifact, fill):
    fill("task", 40)
    assert kesin("backup", "b").code == 0
    artifact.unlink()
    fill("task", 2)
    seen = []
    while killed(len(seen), "restore", "b", "--replace"):
        assert verified(database)
        seen.append(total(database))
        Path("data/.kesin.db.restoring").unlink(missing_ok=True)
    assert len(seen) >= 4
    assert seen in ([42] * len(seen), [42] * (len(seen) - 1) + [40])  # SQLite: its last step is all
    assert total(database) == 40
    assert artifact.exists()


# Refusals


def test_a_damaged_backup_is_refused_by_the_name_of_what_is_damaged(
    kesin, database, elsewhere, artifact, fill
):
    fill("task", 3)
    assert kesin("backup", "b").code == 0
    elsewhere()

    def says(damage):
        shutil.copytree("b", "damaged")
        damage(Path("damaged"))
        answer = kesin("restore", "damaged")
        shutil.rmtree("damaged")
        assert answer.code == 1
        return answer.err

    def flip(name):
        def damage(folder):
            file = max(folder.glob(name))
            body = bytearray(file.read_bytes())
            body[len(body) // 2] ^= 1
            file.write_bytes(body)

        return damage

    for name in ("database/*", "files/artifacts/pdfs/a/1.pdf", "manifest.json"):
        damaged = max(Path("b").glob(name)).relative_to("b")
        assert f"{damaged} is not what was written" in says(flip(name))
    assert "is damaged: " in says(flip("SHA256SUMS"))
    pdf = "files/artifacts/pdfs/a/1.pdf"
    assert f"{pdf} is missing" in says(lambda folder: (folder / pdf).unlink())
    assert "more does not belong to it" in says(lambda folder: (folder / "more").touch())
    assert "is no plain file" in says(lambda folder: (folder / "link").symlink_to("/"))
    assert "it has no SHA256SUMS" in says(lambda folder: (folder / "SHA256SUMS").unlink())
    assert not Path("damaged").exists()
    assert kesin("restore", "b").code == 0


def test_a_backup_of_a_newer_schema_is_refused(kesin, database, elsewhere, fill):
    fill("task", 1)
    with closing(open_store(database, migrate=False)) as store, store.transaction():
        now = "now()" if database.startswith("postgresql") else "1"
        table = store.dialect.table("schema_migration")
        store._rows(f"INSERT INTO {table} VALUES (9999, 'later', 'x', {now})", {})
    assert kesin("backup", "b").code == 0  # it only reads
    elsewhere()
    answer = kesin("restore", "b")
    assert (answer.code, "at version 9999 but this kesin knows only" in answer.err) == (1, True)


def test_a_restore_is_refused_while_somebody_is_there(kesin, database, programs, fill):
    fill("task", 2)
    assert kesin("backup", "b").code == 0
    worker = programs.start("worker", "task", "--handler", "builtins:str")
    worker.hear("worker_started")
    answer = kesin("restore", "b", "--replace")
    assert (answer.code, "in use" in answer.err) == (1, True)
    worker.process.kill()
    worker.end()
    wait_until(lambda: kesin("restore", "b", "--replace").code == 0)  # a server notices it soon


def test_a_backup_does_not_begin_where_it_cannot_end(kesin, database, artifact, fill, monkeypatch):
    fill("task", 2)
    assert kesin("backup", "b").code == 0

    def refused(*words):
        answer = kesin(*words)
        assert (answer.code, list(Path.cwd().glob("*.part"))) == (1, [])
        return answer.err

    assert "a backup overwrites nothing" in refused("backup", "b")
    assert "there is no folder" in refused("backup", "none/b")
    assert "choose a place outside it" in refused("backup", "data/artifacts/b")
    full = shutil.disk_usage("/")._replace(free=1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    assert "has 1 bytes free, and this takes about" in refused("backup", "c")
    if not database.startswith("postgresql"):
        assert "has 1 bytes free" in refused("restore", "b", "--replace")


def test_what_is_damaged_or_elsewhere_is_not_replaced(kesin, ready_file, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    file = Path(shutil.copyfile(ready_file, tmp_path / "data" / "kesin.db"))
    assert kesin("backup", "b").code == 0
    file.write_bytes(b"no database" * 1_000)
    answer = kesin("restore", "b", "--replace")
    assert (answer.code, "move it away" in answer.err) == (1, True)
    file.unlink()
    assert "there is no database at" in kesin("backup", "c").err
    assert kesin("restore", "b").code == 0
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_backup_of_another_kind_of_database_is_refused(
    kesin, ready_file, tmp_path, empty_postgres, monkeypatch
):
    assert "nothing to back up" in kesin("backup", "b").err
    monkeypatch.setenv("KESIN_DATABASE_URL", str(shutil.copyfile(ready_file, tmp_path / "k.db")))
    assert kesin("backup", "b").code == 0
    monkeypatch.setenv("KESIN_DATABASE_URL", empty_postgres)
    assert (
        "a backup of a SQLite file, and the settings name PostgreSQL" in kesin("restore", "b").err
    )
