"""Commands while PDF queues are in Redis, and while Redis is unreachable."""

from contextlib import closing

import pytest

from kesin.engine.queue import Queue
from kesin.store.open import open_redis
from kesin.workloads.pdf.lifecycle import webhook_lifecycle
from tests.redis_server import RedisServer


@pytest.fixture
def server(monkeypatch):
    with RedisServer() as server:
        monkeypatch.setenv("KESIN_REDIS_URL", server.url())
        yield server


def test_queues_in_redis_are_read_like_others_and_reported_while_unreachable(kesin, fill, server, monkeypatch):
    assert "RQ pushes no jobs of these queues" in kesin("worker", "oci", "--rq").err
    for option in ("--handler", "--tenant"):
        assert "omit --handler" in kesin("worker", "pdf", "--rq", option, "a:b").err
    ids = fill("pdf", 3)
    fill("task", 2)
    records = {record["queue"]: record for record in kesin("stats", "--json").json}
    assert (records["pdf"]["states"]["queued"], records["task"]["jobs"]) == (3, 2)
    listed = kesin("jobs", "list", "pdf", "--json").json
    assert sorted(job["id"] for job in listed["jobs"]) == sorted(ids)
    assert kesin("jobs", "show", ids[0]).code == 0
    verified = kesin("audit", "verify", "pdf", "--json")
    assert (verified.code, verified.json[0]["differences"]) == (0, [])
    assert kesin("sweep").code == 0
    report = kesin("doctor").out
    assert "not used" not in report
    assert "no append-only file" in report

    server.kill()
    idle = kesin("worker", "pdf", "--rq", "--until-idle")
    assert idle.code == 1
    assert idle.err.splitlines()[-1].startswith("kesin: Redis is not reachable")
    away = {record["queue"]: record["reachable"] for record in kesin("stats", "--json").json}
    assert (away["pdf"], away["task"]) == (False, True)
    assert "not reachable" in kesin("stats").out
    swept = kesin("sweep")
    assert (swept.code, "pdf was not swept" in swept.err) == (0, True)
    ill = kesin("doctor")
    assert (ill.code, "PDFs wait until then" in ill.out) == (1, True)
    lost = kesin("jobs", "list", "pdf")
    assert (lost.code, "Redis is not reachable" in lost.err) == (1, True)
    assert kesin("jobs", "list", "task").code == 0
    monkeypatch.delenv("KESIN_REDIS_URL")
    assert "set KESIN_REDIS_URL" in kesin("worker", "pdf", "--rq").err


def test_jobs_left_in_the_database_are_reported_until_they_are_copied(kesin, fill, server, monkeypatch, tmp_path):
    monkeypatch.delenv("KESIN_REDIS_URL")
    ids = fill("pdf", 3)
    fill("pdf_webhooks", 1)
    assert kesin("jobs", "act", "pdf", "cancel", ids[0]).code == 0
    monkeypatch.setenv("KESIN_REDIS_URL", server.url())

    def left_behind() -> dict[str, int]:
        checks = kesin("doctor", "--json").json["checks"]
        left = [check for check in checks if "store copy" in check["remedy"]]
        return {check["name"]: int(check["found"].split()[-1]) for check in left}

    assert left_behind() == {"pdf before redis": 2, "pdf_webhooks before redis": 1}
    started = kesin("serve", "--no-workers", "--host", "0.0.0.0", "--port", 0)
    assert started.code == 1  # there is no account
    assert started.err.count("jobs_left_in_database") == 2
    kesin("store", "copy", tmp_path / "data" / "kesin.db", server.url(), "--yes")
    assert left_behind() == {}


def test_doctor_warns_of_overdue_batches_and_webhooks_and_needs_no_database(kesin, server, monkeypatch, tmp_path):
    assert "no append-only file" in kesin("doctor").out
    assert not (tmp_path / "data").exists()
    monkeypatch.setenv("KESIN_PDF_PROCESSES", "0")

    def workers() -> tuple[str, str]:
        checks = kesin("doctor", "--json").json["checks"]
        [check] = [check for check in checks if check["name"] == "redis workers"]
        return check["status"], check["found"]

    assert workers()[0] == "ok"
    with closing(open_redis(server.url())) as store:
        queue = Queue("pdf_webhooks", webhook_lifecycle(), store)
        queue.enqueue({}, run_at=queue.stats().now - 61_000_000)
    assert workers() == ("warning", "no worker runs pdf_webhooks: jobs have waited over 60 s")
