"""The templates that come with Kesin, on paper."""

import re
from decimal import Decimal
from functools import cache
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.templating.filters import Unprintable, cutting_sums, invoice_sums, tally
from kesin.workloads.pdf.templating.library import TemplateLibrary
from tests.workloads.pdf import paper
from tests.workloads.pdf.press import BOOK

pytestmark = pytest.mark.starts

NASTY = "A & B <c> \"q\" 'x' ğüşıöç İ ₺"


@cache
def loaded_again():
    return TemplateLibrary.load()


def sample(name, **changes):
    return {**BOOK.get(name).sample, **changes}


def page(name, **changes):
    return BOOK.render_html(name, sample(name, **changes))


def printed(name, **changes):
    return paper.text(page(name, **changes))


def words(name, **changes):
    """The text of the page as a browser reads it, without its layout."""
    body = page(name, **changes).partition("<body")[2]
    return unescape(re.sub(r"<[^<>]*>", " ", body))


def problem_paths(name, **changes):
    return [problem.path for problem in BOOK.find_problems(name, sample(name, **changes))]


def by_chromium(engine, html):
    return paper.pages(engine.render(html, Paper(), timeout_s=60).pdf)


@pytest.mark.parametrize("name", BOOK.names)
class TestEach:
    # In short: Chromium prints them in both languages in test_look.
    @pytest.mark.parametrize(
        ("lang", "footer", "names"),
        [
            ("tr", "Sayfa 1 / ", ("Işıkçı Ahşap", "Özgür Mobilya & Dekorasyon A.Ş.")),
            pytest.param(
                "en", "Page 1 / ", ("Alder & Finch", "Harbour & Pine Furniture Ltd"),
                marks=pytest.mark.long,
            ),
        ],
        ids=["tr", "en"],
    )  # fmt: skip
    def test_its_samples_fill_their_pages_without_a_warning(self, name, lang, footer, names):
        html = BOOK.render_html(name, BOOK.get(name).sample_in(lang))
        assert f'<html lang="{lang}">' in html
        pdf, warnings = paper.weasy(html)
        assert warnings == []
        pages = paper.pages(pdf)
        assert len(pages) == paper.SAMPLE_PAGES[name]
        assert paper.last_page_share(pdf) >= 2 / 3
        text = "\n".join(pages)
        assert footer in text
        assert "&amp;" not in text
        assert any(each in text for each in names)

    @pytest.mark.long
    def test_it_prints_the_turkish_sample_in_english(self, name):
        html = page(name, lang="en")
        assert paper.weasy(html)[1] == []
        assert "Page 1 / " in paper.text(html)

    def test_it_has_a_title_a_description_and_all_texts_in_both_languages(self, name):
        template = BOOK.get(name)
        assert template.title
        assert template.description
        assert template.title != template.schema["title_tr"] != ""
        assert template.description != template.schema["description_tr"] != ""
        assert set(template.texts) == {"tr", "en"}
        assert template.texts["tr"].keys() == template.texts["en"].keys()

    def test_its_page_contains_everything_and_is_the_same_every_time(self, name):
        html = page(name)
        assert html.count("data:font/woff2") == 6
        assert '<html lang="tr">' in html
        assert '<html lang="en">' in page(name, lang="en")
        assert "<script" not in html
        assert loaded_again().render_html(name, sample(name)) == html
        assert problem_paths(name, surprise=1) == ["/surprise"]

    def test_both_engines_print_the_same_words(self, name, chromium):
        html = page(name)
        pages = by_chromium(chromium, html), paper.pages(paper.weasy(html)[0])
        assert len(pages[0]) == len(pages[1])
        words = [set(" ".join(each).split()) for each in pages]
        assert words[1] - words[0] == set()  # upright labels come back in pieces from Chromium


