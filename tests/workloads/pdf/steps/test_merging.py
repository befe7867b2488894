"""Merged PDFs look as their parts do, with each font once."""

import io
import json
from typing import Any

import pikepdf
import pypdfium2
import pytest
from pikepdf import Array, Dictionary, Name

from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.steps import finishing
from kesin.workloads.pdf.steps.finishing import finish, finish_pdf
from tests.workloads.pdf.press import BOOK, SAMPLE
from tests.workloads.pdf.uploads.files import as_bytes, new_pdf, page_loop, stream_bomb

BUYERS = ("Ayşe Çelik", "Jürgen Groß", "Ömer Işık")


def merged(parts: list[bytes], **how: Any) -> bytes:
    head = {"parts": [[len(part), f"part {at}"] for at, part in enumerate(parts)], "main": 0, **how}
    return finish(head, b"".join(parts))[1]


def pixels(pdf: bytes) -> list[Any]:
    document = pypdfium2.PdfDocument(pdf)
    try:
        return [page.render(scale=1).to_pil().tobytes() for page in document]
    finally:
        document.close()


def font_files(pdf: bytes) -> list[bytes]:
    with pikepdf.open(io.BytesIO(pdf)) as document:
        descriptors = [each for each in document.objects if isinstance(each, Dictionary)]
        files = [each.FontFile2 for each in descriptors if "/FontFile2" in each]
        return list({file.objgen: file.read_bytes() for file in files}.values())


def test_invoices_share_their_fonts_and_look_the_same(chromium):
    parts = []
    for buyer in BUYERS:
        variables = json.loads(json.dumps(SAMPLE)) | {"number": f"F-{buyer}"}
        variables["buyer"]["name"] = buyer
        html = BOOK.render_html("invoice", variables)
        parts.append(chromium.render(html, Paper(), timeout_s=60).pdf)
    whole = merged(parts)
    assert pixels(whole) == [page for part in parts for page in pixels(part)]
    assert len(font_files(whole)) == len(font_files(parts[0])) == 3
    assert len(whole) < sum(map(len, parts)) * 0.6
    assert merged(parts) == whole


def test_parts_are_named_by_their_titles_and_keep_links_and_forms():
    with pikepdf.open(io.BytesIO(new_pdf(2, "Terms"))) as pdf:
        to_second = Array([pdf.pages[1].obj, Name.Fit])
        link = Dictionary(Type=Name.Annot, Subtype=Name.Link, Rect=[0, 0, 9, 9], Dest=to_second)
        box = Dictionary(Type=Name.Annot, Subtype=Name.Widget, Rect=[0, 0, 9, 9], T="name", FT=Name.Tx)
        annotations = [pdf.make_indirect(each) for each in (link, box)]
        pdf.pages[0].Annots = Array(annotations)
        pdf.Root.AcroForm = Dictionary(Fields=Array([annotations[1]]))
        terms = as_bytes(pdf)
    whole = merged([new_pdf(), terms, new_pdf(text="ş" * 200)])
    with pikepdf.open(io.BytesIO(whole)) as pdf:
        with pdf.open_outline() as outline:
            titles = [item.title for item in outline.root]
        assert titles == ["part 0", "Terms", "ş" * finishing.MAX_TITLE_LENGTH]
        assert pdf.pages[1].Annots[0].Dest[0].objgen == pdf.pages[2].obj.objgen
        assert [str(each.T) for each in pdf.Root.AcroForm.Fields] == ["name"]


def test_the_document_says_of_itself_what_its_own_part_says():
    parts = [new_pdf(text="before"), new_pdf(text="mine")]
    whole = merged(parts, main=1, metadata={"author": "Işık"})
    with pikepdf.open(io.BytesIO(whole)) as pdf:
        assert dict(pdf.docinfo) == {"/Title": "mine", "/Author": "Işık", "/Producer": "Kesin"}


def test_a_font_that_is_broken_stays_as_it_is():
    for font in (b"", b"\0\1\0\0" + b"\xff" * 64, b"true" * 99):
        with pikepdf.new() as pdf:
            for _ in range(2):
                page = pdf.add_blank_page()
                file = pdf.make_stream(font)
                described = Dictionary(Type=Name.FontDescriptor, FontName=Name("/A+F"), FontFile2=file)
                face = Dictionary(Type=Name.Font, Subtype=Name.CIDFontType2, CIDToGIDMap=Name.Identity)
                face.FontDescriptor = pdf.make_indirect(described)
                page.Resources = Dictionary(Font=Dictionary(F=pdf.make_indirect(face)))
            broken = as_bytes(pdf)
        assert font_files(merged([new_pdf(), broken])) == [font, font]


def test_a_font_that_grows_a_thousandfold_is_read_in_part(monkeypatch):
    monkeypatch.setattr(finishing, "MAX_FONT_BYTES", 1_000)
    with pikepdf.new() as pdf:
        page = pdf.add_blank_page()
        file = pdf.make_stream(bytes(10_000_000))
        described = Dictionary(Type=Name.FontDescriptor, FontName=Name("/A+F"), FontFile2=file)
        face = Dictionary(Type=Name.Font, Subtype=Name.CIDFontType2, CIDToGIDMap=Name.Identity)
        face.FontDescriptor = pdf.make_indirect(described)
        page.Resources = Dictionary(Font=Dictionary(F=pdf.make_indirect(face)))
        bomb = as_bytes(pdf)
    assert len(merged([new_pdf(), bomb])) < 20_000


STAMP = {"text": "A", "opacity": 0.1, "angle": 0}


@pytest.mark.parametrize(
    ("part", "limits", "code"),
    [
        # qpdf calls an object damaged for which there is no memory.
        (stream_bomb(60_000_000), {"memory_bytes": 128 * 1024 * 1024}, "TEMPLATE_ERROR"),
        (new_pdf(), {"memory_bytes": 1}, "DOCUMENT_TOO_COSTLY"),
        (new_pdf(), {"cpu_s": 0.001}, "DOCUMENT_TOO_COSTLY"),
        (new_pdf(), {"wall_s": 0.001}, "NAVIGATION_TIMEOUT"),
        (page_loop(), {}, "TEMPLATE_ERROR"),
        (new_pdf()[:200], {}, "TEMPLATE_ERROR"),
    ],
    ids=["bomb", "memory", "processor", "time", "loop", "cut off"],
)
def test_a_hostile_part_ends_its_process_and_not_ours(monkeypatch, part, limits, code):
    monkeypatch.setattr(finishing, "LIMITS", finishing.LIMITS._replace(**limits))
    with pytest.raises(RenderFailed) as failed:
        finish_pdf([(new_pdf(), ""), (part, "")], 0, stamp=STAMP)
    assert failed.value.code == code
