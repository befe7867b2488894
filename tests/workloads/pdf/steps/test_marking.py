"""Stamps: every page, the same each time, and valid in archives."""

import io
from typing import Any

import pikepdf
import pypdfium2
import pytest

from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.steps.finishing import finish
from kesin.workloads.pdf.steps.marking import mark, missing_characters
from tests.workloads.pdf.press import BOOK, SAMPLE
from tests.workloads.pdf.uploads.files import as_bytes, new_pdf

STAMP: dict[str, Any] = {"text": "TASLAKTIR ığüşöçİ", "opacity": 0.5, "angle": 45}


def stamped(pdf: bytes, **how: Any) -> bytes:
    head = {"parts": [[len(pdf), ""]], "main": 0, "stamp": STAMP | how}
    return finish(head, pdf)[1]


def ink(pdf: bytes, page: int = 0) -> float:
    """How dark a page is."""
    document = pypdfium2.PdfDocument(pdf)
    pixels = document[page].render(scale=1).to_pil().tobytes()
    document.close()
    return 255 - sum(pixels) / len(pixels)


def test_every_page_is_stamped_and_the_same_each_time():
    pdf = new_pdf(3)
    whole = stamped(pdf)
    assert [ink(whole, page) > 0.5 for page in range(3)] == [True] * 3
    assert stamped(pdf) == whole
    assert ink(stamped(pdf, opacity=0.1)) < ink(whole)


@pytest.mark.parametrize("angle", [-90, 0, 30, 90])
@pytest.mark.parametrize("rotation", [0, 90])
def test_a_stamp_stays_on_the_page_however_it_is_turned(angle, rotation):
    with pikepdf.new() as pdf:
        page = pdf.add_blank_page(page_size=(600, 100))
        page.Rotate = rotation
        whole = stamped(as_bytes(pdf), angle=angle)
    document = pypdfium2.PdfDocument(whole)
    image = document[0].render(scale=1).to_pil().convert("L").point(lambda x: 255 - x)
    document.close()
    left, top, right, bottom = image.getbbox()
    assert left > 0 < top
    assert right < image.width
    assert bottom < image.height
    assert abs(left + right - image.width) < 12
    wide = right - left > bottom - top
    assert wide == (abs(angle) < 45)


def test_content_that_moves_the_origin_does_not_move_the_stamp():
    with pikepdf.new() as pdf:
        page = pdf.add_blank_page(page_size=(200, 200))
        plain = stamped(as_bytes(pdf))
        page.Contents = pdf.make_stream(b".1 0 0 .1 900 900 cm")
        assert ink(stamped(as_bytes(pdf))) == ink(plain)


def test_letters_that_a_stamp_cannot_have_are_named():
    assert missing_characters("Ağ ₺ 漢字") == ["漢", "字"]


def test_a_stamped_archive_conforms(chromium, vera):
    def finish_it(pdf: pikepdf.Pdf, information: dict[str, str]) -> str:
        return mark(pdf, information, {"stamp": STAMP, "metadata": {"title": "Başka", "author": "Işık"}})

    html = BOOK.render_html("invoice", SAMPLE)
    for standard in ("pdf/a-3a", "pdf/ua-1"):
        paper = Paper(tagged=True, conformance=(standard,), finish=finish_it)
        pdf = chromium.render(html, paper, timeout_s=60).pdf
        assert vera.broken_rules(pdf, standard) == [], standard
        with pikepdf.open(io.BytesIO(pdf)) as document:
            assert str(document.docinfo["/Title"]) == "Başka"
            assert "Başka" in document.Root.Metadata.read_bytes().decode()


def test_a_damaged_document_fails_with_its_reason():
    with pytest.raises(RenderFailed, match="cannot be merged"):
        stamped(b"%PDF-1.7")
