"""OCI Control: what an operator sees of a site and does with it, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from kesin.foundation.clock import iso
from kesin.foundation.permissions import system_actor
from kesin.lifecycle.model import Change
from kesin.web.dashboard.queues import actions, bulk
from kesin.workloads.oci import operations, script
from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.google.channel import ConnectionTrouble
from kesin.workloads.oci.google.circuit_breaker import record_upload
from tests.web.conftest import MakeWorld, World
from tests.workloads.optiplan.orders_ready import held_order

PAGE = "/dashboard/site/north/oci-control"
ROOT = system_actor("tests")
HTMX = {"hx-request": "true"}


class Desk:
    """A site with rows, and people at it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.context = world.service.workload_context("oci")
        world.person("can", "operator", sites=["north"])
        world.person("ece", "viewer", sites=["north"])
        world.person("ayse", "admin", all_sites=True)
        self._headers: dict[str, dict[str, str]] = {}

    def site(self, name: str = "north") -> Any:
        return self.world.accounts.find_site(name)

    def rows(self, n: int, name: str = "sale", site: str = "north") -> list[str]:
        at = iso(self.world.clock.now())
        given = [
            {
                "externalId": f"{name}-{one}",
                "gclid": f"Cj0KCQiA{one:06d}abcDEF",
                "conversionName": "Sale",
                "conversionTime": at,
                "conversionValue": 10,
            }
            for one in range(n)
        ]
        return [one.id or "" for one in ingest(self.context, self.site(site), given, actor="tests")]

    def failed(self, n: int, code: str = "UNPARSEABLE_GCLID") -> list[str]:
        ids = self.rows(n, "bad")
        script.export(self.context, self.site(), limit=1_000, actor="tests")
        changes = [Change(one, error_code=code, error_category="VALIDATION") for one in ids]
        self.context.queue.apply("ack_failed", changes, actor="tests")
        return ids

    def _as(self, who: str) -> dict[str, str]:
        if who not in self._headers:
            self._headers[who] = self.world.cookie(who)
        return dict(self._headers[who])

    def get(self, path: str = "", who: str = "can", **sent: Any) -> Any:
        return self.world.client.get(PAGE + path, headers=self._as(who), **sent)

    def post(self, path: str, who: str = "can", **sent: Any) -> Any:
        return self.world.client.post(PAGE + path, headers=self._as(who) | HTMX, **sent)


@pytest.fixture
def desk(make_world: MakeWorld) -> Desk:
    return Desk(make_world(secret_keys="first:" + "A" * 43))


def test_the_page_shows_counts_rows_and_only_ones_own_sites(desk):
    desk.failed(2)
    desk.rows(3)
    page = desk.get()
    assert page.status_code == 200
    assert "sale-0" in page.text
    assert "UNPARSEABLE_GCLID" in page.text
    assert "FAILED_SHARE_HIGH" in page.text
    assert "`" not in page.text
    assert "south" not in page.text
    assert "/dashboard/site/south/oci-control" in desk.get(who="ayse").text


def test_rows_are_filtered_by_state_code_category_and_text(desk):
    desk.failed(2)
    desk.rows(3)
    assert desk.get("?part=rows&status=QUEUED").text.count("data-pick ") == 3
    assert desk.get("?part=rows&code=UNPARSEABLE_GCLID").text.count("data-pick ") == 2
    assert desk.get("?part=rows&category=AUTH").text.count("data-pick ") == 0
    assert "sale-1" in desk.get("?part=rows&q=sale-1").text
    assert desk.get("?status=NOPE").status_code == 400


def test_older_rows_follow_and_end_the_renewal(desk):
    desk.rows(60)
    first = desk.get("?part=rows")
    assert first.text.count("data-pick ") == 50
    cursor = first.text.partition("cursor=")[2][:36]
    more = desk.get(f"?part=rows&cursor={cursor}")
    assert more.text.count("data-pick ") == 10
    assert "renew" not in more.text


