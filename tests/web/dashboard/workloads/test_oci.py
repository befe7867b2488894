"""OCI Control: what an operator sees of a site and does with it, over HTTP."""

import hashlib
import re

from kesin.engine.queue import apply_changes
from kesin.lifecycle.model import Change
from kesin.web.dashboard.queues import actions, bulk, filters, listing
from kesin.workloads.oci import operations, script
from kesin.workloads.oci.google.channel import ConnectionTrouble
from kesin.workloads.oci.google.circuit_breaker import close_breaker, record_upload
from kesin.workloads.oci.site import SiteSettings
from tests.web.client import end_bulk_runs
from tests.web.dashboard.workloads.control_page import PAGE
from tests.workloads.optiplan.orders_ready import held_order


def test_attempts_are_those_that_the_budget_counts(control):
    [job_id] = control.failed(1)
    assert ">1/5<" in control.get().text
    control.context.queue.act("RETRY_SELECTED", actor="tests", ids=[job_id])
    assert ">0/5<" in control.get().text


def test_the_page_shows_counts_rows_and_only_ones_own_sites(control):
    control.failed(10)
    control.rows(3)
    page = control.get()
    assert page.status_code == 200
    assert "sale-0" in page.text
    assert "UNPARSEABLE_GCLID" in page.text
    assert "FAILED_SHARE_HIGH" in page.text
    assert "`" not in page.text
    assert "south" not in page.text
    assert "/dashboard/site/south/oci-control" in control.get(who="ayse").text


def test_rows_are_filtered_by_state_code_category_and_text(control):
    control.failed(2)
    control.rows(3)
    assert control.get("?part=rows&status=QUEUED").text.count("data-pick ") == 3
    assert control.get("?part=rows&code=UNPARSEABLE_GCLID").text.count("data-pick ") == 2
    assert control.get("?part=rows&category=AUTH").text.count("data-pick ") == 0
    assert "sale-1" in control.get("?part=rows&q=sale-1").text
    for text, found in (("10 TRY", 5), ("bad", 2), ("nowhere", 0)):
        assert control.get(f"?part=rows&q={text}").text.count("data-pick ") == found, text
    assert control.get("?status=NOPE").status_code == 400


def test_older_rows_follow(control):
    control.rows(60)
    first = control.get("?part=rows")
    assert first.text.count("data-pick ") == 50
    cursor = first.text.partition('data-cursor="')[2][:36]
    more = control.get(f"?part=more&cursor={cursor}&shown=50")
    assert more.text.count("data-pick ") == 10
    assert "oci-rows" not in more.text


def test_a_viewer_is_offered_no_action_and_can_do_none(control):
    ids = control.failed(1)
    page = control.get(who="ece").text
    assert "Reset to queued" not in page
    assert "/settings" not in page
    answer = control.post("/actions", "ece", data={"action": "RETRY_SELECTED", "ids": ids[0]})
    assert answer.status_code == 403
    assert "Ask an admin to do it" in answer.text
    assert control.world.state(ids[0]) == "FAILED"


def test_a_preview_says_what_would_move_counts_by_code_warns_of_a_futile_retry_and_moves_nothing(control):
    ids, waiting = control.failed(3), control.rows(1)
    for which in ({"ids": ",".join([*ids, *waiting])}, {"all": "1", "status": "FAILED"}):
        sheet = control.post("/preview", data={"action": "RETRY_SELECTED", **which}).text
        assert "3 will move" in sheet
        assert "Retry: 3 rows" in sheet
        assert "UNPARSEABLE_GCLID" in sheet
        assert "3 jobs with VALIDATION errors will keep failing until their data is corrected." in sheet
        sheet = control.post("/preview", data={"action": "RESET_TO_QUEUED", **which}).text
        assert "3 jobs with VALIDATION errors" in sheet
    data = {"action": "MARK_FAILED", "ids": waiting[0]}
    assert "VALIDATION errors" not in control.post("/preview", data=data).text
    assert [control.world.state(one) for one in (*ids, *waiting)] == ["FAILED"] * 3 + ["QUEUED"]


