"""`kesin pdf …` as somebody types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pypdfium2
import pytest

from kesin.workloads.pdf.book import SHIPPED
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


def test_the_doctor_prints_a_test_page(pdf: Pdf):
    answer = pdf("doctor", "--json")
    assert answer.code == 0
    assert [one["name"] for one in answer.json] == ["templates", "browser", "sandbox", "test page"]


def test_the_doctor_says_when_the_browser_asked_for_is_not_there(
    pdf: Pdf, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KESIN_PDF_CHROMIUM", "no-such-browser")
    answer = pdf("doctor", "--engine", "chromium")
    assert answer.code == 1
    assert "no-such-browser" in answer.out
    assert pdf("doctor").code == 0
