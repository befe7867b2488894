"""The folder of further fonts: names, limits, what is refused, and what documents print with."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import Settings
from kesin.web.dashboard.frame.i18n import translate
from kesin.workloads.pdf import services
from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.doctor import _check_fonts, embedded_fonts, run_checks
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.engines.weasyprint import WeasyPrintEngine
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.services import load_pdf_templates
from tests.web.dashboard.turkish import catalogue
from tests.workloads.pdf.documents import page, text
from tests.workloads.pdf.press import folder_templates

pytestmark = pytest.mark.starts

ITALIC = (SHIPPED / "fonts" / "sans-italic.woff2").read_bytes()
REGULAR = (SHIPPED / "fonts" / "sans-regular.woff2").read_bytes()
SYMBOLS = (SHIPPED / "fonts" / "symbols-regular.part.woff2").read_bytes()
EXPECTED = "expected a readable file such as serif-600-italic.woff2"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped fonts with one small template: the others take a tenth of a second to load."""
    shipped = tmp_path_factory.mktemp("shipped")
    shutil.copytree(SHIPPED / "fonts", shipped / "fonts")
    (shipped / "letter").mkdir()
    for name, content in (("template.html", "x"), ("schema.json", "{}"), ("sample.json", "{}")):
        (shipped / "letter" / name).write_text(content)
    return shipped


