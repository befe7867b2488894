"""`kesin pdf doctor`: whether PDFs can be made, kept and fetched here; if not, what to do."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kesin.foundation.problems import Problem
from kesin.foundation.settings import Settings
from kesin.store.errors import StoreError
from kesin.workloads.pdf.engines.base import Engine, Paper
from kesin.workloads.pdf.engines.select import chromium_possible, find_chromium
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.services import book_of, chromium_settings, engine_of
from kesin.workloads.pdf.storage import open_storage
from kesin.workloads.pdf.storage.backup import artifacts_place
from kesin.workloads.pdf.storage.base import StorageError
from kesin.workloads.pdf.templating.library import TemplateBook

LETTERS: Final = "ğ Ğ ı I i İ ş Ş ç Ç ö Ö ü Ü ₺"
_PAGE: Final = (
    "<!doctype html><html lang='tr'><head><title>Kesin</title><style>{css} "
    "body {{ font-family: {family}, monospace }}</style></head>"
    "<body><p>{letters}</p><p><b>{letters}</b></p></body></html>"
)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor."""

    name: str
    ok: bool
    detail: str


def examined(settings: Settings, engine: str | None = None) -> Iterator[Check]:
    """Everything, in the order in which one would mend it."""
    book: TemplateBook | None = None
    try:
        book = book_of(settings)
        yield Check("templates", ok=bool(book.names), detail=", ".join(book.names))
    except (RenderFailed, Problem) as problem:
        yield Check("templates", ok=False, detail=str(problem))
    yield from _browser(settings, engine)
    yield from _printing(settings, engine, book)
    yield _storage(settings)
    yield from _workers(settings)


def _browser(settings: Settings, engine: str | None) -> Iterator[Check]:
    found = find_chromium(settings.pdf_chromium)
    usable = chromium_possible(settings.pdf_chromium)
    told = str(found) if found and usable else "none, so WeasyPrint draws"
    yield Check("browser", ok=usable or engine != "chromium", detail=told)
    if not usable:
        return
    if settings.pdf_sandbox == "on" and os.getuid() == 0:
        told = "on, which Chromium refuses root: run as another user, or set it to auto"
        yield Check("sandbox", ok=False, detail=told)
        return
    sandboxed = chromium_settings(settings).sandboxed
    how = "on" if sandboxed else "off: a page that breaks out has our rights; run as another user"
    yield Check("sandbox", ok=True, detail=how)


def _printing(settings: Settings, engine: str | None, book: TemplateBook | None) -> Iterator[Check]:
    limit_s = settings.pdf_hard_timeout_s
    try:
        made = engine_of(settings, engine)
        try:
            page = _PAGE.format(css="", family="sans-serif", letters=LETTERS)
            rendered = made.render(page, Paper(), timeout_s=limit_s)
            fonts = None if book is None else _fonts(made, book, limit_s)
        finally:
            made.close()
    except RenderFailed as problem:
        yield Check("test page", ok=False, detail=str(problem))
        return
    told = f"{len(rendered.pdf)} bytes by {rendered.engine} in {rendered.seconds:.1f} s"
    yield Check("test page", ok=not rendered.warnings, detail="; ".join((told, *rendered.warnings)))
    if fonts is not None:
        yield fonts


def _fonts(engine: Engine, book: TemplateBook, limit_s: float) -> Check:
    """Every letter is in our own fonts, and no other font was needed to draw them."""
    ours: set[str] = set()
    for file, data in book.fonts.items():
        try:
            missing, name = _looked_into(data)
        except Exception as problem:  # noqa: BLE001  # whatever is wrong with a stranger's file
            return Check("fonts", ok=False, detail=f"{file} cannot be read: {problem}")
        if missing:
            return Check("fonts", ok=False, detail=f"{file} lacks {' '.join(missing)}")
        ours.add(name)
    families = sorted({f"Kesin {Path(file).stem.split('-')[0].title()}" for file in book.fonts})
    for family in families:
        page = _PAGE.format(css=book.font_css, family=f"'{family}'", letters=LETTERS)
        rendered = engine.render(page, Paper(), timeout_s=limit_s)
        used = embedded(rendered.pdf)
        told = family.replace(" ", "-")  # as WeasyPrint calls it
        others = sorted(one for one in used if one not in ours and not one.startswith(told))
        if others or rendered.warnings:
            why = "; ".join((*(f"{one} was used instead" for one in others), *rendered.warnings))
            return Check("fonts", ok=False, detail=f"{family}: {why}")
    return Check("fonts", ok=bool(families), detail=f"{LETTERS} in {', '.join(families)}")


def _looked_into(font: bytes) -> tuple[list[str], str]:
    """Which letters a font file has not, and its name."""
    from fontTools.ttLib import TTFont  # type: ignore[import-untyped]

    with TTFont(io.BytesIO(font)) as found:
        letters = found.getBestCmap() or {}
        name = found["name"].getDebugName(6) or ""
    return [one for one in LETTERS.split() if ord(one) not in letters], name


def embedded(pdf: bytes) -> set[str]:
    """The names of the fonts in a PDF, without the mark of a part of a font."""
    import pikepdf

    with pikepdf.open(io.BytesIO(pdf)) as document:
        return {
            str(one["/FontName"]).removeprefix("/").rpartition("+")[2]
            for one in document.objects
            if isinstance(one, pikepdf.Dictionary) and one.get("/Type") == "/FontDescriptor"
        }


def _storage(settings: Settings) -> Check:
    """A small file is put there, read and taken away."""
    where = artifacts_place(settings)
    if not settings.pdf_artifacts and not Path(where).exists():
        return Check("storage", ok=True, detail=f"{where} is made with the first PDF")
    key = f"pdfs/doctor-{secrets.token_hex(8)}/0.pdf"
    try:
        storage = open_storage(where)
        storage.put_bytes(key, b"%PDF-", "application/pdf")
        same = storage.get_bytes(key) == b"%PDF-"
        storage.delete(key)
    except StorageError as problem:
        return Check("storage", ok=False, detail=f"{problem}: look at KESIN_PDF_ARTIFACTS")
    return Check("storage", ok=same, detail=where)


def _workers(settings: Settings) -> Iterator[Check]:
    """Who renders, where there is a database; that nobody does is bad once a job waits."""
    from kesin.store.open import open_stores
    from kesin.store.postgres.reachability import check_reachable
    from kesin.workloads.pdf.jobs.heartbeat import workers_alive

    file = settings.database_file
    if file is not None and not file.exists():
        return
    try:
        check_reachable(settings)
        store = open_stores(settings)
    except StoreError as problem:
        yield Check("workers", ok=False, detail=str(problem))
        return
    try:
        alive = len(workers_alive(store))
        waiting = sum(
            flow.n * ((flow.to_state == "queued") - (flow.from_state == "queued"))
            for flow in store.flows("pdf")
        )
    except StoreError as problem:
        yield Check("workers", ok=False, detail=str(problem))
        return
    finally:
        store.close()
    hint = "" if alive else "; start `kesin serve` or `kesin worker pdf`"
    detail = f"{alive} alive, {waiting} jobs wait{hint}"
    yield Check("workers", ok=bool(alive) or not waiting, detail=detail)