def test_a_viewer_is_offered_no_action_and_can_do_none(desk):
    ids = desk.failed(1)
    page = desk.get(who="ece").text
    assert "Reset to queued" not in page
    assert "/settings" not in page
    answer = desk.post("/actions", "ece", data={"action": "RETRY_SELECTED", "ids": ids[0]})
    assert answer.status_code == 403
    assert "An admin can do it for you" in answer.text
    assert desk.world.state(ids[0]) == "FAILED"


def test_a_preview_says_what_would_move_and_moves_nothing(desk):
    ids = [*desk.failed(2), *desk.rows(1)]
    sheet = desk.post("/preview", data={"action": "RETRY_SELECTED", "ids": ",".join(ids)})
    assert "2 of 3 chosen rows will move" in sheet.text
    assert "Retry: 2 rows" in sheet.text
    assert desk.world.state(ids[0]) == "FAILED"


def test_an_action_says_exactly_what_it_moved_and_refused(desk):
    failed = desk.failed(2)
    [done] = desk.rows(1, "done")
    script.export(desk.context, desk.site(), limit=1_000, actor="tests")
    desk.context.queue.apply("ack", [Change(done)], actor="tests")
    ids = [*failed, done, *desk.rows(1)]
    told = desk.post("/actions", data={"action": "RETRY_SELECTED", "ids": ",".join(ids)})
    assert "2 moved, 1 refused" in told.text
    assert "it is COMPLETED already" in told.text
    assert "1 row was there already" in told.text
    assert "kesin:forget" in told.headers["hx-trigger"]
    row = desk.world.found(ids[0])
    assert (row.state, row.error_code) == ("QUEUED", "UNPARSEABLE_GCLID")


@pytest.mark.parametrize(
    ("tick", "code"), [({"clear_errors": "1"}, None), ({}, "UNPARSEABLE_GCLID")]
)
def test_a_reset_clears_errors_only_where_it_is_ticked(desk, tick, code):
    [row] = desk.failed(1)
    desk.post("/actions", data={"action": "RESET_TO_QUEUED", "ids": row, **tick})
    assert (desk.world.state(row), desk.world.found(row).error_code) == ("QUEUED", code)


def test_all_that_match_are_marked_failed_with_the_defaults(desk):
    ids = desk.rows(3)
    data = {"action": "MARK_FAILED", "all": "1", "status": "QUEUED", "kind": "PERMANENT"}
    assert "3 rows" in desk.post("/preview", data=data).text
    assert "3 moved, 0 refused" in desk.post("/actions", data=data).text
    row = desk.world.found(ids[0])
    assert (row.error_code, row.error_category, row.error_message) == (
        "MANUAL_FAIL",
        "PERMANENT",
        "MANUALLY_MARKED_FAILED",
    )


def test_rows_are_marked_with_the_code_that_was_typed_not_the_one_filtered_by(desk):
    ids = desk.failed(2)
    desk.post("/actions", data={"action": "RETRY_SELECTED", "ids": ",".join(ids)})
    data = {"action": "MARK_FAILED", "all": "1", "code": "UNPARSEABLE_GCLID", "kind": "TRANSIENT"}
    assert 'name="mark_code"' in desk.post("/preview", data=data).text
    told = desk.post("/actions", data={**data, "mark_code": "SHOP_CLOSED", "reason": "closed"})
    assert "2 moved, 0 refused" in told.text
    row = desk.world.found(ids[1])
    assert (row.state, row.error_code, row.error_message) == ("FAILED", "SHOP_CLOSED", "closed")
    assert row.error_category == "TRANSIENT"


def test_of_all_that_match_each_is_counted_and_only_the_list_is_cut(desk, monkeypatch):
    monkeypatch.setattr(operations, "MAX_LISTED_OUTCOMES", 1)
    done = desk.rows(2, "done")
    script.export(desk.context, desk.site(), limit=1_000, actor="tests")
    desk.context.queue.apply("ack", [Change(one) for one in done], actor="tests")
    desk.failed(2)
    desk.rows(3)
    told = desk.post("/actions", data={"action": "RETRY_SELECTED", "all": "1"}).text
    assert "2 moved, 2 refused" in told
    assert "3 rows were there already" in told
    assert '<span class="n">2</span> it is COMPLETED already' in told
    assert told.count("/dashboard/jobs/") == 1


