"""The routes of labels and machine files, and the page behind a scanned label."""

import csv
import io

import pypdfium2
import pytest

from kesin.workloads.optiplan.api import shop_files
from kesin.workloads.optiplan.labels.ids import order_code
from tests.web.conftest import ROOT, error_of
from tests.workloads.optiplan.api.test_files import names_in
from tests.workloads.optiplan.floor import PHONE, Floor, two_batches
from tests.workloads.optiplan.labels import printed
from tests.workloads.optiplan.machine_files import ptx_reader
from tests.workloads.optiplan.stock.racks import put_offcut


def texts(data: bytes) -> list[str]:
    return [page.get_textpage().get_text_range() for page in pypdfium2.PdfDocument(io.BytesIO(data))]


def test_labels_are_printed_as_the_rules_say_or_as_asked_for(floor: Floor, cut: str):
    by_rules = floor.get(f"/jobs/{cut}/labels.pdf", lang="tr")
    assert by_rules.headers["content-type"] == "application/pdf"
    found = texts(by_rules.content)
    assert len(found) == sum(given["quantity"] for given in two_batches())
    assert "Levha 1/" in found[0]
    sheet = floor.get(f"/jobs/{cut}/labels.pdf", layout="a4-3x8", first=24)
    assert len(texts(sheet.content)) == 2


def test_settings_without_effect_are_refused_by_name(floor: Floor, cut: str):
    for params, field in (
        ({"layout": "70x70"}, "layout"),
        ({"layout": "a4-3x8", "first": 25}, "first"),
        ({"layout": "100x50", "first": 2}, "first"),
        ({"start": 1_000}, "start"),
    ):
        answer = floor.get(f"/jobs/{cut}/labels.pdf", **params)
        assert (answer.status_code, error_of(answer)["code"]) == (422, "E_VALIDATION")
        assert [each["field"] for each in error_of(answer)["details"]["fields"]] == [field]


def test_more_labels_than_a_pdf_holds_are_requested_in_parts(floor: Floor, cut: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shop_files, "MAX_LABELS", 2)
    answer = floor.get(f"/jobs/{cut}/labels.pdf")
    assert answer.status_code == 422
    assert "at most 2 labels, so request 1, then 3" in error_of(answer)["message"]
    assert len(texts(floor.get(f"/jobs/{cut}/labels.pdf", start=2).content)) == 2


def test_a_customer_is_on_the_labels_of_who_may_see_the_name(floor: Floor):
    floor.orders.add_customer(ROOT, "Ayşe", PHONE)
    name, job_id = "Güneş Ahşap", floor.new(customer_snapshot_name="Güneş Ahşap")
    floor.work()
    floor.act(job_id, "approve", confirm=True)
    floor.plan(job_id)
    floor.later()
    floor.later()
    floor.saw.process_inbox()
    shown = {
        who: name in texts(floor.get(f"/jobs/{job_id}/labels.pdf", headers).content)[0]
        for who, headers in (("maker", floor.maker), ("reader", floor.reader))
    }
    assert shown == {"maker": True, "reader": False}


def test_a_ptx_is_sent_for_each_batch(floor: Floor, cut: str):
    answer = floor.get(f"/jobs/{cut}/ptx")
    assert names_in(answer.content) == [f"{cut}_GOVDE_Beyaz_18mm.ptx", f"{cut}_ARKALIK_Beyaz_8mm.ptx"]
    job_id = floor.sent()
    one = floor.get(f"/jobs/{job_id}/ptx")
    assert f'attachment; filename="{job_id}_GOVDE_Beyaz_18mm.ptx"' in one.headers.values()
    assert ptx_reader.patterns(one.content)
    floor.saw.process_inbox()