class TestInvoice:
    def test_figures_are_turkish_and_right(self):
        text = printed("invoice")
        for line in (
            "15.11.2026",
            "51.998,28 ₺ son ödeme 15 Aralık 2026",
            "186,4 m 14,75 – %20 2.749,40",
            "%20 39.144,40 7.828,88",
            "İndirim −192,00",
            "Ödenecek tutar 51.998,28 ₺",
            "Yalnız elli bir bin dokuz yüz doksan sekiz Türk lirası yirmi sekiz kuruş.",
            "TR33 0006 1005 1978 6457 8413 26",
            "Fatura KSN2026000001234",
        ):
            assert line in text

    def test_values_are_printed_as_they_are_and_without_a_discount_there_is_no_column(self, chromium):
        party = {"name": NASTY, "address": f"{NASTY}\n{NASTY}"}
        line = {"description": NASTY, "quantity": 2, "unit_price": "0.335", "vat_percent": 20}
        html = page("invoice", number="B & C <7>", seller=party, buyer=party, lines=[line], notes=NASTY)
        text = "\n".join(by_chromium(chromium, html))
        assert text.count(NASTY) == 9  # head, parties of two and three, line, notes, foot
        assert text.count("B & C <7>") == 2
        assert "&lt;" not in text
        assert "&#" not in text
        assert "İndirim" not in text
        assert "Ödenecek tutar 0,80 ₺" in text

    def test_other_currencies_and_languages(self, chromium):
        [text] = by_chromium(chromium, page("invoice", lang="en", currency="EUR"))
        assert "Total due €51,998.28" in text
        assert "€51,998.28 due 15 December 2026" in text
        assert "2026-11-15" in text
        assert "Yalnız" not in text
        assert "Page 1 / " in text

    def test_a_stated_total_must_agree(self):
        assert "51.998,28" in words("invoice", stated_total=51998.28)
        with pytest.raises(RenderFailed, match="do not add up"):
            page("invoice", stated_total=51998.29)

    def test_a_problem_is_named_by_its_path(self):
        for changes, path in (
            ({"lines": []}, "/lines"),
            ({"lines": [sample("invoice")["lines"][0] | {"quantity": "1,5"}]}, "/lines/0/quantity"),
            ({"seller": {"address": "x"}}, "/seller/name"),
            ({"banks": [{"name": "x", "iban": "TR00"}]}, "/banks/0/iban"),
            ({"issued_on": "15.11.2026"}, "/issued_on"),
            ({"accent": "red;}"}, "/accent"),
            ({"logo": "https://a.example/x.png"}, "/logo"),
        ):  # fmt: skip
            assert problem_paths("invoice", **changes) == [path]

    @given(st.lists(st.tuples(
        st.decimals("0.01", 999, places=2), st.decimals("-999", 9999, places=4),
        st.sampled_from([0, 1, 10, 20]), st.sampled_from([0, 5, "12.5"]),
    ), min_size=1, max_size=12))  # fmt: skip
    def test_sums_hold_together(self, lines):
        items = [
            {"quantity": str(quantity), "unit_price": str(price), "vat_percent": vat,
             "discount_percent": discount}
            for quantity, price, vat, discount in lines
        ]  # fmt: skip
        sums = invoice_sums(items)
        assert sums.total == sums.net + sums.tax
        assert sums.net == sums.gross - sums.discount == sum(line.net for line in sums.lines)
        assert sum(rate.base for rate in sums.vat) == sums.net
        assert all(abs(rate.tax - rate.base * rate.rate / 100) <= Decimal("0.005") for rate in sums.vat)
        assert sums.total == sums.total.quantize(Decimal("0.01"))


