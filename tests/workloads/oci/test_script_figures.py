"""The installed script sends Google's own figures, once a day and only if its option is set."""

from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from kesin.workloads.oci.reconciliation import ATTRIBUTED_QUERY, UPLOADS_QUERY, read_figures
from tests.workloads.oci.running import Running, sale
from tests.workloads.oci.script import RECONCILED_AT, RECONCILIATION, Script

DAY_MS = 24 * 60 * 60 * 1_000
ISTANBUL = ZoneInfo("Europe/Istanbul")
SUMMARY = UPLOADS_QUERY.rpartition(" ")[2]


def script_day(script: Script, back: int) -> str:
    now = datetime.fromtimestamp(script.now_ms / 1_000, ISTANBUL)
    return (now.date() - timedelta(days=back)).isoformat()


def server_day(server: Running, back: int) -> str:
    now = datetime.fromtimestamp(server.site.context.queue.now() / 1_000_000, ISTANBUL)
    return (now.date() - timedelta(days=back)).isoformat()


def reports(day: str, conversions_day: str) -> dict[str, Any]:
    """As a script gets them: lowerCamelCase, int64 as text."""
    summary = {
        "client": "GOOGLE_ADS_WEB_CLIENT",
        "conversionActionId": "987",
        "conversionActionName": "Phone sale",
        "dailySummaries": [
            {"uploadDate": day, "successfulCount": "3", "pendingCount": "1"},
            {"uploadDate": "2019-01-01", "failedCount": 2},
        ],
    }
    segments = {"date": conversions_day, "conversionActionName": "Phone sale"}
    found = [
        {"segments": segments, "metrics": {"allConversionsByConversionDate": 2.5}},
        {"segments": segments, "metrics": {"allConversionsByConversionDate": -0.5}},
        {
            "segments": {**segments, "conversionActionName": "Page view"},
            "metrics": {"allConversionsByConversionDate": 900},
        },
    ]
    return {SUMMARY: [{"offlineConversionUploadConversionActionSummary": summary}],
            "customer": found}  # fmt: skip


def test_with_the_option_a_run_sends_them_with_our_own_queries(server: Running, script: Script):
    yesterday = server_day(server, 1)
    script.reconcile = "yes"
    script.reports = reports(yesterday, yesterday)
    server.enqueue(sale())
    script.run()
    first, last = script_day(script, 30), script_day(script, 0)
    assert script.queries == [UPLOADS_QUERY, ATTRIBUTED_QUERY % (first, last)]
    [request] = script.requests_to(RECONCILIATION)
    assert (request.status, request.body["zone"]) == (200, "Europe/Istanbul")
    found = list(read_figures(server.site.place, date(2000, 1, 1), date(2100, 1, 1)))
    assert [tuple(one) for one in found] == [(yesterday, "Phone sale", 0, 3, 0, 1, 2.5)]
    assert "Google's figures sent: 2 of uploads, 2 of conversions." in script.logged
    assert server.states() == {"COMPLETED": 1}
    script.now_ms += DAY_MS - 1
    script.run()
    assert len(script.requests_to(RECONCILIATION)) == 1
    script.now_ms += 1
    script.run()
    assert len(script.requests_to(RECONCILIATION)) == 2
    assert script.properties == {RECONCILED_AT: str(script.now_ms)}


def test_without_it_google_is_not_asked(server: Running, script: Script):
    for option in ("", "no", "true"):
        script.reconcile = option
        script.run()
        assert (script.queries, script.requests_to(RECONCILIATION)) == ([], [])


def test_what_goes_wrong_with_them_is_no_reason_to_fail(server: Running, script: Script):
    script.reconcile = "yes"
    script.reports = {SUMMARY: f"no such resource; the key is {script.key}"}
    server.enqueue(sale())
    script.run()
    assert server.states() == {"COMPLETED": 1}
    assert any("Google's figures not sent: no such resource" in line for line in script.logged)
    script.reports = {}
    script.in_the_way[RECONCILIATION] = [409]
    script.run()
    assert any("Google's figures not sent: POST" in line for line in script.logged)
    assert script.properties == {}
    script.preview = True
    script.run()
    assert len(script.requests_to(RECONCILIATION)) == 1


def test_long_figures_are_cut_off(server: Running, script: Script):
    script.reconcile = "yes"
    found = reports(server_day(server, 1), server_day(server, 1))
    script.reports = {resource: rows * 2_050 for resource, rows in found.items()}
    script.run()
    [request] = script.requests_to(RECONCILIATION)
    assert request.status == 200
    assert [len(request.body[name]) for name in ("uploads", "attributed")] == [4_000, 4_000]
    line = "Google's figures sent: 4000 of uploads, 4000 of conversions, 200 left out."
    assert line in script.logged
