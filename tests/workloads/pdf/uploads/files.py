"""PDFs as clients send them, also hostile ones."""

import io
import struct
import zlib
from typing import Any

import pikepdf
from pikepdf import Array, Dictionary, Name


def new_pdf(pages: int = 1, text: str = "", **saved: Any) -> bytes:
    """A PDF of empty pages."""
    with pikepdf.new() as pdf:
        for _ in range(pages):
            pdf.add_blank_page(page_size=(200, 200))
        pdf.docinfo["/Title"] = text
        return as_bytes(pdf, **saved)


def as_bytes(pdf: pikepdf.Pdf, **saved: Any) -> bytes:
    out = io.BytesIO()
    pdf.save(out, **saved)
    return out.getvalue()


def active_pdf() -> bytes:
    """A PDF with each kind of content that acts by itself."""
    with pikepdf.new() as pdf:
        page = pdf.add_blank_page(page_size=(200, 200))
        script = Dictionary(S=Name.JavaScript, JS="app.alert(1)")
        launch = Dictionary(S=Name.Launch, F="calc.exe")
        pdf.Root.OpenAction = script
        pdf.Root.AA = Dictionary(WC=script)
        pdf.Root.Names = Dictionary(JavaScript=Dictionary(Names=Array(["x", script])))
        link = Dictionary(Type=Name.Annot, Subtype=Name.Link, Rect=[0, 0, 9, 9], A=launch)
        page.Annots = pdf.make_indirect(Array([pdf.make_indirect(link)]))
        pdf.Root.AcroForm = Dictionary(Fields=Array(), XFA=pdf.make_stream(b"<xdp/>"))
        pdf.attachments["run.exe"] = b"MZ"
        return as_bytes(pdf)


def page_loop() -> bytes:
    """A PDF whose tree of pages contains itself."""
    with pikepdf.new() as pdf:
        pdf.add_blank_page()
        pdf.Root.Pages.Kids.append(pdf.Root.Pages)
        return as_bytes(pdf)


def object_bomb(zeros: int) -> bytes:
    """A PDF whose index of objects is a stream that grows a thousandfold."""
    packer, parts = zlib.compressobj(9, wbits=-15), 100  # which are alike, and packed once
    part = packer.compress(bytes(zeros // parts)) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = (zeros % 65521 << 16 | 1).to_bytes(4, "big")
    table = b"\x78\xda" + part * parts + packer.flush() + checksum
    head = b"%%PDF-1.5\n1 0 obj\n<</Type/XRef/Size %d/W[1 2 1]/Root 2 0 R" % (zeros // 4)
    head += b"/Filter/FlateDecode/Length %d>>\nstream\n" % len(table)
    return head + table + b"\nendstream\nendobj\nstartxref\n9\n%%EOF"


def stream_bomb(spaces: int) -> bytes:
    """A sound PDF whose objects lie in a stream that grows a thousandfold."""
    objects = {
        1: b"<</Type/Catalog/Pages 2 0 R>>",
        2: b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        3: b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>",
    }
    index, body = b"", b""
    for number, text in objects.items():
        index += b"%d %d " % (number, len(body))
        body += text + b" "
    packed = zlib.compress(index + body + b" " * spaces, 9)
    head = b"%PDF-1.5\n"
    stream = b"4 0 obj\n<</Type/ObjStm/N 3/First %d/Filter/FlateDecode/Length %d>>\nstream\n"
    stream = stream % (len(index), len(packed)) + packed + b"\nendstream\nendobj\n"
    at = len(head) + len(stream)
    rows = [(0, 0, 0), (2, 4, 0), (2, 4, 1), (2, 4, 2), (1, len(head), 0), (1, at, 0)]
    table = b"".join(struct.pack(">BIH", *row) for row in rows)
    xref = b"5 0 obj\n<</Type/XRef/Size 6/W[1 4 2]/Root 1 0 R/Length %d>>\nstream\n" % len(table)
    return head + stream + xref + table + b"\nendstream\nendobj\nstartxref\n%d\n%%%%EOF" % at
