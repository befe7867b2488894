"""PDFs that conform to PDF/A-3 and PDF/UA-1: what is delivered passes the reference validator."""

import io

import pikepdf
import pypdfium2
import pytest

from kesin.workloads.pdf.engines import archive
from kesin.workloads.pdf.engines.archive import check_structure
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.errors import RenderFailed
from tests.workloads.pdf.documents import PICTURE, page
from tests.workloads.pdf.press import BOOK
from tests.workloads.pdf.random_documents import RandomDocument

BOTH = Paper(tagged=True, outline=True, conformance=("pdf/a-3a", "pdf/ua-1"))
ARCHIVE = Paper(conformance=("pdf/a-3b",))
TEMPLATES = ("invoice", "conversion_report", "cutting_plan")
HARD = page(
    f"""<h1>Hard</h1><div style="box-shadow: 0 0 9px red; opacity: .5; mix-blend-mode: multiply;
    background: linear-gradient(red, blue)"><p>text <a href="https://x.example/?a=1&amp;b=2">link</a>
    <em>e</em> <strong>s</strong></p><ul><li>a<ul><li>b</ul></ul></div><aside>beside</aside>
    <p style="filter: blur(2px); text-shadow: 1px 1px red">x</p><a href="#there">there</a>
    <figure><img src="{PICTURE}" alt="a pixel"><figcaption>One</figcaption></figure>
    <table><tr><th>a<th>b<tr><td rowspan=2>c<td>d<tr><td>e</table><p id=there>Ğ ı ş ₺</p>
    <style>@page {{ margin: 20mm; @bottom-center {{ content: counter(page) }} }}</style>"""
)


def sample(name: str) -> str:
    return BOOK.render_html(name, BOOK.get(name).sample)


def render(engine, html, paper):
    return engine.render(html, paper, timeout_s=60)


def pixels(pdf: bytes) -> list[bytes]:
    document = pypdfium2.PdfDocument(pdf)
    try:
        return [bytes(leaf.render(scale=1).buffer) for leaf in document]
    finally:
        document.close()


@pytest.mark.parametrize("name", [*TEMPLATES, "hard"])
def test_what_is_delivered_conforms_and_looks_the_same(chromium, vera, name, request):
    """Each for an archive with tags; the long form: without tags too, as the hard page is here."""
    html = sample(name) if name in TEMPLATES else HARD
    plain = render(chromium, html, Paper())
    every = name == "hard" or request.config.getoption("--long")
    for paper in (BOTH, ARCHIVE) if every else (BOTH,):
        done = render(chromium, html, paper)
        for standard in paper.conformance:
            assert vera.broken_rules(done.pdf, standard) == [], standard
        assert pixels(done.pdf) == pixels(plain.pdf)
        if every:
            assert render(chromium, html, paper).sha256 == done.sha256


@pytest.mark.parametrize("seeds", [range(10, 18), pytest.param(range(1_000), marks=pytest.mark.long)], ids=len)
def test_a_pdf_is_only_delivered_as_conforming_if_the_validator_agrees(chromium, vera, seeds):
    refused = []
    for seed in seeds:
        try:
            done = render(chromium, RandomDocument(seed).html, BOTH)
        except RenderFailed as problem:
            refused.append(problem)
            continue
        for standard in BOTH.conformance:
            assert vera.broken_rules(done.pdf, standard) == [], seed
    assert 0.1 <= len(refused) / len(seeds) <= 0.5
    assert {each.code for each in refused} == {"NOT_CONFORMING"}
    assert {each.details["standard"] for each in refused} == {"PDF/UA-1"}


@pytest.mark.parametrize("standard", ["pdf/a-3a", "pdf/a-3b"])
def test_weasyprint_conforms_to_the_archive_that_is_named(weasyprint, vera, standard, request):
    paper = Paper(tagged=standard == "pdf/a-3a", conformance=(standard,))
    long = request.config.getoption("--long")
    documents = [*map(sample, TEMPLATES), *(RandomDocument(seed).html for seed in range(4))] if long else []
    for html in (*documents, HARD):
        done = render(weasyprint, html, paper)
        assert vera.broken_rules(done.pdf, standard) == []
    assert render(weasyprint, html, paper).sha256 == done.sha256


def test_a_pdf_that_cannot_conform_fails_with_the_rule(chromium, subtests):
    for html, rule in (
        ("<!doctype html><html lang=en><p>no title", "7.1-9"),
        (page("<svg width=9 height=9><circle r=4 /></svg>"), "7.1-11"),
        (page("<table><tr><th>a<th>b<tr><td>c</table>"), "7.2-42"),
        (page("<table><tr><th>a<th>b<tr><td>c<td>d<td>e</table>"), "7.2-42"),
        (page(f"<img src='{PICTURE}'>"), "7.3-1"),
        (page("<h1>a</h1><h3>b</h3>"), "7.4.2-1"),
        (page("<h2>a</h2>"), "7.4.2-1"),
        ("<!doctype html><html lang=en_US><title>t</title><p>a", "7.2-29"),
        (page("<p>a</p><p lang='x y'>b</p>"), "7.2-29"),
        (page("<p>a</p><a href='https://x.example/' aria-hidden=true>l</a>"), "7.18.5-1"),
        (page("<h1>a</h1><div role=heading aria-level=7>b</div>"), "7.4.4-3"),
        (page("<table><tr><th rowspan=0>a<th>b<tr><td>c<td>d</table>"), "7.2-42"),
        (page("<p style='-webkit-mask-image: linear-gradient(red, #0000)'>x"), "7.20-2"),
    ):
        with subtests.test(rule), pytest.raises(RenderFailed) as caught:
            render(chromium, html, BOTH)
        assert caught.value.code == "NOT_CONFORMING", rule
        assert caught.value.details == {"standard": "PDF/UA-1", "rule": rule}, rule
        assert f"rule {rule}: " in str(caught.value), rule


