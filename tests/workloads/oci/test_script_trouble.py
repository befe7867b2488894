"""The script with failures: every exported row is reported or recovered, and counts once."""

import json
import socket
import threading
from collections import Counter

import httpx
import pytest

from tests.workloads.oci.running import changed, sale, sales, secrets_in
from tests.workloads.oci.script import (
    ACK,
    ACK_FAILED,
    EXPORT,
    HEARTBEAT,
    LOST,
    NETWORK,
    VERIFY,
    Killed,
    Reply,
    ScriptFailed,
)

LEASE_S = 15 * 60
TOKEN_S = 300
EACH_DATABASE = pytest.mark.parametrize("service", ["sqlite", "postgres"], indirect=True)


# An upload that fails


def test_an_upload_that_throws_is_reported_and_never_acknowledged(server, script):
    ids = server.enqueue(*sales(13))
    script.page_rows = 10
    script.rewrite = changed({"gclid": ""})
    script.apply_throws = "Bulk uploads are away; Cj0KCQ-click_000002 was not read"
    with pytest.raises(ScriptFailed, match="did not accept the upload"):
        script.run()
    assert script.requests_to(ACK) == []
    assert script.ids(ACK_FAILED) == [ids[:1], ids[1:10]]
    assert server.states() == {"FAILED": 10, "QUEUED": 3}  # no further page is begun
    assert len(script.requests_to(HEARTBEAT)) == 1
    hidden = "Bulk uploads are away; *** was not read"
    assert server.row(ids[1]) == ("FAILED", "UPLOAD_EXCEPTION", "TRANSIENT", hidden, 1)
    assert server.row(ids[0]).code == "MISSING_CLICK_ID"


# Trouble on the way


def test_what_may_pass_is_tried_again(server, script):
    server.enqueue(sale())
    script.in_the_way[EXPORT] = [429, NETWORK]
    script.in_the_way[ACK] = [503, 599]
    script.run()
    assert server.states() == {"COMPLETED": 1}
    for first, second in (script.sleeps[:2], script.sleeps[2:]):
        assert 1_500 <= first < 2_000
        assert 3_000 <= second < 3_500


