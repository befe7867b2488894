"""How the shipped templates look on paper, by both engines: faces, pages, what stands first."""

import io
import math
import re
from functools import cache
from itertools import pairwise, product

import pikepdf
import pypdfium2
import pytest
from fontTools.ttLib import TTFont

from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.doctor import TEST_LETTERS
from kesin.workloads.pdf.engines.base import Paper
from tests.workloads.pdf import paper
from tests.workloads.pdf.documents import page
from tests.workloads.pdf.press import BOOK, SAMPLE

pytestmark = pytest.mark.starts

FACES = {
    "sans-regular": ("KesinSans-Regular", 400, False),
    "sans-italic": ("KesinSans-Italic", 400, True),
    "sans-semibold": ("KesinSans-SemiBold", 600, False),
    "sans-semibold-italic": ("KesinSans-SemiBoldItalic", 600, True),
}
FAMILY_BYTES = 100_000
SHARE = 1 / 3  # of a page, which its text reaches down at least
HEADINGS = "# Kod Mal / hizmet Miktar Birim fiyat İndirim KDV Tutar"


@pytest.fixture
def engine(request):
    """Chromium, or None: WeasyPrint in this process, which remembers what it printed."""
    return request.getfixturevalue("chromium") if request.param == "chromium" else None


BOTH = pytest.mark.parametrize("engine", ["chromium", "weasyprint"], indirect=True)
# WeasyPrint takes seconds for a document of several pages.
CHROMIUM = pytest.mark.parametrize(
    "engine", ["chromium", pytest.param("weasyprint", marks=pytest.mark.long)], indirect=True
)


@cache
def printed(engine, html):
    if engine is None:
        pdf, warnings = paper.weasy(html)
    else:
        rendered = engine.render(html, Paper(), timeout_s=60)
        pdf, warnings = rendered.pdf, list(rendered.warnings)
    assert warnings == []
    return pdf


def long_invoice(count):
    lines = [SAMPLE["lines"][at % len(SAMPLE["lines"])] for at in range(count)]
    return BOOK.render_html("invoice", {**SAMPLE, "lines": lines})


def fonts_of(pdf):
    """The fonts of a PDF: name with the prefix of a subset, and kind."""
    with pikepdf.open(io.BytesIO(pdf)) as document:
        fonts = [item for item in document.objects if isinstance(item, pikepdf.Dictionary)]
        fonts = [item for item in fonts if item.get("/Type") == "/Font"]
        kinds = {str(item["/Subtype"]) for item in fonts}
        described = [item for item in fonts if item["/Subtype"] == "/CIDFontType2"]
        assert all("/FontFile2" in item["/FontDescriptor"] for item in described)
        return {str(item["/BaseFont"]).removeprefix("/") for item in described}, kinds


@cache
def face(name):
    return TTFont(SHIPPED / "fonts" / f"{name}.woff2")


def outline(name, letter):
    font = face(name)
    return list(font["glyf"][font.getBestCmap()[ord(letter)]].coordinates)


