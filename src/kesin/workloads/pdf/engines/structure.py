"""Repairs the structure of Chromium's tagged PDFs, and checks it by PDF/UA-1 (ISO 14289-1)."""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pikepdf
from pikepdf import Array, Dictionary, Name

from kesin.foundation.messages import Message
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed

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
            if (allowed and kid.kind not in allowed) or (
                tag.kind not in _PARENTS.get(kid.kind, {tag.kind})
            ):
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
