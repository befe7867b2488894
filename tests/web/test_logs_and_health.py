"""Logs, metrics and health checks of requests and of the service."""

from kesin.foundation.logs import set_up_logs
from kesin.store.errors import StoreUnreachable
from kesin.web.rate_limit import network_of


def test_a_request_is_logged_by_its_route_and_not_by_what_it_names(world, capsys):
    job = world.job()
    set_up_logs("json", "info")
    world.client.get(f"/api/jobs/{job}?secret=hunter2", headers=world.key("read"))
    written = capsys.readouterr().err
    assert '"route": "/api/jobs/{job_id}"' in written
    assert '"status": 422' in written  # no such parameter
    assert job not in written
    assert "hunter2" not in written


def test_numbers_count_requests_by_route(world):
    world.client.get("/api/queues/task/stats", headers=world.key("read"))
    page = world.client.get("/metrics", headers=world.key("metrics")).text
    route = 'method="GET",route="/api/queues/{queue}/stats",status="200"'
    assert f"kesin_http_requests_total{{{route}}} 1.0" in page


def test_methods_that_callers_invent_are_counted_as_one(world):
    for method in ("BREW", "WHEN"):
        assert world.client.request(method, "/health/live").status_code == 405
    page = world.client.get("/metrics", headers=world.key("metrics")).text
    assert 'method="other"' in page
    assert "BREW" not in page


# Health


def test_ready_says_what_is_not(world, monkeypatch):
    def broken() -> None:
        raise StoreUnreachable("password=hunter2")

    monkeypatch.setattr(world.store, "ping", broken)
    answer = world.client.get("/health/ready")
    assert answer.status_code == 503
    assert answer.json()["status"] == "not_ready"
    away = {"ok": False, "detail": "the store is not responding"}
    assert answer.json()["checks"]["store"] == away


def test_the_docs_load_nothing_from_elsewhere(client):
    page = client.get("/docs").text
    assert "//" not in page.replace("<!--", "")
    assert "<script>" not in page
    assert "style=" not in page


def test_addresses_of_one_ipv6_subscriber_count_as_one():
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1")
    assert network_of("2001:db8:0:1::1") != network_of("2001:db8::1")
    assert network_of("192.0.2.1") != network_of("192.0.2.2")