class TestPages:
    @CHROMIUM
    def test_eighty_lines_take_three_pages_and_each_repeats_the_headings(self, engine):
        pages = paper.pages(printed(engine, long_invoice(80)))
        assert len(pages) == 3
        for number, text in enumerate(pages, 1):
            assert HEADINGS in text
            assert f"Sayfa {number} / 3" in text
        assert sum("Ödenecek tutar" in text for text in pages) == 1
        numbers = [int(n) for text in pages for n in re.findall(r"\b(\d+) (?:SLAM-18-CVZ 18 mm"
                   r"|ARK-08|PVC-1|Ebatlama|Teknik|Nakliye)", text)]  # fmt: skip
        assert numbers == list(range(1, 81))

    @pytest.mark.parametrize(
        ("engine", "count"),
        [
            *product(["chromium"], (7, 50, 62)),
            ("weasyprint", 7),
            pytest.param("chromium", 25, marks=pytest.mark.long),
            *(pytest.param("weasyprint", n, marks=pytest.mark.long) for n in (25, 50, 62)),
        ],
        indirect=["engine"],
    )
    def test_totals_stand_with_the_last_lines_and_no_last_page_is_nearly_empty(self, engine, count):
        pdf = printed(engine, long_invoice(count))
        *before, last = paper.pages(pdf)
        assert before
        for number in range(count - 2, count + 1):
            assert re.search(rf"\b{number} (?:[A-Z]|8 mm|18 mm)", last), number
        for text in ("Ödenecek tutar", "Yalnız", "TR33 0006", "rica ederiz", "Faturayı doğrula"):
            assert [text in each for each in before] == [False] * len(before)
            assert text in last
        assert paper.last_page_share(pdf) >= SHARE

    @CHROMIUM
    def test_long_notes_may_follow_on_another_page(self, engine):
        notes = "\n".join(f"{n}. madde: mallar sağlam teslim edilmiştir." for n in range(80))
        html = BOOK.render_html("invoice", {**SAMPLE, "notes": notes})
        pages = paper.pages(printed(engine, html))
        assert "Ödenecek tutar" in pages[0]
        assert "79. madde" in pages[-1]

    @pytest.mark.parametrize("lang", ["tr", "en"])
    @pytest.mark.parametrize("name", paper.SAMPLE_PAGES)
    def test_samples_fill_their_pages(self, chromium, name, lang):
        """Those of WeasyPrint are looked at in test_shipped."""
        pdf = printed(chromium, BOOK.render_html(name, BOOK.get(name).sample_in(lang)))
        assert len(paper.pages(pdf)) == paper.SAMPLE_PAGES[name]
        assert paper.last_page_share(pdf) >= 2 * SHARE

    @CHROMIUM
    def test_reports_and_plans_end_with_more_than_a_few_rows(self, engine):
        report, plan = BOOK.get("conversion_report").sample, BOOK.get("cutting_plan").sample
        for name, values in (
            ("conversion_report", {**report, "rows": report["rows"] * 5}),
            ("cutting_plan", {**plan, "parts": plan["parts"] * 2}),
        ):
            pdf = printed(engine, BOOK.render_html(name, values))
            *before, last = paper.pages(pdf)
            assert before
            assert paper.last_page_share(pdf) >= 0.2
            after = "satır daha var" if name == "conversion_report" else "Saklanacak artıklar"
            assert after in last
            headings = "Kimlik Dönüşüm" if name == "conversion_report" else "Parça Açıklama"
            assert headings in last


class TestInvoiceLook:
    def test_total_and_due_date_come_first_and_the_currency_stands_with_totals_alone(self, chromium):
        """Those of WeasyPrint are looked at in test_shipped."""
        [text] = paper.pages(printed(chromium, BOOK.render_html("invoice", SAMPLE)))
        first = text.index("51.998,28 ₺ son ödeme 15 Aralık 2026")
        assert first < text.index("Düzenleme tarihi") < text.index("Mal / hizmet")
        assert text.count("₺") == text.count("51.998,28") == 2
        assert text.count(SAMPLE["seller"]["name"]) == 2  # above, and in the foot

    def test_figures_are_as_wide_as_each_other(self, chromium):
        lines = [{**SAMPLE["lines"][0], "unit_price": price} for price in (1111.11, 4848.48)]
        pdf = printed(chromium, BOOK.render_html("invoice", {**SAMPLE, "lines": lines}))
        with pypdfium2.PdfDocument(pdf) as document:
            text = document[0].get_textpage()
            everything = text.get_text_range()
            widths = [digit_widths(text, everything.index(n)) for n in ("1.111,11", "4.848,48")]
        assert widths[0] == pytest.approx(widths[1], abs=0.02)

    def test_codes_are_drawn_with_a_name_for_those_who_hear_the_page(self):
        html = BOOK.render_html("invoice", SAMPLE)
        assert '<div role="img" aria-label="Faturayı doğrula">' in html
        drawings = BOOK.render_html("cutting_plan", BOOK.get("cutting_plan").sample)
        assert drawings.count('role="img" aria-label="Levha ') == 2


def digit_widths(text, at):
    """From the left edge of one character to that of the next, as the font sets them."""
    lefts = [text.get_charbox(at + n, loose=True)[0] for n in range(8)]
    return [after - before for before, after in pairwise(lefts)]


