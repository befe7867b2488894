"""Many PDFs become one file, which other libraries read."""

import io
import zipfile

import pikepdf
import pypdfium2
import pytest

from kesin.workloads.pdf.batches import worker as assembling
from kesin.workloads.pdf.batches.worker import UnreadablePdf, format_csv, open_assembly
from kesin.workloads.pdf.errors import RenderFailed
from tests.workloads.pdf.batching import one_page
from tests.workloads.pdf.paper import pages

NOTES = {"results.json": b"[]", "results.csv": b"row\r\n"}


def assembled(output, folder, pdfs, notes=NOTES):
    folder.mkdir()
    whole = open_assembly(output, folder)
    for name, pdf in pdfs.items():
        whole.add(name, pdf)
    return whole.finish(notes).read_bytes()


def some(count):
    return {f"{number:04d}-Sayfa ğış.pdf": one_page(f"page {number}") for number in range(count)}


def longer(*texts):
    """One PDF of several pages."""
    out = io.BytesIO()
    with pikepdf.new() as pdf:
        for text in texts:
            with pikepdf.open(io.BytesIO(one_page(text))) as part:
                pdf.pages.extend(part.pages)
        pdf.save(out)
    return out.getvalue()


@pytest.mark.parametrize("output", ["zip", "merged"])
def test_the_same_pdfs_give_the_same_bytes(output, tmp_path):
    first = assembled(output, tmp_path / "a", some(3))
    assert assembled(output, tmp_path / "b", some(3)) == first
    assert assembled(output, tmp_path / "c", some(2)) != first


def test_a_zip_has_everything_in_order_with_its_letters_and_one_date(tmp_path):
    pdfs = some(3)
    with zipfile.ZipFile(io.BytesIO(assembled("zip", tmp_path / "a", pdfs))) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [*pdfs, *NOTES]
        assert {archive.read(name) for name in pdfs} == set(pdfs.values())
        assert {entry.date_time for entry in archive.infolist()} == {(2000, 1, 1, 0, 0, 0)}
        assert all(entry.external_attr >> 16 == 0o644 for entry in archive.infolist())


@pytest.mark.usefixtures("children")
def test_a_merged_pdf_has_the_pages_in_order_and_leads_to_each_row(tmp_path, monkeypatch):
    monkeypatch.setattr(assembling, "GROUP_SIZE", 4)  # so that there are two groups
    pdfs = some(5)
    pdfs["0002-Sayfa ğış.pdf"] = longer("page 2", "still page 2")
    data = assembled("merged", tmp_path / "a", pdfs)
    expected = [f"page {number}" for number in range(5)]
    assert pages(data) == [*expected[:3], "still page 2", *expected[3:]]
    document = pypdfium2.PdfDocument(data)
    outline = [(item.get_title(), item.get_dest().get_index()) for item in document.get_toc()]
    document.close()
    assert outline == [(f"{number:04d}-Sayfa ğış", number + (number > 2)) for number in range(5)]
    assert sorted(path.name for path in (tmp_path / "a").glob("part-*")) == []
    with pikepdf.open(io.BytesIO(data)) as pdf:  # it does not say when it was made
        assert not set(pdf.docinfo) & {"/CreationDate", "/ModDate"}


@pytest.mark.parametrize("output", ["zip", "merged"])
def test_what_would_be_too_large_is_noticed_on_the_way(output, tmp_path):
    whole = open_assembly(output, tmp_path, max_bytes=3_000)

    def fill():
        for name, pdf in some(50).items():
            whole.add(name, pdf)

    with pytest.raises(RenderFailed, match=r"TOO_LARGE.*MiB"):
        fill()


@pytest.mark.parametrize("output", ["zip", "merged"])
def test_what_is_too_large_only_as_a_whole_is_noticed_at_the_end(output, tmp_path):
    pdfs = some(4)
    size = len(assembled(output, tmp_path / "whole", pdfs, {}))
    whole = open_assembly(output, tmp_path, max_bytes=size - 1)
    for name, pdf in pdfs.items():
        whole.add(name, pdf)
    with pytest.raises(RenderFailed, match="TOO_LARGE"):
        whole.finish({})


def test_what_is_no_pdf_is_left_out_of_a_merged_one(tmp_path):
    whole = open_assembly("merged", tmp_path)
    whole.add("a.pdf", one_page("a"))
    with pytest.raises(UnreadablePdf):
        whole.add("b.pdf", b"nothing of the kind")
    whole.add("c.pdf", one_page("c"))
    assert pages(whole.finish({}).read_bytes()) == ["a", "c"]


def test_no_cell_of_the_results_is_a_formula():
    row = dict.fromkeys(("row", "file", "status", "pages", "bytes", "sha256", "error_code"), 1)
    text = format_csv([{**row, "error_message": "=HYPERLINK(1)"}]).decode("utf-8-sig")
    assert text.splitlines()[1].endswith(",'=HYPERLINK(1)")
