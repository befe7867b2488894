"""A whole installation backed up and restored elsewhere."""

import os
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.vault import Vault
from kesin.engine.queue import Queue, apply_changes
from kesin.foundation.encryption import key_ring, new_key
from kesin.foundation.settings import load_settings
from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.store.directory import Directory
from kesin.store.open import open_store
from kesin.store.postgres.store import PostgresStore
from kesin.workloads.optiplan.workshop.config import Workshop
from tests.cli.sealing import put_secret
from tests.store.upgrade_rows import kept, put_into_file, put_into_schema

_numbers = count()


@pytest.fixture
def elsewhere(database, request, tmp_path, monkeypatch):
    """Points the settings to a new, empty database of the same kind; its address."""

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


def populate(kesin, database, tmp_path):
    """Add rows of every kind and a claim of a dead worker; a session token and the claimed job."""
    file = tmp_path / "data" / "artifacts" / "pdfs" / "a" / "1.pdf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"%PDF")
    assert kesin("enqueue", "task", "-", "--tenant", "acme", text="1\n2\n3\n").code == 0
    assert kesin("enqueue", "task", "1", "--key", "once", "--tenant", "acme").code == 0
    assert kesin("site", "add", "acme").code == 0
    user = ("user", "add", "ayse", "--role", "admin", "--password-stdin")
    assert kesin(*user, text="a long password\n").code == 0
    put_secret("token", "sealed")
    paths = Workshop(load_settings()).paths()
    (paths.import_folder / "order.xlsx").write_text("boards")
    (paths.inbox / "cut.xml").write_text("<cut/>")
    with closing(open_store(database, migrate=False)) as store:
        token, _ = Accounts(Directory(store)).sign_in("ayse", "a long password", "::1")
        (claimed,) = Queue("task", task_lifecycle(), store).claim("gone", limit=1)
    return token, claimed


def check_accounts(store, token):
    accounts = Accounts(Directory(store))
    assert accounts.session_actor(token, "::1") is None
    accounts.sign_in("ayse", "a long password", "::1")
    assert Vault(accounts, key_ring(load_settings())).get("token") == "sealed"
    assert [site.id for site in accounts.directory.sites()] == ["acme"]
    actions = [line.action for line in accounts.directory.audit()]
    assert {"store.restore", "secret.put", "user.add"} <= set(actions)


def check_jobs(kesin, store, claimed):
    queue = Queue("task", task_lifecycle(), store)
    assert queue.enqueue(1, key="once", tenant="acme").result == "duplicate"
    assert queue.claim("new", limit=1) == []
    assert store.paused("task")[0].reason.startswith("restored from b, a backup of ")
    assert kesin("resume", "task").code == 0
    assert store.find("task", [claimed.id])[claimed.id].state == "running"  # its lease is not over
    (job,) = queue.claim("new", limit=1)
    changes = [Change(claim.id, claim.claim_seq) for claim in (claimed, job)]
    outcomes = apply_changes(queue, "complete", changes, actor="w")
    assert {outcome.result for outcome in outcomes} == {"moved"}
    store.add_note("task", kind="k", actor="a", job_id=job.id)
    assert kesin("audit", "verify").code == 0


def test_an_installation_is_restored_elsewhere_with_everything(kesin, database, elsewhere, tmp_path, monkeypatch):
    monkeypatch.setenv("KESIN_SECRET_KEYS", new_key("k1"))
    token, claimed = populate(kesin, database, tmp_path)
    manifest = kesin("backup", "b", "--json").json
    assert manifest["queues"]["task"] == {"ready": 3, "running": 1}
    assert manifest["secret_keys"] == ["k1"]
    assert any("KESIN_SECRET_KEYS" in sentence for sentence in manifest["left_out"])
    assert {path.stat().st_mode & 0o077 for path in Path("b").rglob("*")} == {0}
    assert kesin("restore", "b", "--check").lines[-2].startswith("b is complete: ")

    address = elsewhere()
    restored = kesin("restore", "b", "--json")
    assert restored.code == 0, restored.err
    (report,) = [queue for queue in restored.json["queues"] if queue["queue"] == "task"]
    assert (report["jobs"], report["different"], report["counters"]) == (4, 0, "agree")
    assert restored.json["closed_secrets"] == []
    data = load_settings().data_dir
    for name in ("artifacts/pdfs/a/1.pdf", "paths.json", "optiplan/import/order.xlsx"):
        assert (data / name).read_bytes() == Path("data", name).read_bytes()
    assert not list(data.rglob("cut.xml"))  # the saw has read it, and would cut it again
    with closing(open_store(address, migrate=False)) as store:
        check_accounts(store, token)
        check_jobs(kesin, store, claimed)

    again = kesin("restore", "b")
    assert (again.code, "add --replace" in again.err) == (1, True)
    monkeypatch.delenv("KESIN_SECRET_KEYS")
    again = kesin("restore", "b", "--replace", "--resume", "--allow-unsigned")
    assert again.code == 0, again.err
    assert "such as token; KESIN_SECRET_KEYS needs the keys k1" in again.err
    with closing(open_store(address, migrate=False)) as store:
        assert store.paused("task") == []
        queue = Queue("task", task_lifecycle(), store)
        assert queue.stats().total == 4
        assert len(queue.claim("new", limit=1)) == 1


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_backup_of_an_older_schema_is_migrated_by_the_restore(kind, kesin, request, tmp_path):
    tables, _ = kept()
    if kind == "sqlite":
        (tmp_path / "data").mkdir()
        put_into_file(tmp_path / "data" / "kesin.db", 3, tables)
    else:
        address = request.getfixturevalue("empty_postgres")
        with closing(PostgresStore(address, listen=False)) as store:
            put_into_schema(store, 3, tables)
    assert kesin("backup", "b", "--json").json["schema"].keys() == {"1", "2", "3"}
    assert len(kesin("migrate", "--dry-run", "--json").json["outstanding"]) >= 3  # it only read
    answer = kesin("restore", "b", "--replace", "--allow-unsigned")
    assert answer.code == 0, answer.err
    assert "applied 0004_facts" in answer.lines
    assert kesin("migrate", "--dry-run", "--json").json["outstanding"] == []
    with closing(open_store(load_settings().database, migrate=False)) as store:
        task = Queue("task", task_lifecycle(), store)
        assert task.stats().states == {"ready": 2, "running": 1, "done": 1, "failed": 1}
        assert Directory(store).users()[0].name == "ayse"


def test_a_backup_lists_what_is_stored_elsewhere(kesin, fill, monkeypatch):
    fill("task", 1)
    monkeypatch.setenv("KESIN_REDIS_URL", "redis://:hush@127.0.0.1:1/0")
    monkeypatch.setenv("KESIN_PDF_ARTIFACTS", "s3://bucket/pdfs")
    monkeypatch.setenv("KESIN_PDF_TEMPLATES", "own")
    answer = kesin("backup", "b")
    assert answer.code == 0, answer.err
    lines = [line for line in answer.lines if line.startswith("not included: ")]
    for part in ("PDFs and template versions in s3://bucket/pdfs", "templates in own", "PDF jobs in redis://:…@127"):
        assert any(part in line for line in lines)
    assert "hush" not in answer.out + Path("b/manifest.json").read_text()
