"""Files in PDFs: found by readers, the same bytes each time, and right for archives."""

import io
from dataclasses import replace
from functools import partial

import pikepdf
import pytest
from facturx import get_xml_from_pdf

from kesin.workloads.pdf.einvoices.attach import make_factur_x
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.steps.finishing import finish_pdf
from kesin.workloads.pdf.steps.marking import Attachment, embed_files
from tests.workloads.pdf.documents import page
from tests.workloads.pdf.engines.test_archive import ARCHIVE, BOTH, pixels, render
from tests.workloads.pdf.press import BOOK
from tests.workloads.pdf.uploads.files import new_pdf

FILES = [
    Attachment("ölçüler.csv", "text/csv", "Supplement", data=b"a;b\n"),
    Attachment("data.bin", "application/octet-stream", "Unspecified", data=bytes(99)),
    Attachment("terms.txt", "text/plain", "Source"),
]
SAMPLE = BOOK.get("invoice").sample_in("en")


def carrying(paper: Paper, *files: Attachment) -> Paper:
    return replace(paper, finish=partial(embed_files, attachments=files))


@pytest.fixture(scope="module")
def einvoice() -> Attachment:
    xml = make_factur_x(SAMPLE)
    return Attachment("factur-x.xml", "text/xml", "Alternative", "EN 16931", xml)


def test_an_e_invoice_in_an_archive_passes_the_validator(chromium, vera, einvoice):
    for html, paper in ((BOOK.render_html("invoice", SAMPLE), BOTH), (page("<p>no date"), ARCHIVE)):
        done = render(chromium, html, carrying(paper, *FILES, einvoice))
        for standard in paper.conformance:
            assert vera.broken_rules(done.pdf, standard) == [], standard
        assert get_xml_from_pdf(done.pdf) == ("factur-x.xml", einvoice.data)
        assert render(chromium, html, carrying(paper, einvoice, *FILES)).sha256 == done.sha256
        assert pixels(done.pdf) == pixels(render(chromium, html, paper).pdf)


def test_the_metadata_name_the_level_of_the_invoice(chromium, einvoice):
    done = render(chromium, page("<p>a"), carrying(ARCHIVE, einvoice._replace(level="BASIC WL")))
    with pikepdf.open(io.BytesIO(done.pdf)) as pdf:
        named = {str(key).rpartition("}")[2]: text for key, text in pdf.open_metadata().items()}
    assert named["ConformanceLevel"] == "BASIC WL"
    assert named["DocumentFileName"] == "factur-x.xml"
    assert (named["DocumentType"], named["Version"]) == ("INVOICE", "1.0")


@pytest.mark.parametrize("engine", ["chromium", "weasyprint"])
def test_files_are_found_with_what_they_are_to_the_document(engine, request):
    printed = render(request.getfixturevalue(engine), BOOK.render_html("invoice", SAMPLE), Paper())
    done, _ = finish_pdf([(printed.pdf, "")], 0, FILES)
    with pikepdf.open(io.BytesIO(done)) as pdf:
        listed = {str(spec.UF): (spec.AFRelationship, spec.EF.F) for spec in pdf.Root.AF}
        for each in FILES:
            assert pdf.attachments[each.name].get_file().read_bytes() == each.data
            relationship, stored = listed[each.name]
            assert relationship == f"/{each.relationship}"
            assert stored.Subtype == f"/{each.media_type}"
            assert str(stored.Params.ModDate) == str(pdf.docinfo["/CreationDate"])
        assert "Factur-X" not in str(pdf.open_metadata())
    assert finish_pdf([(printed.pdf, "")], 0, FILES[::-1])[0] == done


@pytest.mark.usefixtures("children")
def test_a_merged_and_encrypted_pdf_carries_its_files():
    lock = {"encrypt": {}, "passwords": {"owner": "o", "user": "u"}}
    done, pages = finish_pdf([(new_pdf(2), "a"), (new_pdf(), "b")], 1, FILES, **lock)
    with pikepdf.open(io.BytesIO(done), password="u") as pdf:
        assert pages == len(pdf.pages) == 3
        assert {name: spec.get_file().read_bytes() for name, spec in pdf.attachments.items()} == {
            each.name: each.data for each in FILES
        }
        assert len(pdf.Root.AF) == len(FILES)