class TestCuttingPlan:
    def test_boards_parts_bands_and_offcuts_are_listed(self):
        text = printed("cutting_plan")
        for line in (
            "%79,2", "Levha 1 2.800 × 2.100 mm · 2 adet", "10 parça · Verim %89,4",
            "A4 Çekmece önü 480 380 8 Boyuna", "1 mm Ceviz 34,11", "0,4 mm Ceviz 17,72",
            "1 (2 adet) R1 840 × 380 0,32", "Testere payı 4 mm",
        ):  # fmt: skip
            assert line in text

    def test_every_part_is_drawn_with_its_label(self):
        html = page("cutting_plan")
        assert html.count('fill="#ffffff"') == 10 + 21
        assert html.count(">A7</text>") == 12

    def test_labels_are_text_and_nothing_else(self):
        part = {"label": "<A & 'b'>", "x_mm": 0, "y_mm": 0, "length_mm": 1000, "width_mm": 500}
        boards = [{"length_mm": 2000, "width_mm": 1000, "parts": [part]}]
        text = words("cutting_plan", boards=boards, parts=[], order={"number": NASTY})
        assert "<A & 'b'>" in text
        assert NASTY in text

    def test_a_part_off_its_board_is_an_error(self):
        part = {"label": "A", "x_mm": 1500, "y_mm": 0, "length_mm": 501, "width_mm": 10}
        boards = [{"length_mm": 2000, "width_mm": 1000, "parts": [part]}]
        with pytest.raises(RenderFailed, match="is not on its board"):
            page("cutting_plan", boards=boards)

    def test_tiny_parts_have_no_label_and_lean_ones_stand(self):
        def piece(length, width):
            item = {"label": "A12", "x_mm": 0, "y_mm": 0, "length_mm": length, "width_mm": width}
            board = {"length_mm": 2800, "width_mm": 2100, "parts": [item]}
            return cutting_sums([board]).boards[0].parts[0]

        assert piece(10, 10).letter == 0
        assert piece(60, 1000).upright
        assert piece(60, 1000).letter > 0
        assert piece(60, 1000).small == 0
        assert 0 < piece(1000, 800).small <= piece(1000, 800).letter

    def test_bands_are_measured_along_their_sides(self):
        part = {"x_mm": 0, "y_mm": 0, "length_mm": 1000, "width_mm": 400,
                "bands": {"up": "1 mm", "sx": "1 mm", "dx": "2 mm", "lo": None}}  # fmt: skip
        plan = cutting_sums([{"length_mm": 1000, "width_mm": 800, "count": 3, "parts": [part]}])
        assert plan.bands == (("1 mm", Decimal("4.2")), ("2 mm", Decimal("1.2")))
        assert plan.yield_percent == 50
        assert (plan.board_count, plan.part_count) == (3, 3)


class TestConversionReport:
    def test_states_errors_and_rows_are_listed(self):
        text = printed("conversion_report")
        for line in (
            "9 Kasım 2026 – 15 Kasım 2026",
            "09.11.2026 – 15.11.2026",
            "Hazırlanma: 15.11.2026 09:30",
            "Tamamlandı COMPLETED 18.204 %97,4",
            "Başarısız FAILED 38 %0,2",
            "TRY 4.218.350,40 11.920,00",
            "UNPARSEABLE_GCLID VALIDATION",
            "35 kez",
            "Satış 14.11.2026 18:05 3.200,00 ₺ 1 Başarısız",
            "18.681 satır daha var",
        ):
            assert line in text

    def test_an_empty_period_says_so(self):
        required = {key: sample("conversion_report")[key] for key in ("site", "period")}
        variables = {**required, "totals": {"QUEUED": 0}, "errors": []}
        text = BOOK.render_html("conversion_report", variables)
        assert "Bu dönemde dönüşüm yok." in text
        assert "Bu dönemde hata yok." in text

    def test_unknown_states_are_refused(self):
        assert problem_paths("conversion_report", totals={"LOST": 1}) == ["/totals/LOST"]

    def test_shares_are_of_the_whole(self):
        counted = tally({"A": 1, "B": 3}, ["A", "B", "C"])
        assert counted.total == 4
        assert [share.percent for share in counted.shares] == [25, 75, 0]
        assert tally({}, ["A"]).shares[0].percent == 0


def test_a_number_beyond_reason_is_refused():
    with pytest.raises(Unprintable):
        invoice_sums([{"quantity": 10**11, "unit_price": 10**11, "vat_percent": 0}])