def test_parts_of_tables_and_lists_stand_where_they_belong(chromium):
    html = page("<p>a</p><ul><li>b</ul><table><tr><th>c<th>d<tr><td>e<td>f</table>")
    done = render(chromium, html, BOTH).pdf
    for was, becomes in (("/LI", "/P"), ("/TR", "/P"), ("/P", "/TD")):
        with pikepdf.open(io.BytesIO(done)) as pdf:
            check_structure(pdf, "a title")
            for each in pdf.objects:
                if isinstance(each, pikepdf.Dictionary) and each.get("/S") == was:
                    each.S = pikepdf.Name(becomes)
            with pytest.raises(RenderFailed) as caught:
                check_structure(pdf, "a title")
        assert caught.value.details["rule"] == "7.2", was


def test_an_archive_needs_tags_only_for_its_higher_level(chromium):
    drawing = page("<svg width=9 height=9><circle r=4 /></svg>")
    render(chromium, drawing, ARCHIVE)
    with pytest.raises(RenderFailed) as caught:
        render(chromium, drawing, Paper(tagged=True, conformance=("pdf/a-3a",)))
    assert caught.value.details == {"standard": "PDF/A-3a", "rule": "6.7.3.3-1"}


def test_a_character_that_no_font_has_is_never_archived(chromium, weasyprint):
    for engine in (chromium, weasyprint):
        with pytest.raises(RenderFailed) as caught:
            render(engine, page("<p>漢"), ARCHIVE)
        assert caught.value.code == "MISSING_GLYPHS"


def test_weasyprint_makes_archives_only(weasyprint):
    for standards in (("pdf/ua-1",), ("pdf/a-3a", "pdf/ua-1")):
        with pytest.raises(RenderFailed) as caught:
            render(weasyprint, page("<p>a"), Paper(tagged=True, conformance=standards))
        assert caught.value.code == "NOT_CONFORMING"


def test_a_language_that_is_none_is_not_archived_with_tags(chromium, weasyprint):
    wrong = "<!doctype html><html lang=en_US><title>t</title><p>a"
    for engine in (chromium, weasyprint):
        with pytest.raises(RenderFailed) as caught:
            render(engine, wrong, Paper(tagged=True, conformance=("pdf/a-3a",)))
        assert caught.value.details == {"standard": "PDF/A-3a", "rule": "6.7.4-1"}


def test_what_takes_too_long_to_check_is_refused(chromium, weasyprint, monkeypatch):
    monkeypatch.setattr(archive, "MAX_CONFORMING_OBJECTS", 10)
    for engine in (chromium, weasyprint):
        render(engine, page("<p>x"), Paper())
        with pytest.raises(RenderFailed, match="limit 10") as caught:
            render(engine, page("<p>x"), ARCHIVE)
        assert caught.value.code == "TEMPLATE_ERROR"


def test_what_is_nested_too_deeply_is_an_error_of_the_template(chromium):
    with pytest.raises(RenderFailed) as caught:
        render(chromium, page("<div style='opacity: .9'>a" * 600), BOTH)
    assert caught.value.code == "TEMPLATE_ERROR"


def test_the_metadata_say_what_the_document_says_of_itself(chromium):
    head = (
        '<meta name="author" content="Ayşe &amp; Can"><meta name="description" content="a < b">'
        '<meta name="dcterms.created" content="2026-11-18T10:30:00+03:00">'
    )
    with pikepdf.open(io.BytesIO(render(chromium, page("<p>a", head), BOTH).pdf)) as pdf:
        assert str(pdf.docinfo["/CreationDate"]) == "D:20261118103000+03'00'"
        metadata = pdf.open_metadata()
        assert metadata["dc:title"] == "Belge"
        assert metadata["dc:creator"] == ["Ayşe & Can"]
        assert metadata["dc:description"] == "a < b"
        assert metadata["xmp:CreateDate"] == "2026-11-18T10:30:00+03:00"
        assert metadata["pdf:Producer"] == str(pdf.docinfo["/Producer"]) == "Kesin"
        assert (metadata["pdfaid:part"], metadata["pdfaid:conformance"]) == ("3", "A")
        assert metadata["pdfuaid:part"] == "1"


def test_tagged_pdfs_are_the_same_whatever_the_browser_printed_before(chromium):
    table = page("<table><tr><th>a<th>b<tr><td>c<td>d</table>")
    paper = Paper(tagged=True)
    first = render(chromium, table, paper)
    render(chromium, page("<p>1" * 50), paper)
    assert render(chromium, table, paper).sha256 == first.sha256