def test_what_needs_a_person_is_told_from_what_retries_by_itself(control):
    control.failed(2)
    control.rows(1, "late")
    for part in ("", "?part=summary"):
        page = re.sub(r"\s+", " ", control.get(part).text)
        assert '<dt>needs you</dt><dd class="bad">2</dd>' in page
        assert "<dt>retry automatically</dt><dd>0</dd>" in page


def test_how_many_rows_have_a_code_is_known_exactly(control, monkeypatch):
    monkeypatch.setattr(listing, "MAX_EXAMINED", 20)
    monkeypatch.setattr(filters, "PAGE", 10)
    control.failed(60)
    for query in ("?status=FAILED&code=UNPARSEABLE_GCLID", "?status=FAILED&category=VALIDATION"):
        assert 'data-matching="60"' in control.get(query).text


def test_an_action_says_exactly_what_it_moved_and_refused(control):
    failed = control.failed(2)
    [done] = control.rows(1, "done")
    script.export(control.site(), limit=1_000, actor="tests")
    apply_changes(control.context.queue, "ack", [Change(done)], actor="tests")
    ids = [*failed, done, *control.rows(1)]
    response = control.post("/actions", data={"action": "RETRY_SELECTED", "ids": ",".join(ids)})
    assert "2 moved, 1 refused" in response.text
    [refused] = re.findall(r"<li><a(.*?)</li>", response.text)
    assert f'href="/dashboard/jobs/{done}" title="{done}">done-0 · 10 TRY</a>' in refused
    assert f"…{done[-12:]}</span>" in refused
    assert "it is already COMPLETED" in response.text
    assert "1 row was already in that state" in response.text
    assert "kesin:forget" in response.headers["hx-trigger"]
    row = control.world.found(ids[0])
    assert (row.state, row.error_code) == ("QUEUED", "UNPARSEABLE_GCLID")


def test_a_reset_clears_errors_only_where_it_is_ticked(control):
    cleared, other = control.failed(2)
    for row, tick in ((cleared, {"clear_errors": "1"}), (other, {})):
        control.post("/actions", data={"action": "RESET_TO_QUEUED", "ids": row, **tick})
    rows = [control.world.found(row) for row in (cleared, other)]
    assert [row.state for row in rows] == ["QUEUED", "QUEUED"]
    assert [row.error_code for row in rows] == [None, "UNPARSEABLE_GCLID"]


def test_all_that_match_are_marked_failed_with_the_defaults(control):
    ids = control.rows(3)
    data = {"action": "MARK_FAILED", "all": "1", "status": "QUEUED", "kind": "PERMANENT"}
    assert "3 rows" in control.post("/preview", data=data).text
    assert "3 moved, 0 refused" in control.post("/actions", data=data).text
    row = control.world.found(ids[0])
    assert (row.error_code, row.error_category, row.error_message) == (
        "MANUAL_FAIL",
        "PERMANENT",
        "MANUALLY_MARKED_FAILED",
    )


def test_of_all_that_match_each_is_counted_and_only_the_list_is_cut(control, monkeypatch):
    monkeypatch.setattr(operations, "MAX_LISTED_OUTCOMES", 1)
    done = control.rows(2, "done")
    script.export(control.site(), limit=1_000, actor="tests")
    apply_changes(control.context.queue, "ack", [Change(one) for one in done], actor="tests")
    control.failed(2)
    control.rows(3)
    response = control.post("/actions", data={"action": "RETRY_SELECTED", "all": "1"}).text
    assert "2 moved, 2 refused" in response
    assert "3 rows were already in that state" in response
    assert '<span class="n">2</span> it is already COMPLETED' in response
    assert response.count("/dashboard/jobs/") == 1


