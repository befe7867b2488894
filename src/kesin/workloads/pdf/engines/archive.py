"""Makes Chromium's PDFs conform to PDF/A-3 and PDF/UA-1; delivers none that breaks a rule."""

from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pikepdf
from pikepdf import ContentStreamInstruction, Dictionary, Name, Operator, Stream
from pikepdf.models.metadata import decode_pdf_date

from kesin.workloads.pdf.engines import structure
from kesin.workloads.pdf.engines.base import LEVELS, TAGGED
from kesin.workloads.pdf.errors import TemplateError
from kesin.workloads.pdf.limits import MAX_CONFORMING_OBJECTS

_PATH: Final = frozenset({"m", "l", "c", "v", "y", "h", "re", "W", "W*"})
_PAINT: Final = frozenset(
    {"S", "s", "f", "F", "f*", "B", "B*", "b", "b*", "sh", "Do", "INLINE IMAGE"}
    | {"Tj", "TJ", "'", '"'}
)
_BEGIN: Final = ContentStreamInstruction([Name.Artifact], Operator("BMC"))
_END: Final = ContentStreamInstruction([], Operator("EMC"))
SAVED: Final = {"object_stream_mode": pikepdf.ObjectStreamMode.generate}

# What the checker does not know, and veraPDF passes: level A, names of PDF/UA, patterns, masks.
_UNKNOWN_TO_CHECKER: Final = frozenset(
    {"6.6.4-3", "6.6.2.3.1-1", "colour-space", "pattern", "shading"}
    | {f"schema-{it}" for it in ("ImageXObject", "MarkInfo", "OutlineItem", "Resources")}
    | {"schema-SoftMaskDict", "schema-ViewerPreferences"}
)


def conform(
    pdf: pikepdf.Pdf, conformance: Collection[str], about: Mapping[str, str], factur_x: str = ""
) -> None:
    """Make Chromium's PDF conform, in place; ``about`` is its information. Raises RenderFailed.

    ``factur_x`` is the level of an invoice that it carries.
    """
    from pikepdf import pdfa

    check_parts(pdf)
    if not TAGGED.isdisjoint(conformance):
        if _mark_decoration(pdf) and "pdf/ua-1" in conformance:
            problem = "masked content is drawn more than once"
            raise structure.broken_rule("PDF/UA-1", "7.20-2", problem)
        structure.repair_structure(pdf)
        _describe_links(pdf)
    if not LEVELS.keys().isdisjoint(conformance):
        pdfa.prepare(pdf, "3b")
    pdf.trailer["/Info"] = pdf.make_indirect(Dictionary(about))  # as it was before
    metadata = Stream(pdf, _build_metadata(conformance, about, factur_x))
    metadata.Type, metadata.Subtype = Name.Metadata, Name.XML
    pdf.Root.Metadata = pdf.make_indirect(metadata)
    if Name.ViewerPreferences not in pdf.Root:
        pdf.Root.ViewerPreferences = Dictionary()
    pdf.Root.ViewerPreferences.DisplayDocTitle = True
    check_conformance(pdf, conformance)


def check_conformance(pdf: pikepdf.Pdf, conformance: Collection[str]) -> None:
    from pikepdf import pdfa

    if "pdf/ua-1" in conformance:
        structure.check_structure(pdf, str(pdf.trailer.Info.get("/Title", "")))
    level = next((LEVELS[each] for each in LEVELS if each in conformance), None)
    if level is None:
        return
    if level == "A" and "/StructTreeRoot" not in pdf.Root:
        raise structure.broken_rule("PDF/A-3a", "6.7.3.3-1", "nothing in it is tagged")
    if level == "A" and not structure.has_languages(pdf):
        raise structure.broken_rule("PDF/A-3a", "6.7.4-1", structure.WRONG_LANGUAGE)
    for finding in pdfa.check(pdf, "3b").findings:
        rule = finding.rule.rpartition(":")[2]
        if rule not in _UNKNOWN_TO_CHECKER:
            raise structure.broken_rule(f"PDF/A-3{level.lower()}", rule, finding.message)


def check_parts(pdf: pikepdf.Pdf) -> None:
    """Reject a PDF that would take too long to check."""
    if len(pdf.objects) > MAX_CONFORMING_OBJECTS:
        why = "a PDF with %(n)s objects is too large to check (limit %(most)s): split the document"
        raise TemplateError(why, n=len(pdf.objects), most=MAX_CONFORMING_OBJECTS)


def _mark_decoration(pdf: pikepdf.Pdf) -> bool:
    """Mark what is painted outside of the structure; whether tagged content is drawn twice."""
    tagged: dict[Any, bool] = {}  # by the object number of a form
    drawn: Counter[Any] = Counter()

    def is_tagged(form: Any) -> bool:
        number = form.objgen
        if number not in tagged:
            named = form.get("/Resources", Dictionary()).get("/XObject", Dictionary())
            inner = [each for each in named.values() if each.get("/Subtype") == "/Form"]
            tagged[number] = max(map(is_tagged, inner), default=False) or (
                b"/MCID" in form.read_bytes()
            )
            if tagged[number]:
                form.write(mark(form, named))
        return tagged[number]

    def mark(content: Any, named: Any) -> bytes:
        depth, path, marked = 0, [], []
        for each in pikepdf.parse_content_stream(content):
            operator = str(each.operator)
            depth += (operator in ("BMC", "BDC")) - (operator == "EMC")
            if depth == 0 and operator in _PATH:
                path.append(each)  # nothing may stand between a path and what paints it
                continue
            paints = depth == 0 and operator in _PAINT
            if operator == "Do":
                form = named[str(each.operands[0])]
                if form.get("/Subtype") == "/Form" and is_tagged(form):
                    drawn[form.objgen] += 1
                    paints = False
            marked += [_BEGIN, *path, each, _END] if paints else [*path, each]
            path = []
        return pikepdf.unparse_content_stream(marked)

    for page in pdf.pages:
        named = page.resources.get("/XObject", Dictionary())
        page.Contents = pdf.make_stream(mark(page, named))
    return any(count > 1 for count in drawn.values())


def _describe_links(pdf: pikepdf.Pdf) -> None:
    for page in pdf.pages:
        for link in page.get("/Annots", ()):
            page.Tabs = Name.S
            if "/Contents" not in link:
                link.Contents = str(link.get("/A", Dictionary()).get("/URI", "#"))


def _build_metadata(conformance: Collection[str], about: Mapping[str, str], factur_x: str) -> bytes:
    level = next((LEVELS[each] for each in LEVELS if each in conformance), "")
    dates = {key: decode_pdf_date(about[key]).isoformat() for key in about if "Date" in key}
    values = {"level": level, "accessible": "pdf/ua-1" in conformance, "factur_x": factur_x}
    return str(_template().render(about={**about, **dates}, **values)).encode()


@cache
def _template() -> Any:
    from jinja2 import Environment  # the processes that clean and merge PDFs do not need it

    text = Path(__file__).with_name("archive.xmp").read_text("utf-8")
    return Environment(autoescape=True, trim_blocks=True).from_string(text)
