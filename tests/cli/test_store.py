import json

from kesin.store.directory import MetadataEntry
from kesin.store.metadata import metadata_for
from kesin.store.open import open_store
from kesin.workloads.pdf.lifecycle import pdf_lifecycle

QUEUES = ("pdf", "pdf_batches", "pdf_webhooks")


def test_pdf_queues_are_copied_to_redis_with_their_metadata(kesin, tmp_path, redis_server):
    redis = redis_server.empty_url()
    file = tmp_path / "data" / "kesin.db"
    for queue in ("task", *QUEUES):
        assert kesin("enqueue", queue, json.dumps({"n": 1})).code == 0
    store = open_store(file)
    for name in ("ledger", "worker:a"):
        metadata_for(store).put_metadata(MetadataEntry("pdf", "", name, "7", 5))
    metadata_for(store).put_metadata(MetadataEntry("pdf_transient", "", "a job", '"sealed"', 5))
    store.close()

    for words, code, reason in (
        ((file, redis), 2, "add --yes"),
        ((file, redis, "--queue", "pdf", "--yes"), 2, "move together"),
        ((tmp_path / "none.db", redis, "--yes"), 1, "there is no database"),
        ((file, "redis://127.0.0.1:1", "--yes"), 1, "not reachable"),
    ):
        refused = kesin("store", "copy", *words)
        assert (refused.code, reason in refused.err) == (code, True)

    answer = kesin("store", "copy", file, redis, "--yes", "--json")
    assert answer.code == 0, answer.err
    assert {copy["queue"]: copy["jobs"] for copy in answer.json} == dict.fromkeys(QUEUES, 1)
    assert {len(copy["digest"]) for copy in answer.json} == {64}
    there = open_store(redis)
    there.open("pdf", pdf_lifecycle())
    assert there.paused("pdf") == []
    entries = metadata_for(there).metadata_entries("pdf")
    assert [(entry.name, entry.value) for entry in entries] == [("ledger", "7")]
    assert metadata_for(there).metadata_entries("pdf_transient") == []
    assert there.stats("pdf").total == 1
    there.close()
    again = kesin("store", "copy", file, redis, "-y")
    assert "is in use now" in again.out, again.err
    assert kesin("resume", "pdf").lines == ["resumed pdf"]


def test_a_file_is_copied_to_postgres_with_everything(kesin, tmp_path, empty_postgres, monkeypatch):
    monkeypatch.delenv("KESIN_DATABASE_URL")
    file = tmp_path / "data" / "kesin.db"
    assert kesin("enqueue", "task", "1").code == 0
    assert kesin("pause", "task", "--reason", "lunch").code == 0
    assert kesin("site", "add", "acme").code == 0
    assert kesin("key", "create", "--name", "script", "--scope", "pdf").code == 0
    log = [line["action"] for line in kesin("audit", "log", "--json").json]
    answer = kesin("store", "copy", file, empty_postgres, "--yes")
    assert answer.code == 0, answer.err
    assert "task" in answer.out
    monkeypatch.setenv("KESIN_DATABASE_URL", empty_postgres)
    assert [site["id"] for site in kesin("site", "list", "--json").json] == ["acme"]
    assert [key["name"] for key in kesin("key", "list", "--json").json] == ["script"]
    assert [line["action"] for line in kesin("audit", "log", "--json").json] == log
    assert kesin("resume", "task").lines == ["resumed task"]
    assert kesin("audit", "verify").code == 0
