"""The table of options by engine in the documentation: complete, and what each engine does."""

import io
import re
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import pikepdf
import pytest
from pydantic import ValidationError

from kesin.workloads.pdf.engines.base import Engine, RenderedPdf
from kesin.workloads.pdf.schemas import PdfJobRequest, PdfRenderOptions
from kesin.workloads.pdf.steps.model import Step
from tests.docs.pages import DOCS
from tests.workloads.pdf.documents import page, red_pixels, sizes_mm, text

ENGINES = ("chromium", "weasyprint")
ARCHIVE = {"conformance": "pdf/a-3b"}
FILE = {"name": "a.txt", "media_type": "text/plain", "data_base64": "YQ=="}
XML = {"format": "ubl", "xml_base64": "PGEvPg=="}
PART = {"upload": "pdf-" + "0" * 64}
STEPS: dict[str, dict[str, Any]] = {
    "append": PART,
    "prepend": PART,
    "stamp": {"text": "A"},
    "metadata": {"title": "A"},
    "encrypt": {"owner_password": "o"},
}


class Row(NamedTuple):
    """A row of the table: its fields, and requests that have them."""

    fields: str
    requests: list[dict[str, Any]]


def options(**values: Any) -> dict[str, Any]:
    return {"options": values}


def steps(*kinds: str, **values: Any) -> list[dict[str, Any]]:
    return [{"then": [{kind: STEPS[kind]}], **values} for kind in kinds]


SIZE: dict[str, Any] = {"width_mm": 100, "height_mm": 120}
ROWS = {
    "`template_name`, `variables`, `source`": Row(
        "template_name variables source", [{}, {"source": {"html": "<p>x"}, "template_name": None, "variables": None}]
    ),
    "`file_name`, `webhook_url`, `link_ttl`": Row(
        "file_name webhook_url link_ttl", [{"file_name": "a", "webhook_url": "https://x.example", "link_ttl": 60}]
    ),
    "`options.engine`, `timeout`, `fail_safe`, `missing_glyphs`": Row(
        "options engine timeout fail_safe missing_glyphs",
        [options(timeout=5, fail_safe="degrade", missing_glyphs="fail")],
    ),
    "`options.format`, `width_mm`, `height_mm`, `landscape`, `margin_mm`, `scale`, `page_ranges`, "
    "`prefer_css_page_size`, `tagged`, `outline`": Row(
        "format width_mm height_mm landscape margin_mm scale page_ranges prefer_css_page_size tagged outline",
        [
            options(**SIZE, landscape=True, margin_mm=9, scale=0.5),
            options(format="A5", prefer_css_page_size=False),
            options(page_ranges="2", tagged=True, outline=True),
        ],
    ),
    "`options.print_background: false`": Row("print_background", [options(print_background=False)]),
    "`options.conformance`: `pdf/a-3b` or `pdf/a-3a`": Row(
        "conformance", [options(**ARCHIVE), options(conformance="pdf/a-3a")]
    ),
    "`options.conformance`: `pdf/ua-1`, or two standards": Row(
        "conformance", [options(conformance="pdf/ua-1"), options(conformance=["pdf/a-3b", "pdf/ua-1"])]
    ),
    "`attachments`, `einvoice`": Row("attachments einvoice", [{"attachments": [FILE]}, {"einvoice": XML}]),
    "`attachments`, `einvoice` with `conformance`": Row(
        "attachments",  # the refusal has one name for both
        [
            {"attachments": [FILE], "options": ARCHIVE},
            {"einvoice": XML, "options": ARCHIVE},
            {"einvoice": {"format": "factur-x", "from": "variables"}, "options": ARCHIVE},
        ],
    ),
    "`then`: `append`, `prepend`, `stamp`, `metadata`, `encrypt`": Row(
        "then append prepend stamp metadata encrypt", steps(*STEPS)
    ),
    "`stamp`, `metadata` with `conformance`": Row("stamp metadata", steps("stamp", "metadata", options=ARCHIVE)),
    "`append`, `prepend`, `encrypt` with `conformance`": Row(
        "append prepend encrypt", steps("append", "prepend", "encrypt", options=ARCHIVE)
    ),
}
TABLE = re.findall(
    r"^\| (`.*?) \| (yes|refused) \| (yes|refused) \|$",
    (DOCS / "pdf.md").read_text("utf-8").partition("### Options by engine")[2].partition("\n### ")[0],
    re.MULTILINE,
)
SHOWN = {name: dict(zip(ENGINES, cells, strict=True)) for name, *cells in TABLE}


