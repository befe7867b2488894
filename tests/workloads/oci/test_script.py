"""The installed script against a running service: what it exports, uploads and reports."""

from typing import Any

import pytest

from tests.web.conftest import ROOT
from tests.workloads.oci.running import changed, sale, sales
from tests.workloads.oci.script import ACK, ACK_FAILED, EXPORT, HEARTBEAT, VERIFY, Script, ScriptFailed

CLICK_COLUMNS = ["Google Click ID", "WBRAID", "GBRAID"]
COLUMNS = [
    *("Order ID", *CLICK_COLUMNS, "Conversion name", "Conversion time"),
    *("Conversion value", "Conversion currency"),
]


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


def test_rows_are_uploaded_and_acknowledged_and_the_key_goes_only_into_the_handshake(server, script):
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
    assert script.requests_to(ACK_FAILED) == []
    assert server.states() == {"COMPLETED": 3}
    assert script.sleeps == []
    assert [request.path for request in script.requests] == [VERIFY, EXPORT, ACK, EXPORT, HEARTBEAT]
    assert ["x-api-key" in request.headers for request in script.requests] == [True] + [False] * 4
    assert script.requests[1].query["limit"] == "1000"


def test_a_line_has_all_columns_and_each_kind_of_click_id_its_own(server, script):
    server.enqueue(sale(1), sale(2, gclid="", wbraid="wb-000002"), sale(3, gclid="", gbraid="gb-000003"))
    script.run()
    first, *_ = lines = sorted(script.lines(), key=lambda line: line["GBRAID"] + line["WBRAID"])
    assert [tuple(line[column] for column in CLICK_COLUMNS) for line in lines] == [
        ("Cj0KCQ-click_000001", "", ""),
        ("", "", "gb-000003"),
        ("", "wb-000002", ""),
    ]
    assert first.pop("Order ID")
    assert first == {
        "Google Click ID": "Cj0KCQ-click_000001",
        "WBRAID": "",
        "GBRAID": "",
        "Conversion name": "Phone sale",
        "Conversion time": "2023-11-12 14:30:00+0300",
        "Conversion value": 1250.5,
        "Conversion currency": "TRY",
    }


def test_of_several_click_ids_one_is_sent(engine):
    engine.process(
        item(wbraid="wb-000001", gbraid="gb-000001"),
        item(gclid="", wbraid="wb-000001", gbraid="gb-000001"),
        item(gclid=None, wbraid=" ", gbraid="gb-000001"),
    )
    sent = [[line[kind] for kind in CLICK_COLUMNS] for line in engine.lines()]
    assert sent == [["Cj0KCQ-click_1", "", ""], ["", "wb-000001", ""], ["", "", "gb-000001"]]


def test_an_offset_loses_its_colon_and_nothing_else(engine):
    times = {
        "2026-09-20 14:30:00+03:00": "2026-09-20 14:30:00+0300",
        "2026-09-20 14:30:00+0300": "2026-09-20 14:30:00+0300",
        "2026-09-20 14:30:00-05:30": "2026-09-20 14:30:00-0530",
        "2028-02-29 23:59:59+00:00": "2028-02-29 23:59:59+0000",
        "2000-02-29 23:59:59+00:00": "2000-02-29 23:59:59+0000",
        "2026-12-31 00:00:00+14:00": "2026-12-31 00:00:00+1400",
    }
    engine.process(*(item(conversionTime=given) for given in times))
    assert [line["Conversion time"] for line in engine.lines()] == list(times.values())


def test_a_server_without_handshake_and_heartbeat_gets_the_key(server, script):
    server.enqueue(sale())
    script.in_the_way[VERIFY] = script.in_the_way[HEARTBEAT] = [404]
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


def test_a_run_says_how_many_of_its_reports_kesin_refused(server, script):
    server.enqueue(*sales(2))
    script.rewrite = changed({"id": "seal_unknown"})
    script.run()
    done = "Done: 2 claimed, 2 uploaded, 0 failed."
    assert f"{done} Kesin refused the report on 1 of them." in script.logged
    script.rewrite = changed()
    server.enqueue(sale(9))
    script.run()
    assert "Done: 1 claimed, 1 uploaded, 0 failed." in script.logged


