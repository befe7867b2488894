"""`kesin pdf …` as somebody types it."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from fontTools.ttLib import TTFont
from markupsafe import Markup

from kesin.engine.queue import Queue
from kesin.foundation.settings import Settings
from kesin.store.open import open_store
from kesin.workloads.pdf import doctor
from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.doctor import PdfCheck, _check_fonts, _check_storage, _check_workers
from kesin.workloads.pdf.engines import pick_engine
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.engines.chromium_settings import ChromiumSettings
from kesin.workloads.pdf.engines.weasyprint import WeasyPrintEngine
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from kesin.workloads.pdf.templating.library import TemplateLibrary
from tests.cli.conftest import _logs_as_before, _own_settings, kesin  # noqa: F401  # fixtures

Pdf = Callable[..., Any]


@pytest.fixture
def pdf(kesin: Pdf) -> Pdf:  # noqa: F811
    return lambda *words, **how: kesin("pdf", *words, **how)


def sample(name: str) -> dict[str, object]:
    text = (SHIPPED / name / "sample.json").read_text("utf-8")
    told: dict[str, object] = json.loads(text)
    return told


def text_of(file: Path) -> str:
    with pypdfium2.PdfDocument(file) as document:
        return "\n".join(page.get_textpage().get_text_range() for page in document)


@pytest.mark.parametrize("engine", ["chromium", "weasyprint"])
def test_a_template_and_its_variables_become_a_pdf(pdf: Pdf, tmp_path: Path, engine: str):
    (tmp_path / "data.json").write_text(json.dumps(sample("invoice")), "utf-8")
    answer = pdf("render", "invoice", "data.json", "-o", "out.pdf", "--engine", engine, "--json")
    assert answer.code == 0
    told = answer.json
    assert (told["engine"], told["pages"], told["warnings"]) == (engine, 1, [])
    assert "Ödenecek tutar" in text_of(tmp_path / "out.pdf")


def test_variables_come_from_standard_input_too(pdf: Pdf, tmp_path: Path):
    text = json.dumps(sample("conversion_report"))
    words = ("render", "conversion_report", "-", "-o", "out.pdf", "--engine", "weasyprint")
    answer = pdf(*words, text=text)
    assert answer.code == 0
    assert answer.out.startswith("out.pdf: ")
    assert (tmp_path / "out.pdf").read_bytes().startswith(b"%PDF")


def test_wrong_variables_are_told_place_by_place_and_nothing_is_written(pdf: Pdf, tmp_path: Path):
    answer = pdf("render", "invoice", "-", "-o", "out.pdf", text='{"number": 7}')
    assert answer.code == 2
    assert "/buyer: is missing" in answer.err
    assert not (tmp_path / "out.pdf").exists()


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        (("nope", "-", "-o", "x.pdf"), "{}", "no template"),
        (("invoice", "-", "-o", "x.pdf"), "[", "no JSON"),
        (("invoice", "-", "-o", "x.pdf"), "[]", "must hold an object"),
        (("invoice", "no.json", "-o", "x.pdf"), "", "cannot be read"),
    ],
)
def test_what_cannot_be_rendered_is_told_in_one_sentence(
    pdf: Pdf, words: tuple[str, ...], text: str, said: str
):
    answer = pdf("render", *words, text=text)
    assert answer.code == 2
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_the_templates_are_listed_and_shown_with_schema_and_sample(pdf: Pdf):
    names = [one["name"] for one in pdf("templates", "--json").json]
    assert names == ["conversion_report", "cutting_plan", "invoice"]
    shown = pdf("templates", "invoice").json
    assert shown["sample"] == sample("invoice")
    assert shown["schema"]["type"] == "object"


def test_templates_of_ones_own_are_found_in_the_configured_folder(
    pdf: Pdf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    own = tmp_path / "own" / "letter"
    own.mkdir(parents=True)
    (own / "template.html").write_text("<html><head></head><body>{{ name }}</body></html>")
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "title": "Letter"}
    (own / "schema.json").write_text(json.dumps(schema))
    (own / "sample.json").write_text('{"name": "Ayşe"}')
    monkeypatch.setenv("KESIN_PDF_TEMPLATES", str(tmp_path / "own"))
    words = ("render", "letter", "-", "-o", "out.pdf", "--engine", "weasyprint")
    assert pdf(*words, text='{"name": "Ayşe"}').code == 0
    assert "Ayşe" in text_of(tmp_path / "out.pdf")


def test_a_folder_that_is_not_there_is_told(pdf: Pdf, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KESIN_PDF_TEMPLATES", "nowhere")
    answer = pdf("templates")
    assert answer.code != 0
    assert "KESIN_PDF_TEMPLATES" in answer.err


def found(answer: Any) -> dict[str, tuple[bool, str]]:
    return {one["name"]: (one["ok"], one["detail"]) for one in answer.json}


def test_the_doctor_prints_a_test_page_and_looks_at_its_fonts(pdf: Pdf, tmp_path: Path):
    answer = pdf("doctor", "--json")
    assert answer.code == 0
    told = found(answer)
    assert list(told) == ["templates", "browser", "sandbox", "test page", "fonts", "storage"]
    assert "ğ" in told["fonts"][1]
    assert not (tmp_path / "data").exists()


def test_the_doctor_says_when_the_browser_asked_for_is_not_there(
    pdf: Pdf, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KESIN_PDF_CHROMIUM", "no-such-browser")
    answer = pdf("doctor", "--engine", "chromium")
    assert answer.code == 1
    assert "no-such-browser" in answer.out
    assert pdf("doctor").code == 0


@pytest.mark.parametrize(
    ("font", "told"),
    [(lambda: without("ğ"), "lacks ğ"), (lambda: b"no font", "cannot be read: ")],
)
def test_the_doctor_finds_a_font_that_does_not_draw_our_letters(
    font: Callable[[], bytes], told: str
):
    book = TemplateLibrary.load()
    book.fonts["fonts/serif-regular.woff2"] = font()
    check = _check_fonts(WeasyPrintEngine(), book, 60)
    assert not check.ok
    assert f"fonts/serif-regular.woff2 {told}" in check.detail


@pytest.mark.parametrize("engine", ["chromium", "weasyprint"])
def test_a_font_that_takes_the_place_of_ours_is_found(engine: str):
    made = pick_engine(engine)
    book = TemplateLibrary.load()
    spoilt = TemplateLibrary.load()
    spoilt.font_css = Markup(str(book.font_css).replace("Kesin Sans", "Kesin Gone"))
    try:
        assert _check_fonts(made, book, 60).ok
        told = _check_fonts(made, spoilt, 60)
    finally:
        made.close()
    assert not told.ok
    assert "was used instead" in told.detail


def without(letter: str) -> bytes:
    """Our font, but for one letter."""
    font = TTFont(SHIPPED / "fonts" / "sans-regular.woff2")
    for table in font["cmap"].tables:
        table.cmap.pop(ord(letter), None)
    kept = io.BytesIO()
    font.save(kept)
    return kept.getvalue()


def test_the_doctor_tries_the_storage(tmp_path: Path):
    kept = str(tmp_path / "kept")
    assert _check_storage(Settings(pdf_artifacts=kept)) == PdfCheck("storage", ok=True, detail=kept)
    assert list((tmp_path / "kept").rglob("*.pdf")) == []
    (tmp_path / "file").touch()
    told = _check_storage(Settings(pdf_artifacts=str(tmp_path / "file")))
    assert not told.ok
    assert "KESIN_PDF_ARTIFACTS" in told.detail


def test_the_doctor_says_who_renders_and_whether_somebody_waits(tmp_path: Path):
    settings = Settings(data_dir=tmp_path)
    assert list(_check_workers(settings)) == []
    store = open_store(settings.database)
    try:
        queue = Queue("pdf", pdf_lifecycle(), store)
        assert [one.ok for one in _check_workers(settings)] == [True]
        queue.enqueue({})
        (told,) = _check_workers(settings)
        assert (told.ok, "0 alive, 1 jobs wait" in told.detail) == (False, True)
        Heartbeat(store, "w1").beat()
        assert list(_check_workers(settings)) == [
            PdfCheck("workers", ok=True, detail="1 alive, 1 jobs wait")
        ]
    finally:
        store.close()


def test_root_is_told_what_to_do_about_the_sandbox(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.setattr(doctor, "is_chromium_available", lambda _: True)
    (_, told) = doctor._check_browser(Settings(pdf_sandbox="on"), None)
    assert not told.ok
    assert "run as another user, or set it to auto" in told.detail


@pytest.mark.skipif(os.getuid() != 0, reason="only root is refused")
def test_a_browser_that_refuses_root_says_what_to_do():
    engine = pick_engine("chromium", ChromiumSettings(sandbox="on"))
    try:
        with pytest.raises(RenderFailed, match="run as another user, or set KESIN_PDF_SANDBOX"):
            engine.render("<p>a", Paper(), timeout_s=60)
    finally:
        engine.close()
