"""The script simulator against a listening service with a manual clock."""

import random

import pytest

from kesin.foundation.problems import Invalid, Problem, Unavailable
from kesin.workloads.common.api_client import ApiResponse, checked_url, is_loopback, over_http
from kesin.workloads.oci.cli.script_simulator import Crash, ScriptRun, ScriptSimulator
from tests.workloads.oci.own_site import MINUTE
from tests.workloads.oci.running import Running, sale

LEASE_S = 16 * MINUTE


def simulate(site: Running, seed: int = 1, **how) -> ScriptSimulator:
    return ScriptSimulator(over_http(site.base_url, site.key), site.site_id, rng=random.Random(seed), **how)


def test_a_run_takes_page_after_page_and_acknowledges_every_row(server):
    server.enqueue(*(sale(n) for n in range(25)))
    script = simulate(server, limit=10)
    assert script.run() == ScriptRun(exported=25, acked=25)
    assert server.states() == {"COMPLETED": 25}
    assert len(script.uploaded) == 25
    assert script.repeated == 0
    beat = server.heartbeat()
    assert beat is not None
    assert (beat["script_version"], beat["exported"], beat["acked"]) == ("simulator", 25, 25)


def test_a_share_of_the_rows_fails_with_codes_that_say_they_are_simulated(server):
    ids = server.enqueue(*(sale(n) for n in range(60)))
    ran = simulate(server, fail_share=0.3).run()
    assert 8 <= ran.failed <= 30
    assert server.states() == {"COMPLETED": ran.acked, "FAILED": ran.failed}
    failed = [row for row in server.rows(ids) if row.state == "FAILED"]
    assert {one.category for one in failed} == {"VALIDATION"}
    assert len({one.code for one in failed}) > 1
    assert all((one.message or "").startswith("simulated") for one in failed)


def test_an_upload_that_throws_fails_all_its_rows_for_now_and_ends_the_run(server):
    server.enqueue(*(sale(n) for n in range(6)))
    script = simulate(server, upload_error_share=1, limit=4)
    assert script.run() == ScriptRun(exported=4, failed=4)
    assert server.states() == {"FAILED": 4, "QUEUED": 2}
    assert not script.uploaded
    server.pass_time(7 * MINUTE)
    server.sweep()
    assert simulate(server).run().acked == 6


def test_every_crash_is_mended_by_the_clock_and_the_next_run(server):
    for number, crash in enumerate(Crash):
        server.enqueue(*(sale(10 * number + n) for n in range(5)))
        script = simulate(server)
        crashed = script.run(crash)
        assert (crashed.exported, crashed.acked, crashed.crashed) == (5, 0, crash)
        assert server.states()["PROCESSING"] == 5
        assert len(script.uploaded) == (0 if crash == Crash.AFTER_EXPORT else 5)
        server.pass_time(LEASE_S)
        server.sweep()
        assert script.run() == ScriptRun(exported=5, acked=5)
        assert script.repeated == len(script.uploaded) - 5 * (crash == Crash.AFTER_EXPORT)
    assert server.states() == {"COMPLETED": 15}


def test_the_same_seed_plays_the_same_and_another_does_not():
    def acked(seed: int) -> list[str]:
        pages = [[{"id": f"seal_{n}", "orderId": f"k{n}"} for n in range(60)], []]
        acked_ids: list[str] = []

        def send(_method, path, body):
            if "export" in path:
                return ApiResponse(200, {}, pages.pop(0))
            acked_ids.extend(body["queueIds"] if path.endswith("/ack") else [])
            return ApiResponse(200, {}, {"refused": []})

        chance = random.Random(seed)
        ScriptSimulator(send, "s", rng=chance, fail_share=0.4).run()
        return acked_ids

    assert acked(3) == acked(3)
    assert acked(3) != acked(4)


def test_a_row_that_could_be_sent_can_be_sent_again(server):
    server.enqueue(*(sale(n) for n in range(40)))
    script = simulate(server, fail_share=0.3)
    first = script.run(Crash.BEFORE_ACK)
    assert first.failed > 0
    assert server.states() == {"FAILED": first.failed, "PROCESSING": 40 - first.failed}
    server.pass_time(LEASE_S)
    server.sweep()
    assert script.run() == ScriptRun(exported=40 - first.failed, acked=40 - first.failed)
    assert script.repeated == 40 - first.failed


def test_a_paused_site_hands_out_nothing(server):
    server.enqueue(sale())
    server.oci.queue.pause(actor="test", tenant=server.site_id)
    assert simulate(server).run() == ScriptRun(paused=True)
    assert server.states() == {"QUEUED": 1}


def test_refusals_of_the_server_say_what_to_do(server, service):
    stranger = service()
    with pytest.raises(Problem, match=r"returned 401: .*wrong, expired or revoked"):
        ScriptSimulator(over_http(server.base_url, "no-key"), server.site_id, rng=random.Random(1)).run()
    with pytest.raises(Problem, match=r"returned 403: .*oci:script scope for this site"):
        ScriptSimulator(over_http(server.base_url, server.key), stranger.site_id, rng=random.Random(1)).run()


def test_a_server_that_is_none_is_told_apart(server):
    gone = ScriptSimulator(over_http("http://127.0.0.1:9", "k"), "s", rng=random.Random(1))
    with pytest.raises(Unavailable, match="is `kesin serve` running"):
        gone.run()
    other = ScriptSimulator(lambda *_: ApiResponse(200, {}, {"hello": 1}), "s", rng=random.Random(1))
    with pytest.raises(Problem, match="the export is not a list"):
        other.run()
    moved = ScriptSimulator(lambda *_: ApiResponse(302, {}, None), "s", rng=random.Random(1))
    with pytest.raises(Problem, match="returned 302"):
        moved.run()


def test_what_is_no_address_is_refused():
    wrong = ["", "127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://user@host", "http://host:x"]
    for url in [*wrong, "http://host/?a=b", "http://[::1"]:
        with pytest.raises(Invalid, match="not a server address"):
            checked_url(url)


def test_loopback_is_this_machine_only():
    ours = ["http://127.0.0.1:8000", "http://127.9.9.9", "http://[::1]:80", "https://localhost"]
    others = ["http://10.0.0.1", "https://kesin.example.com", "http://localhost.example.com"]
    assert all(map(is_loopback, ours))
    assert not any(map(is_loopback, others))
    assert checked_url("http://localhost:8000/") == "http://localhost:8000"
