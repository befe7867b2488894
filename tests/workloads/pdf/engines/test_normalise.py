"""The same document gives the same bytes, whenever it is printed."""

import io

import pikepdf
import pytest

from kesin.workloads.pdf.engines.base import parse_page_ranges, selected_pages
from kesin.workloads.pdf.engines.normalise import normalise_pdf
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.limits import MAX_PDF_BYTES

TODAY = b"D:20261115090457+03'00'"
TOMORROW = b"D:20261116101112+03'00'"
ABOUT = {"title": "Belge ğ", "author": "Ayşe", "dcterms.created": "2026-11-15"}


def pdf(
    date: bytes = TODAY,
    *,
    pages: int = 2,
    title: bytes = b"Belge",
    stream: bytes = b"",
    ids: bytes = b"",
    language: bytes = b"tr",
) -> bytes:
    """As Chromium writes it."""
    objects = [
        b"<</Title (%s)\n/CreationDate (%s)\n/ModDate (%s)>>" % (title, date, date),
        b"<</Length %d>> stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type /Pages\n/Count %d\n/Kids []>>" % pages,
        b"<</Type /Catalog\n/Lang (%s)\n/Pages 3 0 R>>" % language,
    ]
    data = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(data)
    data += b"xref\n0 5\n0000000000 65535 f \n"
    data += b"".join(b"%010d 00000 n \n" % at for at in offsets)
    trailer = b"trailer\n<</Size 5\n/Root 4 0 R\n/Info 1 0 R%s>>" % ids
    return bytes(data + trailer + b"\nstartxref\n%d\n%%%%EOF\n" % start)


def information(data: bytes) -> dict[str, str]:
    with pikepdf.open(io.BytesIO(data)) as document:
        assert document.check_pdf_syntax() == []
        return {name: str(value) for name, value in document.docinfo.items()}


def test_the_document_says_what_it_is_and_chromium_says_nothing():
    data, pages, _ = normalise_pdf(pdf(), ABOUT)
    assert pages == 2
    assert normalise_pdf(pdf(TOMORROW), ABOUT)[0] == data
    made = {"/CreationDate": "D:20261115", "/Producer": "Kesin"}
    assert information(data) == {"/Title": "Belge ğ", "/Author": "Ayşe", **made}
    for given, date in (
        ("2026-11-15T09:04:57+03:00", "D:20261115090457+03'00'"),
        ("2026-11-15T09:04:57", "D:20261115090457"),
        ("0999-01-01", "D:09990101"),
        ("yesterday", None),
    ):
        data = normalise_pdf(pdf(), {"dcterms.modified": given})[0]
        assert information(data).get("/ModDate") == date


def test_a_language_cannot_pose_as_the_page_tree():
    assert normalise_pdf(pdf(language=b"/Pages 1 0 R \\) /Pages 2 0 R"), {})[1] == 2


def test_identifiers_follow_from_the_content():
    def with_id(digits: bytes, title: str = "", **kwargs) -> bytes:
        ids = b"\n/ID [<%s> <%s>]" % (digits, digits)
        return normalise_pdf(pdf(ids=ids, **kwargs), {"title": title})[0]

    first = with_id(b"AB" * 16)
    assert with_id(b"CD" * 16, date=TOMORROW) == first
    assert with_id(b"AB" * 16, title="Other") != first


def test_data_that_is_no_pdf_is_refused(subtests):
    for data in (
        b"",
        b"<html>",
        b"%PDF-1.4\nstartxref\n9\n%%EOF",
        pdf()[:-40],
        pdf().replace(b"xref\n0 5", b"xrxf\n0 5"),
        pdf().replace(b"3 0 obj", b"9 0 obj"),
        pdf().replace(b"/Pages 3 0 R", b"/Pages 8 0 R"),
        pdf().replace(b"startxref\n", b"startxref\n9"),
    ):
        with subtests.test(repr(data[-40:])), pytest.raises(RenderFailed, match="UNKNOWN"):
            normalise_pdf(data, {})


def test_no_page_and_too_many_pages_are_refused():
    for pages in (0, 501):
        with pytest.raises(RenderFailed, match="TEMPLATE_ERROR"):
            normalise_pdf(pdf(pages=pages), {})
        assert normalise_pdf(pdf(pages=500), {})[1] == 500


def test_a_file_that_is_too_large_is_refused():
    with pytest.raises(RenderFailed, match="TEMPLATE_ERROR"):
        normalise_pdf(pdf(stream=bytes(MAX_PDF_BYTES)), {})


def test_ranges_select_pages():
    assert [selected_pages(ranges, 5) for ranges in ("", " ", "1-", "-9")] == [[1, 2, 3, 4, 5]] * 4
    cases = {"2": [2], "1-3, 5": [1, 2, 3, 5], "-2": [1, 2], "4-": [4, 5], "3,1,3": [1, 3]}
    assert {ranges: selected_pages(ranges, 5) for ranges in cases} == cases
    assert selected_pages("4-99", 5) == [4, 5]


def test_a_wrong_range_is_an_error_of_the_template():
    for ranges in ("0", "-", "x", "1-2-3", "3-2", "1,", "1;2", "9999999", "-0"):
        with pytest.raises(RenderFailed, match="TEMPLATE_ERROR"):
            parse_page_ranges(ranges)
    with pytest.raises(RenderFailed, match="5 pages"):
        selected_pages("6", 5)