class TestFaces:
    @pytest.mark.parametrize("name", FACES)
    def test_a_face_is_truetype_of_its_weight_with_true_italics_and_tabular_figures(self, name):
        font, (full, weight, italic) = face(name), FACES[name]
        assert font.sfntVersion == "\x00\x01\x00\x00"
        assert "CFF " not in font
        assert font["name"].getDebugName(6) == full
        assert font["name"].getDebugName(1).startswith("Kesin Sans")
        assert "Inter Project Authors" in font["name"].getDebugName(0)
        assert font["OS/2"].usWeightClass == weight
        assert (font["post"].italicAngle != 0) is italic
        features = {each.FeatureTag for each in font["GSUB"].table.FeatureList.FeatureRecord}
        assert "tnum" in features
        assert set(map(ord, TEST_LETTERS + "ğşİıçöü₺€→−№≤≥●✓")) <= font.getBestCmap().keys()
        assert len(font.getBestCmap()) == 438

    def test_an_italic_is_drawn_and_not_slanted_by_a_machine(self):
        upright, italic = (outline(name, "o") for name in ("sans-regular", "sans-italic"))
        assert len(upright) == len(italic)
        slope = -math.tan(math.radians(face("sans-italic")["post"].italicAngle))
        moved = [x - y * slope - before for (before, _), (x, y) in zip(upright, italic, strict=True)]
        assert max(moved) - min(moved) > 10  # units of 2816 to the em

    def test_the_family_is_small_and_its_licences_lie_beside_it(self):
        folder = SHIPPED / "fonts"
        sizes = {path.name: path.stat().st_size for path in folder.glob("*.woff2")}
        symbols = {"symbols-regular.part.woff2", "symbols-semibold.part.woff2"}
        assert sizes.keys() == {f"{name}.woff2" for name in FACES} | symbols
        assert sum(sizes.values()) <= FAMILY_BYTES
        assert "SIL OPEN FONT LICENSE Version 1.1" in (folder / "OFL.txt").read_text("utf-8")
        assert "Bitstream Vera" in (folder / "LICENSE.txt").read_text("utf-8")

    def test_symbols_hold_what_the_family_lacks(self):
        lacking = face("symbols-regular.part").getBestCmap().keys() - {0x20, 0xA0}
        assert len(lacking) == 64
        assert not lacking & face("sans-regular").getBestCmap().keys()

    @pytest.mark.parametrize("name", BOOK.names)
    def test_documents_embed_subsets_of_the_family_and_no_type_3(self, chromium, name):
        pdf = printed(chromium, BOOK.render_html(name, BOOK.get(name).sample))
        names, kinds = fonts_of(pdf)
        assert kinds == {"/Type0", "/CIDFontType2"}
        assert all(re.fullmatch(r"[A-Z]{6}\+KesinSans-\w+", each) for each in names)
        expected = {"KesinSans-Regular", "KesinSans-SemiBold"}
        if name == "invoice":
            expected.add("KesinSans-Italic")
        assert {each.partition("+")[2] for each in names} == expected

    @BOTH
    def test_weights_italics_and_symbols_come_from_our_files(self, engine):
        words = "<b>kalın ✔</b> <i>eğik</i> <b><i>ikisi</i></b> <span>▣ ≡ ✔ ■ 1</span>"
        style = "body { font: 14pt 'Kesin Sans', 'Kesin Symbols', monospace }"
        html = page(f"{TEST_LETTERS} {words}", f"<style>{BOOK.font_css} {style}</style>")
        pdf = printed(engine, html)
        names, kinds = fonts_of(pdf)
        assert "/Type3" not in kinds
        faces = {each.partition("+")[2] for each in names}
        if engine is not None:
            ours = {full for full, _, _ in FACES.values()}
            assert faces == ours | {"DejaVuSans", "DejaVuSans-Bold"}
        else:
            assert all(each.startswith(("Kesin-Sans", "Kesin-Symbols")) for each in faces)
            assert {"Kesin-Sans", "Kesin-Sans-Italic", "Kesin-Sans-Semi-Bold"} < faces
        [text] = paper.pages(pdf)
        assert text == f"{TEST_LETTERS} kalın ✔ eğik ikisi ▣ ≡ ✔ ■ 1"
