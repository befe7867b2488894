"""Filters write values as the language of the document does."""

import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pypdfium2
import pytest
import zxingcpp
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from kesin.workloads.pdf.templating import filters
from kesin.workloads.pdf.templating.filters import Unprintable, in_words, spell_number
from tests.workloads.pdf import paper

NBSP = "\u00a0"


def test_money_is_written_as_the_language_writes_it():
    for value, currency, lang, text in (
        (1234.56, "TRY", "tr", "1.234,56 ₺"),
        (0, "TRY", "tr", "0,00 ₺"),
        (-1234567.5, "TRY", "tr", "−1.234.567,50 ₺"),
        ("99999999.995", "EUR", "tr", "100.000.000,00 €"),
        (1.005, "TRY", "tr", "1,01 ₺"),
        (Decimal("2.675"), "USD", "tr", "2,68 $"),
        (1234.5, "TRY", "en", "₺1,234.50"),
        (-5, "EUR", "en", "−€5.00"),
        (1234.5, "EUR", "de", "1.234,50 €"),
        (1234.5, "JPY", "en", "¥1,235"),
        (1.5, "KWD", "tr", "1,500 KWD"),
        (-0.001, "TRY", "tr", "0,00 ₺"),
        (7, "CHF", "fr", "7.00 CHF"),
    ):
        assert filters.money(value, currency, lang=lang).replace(NBSP, " ") == text, value
        bare = re.sub(r"[₺€$¥ ]|[A-Z]{3}", "", text)
        assert filters.money(value, currency, sign=False, lang=lang) == bare, value


def test_a_wrong_number_is_refused_without_being_repeated():
    values = ["1,5", "abc", "", True, None, list[str](), float("nan"), float("inf"), 10**15, "1e5"]
    for value in values:
        with pytest.raises(Unprintable, match="expected a number") as refused:
            filters.money(value)
        assert "abc" not in str(refused.value)
    with pytest.raises(Unprintable, match="three letters"):
        filters.money(1, "<b>")


@given(st.decimals(-(10**12), 10**12, places=2))
def test_money_can_be_read_back(value):
    text = filters.money(value).removesuffix(f"{NBSP}₺")
    read = text.replace(".", "").replace(",", ".").replace("−", "-")
    assert Decimal(read) == value


def test_numbers_have_the_places_they_need():
    for value, places, text in (
        (1234.5, None, "1.234,5"),
        (186.40, None, "186,4"),
        (3, 2, "3,00"),
        (0.1 + 0.2, None, "0,3"),
    ):
        assert filters.number(value, places) == text, value


def test_percent_stands_before_in_turkish_and_after_in_english():
    assert filters.percent(20) == "%20"
    assert filters.percent(18.5) == "%18,5"
    assert filters.percent(18.5, lang="en") == "18.5%"


def test_dates_are_read_as_iso_and_written_with_dots():
    assert filters.date("2026-11-05") == "05.11.2026"
    assert filters.date(date(2026, 11, 5)) == "05.11.2026"
    assert filters.date("2026-11-05T09:00:00+03:00") == "05.11.2026"
    assert filters.date("2026-11-05", lang="en") == "2026-11-05"


def test_long_dates_have_the_name_of_the_month_and_stay_on_one_line():
    for lang, written in (
        ("tr", "5 Ağustos 2026"), ("en", "5 August 2026"), ("de", "5. August 2026"),
         ("tr-TR", "5 Ağustos 2026"), ("fr", "5 August 2026"),
    ):  # fmt: skip
        for value in ("2026-08-05", "2026-08-05T23:59:00+03:00"):
            assert filters.date(value, "long", lang=lang) == written.replace(" ", "\N{NO-BREAK SPACE}"), lang
        with pytest.raises(Unprintable, match='expected "short" or "long"'):
            filters.date("2026-08-05", "full", lang=lang)


def test_a_time_is_shown_in_the_given_time_zone():
    assert filters.datetime("2026-11-15T21:30:00+00:00", "Europe/Istanbul") == "16.11.2026 00:30"
    assert filters.datetime("2026-11-15T21:30:00Z") == "15.11.2026 21:30"
    assert filters.datetime(datetime(2026, 11, 15, 9, 5, tzinfo=UTC)) == "15.11.2026 09:05"
    assert filters.datetime("2026-11-15 08:00", "Europe/Istanbul") == "15.11.2026 08:00"
    for zone in ("Nowhere/City", "../../etc/passwd", ""):
        with pytest.raises(Unprintable, match="time zone"):
            filters.datetime("2026-11-15T21:30:00Z", zone)


