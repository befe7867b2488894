"""The commands of `kesin pdf`."""

import io
import json
import os
from collections.abc import Callable
from contextlib import closing
from copy import copy
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from fontTools.ttLib import TTFont
from markupsafe import Markup

from kesin.engine.queue import Queue
from kesin.foundation.check import DoctorCheck
from kesin.foundation.settings import Settings, load_settings
from kesin.lifecycle.budget import SECOND_US
from kesin.store.open import open_store
from kesin.workloads.pdf import doctor, services
from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.doctor import _check_fonts, _check_storage, _check_workers, open_pdf_queue
from kesin.workloads.pdf.engines import pick_engine
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.engines.browser import ChromiumSettings
from kesin.workloads.pdf.engines.weasyprint import WeasyPrintEngine
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from kesin.workloads.pdf.templating.versions import TemplateChange
from tests.cli.conftest import _logs_as_before, _own_settings, kesin  # noqa: F401  # fixtures
from tests.workloads.pdf.api.test_versions import package
from tests.workloads.pdf.press import BOOK

Pdf = Callable[..., Any]


@pytest.fixture
def pdf(kesin: Pdf) -> Pdf:  # noqa: F811
    return lambda *words, **how: kesin("pdf", *words, **how)


def text_of(file: Path) -> str:
    with pypdfium2.PdfDocument(file) as document:
        return "\n".join(page.get_textpage().get_text_range() for page in document)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands take the shipped templates from memory."""
    monkeypatch.setattr(services, "load_pdf_templates", lambda _: BOOK)


@pytest.mark.usefixtures("shared", "loaded")
@pytest.mark.parametrize("engine", ["chromium", "weasyprint"])
def test_a_template_and_its_variables_become_a_pdf(pdf: Pdf, tmp_path: Path, engine: str):
    (tmp_path / "data.json").write_text(json.dumps(BOOK.get("invoice").sample), "utf-8")
    answer = pdf("render", "invoice", "data.json", "-o", "out.pdf", "--engine", engine, "--json")
    assert answer.code == 0
    summary = answer.json
    assert (summary["engine"], summary["pages"], summary["warnings"]) == (engine, 1, [])
    assert "Ödenecek tutar" in text_of(tmp_path / "out.pdf")


@pytest.mark.usefixtures("loaded")
def test_a_wrong_template_or_file_is_one_sentence_and_nothing_is_written(pdf: Pdf, tmp_path: Path):
    for template, data, text, problem in (
        ("invoice", "-", '{"number": 7}', "/buyer: is missing"),
        ("nope", "-", "{}", "no template"),
        ("invoice", "-", "[", "not JSON"),
        ("invoice", "-", "[]", "must contain a JSON object"),
        ("invoice", "no.json", "", "cannot be read"),
    ):
        answer = pdf("render", template, data, "-o", "out.pdf", text=text)
        assert (answer.code, problem in answer.err) == (2, True), problem
        assert "Traceback" not in answer.err
        assert not (tmp_path / "out.pdf").exists()


@pytest.mark.usefixtures("loaded")
def test_the_templates_are_listed_and_shown_with_schema_and_sample(pdf: Pdf):
    names = [row["name"] for row in pdf("templates", "--json").json]
    assert names == ["conversion_report", "cutting_plan", "invoice"]
    shown = pdf("templates", "invoice").json
    assert shown["sample"] == BOOK.get("invoice").sample
    assert shown["schema"]["type"] == "object"
    english = pdf("templates", "invoice", "--lang", "en").json["sample"]
    assert (english["lang"], english) == ("en", BOOK.get("invoice").sample_in("en"))


@pytest.mark.usefixtures("shared")
def test_a_template_of_the_configured_folder_is_rendered_with_variables_of_standard_input(
    pdf: Pdf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "own" / "letter"
    folder.mkdir(parents=True)
    (folder / "template.html").write_text("<html><head></head><body>{{ name }}</body></html>")
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "title": "Letter"}
    (folder / "schema.json").write_text(json.dumps(schema))
    (folder / "sample.json").write_text('{"name": "Ayşe"}')
    monkeypatch.setenv("KESIN_PDF_TEMPLATES", str(tmp_path / "own"))
    words = ("render", "letter", "-", "-o", "out.pdf", "--engine", "weasyprint")
    answer = pdf(*words, text='{"name": "Ayşe"}')
    assert answer.code == 0
    assert answer.out.startswith("out.pdf: ")
    assert "Ayşe" in text_of(tmp_path / "out.pdf")


@pytest.mark.usefixtures("shared")
def test_a_template_that_cannot_fill_in_its_sample_is_named(pdf: Pdf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "own" / "letter"
    folder.mkdir(parents=True)
    (folder / "template.html").write_text("<html><head></head><body>{{ 1 // 0 }}</body></html>")
    (folder / "schema.json").write_text('{"type": "object"}')
    (folder / "sample.json").write_text("{}")
    monkeypatch.setenv("KESIN_PDF_TEMPLATES", str(tmp_path / "own"))
    listed = {row["name"]: row.get("problem", "") for row in pdf("templates", "--json").json}
    assert [name for name, problem in listed.items() if problem] == ["letter"]
    answer = pdf("doctor", "--engine", "weasyprint", "--json")
    assert answer.code == 1
    [check] = [check for check in answer.json if not check["ok"]]
    assert check == {"name": "broken template", "ok": False, "detail": listed["letter"]}
    assert "letter/template.html, line 1" in check["detail"]


def test_a_missing_template_folder_is_an_error(pdf: Pdf, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KESIN_PDF_TEMPLATES", "nowhere")
    answer = pdf("templates")
    assert answer.code != 0
    assert "KESIN_PDF_TEMPLATES" in answer.err


def test_the_doctor_prints_a_test_page_and_checks_its_fonts(pdf: Pdf, tmp_path: Path):
    answer = pdf("doctor", "--json")
    assert answer.code == 0
    details = {check["name"]: check["detail"] for check in answer.json}
    assert list(details) == ["templates", "browser", "sandbox", "test page", "fonts", "storage"]
    assert "ğ" in details["fonts"]
    assert not (tmp_path / "data").exists()


@pytest.mark.usefixtures("shared", "loaded")
def test_the_doctor_reports_a_browser_that_is_missing(pdf: Pdf, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KESIN_PDF_CHROMIUM", "no-such-browser")
    answer = pdf("doctor", "--engine", "chromium")
    assert answer.code == 1
    assert "no-such-browser" in answer.out
    assert pdf("doctor").code == 0


def test_the_doctor_finds_a_font_that_lacks_turkish_letters():
    library = copy(BOOK)
    for font, problem in ((without("ğ"), "lacks ğ"), (b"no font", "cannot be read: ")):
        library.fonts = {**BOOK.fonts, "fonts/serif-regular.woff2": font}
        check = _check_fonts(WeasyPrintEngine(), library, 60)
        assert not check.ok
        assert f"fonts/serif-regular.woff2 {problem}" in check.found


@pytest.mark.parametrize("name", ["chromium", "weasyprint"])
def test_the_doctor_finds_a_font_that_replaces_ours(name: str, request: pytest.FixtureRequest):
    spoilt = copy(BOOK)
    spoilt.font_css = Markup(str(BOOK.font_css).replace("Kesin Sans", "Kesin Gone"))
    check = _check_fonts(request.getfixturevalue(name), spoilt, 60)
    assert not check.ok
    assert "was used instead" in check.found


def without(letter: str) -> bytes:
    """Our font, but for one letter."""
    font = TTFont(SHIPPED / "fonts" / "sans-regular.woff2")
    font.flavor = None  # compressing it would take a second
    for table in font["cmap"].tables:
        table.cmap.pop(ord(letter), None)
    file = io.BytesIO()
    font.save(file)
    return file.getvalue()


def test_the_doctor_tries_the_storage(tmp_path: Path):
    folder = str(tmp_path / "pdfs")
    assert _check_storage(Settings(pdf_artifacts=folder)) == DoctorCheck("storage", "ok", folder)
    assert list((tmp_path / "pdfs").rglob("*.pdf")) == []
    (tmp_path / "file").touch()
    check = _check_storage(Settings(pdf_artifacts=str(tmp_path / "file")))
    assert not check.ok
    assert "KESIN_PDF_ARTIFACTS" in check.found


def checked(settings: Settings) -> list[DoctorCheck]:
    with open_pdf_queue(settings) as queue:
        return [] if queue is None else [*_check_workers(queue)]


def test_the_doctor_counts_workers_and_waiting_jobs(tmp_path: Path):
    settings = Settings(data_dir=tmp_path)
    assert checked(settings) == []
    store = open_store(settings.database)
    try:
        assert checked(settings) == []
        assert store.rules("pdf") == []  # a check declares nothing
        queue = Queue("pdf", pdf_lifecycle(), store)
        assert [check.ok for check in checked(settings)] == [True]
        queue.enqueue({})
        (check,) = checked(settings)
        assert (check.ok, "0 alive, 1 jobs waiting" in check.found) == (False, True)
        Heartbeat(store, "w1").beat()
        assert checked(settings) == [DoctorCheck("workers", "ok", "1 alive, 1 jobs waiting")]
        Heartbeat(store, "frozen", now=lambda: queue.now() - 60 * SECOND_US).beat()
        assert queue.claim("frozen", limit=1)
        stuck, workers = checked(settings)
        assert (stuck.ok, stuck.found.split()[0]) == (False, "frozen")
        assert workers == DoctorCheck("workers", "ok", "1 alive, 0 jobs waiting")
        Heartbeat(store, "w1").stop()
        assert [check.ok for check in checked(settings)] == [False, False]
    finally:
        store.close()


@pytest.mark.usefixtures("shared")
def test_uploaded_versions_are_listed_and_a_lost_file_is_a_failure(pdf: Pdf):
    settings = load_settings()
    with closing(open_store(settings.database)) as store:
        queue = Queue("pdf", pdf_lifecycle(), store)
        versions = services.open_templates(settings, queue).versions
        change = TemplateChange(BOOK, "card", "me", lambda **_: None)
        first, second = (versions.add(change, package(text)).version for text in ("one ", "two "))
        versions.add(change._replace(name="note"), package("draft "))
        versions.activate(change, second)
    rows = {row["name"]: row for row in pdf("templates", "--json").json}
    states = {each["version"]: each["state"] for each in rows["card"]["versions"]}
    assert states == {first: "draft", second: "active"}
    assert rows["invoice"]["versions"] == []
    assert rows["note"]["title"] == "no active version"
    assert f"{second[:12]} active, {first[:12]} draft" in pdf("templates").out
    assert pdf("templates", "card").json["sample"] == {"name": "sample"}
    (settings.data_dir / f"artifacts/templates/card/{first}.zip").unlink()
    checks = {each["name"]: each for each in pdf("doctor", "--engine", "weasyprint", "--json").json}
    assert (checks["template note"]["ok"], checks["template card"]["ok"]) == (True, False)
    assert f"the file is lost: {first[:12]}" in checks["template card"]["detail"]


def test_the_doctor_tells_root_what_to_do_about_the_sandbox(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.setattr(doctor, "is_chromium_available", lambda _: True)
    (_, check) = doctor._check_browser(Settings(pdf_sandbox="on"), None)
    assert not check.ok
    assert "run as another user, or set it to auto" in check.found


@pytest.mark.long
@pytest.mark.skipif(os.getuid() != 0, reason="only root is refused")
def test_a_browser_that_refuses_root_says_what_to_do():
    engine = pick_engine("chromium", ChromiumSettings(sandbox="on"))
    try:
        with pytest.raises(RenderFailed, match="run as another user, or set KESIN_PDF_SANDBOX"):
            engine.render("<p>a", Paper(), timeout_s=60)
    finally:
        engine.close()