def test_many_rows_move_in_the_background_with_all_that_was_said(control, monkeypatch):
    monkeypatch.setattr(actions, "MAX_FOREGROUND_JOBS", 3)
    monkeypatch.setattr(bulk, "MAX_PAGE", 2)
    ids, [other] = control.rows(5), control.rows(1, site="south")
    data = {"action": "MARK_FAILED", "all": "1", "kind": "TRANSIENT", "mark_code": "SHOP_CLOSED"}
    assert "in the background" in control.post("/preview", data=data).text
    begun = control.post("/actions", data={**data, "reason": "closed"})
    assert 'id="runs" hx-swap-oob="true"' in begun.text
    end_bulk_runs(control.world.app.state.bulk_runs)
    rows = [control.world.found(one) for one in ids]
    assert {(one.error_code, one.error_category, one.error_message) for one in rows} == {
        ("SHOP_CLOSED", "TRANSIENT", "closed")
    }
    assert control.world.state(other) == "QUEUED"
    assert "Mark failed · north: 5 moved" in control.get().text
    lines = [one for one in control.world.audit() if one.action == "queue.MARK_FAILED"]
    assert [one.site for one in lines] == ["north"] * 3
    assert control.post("/actions", data={**data, "kind": "NOPE"}).status_code == 400


def test_the_bar_offers_what_fits_and_says_how_many_match(control):
    control.failed(2)
    control.rows(60)
    page = control.get().text
    assert 'data-matching="62" data-states="QUEUED FAILED"' in page
    assert page.count('data-state="QUEUED"') == 50
    assert 'data-from="PROCESSING QUEUED RETRY"' in page.partition("Mark failed</button>")[0]
    assert 'data-matching="2" data-states="FAILED"' in control.get("?part=rows&status=FAILED").text
    coded = control.get("?part=rows&code=UNPARSEABLE_GCLID").text
    assert 'data-matching="2" data-states="FAILED"' in coded


def test_an_action_on_nothing_an_unknown_one_and_one_on_a_whole_search_are_refused(control):
    """The filter knows no search: rows that are not shown would move."""
    control.rows(3)
    data = {"action": "MARK_FAILED", "all": "1", "status": "QUEUED", "kind": "PERMANENT"}
    for path in ("/preview", "/actions"):
        assert control.post(path, data={**data, "q": "sale-1"}).status_code == 422
    assert control.post("/preview", data={"action": "RETRY_SELECTED"}).status_code == 422
    assert control.post("/preview", data={"action": "DELETE", "ids": "x"}).status_code == 400


def test_a_click_id_searched_in_the_queue_leads_to_the_pages_that_find_it(control):
    def links(click_id: str, who: str) -> list[str]:
        page, headers = f"/dashboard/queues/oci?text={click_id}", control.world.cookie(who)
        text = control.world.client.get(page, headers=headers).text
        assert "No job matches" in text
        assert ("This search does not cover masked data." in text) == ("Search click ids for" in text)
        return re.findall(r'href="([^"]+)">Search click ids for', text)

    control.rows(2)
    found = links("Cj0KCQiA000001abcDEF", "can")
    assert found == [f"{PAGE}?q=Cj0KCQiA000001abcDEF"]
    text = control.get(found[0].removeprefix(PAGE)).text
    assert [name for name in ("sale-0", "sale-1") if name in text] == ["sale-1"]
    assert len(links("Cj0KCQiA000001abcDEF", "ayse")) == 2
    assert links("Cj0KCQiA000001abcDEF", "ece") == []
    assert links("no such words", "can") == []


def test_an_export_preview_masks_clicks_and_says_why_rows_stay(control):
    control.rows(2)
    stamps = {"conversion_at": control.context.queue.now()}
    control.context.queue.enqueue({"bad": 1}, key="odd", tenant="north", stamps=stamps)
    sheet = control.get("/export").text
    assert "Cj0KCQiA" not in sheet
    assert "gclid …cDEF" in sheet
    assert "odd" in sheet
    assert [job.state for job in control.context.queue.jobs().jobs] == ["QUEUED"] * 3


def test_dead_letters_are_downloaded_where_they_are_sent_back(control):
    before, panel = control.get().text.split('<details id="correct"')
    panel, _, after = panel.partition("</details>")
    assert "/api/oci/dead-letter.csv?siteId=north" in panel
    assert "/oci-control/fixes" in panel
    assert "dead-letter.csv" not in before + after
    assert "/api/oci/dead-letter.csv?siteId=north" in control.get(who="ece").text