def test_many_rows_move_in_the_background_with_all_that_was_said(desk, monkeypatch):
    monkeypatch.setattr(actions, "MAX_FOREGROUND_JOBS", 3)
    monkeypatch.setattr(bulk, "MAX_PAGE", 2)
    ids, [other] = desk.rows(5), desk.rows(1, site="south")
    data = {"action": "MARK_FAILED", "all": "1", "kind": "TRANSIENT", "mark_code": "SHOP_CLOSED"}
    assert "in the background" in desk.post("/preview", data=data).text
    begun = desk.post("/actions", data={**data, "reason": "closed"})
    assert 'id="runs" hx-swap-oob="true"' in begun.text
    desk.world.app.state.bulk_runs.join(10)
    rows = [desk.world.found(one) for one in ids]
    assert {(one.error_code, one.error_category, one.error_message) for one in rows} == {
        ("SHOP_CLOSED", "TRANSIENT", "closed")
    }
    assert desk.world.state(other) == "QUEUED"
    assert "Mark failed · north: 5 moved" in desk.get().text
    lines = [one for one in desk.world.audit() if one.action == "queue.MARK_FAILED"]
    assert [one.site for one in lines] == ["north"] * 3
    assert desk.post("/actions", data={**data, "kind": "NOPE"}).status_code == 400


def test_the_bar_offers_what_fits_and_says_how_many_match(desk):
    desk.failed(2)
    desk.rows(60)
    page = desk.get().text
    assert 'data-matching="62" data-states="QUEUED FAILED"' in page
    assert page.count('data-state="QUEUED"') == 50
    assert 'data-from="PROCESSING QUEUED RETRY"' in page.partition("Mark failed</button>")[0]
    assert 'data-matching="2" data-states="FAILED"' in desk.get("?part=rows&status=FAILED").text
    coded = desk.get("?part=rows&code=UNPARSEABLE_GCLID").text
    assert 'data-matching="2" data-states="FAILED"' in coded


def test_what_a_search_shows_is_not_acted_on_as_a_whole(desk):
    """The filter knows no search: rows nobody saw would move."""
    desk.rows(3)
    data = {"action": "MARK_FAILED", "all": "1", "status": "QUEUED", "kind": "PERMANENT"}
    for where in ("/preview", "/actions"):
        assert desk.post(where, data={**data, "q": "sale-1"}).status_code == 422


def test_nothing_chosen_and_an_unknown_action_are_refused(desk):
    assert desk.post("/preview", data={"action": "RETRY_SELECTED"}).status_code == 422
    assert desk.post("/preview", data={"action": "DELETE", "ids": "x"}).status_code == 400


def test_an_export_preview_masks_clicks_and_says_why_rows_stay(desk):
    desk.rows(2)
    desk.context.queue.enqueue({"bad": 1}, key="odd", tenant="north", stamps={"conversion_at": 1})
    sheet = desk.get("/export").text
    assert "Cj0KCQiA" not in sheet
    assert "gclid …cDEF" in sheet
    assert "odd" in sheet
    assert [job.state for job in desk.context.queue.jobs().jobs] == ["QUEUED"] * 3


def test_mended_dead_letters_are_corrected_and_the_wrong_ones_told(desk):
    ids = desk.failed(2)
    text = desk.world.client.get(
        "/api/oci/dead-letter.csv?siteId=north", headers=desk.world.cookie("can")
    ).text
    head, one, two, *_ = text.splitlines()
    mended = "\r\n".join([head, one.replace("abcDEF", "abcXYZ"), two.replace("bad-", "lost-")])
    told = desk.post("/fixes", files={"file": ("a.csv", mended.encode(), "text/csv")})
    assert "2 rows read: 1 corrected" in told.text
    assert "UNKNOWN_ROW" in told.text
    assert sorted(desk.world.state(one) for one in ids) == ["FAILED", "QUEUED"]


def test_an_empty_file_is_refused(desk):
    assert desk.post("/fixes", files={"file": ("a.csv", b"", "text/csv")}).status_code == 422