def test_a_pause_is_told(server, script):
    server.enqueue(sale())
    server.site.pause()
    script.run()
    assert "paused" in script.logged[0]
    assert server.states() == {"QUEUED": 1}


def test_a_site_of_another_channel_is_told_so(server, script):
    server.oci.accounts.set_site(ROOT, server.site_id, channel="api")
    with pytest.raises(ScriptFailed, match=r"HTTP 409 \(wrong_channel: "):
        script.run()
    assert len(script.requests_to(EXPORT)) == 1


def test_pages_are_taken_until_time_is_up_or_nothing_is_left(server, script):
    ids = server.enqueue(*sales(21))
    script.page_rows = 10
    script.apply_takes_ms = 13 * 60 * 1_000
    script.run()
    assert server.states() == {"COMPLETED": 20, "QUEUED": 1}
    assert "Time is up" in script.logged[0]
    script.run()
    assert [len(upload.rows) for upload in script.uploads] == [10, 10, 1]
    assert sorted(row_id for part in script.ids(ACK) for row_id in part) == sorted(ids)
    paths = [request.path for request in script.requests]
    assert paths == [*(VERIFY, EXPORT, ACK, EXPORT, ACK, HEARTBEAT), *(VERIFY, EXPORT, ACK, EXPORT, HEARTBEAT)]
    assert server.states() == {"COMPLETED": 21}


# Rows that cannot be sent

BAD_VALUES: dict[str, tuple[str, list[Any]]] = {
    "MISSING_CLICK_ID": ("gclid", ["", None, "   "]),
    "INVALID_CLICK_ID_FORMAT": ("gclid", ["short", "a" * 513, "with space", "line_end\n", "%7Bgclid%7D"]),
    "MISSING_TIME": ("conversionTime", ["", None]),
    "INVALID_TIME_FORMAT": (
        "conversionTime",
        [
            "2026-09-20 14:30:00",
            "2026-09-20T14:30:00+03:00",
            "2026-09-20 14:30:00Z",
            "2026-02-29 14:30:00+03:00",
            "2026-13-01 14:30:00+03:00",
            "2026-04-31 14:30:00+03:00",
            "0000-01-01 14:30:00+03:00",
            "2026-09-20 24:00:00+03:00",
            "2026-09-20 14:60:00+03:00",
            "2026-09-20 14:30:60+03:00",
            "2100-02-29 14:30:00+03:00",
            "2026-09-20 14:30:00+15:00",
            "2026-09-20 14:30:00+03:60",
            1_790_000_000,
        ],
    ),
    "INVALID_CONVERSION_VALUE": ("conversionValue", [-1, None, "", True, "1.250,50", "0x10", "9" * 400, "NaN"]),
}


def test_a_bad_row_is_named_and_not_uploaded(engine):
    for code, (field, values) in BAD_VALUES.items():
        changes = [{field: value} for value in values]
        if code == "INVALID_CLICK_ID_FORMAT":  # another click id does not help
            changes.append({"gclid": "bad!!!", "wbraid": "wb-000001"})
        rows = [item(id=f"seal_{n}", **change) for n, change in enumerate(changes)]
        result = engine.process(*rows, item(id="seal_good"))
        assert all(failed.pop("errorMessage") for failed in result["failedRows"])
        assert result["failedRows"] == [
            {"queueId": row["id"], "errorCode": code, "errorCategory": "VALIDATION"} for row in rows
        ]
        assert (result["successIds"], result["uploadFailed"]) == (["seal_good"], False)
    assert len(engine.lines()) == len(BAD_VALUES)


def test_the_first_fault_of_a_row_is_reported(engine):
    faults: list[dict[str, Any]] = [{"conversionValue": -1}, {"conversionTime": "?"}]
    faults += [{"conversionTime": ""}, {"gclid": "short"}, {"gclid": ""}]
    row, codes = item(), []
    for fault in faults:
        row |= fault
        codes.append(engine.process(row)["failedRows"][0]["errorCode"])
    assert codes == list(BAD_VALUES)[::-1]