def test_lists_are_sent_as_csv(floor: Floor, cut: str):
    cuts = floor.get(f"/jobs/{cut}/cut-list.csv")
    parts = floor.get(f"/jobs/{cut}/parts.csv")
    assert {a.headers["content-type"] for a in (cuts, parts)} == {"text/csv; charset=utf-8"}
    rows = list(csv.reader(parts.content.decode("utf-8-sig").splitlines()))
    assert [row[0] for row in rows[1:]] == [given["id"] for given in two_batches()]


def test_a_plan_of_another_program_has_an_xml_labels_and_parts_only(floor: Floor):
    job_id = floor.running()
    file = floor.paths.export_folder / f"{job_id}.xml"
    file.write_text("<Sol><Solution name='p001' best='1' mqBoards='5.88'/></Sol>")
    floor.later()
    floor.later()
    for what in ("xml", "labels.pdf", "parts.csv"):
        assert floor.get(f"/jobs/{job_id}/{what}").status_code == 200, what
    for what in ("plan.svg", "ptx", "cut-list.csv"):
        answer = floor.get(f"/jobs/{job_id}/{what}")
        assert (answer.status_code, error_of(answer)["code"]) == (404, "E_FILE_NOT_FOUND"), what
        assert "another program" in error_of(answer)["message"]
    floor.saw.process_inbox()


# Scanning


def scan(floor: Floor, path: str) -> tuple[int, str]:
    answer = floor.client.get(f"/dashboard/optiplan/scan{path}", headers=floor.operator)
    return answer.status_code, answer.text


def test_a_scanned_part_shows_its_order_and_its_board_if_there_is_a_plan(floor: Floor, cut: str):
    status, page = scan(floor, f"/{order_code(cut)}-1-1")
    assert status == 200
    assert f'href="/dashboard/jobs/{cut}"' in page
    assert f"/jobs/{cut}/plan.svg?board=1" in page
    assert two_batches()[0]["id"] in page
    status, page = scan(floor, f"/{order_code(floor.new())}-1-1")
    assert (status, "no plan now" in page) == (200, True)
    for label in (f"{order_code(cut)}-9-1", "2222222222-1-1"):
        status, page = scan(floor, f"/{label}")
        assert status == 404
        assert "No order or offcut has this label" in page


def test_what_a_scanner_types_into_the_field_is_opened(floor: Floor, cut: str):
    code = order_code(cut)
    for typed, opened in (
        (f"{code.lower()}*1*1", f"optiplan/scan/{code}-1-1"),
        ("rABC23DEF", "optiplan/rack?scan=RABC23DEF"),
        (code.lower(), f"jobs/{cut}"),
    ):
        where, how = "/dashboard/optiplan/scan", {"follow_redirects": False}
        answer = floor.client.get(where, params={"text": typed}, headers=floor.operator, **how)
        assert answer.headers["location"] == f"/dashboard/{opened}"


# Offcuts


def test_offcuts_have_labels_with_their_places(floor: Floor, cut: str):
    offcut = put_offcut(floor.queue, "label", made_by_job=cut)
    job = floor.queue.job(cut)
    assert job is not None
    data = floor.get("/rack/labels.pdf", id=offcut, lang="tr").content
    [text] = texts(data)
    for shown in (f"ARTIK {offcut}", "900 × 700", "18 mm", "Raf B3"):
        assert shown in text
    assert f"Sipariş {job.payload['order']['order_id']} · " in text
    [page] = printed.pages(data)
    found = printed.codes(page)
    assert found["Code128"] == offcut
    assert found["QRCode"].endswith(f"/dashboard/optiplan/scan/{offcut}")
    ids = [put_offcut(floor.queue, f"several {n}") for n in range(3)]
    answer = floor.client.get("/rack/labels.pdf", params={"id": ids, "layout": "a4-3x8"}, headers=floor.reader)
    [text] = texts(answer.content)
    assert all(offcut in text for offcut in ids)
    answer = floor.get("/rack/labels.pdf", id="R22222222")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "E_OFFCUT_NOT_FOUND")
