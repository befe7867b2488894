"""Performs the steps of a job; with PDFs of clients in a process with limits: this module."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pikepdf

from kesin.workloads.pdf.channel import ChildLimits, Reply, run_in_child, serve_task
from kesin.workloads.pdf.engines import archive
from kesin.workloads.pdf.engines.base import PRODUCER
from kesin.workloads.pdf.errors import TemplateError
from kesin.workloads.pdf.limits import check_pages, check_pdf
from kesin.workloads.pdf.steps.marking import Attachment, mark
from kesin.workloads.pdf.steps.merging import MAX_TITLE_LENGTH, add_bookmarks, merge
from kesin.workloads.pdf.uploads.checking import DAMAGED, drop_id

_MODULE: Final = "kesin.workloads.pdf.steps.finishing"
LIMITS: Final = ChildLimits(cpu_s=60, wall_s=120, memory_bytes=2 * 1024 * 1024 * 1024)
BATCH_LIMITS: Final = LIMITS._replace(cpu_s=300, wall_s=600)
_PERMISSIONS: Final = {
    "print": ("print_lowres", "print_highres"),
    "copy": ("extract",),
    "annotate": ("modify_annotation",),
    "forms": ("modify_form",),
    "assemble": ("modify_assembly",),
}


class JobSteps(NamedTuple):
    """The parts around the document of a job, in their order, and the other steps by kind."""

    before: Sequence[Mapping[str, Any]]
    after: Sequence[Mapping[str, Any]]
    others: Mapping[str, Any]


def parse_steps(then: Iterable[Mapping[str, Any]]) -> JobSteps:
    steps = [item for step in then for item in step.items()]
    before = [content for kind, content in reversed(steps) if kind == "prepend"]
    after = [content for kind, content in steps if kind == "append"]
    others = {kind: content for kind, content in steps if kind not in {"append", "prepend"}}
    return JobSteps(before, after, others)


def finish_pdf(
    parts: Sequence[tuple[bytes, str]], main: int, files: Sequence[Attachment] = (), **how: Any
) -> tuple[bytes, int]:
    """Finish PDFs, each with a title in case it has none; ``main`` is the index of our own."""
    head = {"parts": [[len(pdf), title] for pdf, title in parts], "main": main, **how}
    head["files"] = [[len(each.data), *each[:-1]] for each in files]
    body = b"".join([*(pdf for pdf, _ in parts), *(each.data for each in files)])
    alone = len(parts) == 1
    reply, pdf = finish(head, body) if alone else run_in_child(_MODULE, head, body, LIMITS)
    return pdf, reply["pages"]


def finish(head: dict[str, Any], body: bytes) -> Reply:
    """Return the number of pages and the PDF; raises RenderFailed."""
    listed = head.get("files", [])
    ends = accumulate((size for size, *_ in [*head["parts"], *listed]), initial=0)
    data, own = [body[start:end] for start, end in pairwise(ends)], len(head["parts"])
    embedded = zip(listed, data[own:], strict=True)
    files = [Attachment._make([*facts, each]) for (_, *facts), each in embedded]
    out = io.BytesIO()
    try:
        with ExitStack() as opened, pikepdf.new() as merged:
            pdfs = map(io.BytesIO, data[:own])
            parts = [opened.enter_context(pikepdf.open(each)) for each in pdfs]
            pages = sum(len(part.pages) for part in parts)
            check_pages(pages)
            pdf = main = parts[head["main"]]
            if len(parts) > 1:
                pdf = merged
                merge(pdf, parts)
                add_bookmarks(pdf, _bookmarks(parts, [title for _, title in head["parts"]]))
                pdf.Root.Lang = main.Root.get("/Lang", "")
            information = {key: str(text) for key, text in main.docinfo.items()}
            mark(pdf, information, head, files)
            information["/Producer"] = PRODUCER
            pdf.trailer["/Info"] = pdf.make_indirect(pikepdf.Dictionary(information))
            drop_id(pdf)
            lock = _encryption(head) if "encrypt" in head else None
            pdf.save(out, **archive.SAVED, encryption=lock, deterministic_id=lock is None)
    except (*DAMAGED, RecursionError) as problem:
        raise TemplateError("the parts cannot be merged: %(problem)s", problem=problem) from None
    check_pdf(out.getvalue())
    return {"pages": pages}, out.getvalue()


def merge_files(parts: Iterable[Path], path: Path, titles: Sequence[tuple[str, int]] = ()) -> None:
    """Merge the files of a batch, of which uploads may be parts; raises RenderFailed."""
    head = {"files": [*map(str, parts)], "path": str(path), "titles": titles}
    run_in_child(_MODULE, head, b"", BATCH_LIMITS)


def _merge_files(head: dict[str, Any]) -> Reply:
    """Sources stay open until the result is saved, which copies their streams."""
    try:
        with ExitStack() as sources, pikepdf.new() as merged:
            merge(merged, (sources.enter_context(pikepdf.open(part)) for part in head["files"]))
            if head["titles"]:
                add_bookmarks(merged, head["titles"])
            merged.save(head["path"], **archive.SAVED, deterministic_id=True)
    except (*DAMAGED, RecursionError) as problem:
        raise TemplateError("the parts cannot be merged: %(problem)s", problem=problem) from None
    return {}, b""


def _bookmarks(parts: list[pikepdf.Pdf], titles: list[str]) -> Iterator[tuple[str, int]]:
    first_pages = accumulate((len(part.pages) for part in parts[:-1]), initial=0)
    for part, title, page in zip(parts, titles, first_pages, strict=True):
        own = str(part.docinfo.get("/Title", ""))
        yield (own or title or f"page {page + 1}")[:MAX_TITLE_LENGTH], page


def _encryption(head: dict[str, Any]) -> pikepdf.Encryption:
    allow = head["encrypt"].get("allow")  # None: everything
    flags = {
        flag: allow is None or kind in allow for kind, each in _PERMISSIONS.items() for flag in each
    }
    permissions = pikepdf.Permissions(**flags, modify_other=allow is None, accessibility=True)
    user, owner = head["passwords"].get("user", ""), head["passwords"]["owner"]
    return pikepdf.Encryption(owner=owner, user=user, R=6, allow=permissions)


if __name__ == "__main__":
    serve_task(lambda head, body: _merge_files(head) if "path" in head else finish(head, body))