def test_mended_dead_letters_are_corrected_and_the_wrong_ones_told(control):
    ids = control.failed(2)
    text = control.world.client.get("/api/oci/dead-letter.csv?siteId=north", headers=control.world.cookie("can")).text
    head, one, two, *_ = text.splitlines()
    mended = "\r\n".join([head, one.replace("abcDEF", "abcXYZ"), two.replace("bad-", "lost-")])
    response = control.post("/fixes", files={"file": ("a.csv", mended.encode(), "text/csv")})
    assert "2 rows read: 1 corrected" in response.text
    assert "UNKNOWN_ROW" in response.text
    assert sorted(control.world.state(one) for one in ids) == ["FAILED", "QUEUED"]
    empty = {"file": ("a.csv", b"", "text/csv")}
    assert control.post("/fixes", files=empty).status_code == 422


def test_a_site_is_paused_with_a_reason_and_resumed(control):
    assert f'action="{PAGE}/pause"' in control.get("/pause").text
    assert control.post("/pause", data={"reason": "the shop moves"}).status_code == 303
    page = control.get().text
    assert "PAUSED" in page
    assert "the shop moves" in page
    assert 'name="resume"' in page
    control.post("/pause", data={"resume": "1"})
    assert control.world.store.paused("oci") == []
    control.context.queue.pause(actor="tests")
    assert 'name="resume"' not in control.get().text  # this page resumes its own site only


def test_settings_are_changed_all_of_them_or_none(control):
    good = {"name": "North", "channel": "api", "recover_minutes": "45", "silent_hours": ""}
    assert control.post("/settings", "ayse", data=good).status_code == 303
    assert control.site().channel == "api"
    bad = {**good, "channel": "script", "recover_minutes": "0"}
    answer = control.post("/settings", "ayse", data=bad)
    assert answer.status_code == 422
    assert 'aria-invalid="true"' in answer.text
    assert control.site().channel == "api"
    assert control.post("/settings", data=good).status_code == 403


def test_consent_hold_and_identifiers_are_set_on_the_page(control):
    form = {"channel": "script", "consent_default": "denied", "consent_required": "1"}
    form |= {"send_after_hours": "12", "enhanced": "1", "phone_country": "tr"}
    assert control.post("/settings", "ayse", data=form).status_code == 303
    settings = control.site().settings
    assert (settings.consent_default, settings.consent_required) == ("denied", True)
    assert (settings.send_after_hours, settings.enhanced) == (12, True)
    assert (settings.phone_country, settings.script_columns) == ("TR", False)
    page = control.get("/settings", "ayse").text
    assert '<option value="denied" selected>' in page
    assert page.count(" checked>") == 2
    wrong = control.post("/settings", "ayse", data={**form, "phone_country": "Turkey"})
    assert (wrong.status_code, wrong.text.count(" checked>")) == (422, 2)
    assert control.post("/settings", "ayse", data={"channel": "script"}).status_code == 303
    assert control.site().settings == SiteSettings()


def test_refused_rows_are_counted_apart_and_their_data_is_no_work(control):
    control.post("/settings", "ayse", data={"channel": "script", "consent_default": "denied"})
    [job_id, *_] = control.rows(3)
    page = control.get().text
    assert "consent denied" in page
    assert "FAILED_SHARE_HIGH" not in page
    job = control.world.client.get(f"/dashboard/jobs/{job_id}", headers=control._as("can")).text
    assert "CONSENT_DENIED" in job
    assert "never sent" in job


def test_a_typed_address_is_hashed_and_not_shown_again(control):
    control.post("/settings", "ayse", data={"channel": "script", "enhanced": "1"})
    [job_id] = control.failed(1)
    path = f"/rows/{job_id}/fix"
    assert 'name="email"' in control.get(path).text
    bad = control.post(path, data={"email": "ayse@example.com", "phone": "0532 yok"})
    assert "phone must be" in bad.text
    assert "ayse@" not in bad.text + control.get(path).text
    assert control.post(path, data={"email": "Ayse@Example.com"}).status_code == 200
    job = control.context.queue.job(job_id)
    assert job.payload["hashedEmail"] == hashlib.sha256(b"ayse@example.com").hexdigest()
    audit = str(control.world.accounts.directory.audit(limit=50))
    assert "example.com" not in audit