def test_the_table_has_every_field_of_a_request():
    assert SHOWN.keys() == ROWS.keys()
    fields = {field for row in ROWS.values() for field in row.fields.split()}
    models = (PdfJobRequest, PdfRenderOptions, Step)
    assert fields == {name for model in models for name in model.model_fields}


def test_a_request_is_taken_or_refused_by_name_as_the_table_says():
    for (name, row), engine in product(ROWS.items(), ENGINES):
        for asked in row.requests:
            body = {"template_name": "invoice", "variables": {}, **asked}
            body = {field: value for field, value in body.items() if value is not None}
            body["options"] = {**asked.get("options", {}), "engine": engine}
            if SHOWN[name][engine] == "yes":
                PdfJobRequest.model_validate(body)
                continue
            with pytest.raises(ValidationError) as refusal:
                PdfJobRequest.model_validate(body)
            [problem] = refusal.value.errors()
            assert any(field in problem["msg"] for field in row.fields.split()), (problem, body)


PLAIN = page("<h1>A</h1><p>text")
TALL = page('<p style="height: 25mm; margin: 0">text</p>' * 10)
SQUARE = page('<div style="width: 90mm; height: 90mm; background: #f00"></div>')
RED = page(
    '<h1>A</h1><p style="height: 60mm; background: #f00">first<p style="break-before: page">second',
    "<style>@page { size: A5 }</style>",
)


def printed(engine: Engine, html: str = PLAIN, **values: Any) -> RenderedPdf:
    return engine.render(html, PdfRenderOptions(**values).paper(), timeout_s=60)


def catalogue(pdf: bytes) -> str:
    with pikepdf.open(io.BytesIO(pdf)) as document:
        return " ".join(map(str, document.Root.keys()))


def sizes(engine: Engine, html: str = PLAIN, **values: Any) -> set[tuple[int, int]]:
    return set(sizes_mm(printed(engine, html, **values).pdf))


# What each option changes in a PDF.
EFFECTS: dict[str, Callable[[Engine], bool]] = {
    "missing_glyphs": lambda engine: printed(engine, page("漢")).missing_glyphs == ("漢",),
    "format": lambda engine: sizes(engine, format="A5") == {(148, 210)},
    "width_mm": lambda engine: sizes(engine, **SIZE) == {(100, 120)},
    "height_mm": lambda engine: sizes(engine, **SIZE, landscape=True) == {(120, 100)},
    "landscape": lambda engine: sizes(engine, landscape=True) == {(297, 210)},
    "margin_mm": lambda engine: [printed(engine, TALL, margin_mm=[top, 0, 0, 0]).pages for top in (0, 60)] == [1, 2],
    "scale": lambda engine: (
        sizes(engine, scale=0.5) == {(210, 297)}
        and 3.8 < red_pixels(printed(engine, SQUARE).pdf) / red_pixels(printed(engine, SQUARE, scale=0.5).pdf) < 4.2
    ),
    "page_ranges": lambda engine: text(printed(engine, RED, page_ranges="2").pdf) == "second",
    "prefer_css_page_size": lambda engine: (
        [sizes(engine, RED, prefer_css_page_size=css) for css in (True, False)] == [{(148, 210)}, {(210, 297)}]
    ),
    "tagged": lambda engine: (
        ["/StructTreeRoot" in catalogue(printed(engine, tagged=on).pdf) for on in (False, True)] == [False, True]
    ),
    "outline": lambda engine: (
        ["/Outlines" in catalogue(printed(engine, outline=on).pdf) for on in (False, True)] == [False, True]
    ),
    "print_background": lambda engine: red_pixels(printed(engine, RED, print_background=False).pdf) == 0,
}
# These are decided before an engine is called; `timeout` of both is in test_engines.
NOT_OF_ENGINES = {
    *("template_name", "variables", "source", "file_name", "webhook_url", "link_ttl"),
    *("options", "engine", "fail_safe", "timeout"),
}
# These are tested in test_archive, test_attachments, steps, and with both engines in api/test_raw_html.
OTHERS = {"conformance", "attachments", "einvoice", "then", *STEPS}


def test_every_option_has_a_test_of_what_it_does():
    fields = {field for row in ROWS.values() for field in row.fields.split()}
    assert fields == {*EFFECTS, *NOT_OF_ENGINES, *OTHERS}


@pytest.mark.parametrize("name", ENGINES)
def test_an_option_changes_the_pdf(name, request, subtests):
    for option, changes in EFFECTS.items():
        shown = next(SHOWN[row] for row, each in ROWS.items() if option in each.fields.split())
        if shown[name] == "yes":
            with subtests.test(option):
                assert changes(request.getfixturevalue(name))