def test_other_dates_are_refused():
    for value in ("15.11.2026", "2026-02-30", "20261115", "", None, 5):
        with pytest.raises(Unprintable, match="expected a date"):
            filters.date(value)


def test_turkish_letters_keep_their_dots():
    assert filters.upper_tr("istanbul ısparta ğüşöç") == "İSTANBUL ISPARTA ĞÜŞÖÇ"
    assert filters.lower_tr("İSTANBUL ISPARTA ĞÜŞÖÇ") == "istanbul ısparta ğüşöç"


@given(st.text(alphabet="abcçdefgğhıijklmnoöprsştuüvyz "))
def test_lower_case_undoes_upper_case(text):
    assert filters.lower_tr(filters.upper_tr(text)) == text


def test_only_colours_and_lengths_may_stand_in_styles():
    for value in ("#0a5", "#00AA55", "tomato", "rgb(1, 2, 3)", "12mm", "-1.5em", "0"):
        assert filters.css(value) == value
    for value in (
        "red;position:fixed", "url(x)", "expression(1)", "#12", "12", "}", "</style>",
        "rgb(url(x))", "",
    ):  # fmt: skip
        with pytest.raises(Unprintable):
            filters.css(value)


@given(st.text())
def test_a_text_in_css_cannot_end_its_string(value):
    written = filters.css_text(value)
    assert isinstance(written, Markup)
    inner = str(written)[1:-1]
    assert not set("\"'<>&;{}()/\n\r\f") & set(inner)
    assert written.startswith('"')
    assert written.endswith('"')


def test_links_lead_to_pages_and_addresses_and_run_nothing():
    for value in ("https://a.example/x?y=1", "http://a.example", "mailto:a@b.example"):
        assert filters.url(value) == value
    for value in (
        "javascript:alert(1)", "JaVaScript:alert(1)", "data:text/html,x", "//a.example", "https:",
        "a b", "\x01javascript:x", "java\nscript:x", "file:///etc/passwd", "mailto:", "http://[",
        "",
    ):  # fmt: skip
        with pytest.raises(Unprintable):
            filters.url(value)


def test_pictures_are_part_of_the_data_and_no_drawings():
    assert filters.image("data:image/png;base64,AAAA") == "data:image/png;base64,AAAA"
    for value in ("data:image/svg+xml;base64,AAAA", "https://a.example/x.png", 'data:image/png;base64,"'):
        with pytest.raises(Unprintable):
            filters.image(value)


def test_a_qr_code_is_a_drawing_without_its_text():
    drawing = filters.qr("https://a.example/ğ?<script>")
    assert isinstance(drawing, Markup)
    assert drawing.startswith("<svg")
    assert "script" not in drawing
    assert filters.qr("a") == filters.qr("a")
    assert "<title>" not in filters.qr("a")
    assert "<title>Pay &lt;now&gt;</title>" in filters.qr("a", "Pay <now>")
    for value in ("", "x" * 1001, "漢" * 900, "a\0b", "\ud800"):
        with pytest.raises(Unprintable):
            filters.qr(value)


@pytest.mark.starts  # WeasyPrint asks ldconfig for its libraries
def test_a_qr_code_reads_back_as_its_text():
    texts = ["https://a.example/?id=7", "FATURA ğüşİöç 12.345,67 ₺", "漢字"]
    codes = "".join(f"<p>{filters.qr(text)}" for text in texts)
    page = f"<style>@page{{size:60mm;margin:0}} svg{{width:60mm}} p{{margin:0;break-after:page}}</style>{codes}"
    with pypdfium2.PdfDocument(paper.weasy(page)[0]) as pdf:
        pictures = [leaf.render(scale=4, grayscale=True).to_pil() for leaf in pdf]
    assert [code.text for picture in pictures for code in zxingcpp.read_barcodes(picture)] == texts


def test_an_iban_is_read_in_fours():
    assert filters.iban("tr33 000610051978").replace(NBSP, " ") == "TR33 0006 1005 1978"


def test_amounts_are_spelled_out():
    for value, text in (
        (0, "sıfır Türk lirası"),
        (1000, "bin Türk lirası"),
        (1234.56, "bin iki yüz otuz dört Türk lirası elli altı kuruş"),
        (100, "yüz Türk lirası"),
        (1_001_001, "bir milyon bin bir Türk lirası"),
        (-2.05, "eksi iki Türk lirası beş kuruş"),
    ):
        assert in_words(value) == text, value


def test_only_known_coins_have_words():
    assert in_words(5, "EUR") == "beş avro"
    assert not in_words(5, "XAU")
    with pytest.raises(Unprintable):
        spell_number(10**15)
