"""The API for a job's files and for the workshop's settings."""

import io
import json
import re
import zipfile
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from kesin.workloads.optiplan import artifacts
from tests.web.conftest import error_of
from tests.workloads.optiplan.floor import Floor
from tests.workloads.optiplan.order_bodies import part

FILES = ("xml", "import-files", "plan.svg", "plan.pdf", "labels.pdf", "ptx", "cut-list.csv", "parts.csv")


def names_in(data: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return archive.namelist()


# Files


def test_one_solution_is_sent_as_it_is_and_its_drawing_escapes_what_looks_like_code(floor: Floor):
    job_id = floor.sent(part(id="<script>x</script>"))
    answer = floor.get(f"/jobs/{job_id}/xml")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/xml")
    [name] = floor.inbox()
    assert answer.content == (floor.paths.inbox / name).read_bytes()
    assert f'attachment; filename="{job_id}_GOVDE_Beyaz_18mm.xml"' in answer.headers.values()
    svg = floor.get(f"/jobs/{job_id}/plan.svg").text
    assert "<script" not in svg
    assert "&lt;script" in svg
    floor.saw.process_inbox()


def test_several_solutions_and_the_import_files_are_sent_as_archives(floor: Floor, cut: str):
    for what, suffix in (("xml", "xml"), ("import-files", "xlsx")):
        answer = floor.get(f"/jobs/{cut}/{what}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
        names = [f"{cut}_GOVDE_Beyaz_18mm.{suffix}", f"{cut}_ARKALIK_Beyaz_8mm.{suffix}"]
        assert names_in(answer.content) == names
        assert answer.content == floor.get(f"/jobs/{cut}/{what}").content


def test_the_plan_is_drawn_as_it_went_to_the_saw_board_by_board_and_printed(
    floor: Floor, cut: str, monkeypatch: pytest.MonkeyPatch
):
    whole = floor.get(f"/jobs/{cut}/plan.svg")
    assert (whole.status_code, whole.headers["content-type"]) == (200, "image/svg+xml")
    assert "default-src 'none'" in whole.headers["content-security-policy"]
    root = ET.fromstring(whole.text)  # our own
    assert root.tag.endswith("svg")
    assert "p1" in whole.text
    assert floor.get(f"/jobs/{cut}/plan.svg", lang="tr").text != whole.text
    boards = [floor.get(f"/jobs/{cut}/plan.svg", board=n) for n in (1, 2)]
    assert all(len(drawing.text) < len(whole.text) for drawing in boards)
    assert boards[0].text != boards[1].text
    none = floor.get(f"/jobs/{cut}/plan.svg", board=3)
    assert (none.status_code, error_of(none)["code"]) == (404, "E_FILE_NOT_FOUND")
    wrong = floor.get(f"/jobs/{cut}/plan.svg", board=0)
    assert (wrong.status_code, error_of(wrong)["code"]) == (422, "E_VALIDATION")
    answer = floor.get(f"/jobs/{cut}/plan.pdf", lang="tr")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/pdf")
    assert answer.content.startswith(b"%PDF-")
    monkeypatch.setattr(artifacts, "MAX_DRAWN_BOARDS", 1)  # very many are refused
    for what in ("plan.svg", "plan.pdf"):
        answer = floor.get(f"/jobs/{cut}/{what}")
        assert (answer.status_code, error_of(answer)["details"]) == (404, {"boards": 2})
    assert floor.get(f"/jobs/{cut}/plan.svg", board=2).status_code == 200


def test_a_plan_names_its_customer_only_to_those_who_may_see_it(floor: Floor, cut: str):
    order_id = floor.job_body(cut)["order_id"]
    new = floor.key("operate")
    for who, looks in ((new, 1), (new, 0), (floor.maker, 0)):
        before = len(floor.audit())
        drawing = floor.get(f"/jobs/{cut}/plan.svg", who=who).text
        assert len(floor.audit()) - before == looks
        assert f"Ayşe · {order_id} · " in drawing
    masked = floor.get(f"/jobs/{cut}/plan.svg", who=floor.reader).text
    assert order_id in masked
    assert "Ayşe" not in masked
    assert "Beyaz 8 mm · arkalık" in floor.get(f"/jobs/{cut}/plan.svg", lang="tr").text


def test_before_there_are_files_there_is_nothing_to_fetch_and_no_name_leads_to_another_folder(floor: Floor):
    job_id = floor.new()
    for what in FILES:
        answer = floor.get(f"/jobs/{job_id}/{what}")
        assert (answer.status_code, error_of(answer)["code"]) == (404, "E_FILE_NOT_FOUND")
        assert error_of(answer)["details"] == {"state": "NEW"}
    (floor.paths.export_folder.parent / "secret.xml").write_text("<a/>")
    job = floor.queue.job(job_id)
    assert job is not None
    progress = floor.orders.progress(job)
    progress.xml = ["../secret.xml"]
    floor.orders._progress_store.write(job_id, progress)
    assert floor.get(f"/jobs/{job_id}/xml").status_code == 404


def test_a_link_is_not_followed_and_files_that_are_gone_are_reported_so(floor: Floor):
    job_id = floor.done()
    [xml] = floor.paths.export_folder.glob(f"{job_id}_*.xml")
    xml.rename(xml.with_suffix(".kept"))
    xml.symlink_to(xml.with_suffix(".kept"))
    answer = floor.get(f"/jobs/{job_id}/xml")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "E_FILE_NOT_FOUND")
    for folder in (floor.paths.import_folder, floor.paths.export_folder):
        for file in folder.glob(f"{job_id}_*"):
            file.unlink()
    answers = [floor.get(f"/jobs/{job_id}/{what}") for what in FILES[:4]]
    refusals = {(response.status_code, error_of(response)["code"]) for response in answers}
    assert refusals == {(404, "E_FILE_NOT_FOUND")}


def test_a_plan_that_does_not_go_with_its_order_is_not_drawn(floor: Floor):
    job_id = floor.sent()
    [xml] = floor.paths.export_folder.glob(f"{job_id}_*.xml")
    text = xml.read_text("utf-8")
    for old, new in (
        (r'(<Piece [^>]*?)x="[0-9.]+"', r'\1x="1"'),
        (r'number="1" x', 'number="9" x'),
        (r'material="[^"]*"', 'material="other"'),
        (r' stage="1"', ""),
        (r' times="1"', ' times="many"'),
        (r' board="0"', ' board="1"'),
        (r' price="0.00"', ' price="9.00" offcut="K7"'),
        (r' profile="beam saw"', ' profile="sliding saw"'),
        (r' effort="normal"', ' effort="quick"'),
        (r' stages="[0-9]"', ' stages="9"'),
    ):
        assert re.search(old, text)
        xml.write_text(re.sub(old, new, text, count=1), "utf-8")
        answer = floor.get(f"/jobs/{job_id}/plan.svg")
        assert (answer.status_code, error_of(answer)["code"]) == (409, "E_XML_INVALID"), old
    xml.write_text(text, "utf-8")
    [board] = floor.paths.import_folder.glob(f"{job_id}_*.json")
    board.write_text('{"plate_w_mm": 100, "plate_h_mm": 100}')  # no part fits it
    assert error_of(floor.get(f"/jobs/{job_id}/plan.svg"))["code"] == "E_XML_INVALID"
    floor.saw.process_inbox()


def test_a_folder_that_is_away_is_not_an_empty_one(floor: Floor, cut: str):
    folder = floor.paths.export_folder
    away = folder.rename(folder.with_name("elsewhere"))
    folder.write_text("no folder")
    answer = floor.get(f"/jobs/{cut}/xml")
    folder.unlink()
    away.rename(folder)
    assert (answer.status_code, error_of(answer)["code"]) == (503, "unavailable")


# Settings


def put(floor: Floor, rules: Any, who: dict[str, str] | None = None) -> Any:
    return floor.client.put("/config/rules", json=rules, headers=who or floor.operator)


def test_the_rules_and_the_paths_are_reported(floor: Floor, rules: dict[str, Any]):
    assert floor.get("/config/rules").json() == {"rules": rules, "warnings": []}
    paths = floor.get("/config/paths").json()["paths"]
    assert paths["optiplanningExePath"] == "built-in"
    assert paths["machineDropFolder"] == str(floor.paths.machine_drop_folder)
    assert len(paths) == 7


def test_rules_that_are_hardly_meant_are_answered_with_warnings(floor: Floor, rules: dict[str, Any]):
    rules |= {"cm_to_mm_multiplier": 1, "trimByThickness": {"18": 900}}
    warnings = put(floor, rules).json()["warnings"]
    assert [warning.split()[0] for warning in warnings] == ["cm_to_mm_multiplier", "trimByThickness:"]
    assert floor.get("/config/rules").json()["warnings"] == warnings
    who = floor.cookie(floor.known("boss", "admin"))
    page = floor.client.get("/dashboard/optiplan/rules", headers=who).text
    assert "cm_to_mm_multiplier is 1: " in page
    assert "18 mm boards lose 900 mm on each side" in page


def test_a_changed_rule_counts_at_once_or_from_the_next_start_and_leaves_a_line(floor: Floor, rules: dict[str, Any]):
    rules["trimByThickness"]["16"] = 12
    rules["kerf_mm"] = 3.2
    rules["timeouts"]["osiAckMinutes"] = 10
    answers: list[Any] = []
    [line] = floor.said(lambda: answers.append(put(floor, rules)))
    body = answers[0].json()
    assert (body["success"], body["from_next_start"]) == (True, ["timeouts"])
    assert set(body["changed"]) == {"kerf_mm", "timeouts", "trimByThickness"}
    assert floor.get("/config/rules").json()["rules"] == rules
    assert floor.workshop.rules().kerf_mm * 10 == 32
    assert (line.action, line.queue, line.allowed) == ("optiplan.rules", "optiplan", True)
    details = json.loads(line.details or "")
    assert details["kerf_mm"] == {"from": 4, "to": 3.2}
    assert details.keys() == set(body["changed"])
    assert floor.said(lambda: put(floor, rules)) == []  # the same again


def test_rules_without_the_saw_blade_do_not_set_it_to_the_default(floor: Floor, rules: dict[str, Any]):
    put(floor, rules | {"kerf_mm": 3.2})
    del rules["kerf_mm"]
    answer = put(floor, rules)
    assert (answer.status_code, error_of(answer)["details"]["fields"]) == (
        422,
        [{"field": "kerf_mm", "message": "is missing"}],
    )
    who = floor.cookie(floor.known("boss", "admin"))
    page = floor.client.post("/dashboard/optiplan/rules", data={"v/kerf_mm": ""}, headers=who)
    assert page.status_code == 422
    assert floor.get("/config/rules").json()["rules"]["kerf_mm"] == 3.2


def test_bad_rules_are_named_and_change_nothing(floor: Floor, rules: dict[str, Any]):
    before = floor.workshop.rules_file.read_bytes()
    bad: list[tuple[Any, str]] = [
        (rules | {"kerf": 3}, "kerf"),
        (rules | {"timeouts": {"optiXmlMinutes": 20}}, "timeouts.osiAckMinutes"),
        ([], "order"),
        (None, "order"),
    ]
    for body, field in bad:
        answer = put(floor, body)
        assert (answer.status_code, error_of(answer)["code"]) == (422, "E_VALIDATION")
        assert field in [problem["field"] for problem in error_of(answer)["details"]["fields"]]
    assert floor.workshop.rules_file.read_bytes() == before


def test_a_rules_file_that_cannot_be_written_or_read_is_reported(
    floor: Floor, rules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kesin.workloads.optiplan.workshop.json_file.write_atomically", full)
    answers: list[Any] = []
    assert floor.said(lambda: answers.append(put(floor, rules | {"kerf_mm": 3}))) == []
    floor.workshop.rules_file.write_text("{")
    answers.append(floor.get("/config/rules"))
    assert [error_of(answer)["code"] for answer in answers] == ["E_CONFIG_UNAVAILABLE"] * 2
    assert answers[-1].status_code == 503