def test_five_attempts_and_then_no_more_and_no_two_scripts_pause_in_step(server, script):
    other = server.script(seed=2)
    for one in (script, other):
        one.in_the_way[EXPORT] = [503] * 20
        with pytest.raises(ScriptFailed, match="HTTP 503"):
            one.run()
    assert script.sleeps != other.sleeps
    assert len(script.requests_to(EXPORT)) == 5
    assert [ms // 1_500 * 1_500 for ms in script.sleeps] == [1_500, 3_000, 6_000, 12_000]


def test_a_refusal_is_not_asked_twice_and_a_redirect_not_followed(server, script):
    away = Reply(307, {"Location": "https://elsewhere.example/"})
    for number, (status, answer) in enumerate(((400, 400), (422, 422), (307, away)), 1):
        script.in_the_way[EXPORT] = [answer]
        with pytest.raises(ScriptFailed, match=f"HTTP {status}"):
            script.run()
        assert (len(script.requests_to(EXPORT)), script.sleeps) == (number, [])


def test_a_page_of_somebody_else_is_no_export(script):
    script.in_the_way[EXPORT] = [200]
    with pytest.raises(ScriptFailed, match="not a list"):
        script.run()
    script.preview = True
    script.in_the_way[EXPORT] = [200]
    with pytest.raises(ScriptFailed, match="no counts"):
        script.run()


def test_a_page_of_somebody_else_is_no_receipt_for_an_ack(server, script):
    for number, text in enumerate(("<html>Welcome</html>", '{"status": "welcome"}'), 1):
        server.enqueue(sale(number))
        script.in_the_way[ACK] = [Reply(200, {}, text)]
        with pytest.raises(ScriptFailed, match="1 rows could not be reported"):
            script.run()
        assert server.states() == {"PROCESSING": number}


def test_a_server_that_names_a_time_is_left_alone_until_then(server, script):
    expected = {"20": 20_000, "Mon, 21 Sep 2026 14:13:40 GMT": 20_000, "1": 1_500, "soon": 1_500}
    for retry_after, least in expected.items():
        fresh = server.script()
        fresh.in_the_way[EXPORT] = [Reply(429, {"RETRY-AFTER": retry_after})]
        fresh.run()
        [pause] = fresh.sleeps
        assert least <= pause < least + 500, retry_after
    script.in_the_way[EXPORT] = [Reply(429, {"Retry-After": "241"})]  # so long that the next run comes first
    with pytest.raises(ScriptFailed, match="429"):
        script.run()
    assert script.sleeps == []


def test_no_pause_reaches_beyond_the_end_of_the_run(server, script):
    server.enqueue(sale())
    script.apply_takes_ms = 29 * 60 * 1_000 - 1_000
    script.in_the_way[ACK] = [503]
    with pytest.raises(ScriptFailed, match="1 rows could not be reported"):
        script.run()
    assert script.sleeps == []


# Tokens


def test_a_token_that_ended_is_renewed(server, script):
    server.enqueue(sale())
    script.before[ACK] = lambda: server.pass_time(TOKEN_S + 1)
    script.run()
    assert server.states() == {"COMPLETED": 1}
    assert [one.status for one in script.requests_to(ACK)] == [401, 200]
    assert len(script.requests_to(VERIFY)) == 2
    assert script.sleeps == []


def test_a_token_is_renewed_once_a_call(script):
    script.in_the_way[EXPORT] = [401, 401, 401]
    with pytest.raises(ScriptFailed, match="HTTP 401"):
        script.run()
    assert (len(script.requests_to(VERIFY)), len(script.requests_to(EXPORT))) == (2, 2)


def test_a_wrong_key_is_told_without_naming_it(server, script):
    script.key = "kesin_wrong_0123456789"
    with pytest.raises(ScriptFailed, match="HTTP 401") as failed:
        script.run()
    assert secrets_in(script, str(failed.value)) == []
    assert len(script.requests_to(EXPORT)) == 1


def test_a_refusal_that_repeats_the_key_is_told_without_it(script):
    body = {"error": {"code": "forbidden", "message": f"no entry for {script.key}"}}
    script.in_the_way[EXPORT] = [Reply(403, {}, json.dumps(body))]
    with pytest.raises(ScriptFailed, match=r"forbidden: no entry for \*\*\*") as failed:
        script.run()
    assert secrets_in(script, str(failed.value)) == []


# Acknowledgements that get lost


def test_an_ack_whose_answer_is_lost_is_sent_again(server, script):
    server.enqueue(*sales(2))
    script.in_the_way[ACK] = [LOST]
    script.run()
    assert server.states() == {"COMPLETED": 2}
    assert len(script.requests_to(ACK)) == 2


def test_an_ack_that_cannot_be_delivered_is_logged_and_ends_the_run(server, script):
    ids = server.enqueue(*sales(12))
    script.page_rows = 10
    script.rewrite = changed({"gclid": ""})
    script.in_the_way[ACK] = [NETWORK] * 5
    with pytest.raises(ScriptFailed, match="9 rows could not be reported"):
        script.run()
    assert any("ACK NOT DELIVERED for 9 of 9 rows" in line for line in script.logged)
    assert server.row(ids[0]).code == "MISSING_CLICK_ID"
    assert server.states() == {"FAILED": 1, "PROCESSING": 9, "QUEUED": 2}


def test_a_report_that_cannot_be_delivered_loses_no_ack_and_no_other_report(server, script):
    ids = server.enqueue(*sales(3))
    script.rewrite = changed({"gclid": ""}, {"conversionValue": -1})
    script.in_the_way[ACK_FAILED] = [400]
    with pytest.raises(ScriptFailed, match="1 rows could not be reported"):
        script.run()
    states = [row.state for row in server.rows(ids)]
    assert states == ["PROCESSING", "FAILED", "COMPLETED"]


def test_ids_go_in_parts_and_a_lost_part_stops_no_other(server, script):
    ids = [f"seal_{number}" for number in range(2_300)]
    receipt = Reply(200, {}, '{"ok": true, "updated": 1}')
    script.in_the_way[ACK] = [receipt, 403, receipt]
    settings = {"baseUrl": server.base_url, "siteId": server.site_id, "apiKey": server.key}
    with pytest.raises(ScriptFailed, match="HTTP 403"):
        script.evaluate(f"new QuantumClient({json.dumps(settings)}, Date.now()).sendAck({json.dumps(ids)})")
    assert [len(one.body["queueIds"]) for one in script.requests_to(ACK)] == [1_000, 1_000, 300]


# Death


@EACH_DATABASE
@pytest.mark.parametrize("moment", ["exported", "applied", "acking"])
def test_a_script_that_dies_loses_nothing(server, script, moment):
    ids = server.enqueue(*sales(2))
    script.dies = moment
    with pytest.raises(Killed):
        script.run()
    assert server.states() == {"PROCESSING": 2}
    script.run()  # the rows are still somebody's
    assert server.states() == {"PROCESSING": 2}

    server.pass_time(LEASE_S + 1)
    server.sweep()
    assert server.states() == {"RETRY": 2}
    script.run()
    assert [row[::4] for row in server.rows(ids)] == [("COMPLETED", 2)] * 2
    sent = Counter(line["Order ID"] for line in script.lines())
    assert len(sent) == 2
    assert set(sent.values()) == {1 if moment == "exported" else 2}  # Google counts them once
    server.enqueue(sale(3))
    script.dies = "acked"
    with pytest.raises(Killed):
        script.run()
    assert server.states() == {"COMPLETED": 3}  # after the ack it has done its work


# A producer whose file breaks off


def test_of_a_file_that_breaks_off_nothing_is_taken(server):
    body = "".join(json.dumps(row) + "\n" for row in sales(20)).encode()
    at = httpx.URL(server.base_url)
    head = (
        f"POST /api/oci/conversions?siteId={server.site_id} HTTP/1.1\r\n"
        f"host: {at.host}:{at.port}\r\nx-api-key: {server.site.producer['x-api-key']}\r\n"
        f"content-type: application/x-ndjson\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((at.host, at.port)) as line:
        line.sendall(head.encode() + body[: len(body) // 2])
    assert len(server.enqueue(*sales(20))) == 20  # which are queued: none is known


# Two at once


@EACH_DATABASE
def test_two_scripts_at_once_share_no_row(server):
    ids = server.enqueue(*sales(45))
    scripts = [server.script(seed=seed, page_rows=30) for seed in (1, 2)]
    together = threading.Barrier(2, timeout=30)
    for script in scripts:
        script.before[EXPORT] = together.wait
    threads = [threading.Thread(target=script.run) for script in scripts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    orders = [line["Order ID"] for script in scripts for line in script.lines()]
    assert len(orders) == len(set(orders)) == len(ids)
    assert server.states() == {"COMPLETED": 45}
    assert {row.attempts for row in server.rows(ids)} == {1}
