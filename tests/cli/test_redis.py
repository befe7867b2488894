"""Commands while PDFs live in Redis: they read it there, and go on without it."""

import pytest

from tests.redis_server import RedisServer


@pytest.fixture
def server(monkeypatch):
    with RedisServer() as server:
        monkeypatch.setenv("KESIN_REDIS_URL", server.url())
        yield server


def test_queues_in_redis_are_read_like_all_others_and_missed_while_it_is_away(kesin, fill, server):
    ids = fill("pdf", 3)
    fill("task", 2)
    records = {one["queue"]: one for one in kesin("stats", "--json").json}
    assert (records["pdf"]["states"]["queued"], records["task"]["jobs"]) == (3, 2)
    listed = kesin("jobs", "list", "pdf", "--json").json
    assert sorted(one["id"] for one in listed["jobs"]) == sorted(ids)
    assert kesin("jobs", "show", ids[0]).code == 0
    verified = kesin("audit", "verify", "pdf", "--json")
    assert (verified.code, verified.json[0]["differences"]) == (0, [])
    assert kesin("sweep").code == 0  # and somebody was sent for
    told = kesin("doctor").out
    assert "not used" not in told
    assert "no append-only file" in told

    server.kill()
    away = {one["queue"]: one["reachable"] for one in kesin("stats", "--json").json}
    assert (away["pdf"], away["task"]) == (False, True)
    assert "not reachable" in kesin("stats").out
    swept = kesin("sweep")
    assert (swept.code, "pdf was not swept" in swept.err) == (0, True)
    ill = kesin("doctor")
    assert (ill.code, "PDFs wait until then" in ill.out) == (1, True)
    lost = kesin("jobs", "list", "pdf")
    assert (lost.code, "Redis is not reachable" in lost.err) == (1, True)
    assert kesin("jobs", "list", "task").code == 0


def test_rq_is_for_queues_that_are_sent_for_and_live_in_redis(kesin):
    assert "none of these queues" in kesin("worker", "oci", "--rq").err
    for option in ("--handler", "--tenant"):
        assert "leave out --handler" in kesin("worker", "pdf", "--rq", option, "a:b").err
    assert "set KESIN_REDIS_URL" in kesin("worker", "pdf", "--rq").err
