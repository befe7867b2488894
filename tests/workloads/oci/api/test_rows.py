"""The operator's table: every row once, found by any of its ids."""

from typing import Any

from kesin.foundation.clock import iso
from tests.workloads.oci.own_site import OwnSite, ok, refused

COLUMNS = [
    *("id", "orderId", "externalId", "status", "attempt_count", "claimed_at", "next_retry_at"),
    *("last_error", "provider_error_code", "provider_error_category", "uploaded_at"),
    *("failed_at", "created_at", "updated_at"),
]


def ids_of(rows: list[dict]) -> list[str]:
    return [row["id"] for row in rows]


def test_a_new_row_has_the_columns_of_the_table_and_a_claimed_one_its_time(site: OwnSite):
    [job_id] = site.enqueue()
    created = iso(site.clock.time_us)
    body = ok(site.page())
    assert list(body) == ["siteId", "rows", "nextCursor"]
    assert (body["siteId"], body["nextCursor"]) == (site.id, None)
    [row] = body["rows"]
    assert list(row) == COLUMNS
    assert row == {
        **dict.fromkeys(COLUMNS),
        "id": job_id,
        "orderId": site.job(job_id).payload["orderId"],
        "externalId": "sale-1",
        "status": "QUEUED",
        "attempt_count": 0,
        "created_at": created,
        "updated_at": created,
    }
    site.wait(5)
    site.export()
    row, now = site.row_of(job_id), iso(site.clock.time_us)
    assert (row["status"], row["claimed_at"], row["updated_at"]) == ("PROCESSING", now, now)
    assert row["created_at"] == created


def test_only_a_row_that_will_be_tried_again_has_a_next_attempt(site: OwnSite):
    [job_id] = site.fail(category="TRANSIENT")
    job = site.job(job_id)
    assert site.row_of(job_id)["next_retry_at"] == iso(job.timer_at)
    assert 300 <= ((job.timer_at or 0) - site.clock.time_us) / 1e6 <= 360
    others = site.claim(3, first=2)
    site.ack(others[:1])
    site.ack_failed(others[1:2])
    rows = [site.row_of(one) for one in [*others, *site.enqueue(1, first=9)]]
    assert [(row["status"], row["next_retry_at"]) for row in rows] == [
        *(("COMPLETED", None), ("FAILED", None), ("PROCESSING", None)),
        ("QUEUED", None),
    ]


def test_a_row_that_holds_no_conversion_is_listed_too(site: OwnSite):
    row = site.row_of(site.enqueue_raw(["not", "ours"]))
    assert (row["orderId"], row["externalId"]) == (None, None)


# Pages


def test_each_row_is_listed_once_newest_first_while_rows_move_and_come(site: OwnSite):
    ids = site.enqueue(6)
    first = ok(site.page(limit=2))
    site.export()
    site.ack(ids[:3])
    site.act("RESET_TO_QUEUED", ids[3:])
    site.enqueue(2, first=50)
    second = ok(site.page(limit=2, cursor=first["nextCursor"]))
    site.act("MARK_FAILED", ids[3:])
    third = ok(site.page(limit=2, cursor=second["nextCursor"]))
    seen = [*ids_of(first["rows"]), *ids_of(second["rows"]), *ids_of(third["rows"])]
    assert (seen, third["nextCursor"]) == (ids[::-1], None)


def test_a_page_has_a_hundred_rows_by_default_and_two_hundred_at_most(site: OwnSite):
    site.enqueue(101)
    assert len(site.rows()) == 100
    assert len(site.rows(limit=200)) == 101


def test_what_makes_no_sense_is_refused_by_name(site: OwnSite):
    for name, value in (("limit", 0), ("limit", 201), ("cursor", "next"), ("q", "x" * 513), ("code", "x" * 65)):
        error = refused(site.page(**{name: value}), 422)
        assert error["details"]["fields"][0]["field"].startswith(name)


# Filters


def test_rows_are_chosen_by_state_code_and_category(site: OwnSite):
    ids = site.claim(4)
    site.ack(ids[1:2])
    site.ack_failed(ids[2:3], errorCode="BAD")
    site.ack_failed(ids[3:], errorCode="LATER", errorCategory="TRANSIENT")
    ids = [*site.enqueue(1, first=9), *ids]
    for params, places in (
        ({"status": "QUEUED"}, [0]),
        ({"status": ["PROCESSING", "COMPLETED"]}, [1, 2]),
        ({"status": "FAILED"}, [3, 4]),
        ({"code": "BAD"}, [3]),
        ({"code": ["BAD", "LATER"]}, [3, 4]),
        ({"category": "TRANSIENT"}, [4]),
        ({"status": "FAILED", "category": "VALIDATION"}, [3]),
        ({"status": "COMPLETED", "category": "VALIDATION"}, []),
        ({"code": "NOBODYS"}, []),
    ):
        assert set(ids_of(site.rows(**params))) == {ids[n] for n in places}, params
    assert refused(site.page(status="SENT"), 400)["code"] == "bad_status"


# Searches


def test_a_row_is_found_by_any_of_its_ids_and_only_at_its_site(site: OwnSite, neighbour: OwnSite):
    ids = site.enqueue(3)
    neighbour.enqueue(1, first=9)
    payload = site.job(ids[1]).payload
    names = [ids[1], f"seal_{ids[1]}", *(payload[n] for n in ("orderId", "externalId", "gclid"))]
    for name in names:
        assert ids_of(site.rows(q=name)) == [ids[1]]
        assert neighbour.rows(q=name) == []
    assert ids_of(site.rows(q=ids[1], status="QUEUED")) == [ids[1]]
    for params in ({"status": "FAILED"}, {"code": "X"}, {"category": "AUTH"}):
        assert [site.rows(q=name, **params) for name in names[-2:]] == [[], []]


def test_a_row_is_found_by_another_kind_of_click_id(site: OwnSite):
    site.enqueue(1, first=9)
    for number, kind in enumerate(("wbraid", "gbraid")):
        click: dict[str, Any] = {"gclid": None, kind: f"Cl8KCQjw_{kind}"}
        [job_id] = site.enqueue(1, first=number, **click)
        assert ids_of(site.rows(q=f"Cl8KCQjw_{kind}")) == [job_id]


def test_a_search_by_external_id_finds_its_revisions(site: OwnSite):
    job_id = site.row_in("COMPLETED")
    site.act("ENQUEUE_FIX", [job_id])
    rows = site.rows(q="sale-1")
    assert (len(rows), rows[1]["id"]) == (2, job_id)
    assert {row["externalId"] for row in rows} == {"sale-1"}


def test_any_search_is_answered_and_wildcards_mean_themselves(site: OwnSite):
    site.enqueue(2)
    for text in ("nothing like it", "%", "_", "'", '"', "\\", "seal_", "\0", "a\0"):
        assert site.page(q=text).status_code == 200, text
    assert site.rows(q="sale%") == []
    assert site.rows(q="sale_1") == []