def test_a_value_is_a_number_or_the_text_of_one(engine):
    engine.process(*(item(conversionValue=value) for value in (0, 12.5, "12.50", "7")))
    assert [line["Conversion value"] for line in engine.lines()] == [0, 12.5, 12.5, 7]


def test_a_page_of_bad_rows_is_no_upload(server, script):
    server.enqueue(*sales(2))
    script.rewrite = changed({"gclid": ""}, {"conversionValue": -1})
    script.run()
    assert script.uploads == []
    assert script.requests_to(ACK) == []
    assert server.states() == {"FAILED": 2}


def test_failures_are_reported_in_one_call_a_group(server, script):
    ids = server.enqueue(*sales(6))
    late, dear = {"conversionTime": "yesterday"}, {"conversionValue": "much"}
    script.rewrite = changed(late, dear, late, dear, late)
    script.run()
    calls = [(one.body["errorCode"], one.body["queueIds"]) for one in script.requests_to(ACK_FAILED)]
    assert calls == [("INVALID_TIME_FORMAT", [ids[0], ids[2], ids[4]]), ("INVALID_CONVERSION_VALUE", [ids[1], ids[3]])]
    assert script.ids(ACK) == [[ids[5]]]
    row = server.row(ids[0])
    assert row[:3] == ("FAILED", "INVALID_TIME_FORMAT", "VALIDATION")
    assert {request.path for request in script.requests} == {*(VERIFY, EXPORT, ACK, ACK_FAILED, HEARTBEAT)}
    assert {request.status for request in script.requests} == {200}  # without some of them it would go on
    assert "yyyy-mm-dd HH:mm:ss" in row.message
    assert server.row(ids[5]).state == "COMPLETED"


# Preview


def test_a_preview_changes_nothing(server, script):
    ids = server.enqueue(*sales(2))
    script.preview = True
    script.rewrite = lambda body: {**body, "items": changed({"gclid": ""})(body["items"])}
    script.run()
    assert server.states() == {"QUEUED": 2}
    assert {row.attempts for row in server.rows(ids)} == {0}
    assert script.uploads == []
    assert [request.path for request in script.requests] == [VERIFY, EXPORT]
    assert script.requests[1].query["markAsExported"] == "false"
    assert script.logged[0] == "Preview: 2 rows would be sent, 0 would be skipped."
    assert script.logged[1].startswith("Preview: 1 × MISSING_CLICK_ID: ")


def test_a_preview_tells_each_warning_once_and_that_more_rows_wait(script):
    late = {"code": "NOT_DUE", "message": "they wait", "externalId": "+905321234567"}
    script.preview = True
    script.rewrite = lambda body: {
        **body, "counts": {**body["counts"], "atLeast": True}, "warnings": [late, late, "as plain text"],
    }  # fmt: skip
    script.run()
    assert script.logged[:3] == [
        "Preview: at least 0 rows would be sent, 0 would be skipped.",
        *("Preview: 2 × NOT_DUE: they wait", "Preview: 1 × as plain text"),
    ]


# Settings


def test_settings_may_stand_at_the_top(server, script):
    server.enqueue(sale())
    script.config = {"baseUrl": f" {server.base_url}// ", "siteId": server.site_id, "apiKey": server.key}
    script.run()
    assert server.states() == {"COMPLETED": 1}


def test_missing_settings_are_named(server, script):
    script.config = {"baseUrl": server.base_url}
    with pytest.raises(ScriptFailed, match=r"siteId .*KESIN_SITE_ID.*apiKey .*KESIN_API_KEY"):
        script.run()
    assert script.requests == []


def test_a_key_is_not_sent_in_the_clear(script):
    for url in ("http://kesin.example.com", "kesin.example.com", "http://localhost.example.com"):
        script.base_url = url
        with pytest.raises(ScriptFailed, match="must begin with https://"):
            script.run()
    assert script.requests == []


def test_a_site_id_is_quoted(script):
    script.site_id = "north&markAsExported=true&x="
    script.preview = True
    with pytest.raises(ScriptFailed, match="HTTP 403"):
        script.run()
    query = script.requests_to(EXPORT)[0].query
    assert (query["siteId"], query["markAsExported"]) == (script.site_id, "false")
