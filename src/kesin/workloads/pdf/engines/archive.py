"""Makes Chromium's PDFs conform to PDF/A-3 and PDF/UA-1; delivers none that breaks a rule."""

import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pikepdf
from pikepdf import Array, ContentStreamInstruction, Dictionary, Name, Operator, Stream
from pikepdf.models.metadata import decode_pdf_date

from kesin.foundation.messages import Message
from kesin.workloads.pdf.engines.base import LEVELS, TAGGED
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed, TemplateError
from kesin.workloads.pdf.limits import MAX_CONFORMING_OBJECTS

_PATH: Final = frozenset({"m", "l", "c", "v", "y", "h", "re", "W", "W*"})
_PAINT: Final = frozenset(
    {"S", "s", "f", "F", "f*", "B", "B*", "b", "b*", "sh", "Do", "INLINE IMAGE"} | {"Tj", "TJ", "'", '"'}
)
_BEGIN: Final = ContentStreamInstruction([Name.Artifact], Operator("BMC"))
_END: Final = ContentStreamInstruction([], Operator("EMC"))
SAVED: Final = {"object_stream_mode": pikepdf.ObjectStreamMode.generate}
DAMAGED: Final = (pikepdf.PdfError, zlib.error, AttributeError, KeyError, TypeError, ValueError)

# What the checker does not know, and veraPDF passes: level A, names of PDF/UA, patterns, masks.
_UNKNOWN_TO_CHECKER: Final = frozenset(
    {"6.6.4-3", "6.6.2.3.1-1", "colour-space", "pattern", "shading"}
    | {f"schema-{it}" for it in ("ImageXObject", "MarkInfo", "OutlineItem", "Resources")}
    | {"schema-SoftMaskDict", "schema-ViewerPreferences"}
)


def conform(pdf: pikepdf.Pdf, conformance: Collection[str], about: Mapping[str, str], factur_x: str = "") -> None:
    """Make Chromium's PDF conform, in place; ``about`` is its information. Raises RenderFailed.

    ``factur_x`` is the level of an invoice that it carries.
    """
    from pikepdf import pdfa

    check_parts(pdf)
    if not TAGGED.isdisjoint(conformance):
        if _mark_decoration(pdf) and "pdf/ua-1" in conformance:
            problem = "masked content is drawn more than once"
            raise broken_rule("PDF/UA-1", "7.20-2", problem)
        repair_structure(pdf)
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
        check_structure(pdf, str(pdf.trailer.Info.get("/Title", "")))
    level = next((LEVELS[each] for each in LEVELS if each in conformance), None)
    if level is None:
        return
    if level == "A" and "/StructTreeRoot" not in pdf.Root:
        raise broken_rule("PDF/A-3a", "6.7.3.3-1", "nothing in it is tagged")
    if level == "A" and not has_languages(pdf):
        raise broken_rule("PDF/A-3a", "6.7.4-1", WRONG_LANGUAGE)
    for finding in pdfa.check(pdf, "3b").findings:
        rule = finding.rule.rpartition(":")[2]
        if rule not in _UNKNOWN_TO_CHECKER:
            raise broken_rule(f"PDF/A-3{level.lower()}", rule, finding.message)


def drop_id(pdf: pikepdf.Pdf) -> None:
    """Remove the identifier: a new one keeps the first half of an old one."""
    if "/ID" in pdf.trailer:
        del pdf.trailer["/ID"]


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
            tagged[number] = max(map(is_tagged, inner), default=False) or (b"/MCID" in form.read_bytes())
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


# Types of PDF 2.0 as those of PDF 1.7 that come nearest.
_ROLES: Final = {
    "FENote": "Note",
    "Title": "P",
    **dict.fromkeys(("Em", "Strong", "Sub"), "Span"),
    **dict.fromkeys(("Aside", "DocumentFragment"), "Sect"),
}
WRONG_LANGUAGE: Final = "its lang is not a language: write tr or en-US, for example"
_LANGUAGE: Final = re.compile(r"[a-zA-Z]{1,8}(-[a-zA-Z0-9]{1,8})*")
_GROUPS: Final = ("THead", "TBody", "TFoot")
_KIDS: Final = {
    "Table": {"TR", "Caption", *_GROUPS},
    **dict.fromkeys(_GROUPS, frozenset({"TR"})),
    "TR": {"TH", "TD"},
    "L": {"L", "LI", "Caption"},
    "LI": {"Lbl", "LBody"},
}
_PARENTS: Final = {
    "TR": {"Table", *_GROUPS},
    **dict.fromkeys(_GROUPS, frozenset({"Table"})),
    **dict.fromkeys(("TH", "TD"), frozenset({"TR"})),
    "LI": {"L"},
    "LBody": {"LI"},
}


def broken_rule(standard: str, rule: str, problem: str) -> RenderFailed:
    why = "the PDF does not conform to %(standard)s, rule %(rule)s: %(problem)s"
    values = {"standard": standard, "rule": rule, "problem": Message(problem)}
    details = {"standard": standard, "rule": rule}
    return RenderFailed(PdfErrorCode.NOT_CONFORMING, why, details=details, **values)


class _Tag(NamedTuple):
    kind: str
    element: Any
    kids: list["_Tag"]

    def walk(self) -> Iterator["_Tag"]:
        yield self
        for kid in self.kids:
            yield from kid.walk()