@pytest.fixture
def folder(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(services, "SHIPPED", shipped)
    fonts = tmp_path / "further"
    fonts.mkdir()
    return fonts


def refusal(folder: Path, **limits: Any) -> RenderFailed:
    with pytest.raises(RenderFailed) as caught:
        load_pdf_templates(Settings(pdf_fonts=folder, **limits))
    return caught.value


def test_the_name_of_a_file_says_family_weight_and_style(folder: Path):
    faces = {
        "mono.woff2": "font-family:'Kesin Mono';font-weight:400;font-style:normal",
        "serif-regular.woff2": "font-family:'Kesin Serif';font-weight:400;font-style:normal",
        "serif-italic.woff2": "font-family:'Kesin Serif';font-weight:400;font-style:italic",
        "serif-medium.woff2": "font-family:'Kesin Serif';font-weight:500;font-style:normal",
        "slab2-bold-italic.woff2": "font-family:'Kesin Slab2';font-weight:700;font-style:italic",
        "serif-300.woff2": "font-family:'Kesin Serif';font-weight:300;font-style:normal",
        "han-900-italic.part.woff2": "font-family:'Kesin Han';font-weight:900;font-style:italic",
    }
    for file in faces:
        (folder / file).write_bytes(REGULAR)
    (folder / "LICENSE.txt").write_text("ours")
    (folder / ".hidden").write_text("ours")
    library = load_pdf_templates(Settings(pdf_fonts=folder))
    for file, face in faces.items():
        assert f"@font-face{{{face};src:url(data:font/woff2;base64," in library.font_css, file
    assert library.font_css.count("@font-face") == 6 + len(faces)
    before = load_pdf_templates(Settings())
    hashes = [each.get("letter").content_hash for each in (before, library)]
    assert hashes[0] != hashes[1]


def test_of_two_files_for_a_face_the_later_is_used(folder: Path):
    (folder / "sans-600.woff2").write_bytes(ITALIC)  # beside the shipped sans-semibold.woff2
    css = load_pdf_templates(Settings(pdf_fonts=folder)).font_css
    assert css.count("@font-face") == 6
    assert css.count("font-weight:600;font-style:normal") == 2  # with that of the symbols


def test_other_names_are_refused(folder: Path):
    for file in (
        "serif.ttf", "Serif-regular.woff2", "serif-heavy.woff2", "serif-650.woff2", "README.md",
         "serif-italic-600.woff2", "serif regular.woff2", "serif-regular.woff2.bak", "ı.woff2",
    ):  # fmt: skip
        (folder / file).write_bytes(REGULAR)
        assert refusal(folder).message == f"template fonts/{file}: {EXPECTED}"
        (folder / file).unlink()


def test_what_is_no_file_is_refused(folder: Path):
    (folder / "serif-regular.woff2").mkdir()
    assert refusal(folder).message == f"template fonts/serif-regular.woff2: {EXPECTED}"
    (folder / "serif-regular.woff2").rmdir()
    (folder / "serif-regular.woff2").symlink_to(folder / "nowhere")
    assert EXPECTED in refusal(folder).message
    (folder / "serif-regular.woff2").unlink()
    os.mkfifo(folder / "serif-regular.woff2")  # reading it would wait forever
    assert EXPECTED in refusal(folder).message


def test_what_is_no_whole_font_with_truetype_outlines_is_refused(folder: Path):
    for data in (
        b"", b"no font", b"\0" * 64, ITALIC[:-1], ITALIC + b"\0", ITALIC[:100],
         ITALIC[:4] + b"OTTO" + ITALIC[8:], b"wOFF" + ITALIC[4:],
    ):  # fmt: skip
        (folder / "serif-regular.woff2").write_bytes(data)
        problem = "it is not a complete woff2 file with TrueType outlines"
        assert refusal(folder).message == f"template fonts/serif-regular.woff2: {problem}", data[:4]


class TestFontLimits:
    def test_files_may_be_so_large_and_so_many(self, folder: Path):
        for name, font in (("a", SYMBOLS), ("b", REGULAR), ("c", REGULAR)):
            (folder / f"{name}.woff2").write_bytes(font)
        limits: dict[str, Any]
        for limits, file, why, turkish in (
            ({"pdf_font_kib": 17}, "b", "it is larger than 17 KiB", "17 KiB'tan büyük"),
            ({"pdf_all_fonts_kib": 40}, "c", "with it, the fonts exceed 40 KiB", "40 KiB"),
            ({"pdf_max_fonts": 2}, "c", "at most 2 fonts are allowed", "2"),
        ):
            problem = refusal(folder, **limits).message
            assert problem == f"template fonts/{file}.woff2: {why}"
            assert turkish in str(translate(catalogue(), problem))
            [(setting, value)] = limits.items()
            enough: dict[str, Any] = {setting: value + 1}
            assert "fonts/c.woff2" in load_pdf_templates(Settings(pdf_fonts=folder, **enough)).fonts

    def test_a_huge_file_is_not_read(self, folder: Path):
        with (folder / "a.woff2").open("wb") as file:
            file.truncate(2**40)  # sparse
        assert refusal(folder).message == "template fonts/a.woff2: it is larger than 512 KiB"

    def test_limits_have_limits(self):
        for name in ("pdf_font_kib", "pdf_all_fonts_kib", "pdf_max_fonts"):
            for value in (0, 4_000):
                limits: dict[str, Any] = {name: value}
                with pytest.raises(ValidationError):
                    Settings(**limits)


def test_a_missing_folder_is_named_with_its_setting(tmp_path: Path):
    with pytest.raises(Unavailable, match=r"there is no folder .*none: check KESIN_PDF_FONTS"):
        load_pdf_templates(Settings(pdf_fonts=tmp_path / "none"))


def test_a_changed_folder_is_noticed_and_one_that_is_refused_changes_nothing(folder: Path):
    (folder / "serif-regular.woff2").write_bytes(REGULAR)
    source = folder_templates(Settings(pdf_fonts=folder))
    first = source.library()
    assert source.library() is first
    (folder / "slab.ttf").write_bytes(b"x")
    assert source.library() is first
    assert "fonts/slab.ttf" in str(source.library().rejected["letter"])
    (folder / "slab.ttf").unlink()
    (folder / "slab-bold.woff2").write_bytes(REGULAR)
    assert "fonts/slab-bold.woff2" in source.library().fonts
    assert not source.library().rejected


@pytest.mark.parametrize("name", ["chromium", "weasyprint"])
def test_documents_print_with_a_further_font(folder: Path, name: str, request: pytest.FixtureRequest):
    (folder / "serif-regular.woff2").write_bytes(ITALIC)
    library = load_pdf_templates(Settings(pdf_fonts=folder))
    style = f"<style>{library.font_css} p {{ font: 14pt 'Kesin Serif', monospace }}</style>"
    engine = request.getfixturevalue(name)
    rendered = engine.render(page("<p>Işıl ₺</p>", style), Paper(), timeout_s=60)
    assert rendered.warnings == ()
    assert text(rendered.pdf).strip() == "Işıl ₺"
    expected = "KesinSans-Italic" if name == "chromium" else "Kesin-Serif"
    assert {font.removesuffix("-Italic") for font in embedded_fonts(rendered.pdf)} == {expected.removesuffix("-Italic")}


def test_the_doctor_names_a_font_that_is_refused_and_accepts_a_part(folder: Path, weasyprint: WeasyPrintEngine):
    (folder / "han-regular.part.woff2").write_bytes(SYMBOLS)
    library = load_pdf_templates(Settings(pdf_fonts=folder))
    check = _check_fonts(weasyprint, library, 60)
    assert check.ok
    assert check.found.endswith("in Kesin Sans")
    (folder / "han.otf").write_bytes(b"OTTO")
    first = next(iter(run_checks(Settings(pdf_fonts=folder))))
    assert (first.name, first.ok) == ("templates", False)
    assert "fonts/han.otf" in first.found
