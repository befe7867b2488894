import json

import pytest

from kesin.store.directory import MetadataEntry
from kesin.store.metadata import metadata_for
from kesin.store.open import open_store
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.redis_server import COPIES

QUEUES = ("pdf", "pdf_batches", "pdf_webhooks")


@pytest.fixture
def redis(redis_server):
    """The address of an empty Redis."""
    address = redis_server.url(COPIES)
    store = open_store(address)
    store.client.flushdb()
    yield address
    store.client.flushdb()
    store.close()


def test_pdf_queues_move_to_redis_with_what_belongs_to_them(kesin, tmp_path, redis):
    file = tmp_path / "data" / "kesin.db"
    for queue in ("task", *QUEUES):
        assert kesin("enqueue", queue, json.dumps({"n": 1})).code == 0
    store = open_store(file)
    for name in ("ledger", "worker:a"):
        metadata_for(store).put_metadata(MetadataEntry("pdf", "", name, "7", 5))
    store.close()

    asks = kesin("store", "copy", file, redis)
    assert (asks.code, "add --yes" in asks.err) == (2, True)
    part = kesin("store", "copy", file, redis, "--queue", "pdf", "--yes")
    assert (part.code, "move together" in part.err) == (2, True)
    away = kesin("store", "copy", tmp_path / "none.db", redis, "--yes")
    assert (away.code, "there is no database" in away.err) == (1, True)
    gone = kesin("store", "copy", file, "redis://127.0.0.1:1", "--yes")
    assert (gone.code, "not reachable" in gone.err) == (1, True)

    answer = kesin("store", "copy", file, redis, "--yes", "--json")
    assert answer.code == 0, answer.err
    told = {one["queue"]: one for one in answer.json}
    assert {name: one["jobs"] for name, one in told.items()} == dict.fromkeys(QUEUES, 1)
    assert len(told["pdf"]["digest"]) == 64
    there = open_store(redis)
    there.open("pdf", pdf_lifecycle())
    assert there.paused("pdf") == []
    assert [(one.name, one.value) for one in metadata_for(there).metadata_entries("pdf")] == [
        ("ledger", "7")
    ]
    assert there.stats("pdf").total == 1
    there.close()
    again = kesin("store", "copy", file, redis, "--yes")
    assert "works from now on" in again.out, again.err
    assert kesin("resume", "pdf").lines == ["resumed pdf"]


def test_everything_of_a_file_moves_to_postgres(kesin, tmp_path, empty_postgres, monkeypatch):
    monkeypatch.delenv("KESIN_DATABASE_URL")
    file = tmp_path / "data" / "kesin.db"
    assert kesin("enqueue", "task", "1").code == 0
    assert kesin("pause", "task", "--reason", "lunch").code == 0
    assert kesin("site", "add", "acme").code == 0
    assert kesin("key", "create", "--name", "script", "--scope", "pdf").code == 0
    log = [one["action"] for one in kesin("audit", "log", "--json").json]
    answer = kesin("store", "copy", file, empty_postgres, "--yes")
    assert answer.code == 0, answer.err
    assert "task" in answer.out
    monkeypatch.setenv("KESIN_DATABASE_URL", empty_postgres)
    assert [one["id"] for one in kesin("site", "list", "--json").json] == ["acme"]
    assert [one["name"] for one in kesin("key", "list", "--json").json] == ["script"]
    assert [one["action"] for one in kesin("audit", "log", "--json").json] == log
    assert kesin("resume", "task").lines == ["resumed task"]
    assert kesin("audit", "verify").code == 0