def test_a_sent_row_is_asked_for_its_value_first(control):
    """Google changes nothing else of a conversion that it took."""
    [job_id] = control.rows(1)
    script.export(control.site(), limit=1, actor="tests")
    script.ack(control.site(), [f"seal_{job_id}"], actor="tests")
    dialog = control.get(f"/rows/{job_id}/fix").text
    names = re.findall(r' name="(\w+)"', dialog)
    assert names[:5] == ["taken", "taken", "conversionValue", "conversionCurrency", "gclid"]
    assert "autofocus" not in dialog  # a phone would scroll past the question


SECRET = "GOCSPX-a-secret-of-the-tests"
CREDENTIALS = {
    "customer_id": "123-456-7890",
    "client_id": "client",
    "client_secret": SECRET,
    "refresh_token": "token",
    "conversion_action_resource_name": "customers/1234567890/conversionActions/1",
}


def test_credentials_go_in_and_never_come_out(control):
    assert control.post("/credentials", "ayse", data=CREDENTIALS).status_code == 303
    page = control.get("/settings?done=credentials", "ayse").text
    assert "never shown again" in page
    assert SECRET not in page
    wrong = control.post("/credentials", "ayse", data={**CREDENTIALS, "customer_id": "x"})
    assert wrong.status_code == 422
    assert SECRET not in wrong.text
    assert control.post("/credentials", "ayse", data={"drop": "1"}).status_code == 303
    assert control.post("/credentials", "ayse", data={"drop": "1"}).status_code == 404
    assert "client_secret" not in control.get("/settings").text


def test_an_open_breaker_is_told_with_what_to_do(control):
    control.post("/settings", "ayse", data={"channel": "api", "conversion_name": "Sale"})
    record_upload(control.site(), ConnectionTrouble("AUTH", "INVALID_GRANT", "no"))
    assert "BREAKER_OPEN" in control.get().text
    page = control.get("/settings").text
    assert "INVALID_GRANT" in page
    assert "breaker open" in page
    assert control.post("/check").status_code == 200
    [row] = control.rows(1)
    headers = control.world.cookie("can")
    text = control.world.client.get(f"/dashboard/jobs/{row}", headers=headers).text
    assert "uploads for its site are suspended" in text
    headers["accept-language"] = "tr"
    turkish = control.world.client.get(PAGE, headers=headers).text
    assert "devre kesici açık (INVALID_GRANT)" in turkish
    assert "the next free worker will claim it" not in text
    close_breaker(control.site())
    text = control.world.client.get(f"/dashboard/jobs/{row}", headers=headers).text
    assert "uploads for its site are suspended" not in text


def test_a_due_row_of_a_script_waits_for_its_next_run_and_for_no_worker(control):
    control.post("/settings", "ayse", data={"channel": "script"})
    [row] = control.rows(1)
    page = control.world.client.get(f"/dashboard/jobs/{row}", headers=control._as("can")).text
    assert "the next run of the site&#39;s script will claim it" in page


def test_no_page_shows_a_phone_that_a_message_holds(control):
    phone, order = "+905321112233", held_order(control.world.service)
    control.world.person("nur", "operator", all_sites=True)
    control.post("/settings", "ayse", data={"channel": "api", "conversion_name": "Sale"})
    [row] = control.rows(1)
    said = f"ask {phone}"
    control.context.queue.act("MARK_FAILED", actor="tests", ids=[row], reason=said)
    record_upload(control.site(), ConnectionTrouble("AUTH", "INVALID_GRANT", said))
    shown = ["", "/queues/oci", "/queues/optiplan", "/optiplan", f"/jobs/{row}", f"/jobs/{order}"]
    shown += ["/queues/oci/rows.csv", "/queues/optiplan/rows.csv"]
    shown += [f"/site/north/oci-control{one}" for one in ("", "/settings", "/export")]
    for path in shown:
        page = control.world.client.get(f"/dashboard{path}", headers=control.world.cookie("nur"))
        assert page.status_code == 200, path
        assert phone not in page.text, path
        assert "+90" not in page.text, path