def repair_structure(pdf: pikepdf.Pdf) -> None:
    """Complete the structure of Chromium's PDF: types, bodies of list items, nested figures."""
    root = pdf.Root.get("/StructTreeRoot")
    if root is None:
        return
    root.RoleMap = Dictionary({f"/{new}": Name(f"/{old}") for new, old in _ROLES.items()})
    for tag in [each for top in _read_tags(root) for each in top.walk()]:
        if tag.kind == "LI" and all(kid.kind != "LBody" for kid in tag.kids):
            _wrap_body(pdf, tag.element)
        elif tag.kind == "Figure" and any(kid.kind == "Figure" for kid in tag.kids):
            tag.element.S = Name.Div  # <figure> around a picture that has its own text


def check_structure(pdf: pikepdf.Pdf, title: str) -> None:
    root = pdf.Root.get("/StructTreeRoot")
    if not title:
        raise _inaccessible("7.1-9", "it has no title: the template needs a <title>")
    if root is None:
        raise _inaccessible("7.1-11", "nothing in it is tagged")
    if "/Lang" not in pdf.Root or not has_languages(pdf):
        raise _inaccessible("7.2-29", WRONG_LANGUAGE)
    _check_links(pdf, root)
    _check_tables_and_lists(root)
    level = 0
    for tag in [each for top in _read_tags(root) for each in top.walk()]:
        if tag.kind == "Figure" and not (tag.element.get("/Alt") or "/ActualText" in tag.element):
            raise _inaccessible("7.3-1", "a picture has no alternative text: give it an alt")
        if tag.kind == "H":
            raise _inaccessible("7.4.4-3", "every heading must have a level from 1 to 6")
        if tag.kind[:1] == "H" and tag.kind[1:].isdigit():
            level, before = int(tag.kind[1:]), level
            if level > before + 1:
                raise _inaccessible("7.4.2-1", "headings must start with h1 and not skip a level")


def _check_tables_and_lists(root: Any) -> None:
    for tag in [each for top in _read_tags(root) for each in top.walk()]:
        allowed = _KIDS.get(tag.kind)
        for kid in tag.kids:
            if (allowed and kid.kind not in allowed) or (tag.kind not in _PARENTS.get(kid.kind, {tag.kind})):
                raise _inaccessible("7.2", "a table or list contains misplaced elements")
        if tag.kind == "Table" and not _is_regular(tag):
            raise _inaccessible("7.2-42", "the rows of a table differ in their number of columns")


def _check_links(pdf: pikepdf.Pdf, root: Any) -> None:
    owners = pikepdf.NumberTree(root.ParentTree) if "/ParentTree" in root else {}
    for page in pdf.pages:
        for link in page.get("/Annots", ()):
            owner = owners.get(int(link.StructParent)) if "/StructParent" in link else None
            if not isinstance(owner, Dictionary) or owner.get("/S") != "/Link":
                raise _inaccessible("7.18.5-1", "a link is not tagged as one")


def has_languages(pdf: pikepdf.Pdf) -> bool:
    named = [pdf.Root, *(each for each in pdf.objects if isinstance(each, Dictionary))]
    return all(_LANGUAGE.fullmatch(str(each.Lang)) for each in named if "/Lang" in each)


def _inaccessible(rule: str, problem: str) -> RenderFailed:
    return broken_rule("PDF/UA-1", rule, problem)


def _read_tags(element: Any) -> list[_Tag]:
    """The tags below an element, without those that stand for nothing."""
    kids = element.get("/K", Array())
    tags: list[_Tag] = []
    for kid in kids if isinstance(kids, Array) else [kids]:
        if isinstance(kid, Dictionary) and "/S" in kid:
            kind, below = str(kid.S)[1:], _read_tags(kid)
            tags += below if kind == "NonStruct" else [_Tag(_ROLES.get(kind, kind), kid, below)]
    return tags


def _wrap_body(pdf: pikepdf.Pdf, item: Any) -> None:
    kids = list(item.K) if isinstance(item.get("/K"), Array) else [item.K] if "/K" in item else []
    labels = [kid for kid in kids if isinstance(kid, Dictionary) and kid.get("/S") == "/Lbl"]
    body = pdf.make_indirect(Dictionary(Type=Name.StructElem, S=Name.LBody, P=item))
    body.K = Array([kid for kid in kids if kid not in labels])
    for kid in body.K:
        if isinstance(kid, Dictionary) and "/S" in kid:
            kid.P = body
    item.K = Array([*labels, body])


def _is_regular(table: _Tag) -> bool:
    """Whether the cells of a table fill its rows and columns, each place once."""
    rows = [row for kid in table.kids for row in ([kid] if kid.kind == "TR" else kid.kids)]
    free_from: list[int] = []  # of each column: the row from which it is free
    for number, row in enumerate(row for row in rows if row.kind == "TR"):
        column = 0
        for cell in row.kids:
            while column < len(free_from) and free_from[column] > number:
                column += 1
            width, height = _span(cell, "/ColSpan"), _span(cell, "/RowSpan")
            end = column + width
            if number == 0:
                free_from += [0] * (end - len(free_from))
            taken = any(free > number for free in free_from[column:end]) or end > len(free_from)
            if taken or width < 1 or height < 1:
                return False
            free_from[column:end] = [number + height] * width
        if any(free <= number for free in free_from):
            return False
    return len(set(free_from)) <= 1


def _span(cell: _Tag, name: str) -> int:
    given = cell.element.get("/A", Array())
    for attributes in given if isinstance(given, Array) else [given]:
        if isinstance(attributes, Dictionary) and name in attributes:
            return int(attributes[name])
    return 1
