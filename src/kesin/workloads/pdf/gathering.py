"""What came of the rows of a batch, put into one file and kept."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kesin.workloads.pdf.artifacts import sound_bytes
from kesin.workloads.pdf.assembling import Unreadable, assembly
from kesin.workloads.pdf.batch_rows import entry_name
from kesin.workloads.pdf.batch_store import JSON_TYPE, Batch, Order, PdfBatchStore
from kesin.workloads.pdf.feeding import RowResult
from kesin.workloads.pdf.storage import NotStored

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
