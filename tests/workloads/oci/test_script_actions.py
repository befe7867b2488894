"""The installed script sends its account's conversion actions, once a day."""

from typing import Any

from kesin.workloads.oci.google.google_ads import ACTIONS_QUERY
from tests.workloads.oci.running import Running, sale
from tests.workloads.oci.script import ACTIONS, LISTED_AT, Script

DAY_MS = 24 * 60 * 60 * 1_000
SALE = {
    "resourceName": "customers/1/conversionActions/987",
    "id": 987,
    "name": "Phone sale",
    "status": "ENABLED",
    "countingType": "ONE_PER_CLICK",
    "clickThroughLookbackWindowDays": "60",
}


def actions_of(server: Running) -> list[Any]:
    return [
        (one.name, one.id, one.default, one.counting, one.lookback_days) for one in server.site.place.settings.actions
    ]


def test_a_run_sends_the_list_with_our_own_query_and_the_site_has_it(server: Running, script: Script):
    bare = {"id": "988", "name": "Lead", "status": "ENABLED"}
    script.actions = [SALE, bare, {**SALE, "id": 989, "name": "Old", "status": "REMOVED"}]
    server.enqueue(sale())
    script.run()
    assert script.queries == [ACTIONS_QUERY]
    assert actions_of(server) == [
        ("Phone sale", "987", False, "ONE_PER_CLICK", 60),
        ("Lead", "988", False, "MANY_PER_CLICK", 30),
    ]
    assert "Conversion actions sent: 3 (2 new, 0 changed, 0 not enabled)." in script.logged
    assert server.states() == {"COMPLETED": 1}


def test_it_is_sent_once_a_day_at_most(server: Running, script: Script):
    script.actions = [SALE]
    script.run()
    script.now_ms += DAY_MS - 1
    script.run()
    assert len(script.requests_to(ACTIONS)) == 1
    script.now_ms += 1
    script.run()
    assert len(script.requests_to(ACTIONS)) == 2
    assert script.properties == {LISTED_AT: str(script.now_ms)}


def test_a_server_that_refuses_the_list_is_no_reason_to_fail(server: Running, script: Script):
    script.actions = [SALE]
    script.in_the_way[ACTIONS] = [404]
    server.enqueue(sale())
    script.run()
    assert server.states() == {"COMPLETED": 1}
    assert script.properties == {}
    assert any("Conversion actions not sent: POST" in line for line in script.logged)
    script.run()  # the next run tries again
    assert len(actions_of(server)) == 1


def test_google_that_gives_no_list_is_no_reason_to_fail(server: Running, script: Script):
    script.actions = f"no such field; the key is {script.key}"
    script.run()
    assert script.requests_to(ACTIONS) == []
    assert script.properties == {}
    assert any("Conversion actions not sent: no such field" in line for line in script.logged)


def test_a_long_list_is_cut_off_and_a_preview_sends_none(server: Running, script: Script):
    script.actions = [{**SALE, "id": n, "name": f"n{n}", "status": "HIDDEN"} for n in range(700)]
    script.run()
    [request] = script.requests_to(ACTIONS)
    assert (request.status, len(request.body["actions"])) == (200, 500)
    script.now_ms += DAY_MS
    script.preview = True
    script.run()
    assert len(script.requests_to(ACTIONS)) == 1