def test_a_site_is_paused_with_a_reason_and_resumed(desk):
    assert f'action="{PAGE}/pause"' in desk.get("/pause").text
    assert desk.post("/pause", data={"reason": "the shop moves"}).status_code == 303
    page = desk.get().text
    assert "PAUSED" in page
    assert "the shop moves" in page
    assert 'name="resume"' in page
    desk.post("/pause", data={"resume": "1"})
    assert desk.world.store.paused("oci") == []
    desk.context.queue.pause(actor="tests")
    assert 'name="resume"' not in desk.get().text  # this page resumes its own site only


def test_settings_are_changed_all_of_them_or_none(desk):
    good = {"name": "North", "channel": "api", "recover_minutes": "45", "silent_hours": ""}
    assert desk.post("/settings", "ayse", data=good).status_code == 303
    assert desk.site().channel == "api"
    bad = {**good, "channel": "script", "recover_minutes": "0"}
    answer = desk.post("/settings", "ayse", data=bad)
    assert answer.status_code == 422
    assert 'aria-invalid="true"' in answer.text
    assert desk.site().channel == "api"
    assert desk.post("/settings", data=good).status_code == 403


SECRET = "GOCSPX-a-secret-of-the-tests"
CREDENTIALS = {
    "customer_id": "123-456-7890",
    "client_id": "client",
    "client_secret": SECRET,
    "refresh_token": "token",
    "conversion_action_resource_name": "customers/1234567890/conversionActions/1",
}


def test_credentials_go_in_and_never_come_out(desk):
    assert desk.post("/credentials", "ayse", data=CREDENTIALS).status_code == 303
    page = desk.get("/settings?done=credentials", "ayse").text
    assert "never shown again" in page
    assert SECRET not in page
    wrong = desk.post("/credentials", "ayse", data={**CREDENTIALS, "customer_id": "x"})
    assert wrong.status_code == 422
    assert SECRET not in wrong.text
    assert desk.post("/credentials", "ayse", data={"drop": "1"}).status_code == 303
    assert desk.post("/credentials", "ayse", data={"drop": "1"}).status_code == 404
    assert "client_secret" not in desk.get("/settings").text


def test_an_open_breaker_is_told_with_what_to_do(desk):
    desk.post("/settings", "ayse", data={"channel": "api"})
    record_upload(desk.context, desk.site(), ConnectionTrouble("AUTH", "INVALID_GRANT", "no"))
    assert "BREAKER_OPEN" in desk.get().text
    page = desk.get("/settings").text
    assert "INVALID_GRANT" in page
    assert "breaker open" in page
    assert desk.post("/check").status_code == 200


def test_no_page_shows_a_phone_that_a_message_holds(desk):
    phone, order = "+905321112233", held_order(desk.world.service)
    desk.world.person("nur", "operator", all_sites=True)
    desk.post("/settings", "ayse", data={"channel": "api"})
    [row] = desk.rows(1)
    said = f"ask {phone}"
    desk.context.queue.act("MARK_FAILED", actor="tests", ids=[row], reason=said)
    record_upload(desk.context, desk.site(), ConnectionTrouble("AUTH", "INVALID_GRANT", said))
    shown = ["", "/queues/oci", "/queues/optiplan", "/optiplan", f"/jobs/{row}", f"/jobs/{order}"]
    shown += ["/queues/oci/rows.csv", "/queues/optiplan/rows.csv"]
    shown += [f"/site/north/oci-control{one}" for one in ("", "/settings", "/export")]
    for path in shown:
        page = desk.world.client.get(f"/dashboard{path}", headers=desk.world.cookie("nur"))
        assert page.status_code == 200, path
        assert phone not in page.text, path
        assert "+90" not in page.text, path


def test_a_hostile_row_is_shown_as_text(desk):
    hostile = "<script>alert(1)</script>"
    payload = {"externalId": hostile}
    desk.context.queue.enqueue(payload, key="x", tenant="north", stamps={"conversion_at": 1})
    page = desk.get().text
    assert hostile not in page
    assert "&lt;script&gt;" in page


def test_the_page_speaks_turkish(desk):
    headers = desk.world.cookie("can")
    headers["cookie"] += "; kesin_language=tr"
    page = desk.world.client.get(PAGE, headers=headers).text
    assert "Henüz dönüşüm yok" in page
    assert "No conversions yet" not in page
