"""The output of a batch: its PDFs as a zip or one merged PDF, and the results of its rows."""

import hashlib
import json
import tempfile
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pikepdf

from kesin.foundation.text import csv_text
from kesin.workloads.pdf.batches.feeder import BatchRowResult
from kesin.workloads.pdf.batches.rows import entry_name
from kesin.workloads.pdf.batches.store import FILE_TYPES, BatchOrder, PdfBatch, PdfBatchStore
from kesin.workloads.pdf.steps.finishing import merge_files
from kesin.workloads.pdf.steps.merging import MAX_TITLE_LENGTH
from kesin.workloads.pdf.storage.artifacts import read_verified
from kesin.workloads.pdf.storage.base import NotStored

MAX_OUTPUT_BYTES: Final = 200 * 1024 * 1024
GROUP_SIZE: Final = 50  # PDFs open at the same time: this limits open files
GROUP_BYTES: Final = 64 * 1024 * 1024
CHECK_EVERY_ROWS: Final = 50  # between checks that the batch is still wanted
COLUMNS: Final = (
    "row", "file", "status", "pages", "bytes", "sha256", "error_code", "error_message",
)  # fmt: skip
_memory_lock = threading.Lock()  # only one output file is held in memory at a time


class OutputTooLarge(ValueError):
    """The file would be larger than MAX_OUTPUT_BYTES."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(
            f"the file would have more than {max_bytes // (1024 * 1024)} MiB: send the rows in "
            "several batches, or fetch each PDF on its own"
        )


class UnreadablePdf(ValueError):
    """The file is not a PDF that can be merged."""


class IncompleteRows(Exception):
    """Its arguments: the rows that have lost their PDF, and those that have an unreadable one."""


class ZipAssembly:
    """A zip of uncompressed entries in the order of the rows: PDFs are compressed already."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._path = folder / "out.zip"
        self._max_bytes = max_bytes
        self._zip = zipfile.ZipFile(self._path, "w")

    def add(self, name: str, pdf: bytes) -> None:
        at = self._zip.fp.tell() if self._zip.fp else 0
        if at + len(pdf) > self._max_bytes:
            self._zip.close()
            raise OutputTooLarge(self._max_bytes)
        entry = zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0))
        entry.create_system = 3  # Unix
        entry.external_attr = 0o644 << 16  # its permissions
        self._zip.writestr(entry, pdf)

    def finish(self, notes: Mapping[str, bytes]) -> Path:
        for name, data in notes.items():
            self.add(name, data)
        self._zip.close()
        if self._path.stat().st_size > self._max_bytes:  # now with the central directory
            raise OutputTooLarge(self._max_bytes)
        return self._path


class MergedPdfAssembly:
    """The pages of all PDFs with an outline entry each; their own outlines are lost."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._pages = 0
        self._folder = folder
        self._max_bytes = max_bytes
        self._open_group_bytes = 0
        self._grouped_bytes = 0
        self._titles: list[tuple[str, int]] = []  # and the first page of each
        self._open_group: list[Path] = []
        self._groups: list[Path] = []

    def add(self, name: str, pdf: bytes) -> None:
        """Append a PDF; raises OutputTooLarge, or UnreadablePdf and omits it."""
        path = self._folder / f"part-{len(self._titles)}.pdf"
        path.write_bytes(pdf)
        try:
            with pikepdf.open(path) as document:
                pages = len(document.pages)
        except pikepdf.PdfError as problem:
            raise UnreadablePdf(str(problem)) from problem
        self._titles.append((name.removesuffix(".pdf")[:MAX_TITLE_LENGTH], self._pages))
        self._pages += pages
        self._open_group.append(path)
        self._open_group_bytes += len(pdf)
        if len(self._open_group) == GROUP_SIZE or self._open_group_bytes > GROUP_BYTES:
            self._close_group()

    def finish(self, _: Mapping[str, bytes]) -> Path:
        """Finish the PDF; it has no room for notes."""
        self._close_group()
        path = self._folder / "out.pdf"
        merge_files(self._groups, path, self._titles)
        if path.stat().st_size > self._max_bytes:
            raise OutputTooLarge(self._max_bytes)
        return path

    def _close_group(self) -> None:
        if not self._open_group:
            return
        group = self._folder / f"group-{len(self._groups)}.pdf"
        merge_files(self._open_group, group)
        for path in self._open_group:
            path.unlink()
        self._open_group, self._open_group_bytes = [], 0
        self._groups.append(group)
        self._grouped_bytes += group.stat().st_size
        if self._grouped_bytes > self._max_bytes * 1.1:  # merging makes them a little smaller
            raise OutputTooLarge(self._max_bytes)


def open_assembly(
    output: str, folder: Path, max_bytes: int = MAX_OUTPUT_BYTES
) -> ZipAssembly | MergedPdfAssembly:
    return (MergedPdfAssembly if output == "merged" else ZipAssembly)(folder, max_bytes)


class BatchFiles(NamedTuple):
    """The files of a batch whose rows have all ended."""

    batches: PdfBatchStore
    batch: PdfBatch
    order: BatchOrder
    rows: Sequence[BatchRowResult]

    def assemble(self, require_wanted: Callable[[], None]) -> dict[str, Any]:
        """Store the file, return its facts; raises RenderFailed too if a merge costs too much."""
        missing, unreadable = list[int](), list[int]()
        with tempfile.TemporaryDirectory(prefix="kesin-batch-") as folder:
            assembly = open_assembly(self.order.output, Path(folder))
            for number, row in enumerate(self.rows):
                if number % CHECK_EVERY_ROWS == 0:
                    require_wanted()
                if row.artifact_key is None:
                    continue
                try:
                    pdf = read_verified(self.batches.storage, row.artifact_key, row.sha256)
                    assembly.add(self._file_name(row.row), pdf)
                except NotStored:
                    missing.append(row.row)
                except UnreadablePdf:
                    unreadable.append(row.row)
            if missing or unreadable:
                raise IncompleteRows(missing, unreadable)
            results = self._results(ids=False)
            notes = {"results.json": format_json(results), "results.csv": format_csv(results)}
            path = assembly.finish(notes)
            require_wanted()
            with _memory_lock:
                data = path.read_bytes()
                extension, media_type = FILE_TYPES.get(self.order.output, FILE_TYPES["zip"])
                key = self.batches.store_file(self.batch, "out", extension, data, media_type)
        return {"artifact_key": key, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def store_results(self) -> dict[str, Any]:
        results = format_json(self._results(ids=True))
        key = self.batches.store_file(self.batch, "results", "json", results, "application/json")
        return {"results_key": key, "results_sha256": hashlib.sha256(results).hexdigest()}

    def _results(self, *, ids: bool) -> list[dict[str, Any]]:
        """Return the results of the rows; without job ids, equal batches give equal results."""
        return [
            {
                "row": row.row + 1,
                **({"job_id": row.job_id or None} if ids else {}),
                "file": self._file_name(row.row) if row.artifact_key else None,
                "status": "succeeded" if row.artifact_key else "failed",
                **{fact: getattr(row, fact) for fact in COLUMNS[3:]},
            }
            for row in self.rows
        ]

    def _file_name(self, row: int) -> str:
        return entry_name(row + 1, self.order.names[row], self.order.template)


def format_json(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return json.dumps(list(rows), ensure_ascii=False, separators=(",", ":")).encode()


def format_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Format rows as CSV; cells that a spreadsheet would read as formulas are quoted."""
    text = csv_text([COLUMNS, *([row[name] for name in COLUMNS] for row in rows)])
    return text.encode("utf-8-sig")  # its mark identifies UTF-8 to spreadsheets
