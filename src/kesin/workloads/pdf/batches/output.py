"""What came of the rows of a batch, put into one file and kept."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import pikepdf

from kesin.workloads.pdf.batches.feeder import RowResult
from kesin.workloads.pdf.batches.rows import entry_name
from kesin.workloads.pdf.batches.store import JSON_TYPE, Batch, Order, PdfBatchStore
from kesin.workloads.pdf.storage.artifacts import sound_bytes
from kesin.workloads.pdf.storage.base import NotStored

MAX_OUTPUT_BYTES: Final = 200 * 1024 * 1024
GROUP: Final = 50  # PDFs open at the same time: all of them would be too many files
GROUP_BYTES: Final = 64 * 1024 * 1024
LONGEST_TITLE: Final = 120
_MADE_AT: Final = (2000, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_READABLE: Final = 0o644 << 16


class TooMuch(ValueError):
    """The file would be larger than is kept."""


class Unreadable(ValueError):
    """It is no PDF that could be taken apart."""


class Assembly(Protocol):
    """A file in the making."""

    media_type: str
    ending: str

    def add(self, name: str, pdf: bytes) -> None:
        """The next PDF; raises TooMuch, or Unreadable and leaves it out."""
        ...

    def finished(self, notes: Mapping[str, bytes]) -> Path:
        """The file, with these small ones beside where it has room for such; raises TooMuch."""
        ...


def assembly(output: str, folder: Path, most: int = MAX_OUTPUT_BYTES) -> Assembly:
    """A zip or a merged PDF, to be made in this empty folder."""
    return MergedPdf(folder, most) if output == "merged" else Zip(folder, most)


class Zip:
    """Entries in the order they come, not packed again: PDFs are packed already."""

    media_type = "application/zip"
    ending = "zip"

    def __init__(self, folder: Path, most: int = MAX_OUTPUT_BYTES) -> None:
        self._path = folder / "out.zip"
        self._most = most
        self._zip = zipfile.ZipFile(self._path, "w")

    def add(self, name: str, pdf: bytes) -> None:
        """One more entry."""
        self._write(name, pdf)

    def finished(self, notes: Mapping[str, bytes]) -> Path:
        """The whole zip."""
        for name, data in notes.items():
            self._write(name, data)
        self._zip.close()
        if self._path.stat().st_size > self._most:  # the table of contents came on top
            raise TooMuch(_too_much(self._most))
        return self._path

    def _write(self, name: str, data: bytes) -> None:
        at = self._zip.fp.tell() if self._zip.fp else 0
        if at + len(data) > self._most:
            self._zip.close()
            raise TooMuch(_too_much(self._most))
        entry = zipfile.ZipInfo(name, _MADE_AT)
        entry.create_system = _UNIX
        entry.external_attr = _READABLE
        self._zip.writestr(entry, data)


class MergedPdf:
    """Pages one after the other, and an entry in the outline for each PDF.

    PDFs are merged in groups, and the groups at the end. Their pages are taken over as they are;
    outlines and names of places inside of them are not.
    """

    media_type = "application/pdf"
    ending = "pdf"

    def __init__(self, folder: Path, most: int = MAX_OUTPUT_BYTES) -> None:
        self._pages = 0
        self._folder = folder
        self._most = most
        self._waiting_bytes = 0
        self._grouped_bytes = 0
        self._titles: list[tuple[str, int]] = []  # and the page each begins at
        self._waiting: list[Path] = []
        self._groups: list[Path] = []

    def add(self, name: str, pdf: bytes) -> None:
        """One more PDF after the last page."""
        path = self._folder / f"part-{len(self._titles)}.pdf"
        path.write_bytes(pdf)
        try:
            with pikepdf.open(path) as document:
                pages = len(document.pages)
        except pikepdf.PdfError as problem:
            raise Unreadable(str(problem)) from problem
        self._titles.append((name.removesuffix(".pdf")[:LONGEST_TITLE], self._pages))
        self._pages += pages
        self._waiting.append(path)
        self._waiting_bytes += len(pdf)
        if len(self._waiting) == GROUP or self._waiting_bytes > GROUP_BYTES:
            self._close_group()

    def finished(self, notes: Mapping[str, bytes]) -> Path:
        """The whole PDF; a PDF has no place for notes."""
        del notes
        self._close_group()
        path = self._folder / "out.pdf"
        _merge(self._groups, path, self._titles)
        if path.stat().st_size > self._most:
            raise TooMuch(_too_much(self._most))
        return path

    def _close_group(self) -> None:
        if not self._waiting:
            return
        group = self._folder / f"group-{len(self._groups)}.pdf"
        _merge(self._waiting, group)
        for path in self._waiting:
            path.unlink()
        self._waiting, self._waiting_bytes = [], 0
        self._groups.append(group)
        self._grouped_bytes += group.stat().st_size
        if self._grouped_bytes > self._most * 1.1:  # together they become a little smaller
            raise TooMuch(_too_much(self._most))


def _merge(parts: list[Path], path: Path, titles: list[tuple[str, int]] | None = None) -> None:
    """Sources stay open until all is written: their streams are copied then."""
    opened: list[pikepdf.Pdf] = []
    try:
        with pikepdf.new() as merged:
            for part in parts:
                opened.append(pikepdf.open(part))
                merged.pages.extend(opened[-1].pages)
            if titles:
                with merged.open_outline() as outline:
                    outline.root.extend(pikepdf.OutlineItem(name, at) for name, at in titles)
                merged.Root.PageMode = pikepdf.Name.UseOutlines
            merged.save(
                path,
                deterministic_id=True,
                object_stream_mode=pikepdf.ObjectStreamMode.generate,
            )
    finally:
        for one in opened:
            one.close()


def _too_much(most: int) -> str:
    return (
        f"the file would have more than {most // (1024 * 1024)} MiB: send the rows in several "
        "batches, or fetch each PDF by itself"
    )


LOOK_EVERY: Final = 50  # rows: whether anybody still wants it
COLUMNS: Final = (
    "row", "file", "status", "pages", "bytes", "sha256", "error_code", "error_message",
)  # fmt: skip
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "'")
_whole_in_memory = threading.Lock()  # one finished file at a time is read for the storage


class Incomplete(Exception):
    """Some rows have no PDF any more, or one that nobody can read."""

    def __init__(self, missing: Iterable[int], unreadable: Iterable[int]) -> None:
        self.missing = list(missing)
        self.unreadable = list(unreadable)
        super().__init__(f"missing: {self.missing}, unreadable: {self.unreadable}")


def gathered(
    batches: PdfBatchStore,
    batch: Batch,
    order: Order,
    rows: Sequence[RowResult],
    look: Callable[[], None],
) -> dict[str, Any]:
    """Put the PDFs together and keep the file; what is to be remembered of it.

    ``look`` is called now and then, and raises to stop. Raises Incomplete, TooMuch, StorageDown.
    """
    missing: list[int] = []
    unreadable: list[int] = []
    with tempfile.TemporaryDirectory(prefix="kesin-batch-") as folder:
        whole = assembly(order.output, Path(folder))
        for number, one in enumerate(rows):
            if number % LOOK_EVERY == 0:
                look()
            if one.artifact_key is None:
                continue
            try:
                pdf = sound_bytes(batches.storage, one.artifact_key, one.sha256)
                whole.add(_file(order, one.row), pdf)
            except NotStored:
                missing.append(one.row)
            except Unreadable:
                unreadable.append(one.row)
        if missing or unreadable:
            raise Incomplete(missing, unreadable)
        told = told_rows(order, rows, ids=False)
        path = whole.finished({"results.json": as_json(told), "results.csv": as_csv(told)})
        look()
        with _whole_in_memory:
            data = path.read_bytes()
            key = batches.put_new(batch, "out", whole.ending, data, whole.media_type)
        return {
            "artifact_key": key,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }


def kept_results(
    batches: PdfBatchStore, batch: Batch, order: Order, rows: Sequence[RowResult]
) -> dict[str, Any]:
    """Keep what came of every row; raises StorageDown."""
    told = as_json(told_rows(order, rows, ids=True))
    key = batches.put_new(batch, "results", "json", told, JSON_TYPE)
    return {"results_key": key, "results_sha256": hashlib.sha256(told).hexdigest()}


def told_rows(order: Order, rows: Sequence[RowResult], *, ids: bool) -> list[dict[str, Any]]:
    """Rows as they are told; without the ids of jobs, equal batches tell the same."""
    return [
        {
            "row": one.row + 1,
            **({"job_id": one.job_id or None} if ids else {}),
            "file": _file(order, one.row) if one.artifact_key else None,
            "status": "succeeded" if one.artifact_key else "failed",
            "pages": one.pages,
            "bytes": one.bytes,
            "sha256": one.sha256,
            "error_code": one.error_code,
            "error_message": one.error_message,
        }
        for one in rows
    ]


def _file(order: Order, row: int) -> str:
    return entry_name(row + 1, order.names[row], order.template)


def as_json(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Small, and in letters a person can read."""
    return json.dumps(list(rows), ensure_ascii=False, separators=(",", ":")).encode()


def as_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """For a spreadsheet, which must not take any of it for a formula."""
    page = io.StringIO(newline="")
    writer = csv.writer(page)
    writer.writerow(COLUMNS)
    for row in rows:
        cells = ["" if row[name] is None else str(row[name]) for name in COLUMNS]
        writer.writerow([f"'{one}" if one.startswith(_FORMULA) else one for one in cells])
    return ("\ufeff" + page.getvalue()).encode()  # the mark tells spreadsheets that it is UTF-8
