"""The installed script against a running service: what it exports, uploads and reports."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.workloads.oci.conftest import ROOT
from tests.workloads.oci.running import Running, changed, running, sale, sales, secrets_in
from tests.workloads.oci.script import (
    ACK,
    ACK_FAILED,
    EXPORT,
    HEARTBEAT,
    VERIFY,
    Script,
    ScriptFailed,
)

COLUMNS = [
    "Order ID",
    "Google Click ID",
    "WBRAID",
    "GBRAID",
    "Conversion name",
    "Conversion time",
    "Conversion value",
    "Conversion currency",
]


@pytest.fixture(scope="module")
def service(request, tmp_path_factory) -> Iterator[Callable[[], Running]]:
    folder = tmp_path_factory.mktemp("service")
    with running(getattr(request, "param", "sqlite"), folder, request) as new_site:
        yield new_site


@pytest.fixture
def server(service) -> Running:
    return service()


@pytest.fixture
def script(server) -> Iterator[Script]:
    """An installed script. Whatever a test does with it, it never tells a secret."""
    one = server.script()
    yield one
    assert secrets_in(one, " ".join(one.said)) == []


@pytest.fixture
def engine() -> Script:
    """A script without a server: for what its upload engine makes of rows."""
    return Script("https://kesin.example.com", "north", "kesin_key")


def item(**other: Any) -> dict[str, Any]:
    """What an export gives."""
    plain = {
        "id": "seal_1",
        "orderId": "order-1",
        "gclid": "Cj0KCQ-click_1",
        "wbraid": "",
        "gbraid": "",
        "conversionName": "Phone sale",
        "conversionTime": "2026-09-20 14:30:00+03:00",
        "conversionValue": 1250.5,
        "conversionCurrency": "TRY",
    }
    return {**plain, **other}


# A run


def test_what_waits_is_uploaded_and_acknowledged(server, script):
    ids = server.enqueue(*sales(3))
    script.run()
    [upload] = script.uploads
    assert upload.applied
    assert upload.offline
    assert upload.columns == COLUMNS
    assert upload.options == {"moneyInMicros": False, "timeZone": "Europe/Istanbul"}
    assert upload.file_name.startswith("kesin-2026-")
    assert len(upload.rows) == 3
    assert script.ids(ACK) == [ids]
    assert script.asked(ACK_FAILED) == []
    assert server.states() == {"COMPLETED": 3}
    assert script.sleeps == []


def test_a_line_has_everything_google_asks_for(server, script):
    server.enqueue(sale())
    script.run()
    [line] = script.lines()
    assert line.pop("Order ID")
    assert line == {
        "Google Click ID": "Cj0KCQ-click_000001",
        "WBRAID": "",
        "GBRAID": "",
        "Conversion name": "Phone sale",
        "Conversion time": "2023-11-12 14:30:00+0300",
        "Conversion value": 1250.5,
        "Conversion currency": "TRY",
    }


def test_each_kind_of_click_id_has_its_column(server, script):
    server.enqueue(
        sale(1), sale(2, gclid="", wbraid="wb-000002"), sale(3, gclid="", gbraid="gb-000003")
    )
    script.run()
    kinds = COLUMNS[1:4]
    assert sorted(tuple(line[kind] for kind in kinds) for line in script.lines()) == [
        ("", "", "gb-000003"),
        ("", "wb-000002", ""),
        ("Cj0KCQ-click_000001", "", ""),
    ]


def test_of_several_click_ids_one_is_sent(engine):
    engine.process(
        item(wbraid="wb-000001", gbraid="gb-000001"),
        item(gclid="", wbraid="wb-000001", gbraid="gb-000001"),
        item(gclid=None, wbraid=" ", gbraid="gb-000001"),
    )
    sent = [[line[kind] for kind in COLUMNS[1:4]] for line in engine.lines()]
    assert sent == [["Cj0KCQ-click_1", "", ""], ["", "wb-000001", ""], ["", "", "gb-000001"]]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("2026-09-20 14:30:00+03:00", "2026-09-20 14:30:00+0300"),
        ("2026-09-20 14:30:00+0300", "2026-09-20 14:30:00+0300"),
        ("2026-09-20 14:30:00-05:30", "2026-09-20 14:30:00-0530"),
        ("2028-02-29 23:59:59+00:00", "2028-02-29 23:59:59+0000"),
        ("2000-02-29 23:59:59+00:00", "2000-02-29 23:59:59+0000"),
        ("2026-12-31 00:00:00+14:00", "2026-12-31 00:00:00+1400"),
    ],
)
def test_an_offset_loses_its_colon_and_nothing_else(engine, given, sent):
    engine.process(item(conversionTime=given))
    assert [line["Conversion time"] for line in engine.lines()] == [sent]


def test_the_site_key_goes_only_into_the_handshake(server, script):
    server.enqueue(sale())
    script.run()
    assert [request.path for request in script.requests] == [VERIFY, EXPORT, ACK, EXPORT, HEARTBEAT]
    assert ["x-api-key" in request.headers for request in script.requests] == [True] + [False] * 4


def test_a_server_without_handshake_gets_the_key(server, script):
    server.enqueue(sale())
    script.in_the_way[VERIFY] = [404]
    script.run()
    assert server.states() == {"COMPLETED": 1}
    assert all("x-api-key" in request.headers for request in script.requests)


def test_the_heartbeat_tells_the_version_and_what_was_done(server, script):
    server.enqueue(*sales(3))
    script.rewrite = changed({"gclid": ""})
    script.run()
    beat = server.heartbeat()
    assert beat.pop("script_version")
    assert beat.pop("at")
    assert beat == {"exported": 3, "acked": 2, "failed": 1}


def test_a_failed_heartbeat_spoils_nothing(server, script):
    server.enqueue(sale())
    script.in_the_way[HEARTBEAT] = [404]
    script.run()
    assert server.states() == {"COMPLETED": 1}


def test_nothing_to_do_uploads_nothing(script):
    script.run()
    assert (script.uploads, script.asked(ACK)) == ([], [])


def test_a_pause_is_told(server, script):
    server.enqueue(sale())
    pause = {"json": {"site": server.site_id}, "headers": server.oci.operator}
    assert server.oci.client.post("/api/queues/oci/pause", **pause).status_code == 200
    script.run()
    assert "paused" in script.said[0]
    assert server.states() == {"QUEUED": 1}


def test_a_site_of_another_channel_is_told_so(server, script):
    server.oci.accounts.set_site(ROOT, server.site_id, channel="api")
    with pytest.raises(ScriptFailed, match=r"answered 409 \(wrong_channel: "):
        script.run()
    assert len(script.asked(EXPORT)) == 1


def test_the_script_of_another_site_gets_nothing(server, script):
    server.enqueue(sale())
    script.key = server.oci.other_key["x-api-key"]
    with pytest.raises(ScriptFailed, match="answered 403"):
        script.run()
    assert server.states() == {"QUEUED": 1}


def test_pages_are_taken_until_nothing_is_left(server, script):
    ids = server.enqueue(*sales(2_500))
    script.run()
    assert [len(upload.rows) for upload in script.uploads] == [1_000, 1_000, 500]
    assert sorted(one for part in script.ids(ACK) for one in part) == sorted(ids)
    paths = [request.path for request in script.requests]
    assert paths == [VERIFY, *(EXPORT, ACK) * 3, EXPORT, HEARTBEAT]
    assert server.states() == {"COMPLETED": 2_500}


def test_no_page_is_begun_when_time_is_up(server, script):
    server.enqueue(*sales(2_500))
    script.apply_takes_ms = 13 * 60 * 1_000
    script.run()
    assert server.states() == {"COMPLETED": 2_000, "QUEUED": 500}
    assert "Time is up" in script.said[0]


# Rows that cannot be sent

BAD = [
    ("MISSING_CLICK_ID", {"gclid": ""}),
    ("MISSING_CLICK_ID", {"gclid": None}),
    ("MISSING_CLICK_ID", {"gclid": "   "}),
    ("INVALID_CLICK_ID_FORMAT", {"gclid": "short"}),
    ("INVALID_CLICK_ID_FORMAT", {"gclid": "a" * 513}),
    ("INVALID_CLICK_ID_FORMAT", {"gclid": "with space"}),
    ("INVALID_CLICK_ID_FORMAT", {"gclid": "line_end\n"}),
    ("INVALID_CLICK_ID_FORMAT", {"gclid": "%7Bgclid%7D"}),
    ("INVALID_CLICK_ID_FORMAT", {"gclid": "bad!!!", "wbraid": "wb-000001"}),
    ("MISSING_TIME", {"conversionTime": ""}),
    ("MISSING_TIME", {"conversionTime": None}),
    ("INVALID_TIME_FORMAT", {"conversionTime": "2026-09-20 14:30:00"}),
    ("INVALID_TIME_FORMAT", {"conversionTime": "2026-09-20T14:30:00+03:00"}),
    ("INVALID_TIME_FORMAT", {"conversionTime": "2026-09-20 14:30:00Z"}),
    ("INVALID_TIME_FORMAT", {"conversionTime": "2026-02-29 14:30:00+03:00"}),
    ("INVALID_TIME_FORMAT", {"conversionTime": "2026-13-01 14:30:00+03:00"}),
    ("INVALID_TIME_FORMAT", {"conversionTime": "2026-04-31 14:30:00+03:00"}),
    ("INVALID_TIME_FORMAT", {"conversionTime": "0000-01-01 14:30:00+03:00"}),
    ("INVALID_TIME_FORMAT", {"conversionTime": "2026-09-20 24:00:00+03:00"}),
    ("INVALID_TIME_FORMAT", {"conversionTime": "2026-09-20 14:60:00+03:00"}),
    ("INVALID_TIME_FORMAT", {"conversionTime": "2026-09-20 14:30:60+03:00"}),
    ("INVALID_TIME_FORMAT", {"conversionTime": "2100-02-29 14:30:00+03:00"}),
    ("INVALID_TIME_FORMAT", {"conversionTime": "2026-09-20 14:30:00+15:00"}),
    ("INVALID_TIME_FORMAT", {"conversionTime": "2026-09-20 14:30:00+03:60"}),
    ("INVALID_TIME_FORMAT", {"conversionTime": 1_790_000_000}),
    ("INVALID_CONVERSION_VALUE", {"conversionValue": -1}),
    ("INVALID_CONVERSION_VALUE", {"conversionValue": None}),
    ("INVALID_CONVERSION_VALUE", {"conversionValue": ""}),
    ("INVALID_CONVERSION_VALUE", {"conversionValue": True}),
    ("INVALID_CONVERSION_VALUE", {"conversionValue": "1.250,50"}),
    ("INVALID_CONVERSION_VALUE", {"conversionValue": "0x10"}),
    ("INVALID_CONVERSION_VALUE", {"conversionValue": "9" * 400}),
    ("INVALID_CONVERSION_VALUE", {"conversionValue": "NaN"}),
]


@pytest.mark.parametrize(("code", "change"), BAD, ids=str)
def test_a_bad_row_is_named_and_not_uploaded(engine, code, change):
    result = engine.process(item(**change), item(id="seal_2"))
    [failed] = result["failedRows"]
    assert failed.pop("errorMessage")
    assert failed == {"queueId": "seal_1", "errorCode": code, "errorCategory": "VALIDATION"}
    assert (result["successIds"], result["uploadFailed"]) == (["seal_2"], False)
    assert len(engine.lines()) == 1


def test_the_first_fault_of_a_row_is_the_one_told(engine):
    faults = [{"conversionValue": -1}, {"conversionTime": "?"}]
    faults += [{"conversionTime": ""}, {"gclid": "short"}, {"gclid": ""}]
    row, told = item(), []
    for fault in faults:
        row |= fault
        told.append(engine.process(row)["failedRows"][0]["errorCode"])
    assert told == list(dict.fromkeys(code for code, _ in BAD))[::-1]


@pytest.mark.parametrize(("given", "sent"), [(0, 0), (12.5, 12.5), ("12.50", 12.5), ("7", 7)])
def test_a_value_is_a_number_or_the_text_of_one(engine, given, sent):
    engine.process(item(conversionValue=given))
    assert [line["Conversion value"] for line in engine.lines()] == [sent]


def test_a_page_of_bad_rows_is_no_upload(server, script):
    server.enqueue(*sales(2))
    script.rewrite = changed({"gclid": ""}, {"conversionValue": -1})
    script.run()
    assert script.uploads == []
    assert script.asked(ACK) == []
    assert server.states() == {"FAILED": 2}


def test_failures_are_reported_in_one_call_a_group(server, script):
    ids = server.enqueue(*sales(6))
    late, dear = {"conversionTime": "yesterday"}, {"conversionValue": "much"}
    script.rewrite = changed(late, dear, late, dear, late)
    script.run()
    calls = [(one.body["errorCode"], one.body["queueIds"]) for one in script.asked(ACK_FAILED)]
    assert calls == [
        ("INVALID_TIME_FORMAT", [ids[0], ids[2], ids[4]]),
        ("INVALID_CONVERSION_VALUE", [ids[1], ids[3]]),
    ]
    assert script.ids(ACK) == [[ids[5]]]
    row = server.row(ids[0])
    assert row[:3] == ("FAILED", "INVALID_TIME_FORMAT", "VALIDATION")
    assert "yyyy-mm-dd HH:mm:ss" in row.message
    assert server.row(ids[5]).state == "COMPLETED"


# Preview


def test_a_preview_changes_nothing(server, script):
    ids = server.enqueue(*sales(2))
    script.preview = True
    script.rewrite = lambda told: {**told, "items": changed({"gclid": ""})(told["items"])}
    script.run()
    assert server.states() == {"QUEUED": 2}
    assert {row.attempts for row in server.rows(ids)} == {0}
    assert script.uploads == []
    assert [request.path for request in script.requests] == [VERIFY, EXPORT]
    assert script.requests[1].query["markAsExported"] == "false"
    assert script.said[0] == "Preview: 2 rows would go, 0 would be skipped."
    assert script.said[1].startswith("Preview: 1 × MISSING_CLICK_ID: ")


def test_a_preview_tells_each_warning_once(script):
    late = {"code": "NOT_DUE", "message": "they wait", "externalId": "+905321234567"}
    script.preview = True
    script.rewrite = lambda told: {**told, "warnings": [late, late, "as plain text"]}
    script.run()
    assert script.said[1:3] == ["Preview: 2 × NOT_DUE: they wait", "Preview: 1 × as plain text"]


# Settings


def test_settings_may_stand_at_the_top(server, script):
    server.enqueue(sale())
    script.config = {
        "baseUrl": f" {server.base_url}// ",
        "siteId": server.site_id,
        "apiKey": server.key,
    }
    script.run()
    assert server.states() == {"COMPLETED": 1}


def test_missing_settings_are_named(server, script):
    script.config = {"baseUrl": server.base_url}
    with pytest.raises(ScriptFailed, match=r"siteId .*KESIN_SITE_ID.*apiKey .*KESIN_API_KEY"):
        script.run()
    assert script.requests == []


@pytest.mark.parametrize(
    "url", ["http://kesin.example.com", "kesin.example.com", "http://localhost.example.com"]
)
def test_a_key_is_not_sent_in_the_clear(script, url):
    script.base_url = url
    with pytest.raises(ScriptFailed, match="must begin with https://"):
        script.run()
    assert script.requests == []


def test_a_site_id_is_quoted(script):
    script.site_id = "north&markAsExported=true&x="
    script.preview = True
    with pytest.raises(ScriptFailed, match="answered 403"):
        script.run()
    asked = script.asked(EXPORT)[0].query
    assert (asked["siteId"], asked["markAsExported"]) == (script.site_id, "false")
