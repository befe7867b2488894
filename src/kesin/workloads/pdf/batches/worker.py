"""The worker of batches: enqueues a job for each row, waits, and assembles the output file."""

import hashlib
import json
import math
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pikepdf

from kesin.engine.results import Act, Done, Failed, HandlerResult, RunContext
from kesin.engine.worker import Worker
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import Logger
from kesin.foundation.text import csv_text
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.store.errors import StoreUnreachable
from kesin.store.records import Outcome
from kesin.workloads.pdf.batches import feeder
from kesin.workloads.pdf.batches.rows import entry_name
from kesin.workloads.pdf.batches.store import FILE_TYPES, BatchOrder, PdfBatch, PdfBatchStore
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.store import UNFINISHED, RenderRequest
from kesin.workloads.pdf.jobs.submit import RESUME_SHARE
from kesin.workloads.pdf.services import open_batch_store
from kesin.workloads.pdf.steps.finishing import MAX_TITLE_LENGTH, merge_files
from kesin.workloads.pdf.storage.artifacts import read_verified
from kesin.workloads.pdf.storage.base import NotStored, StorageDown

WORKER_THREADS: Final = 4  # batches at a time
MAX_ROWS_IN_QUEUE: Final = 100  # rows of one batch that have a waiting job
REFILL_BELOW: Final = 50  # waiting rows; more are enqueued at this number or below
MAX_ROW_RETRIES: Final = 3  # how often a row is enqueued again
MIN_PAUSE_S: Final = 0.2  # between two polls
MAX_PAUSE_S: Final = 1.0  # while nothing changes
log = Logger("kesin.pdf")


MAX_OUTPUT_BYTES: Final = 200 * 1024 * 1024
GROUP_SIZE: Final = 50  # PDFs open at the same time: this limits open files
GROUP_BYTES: Final = 64 * 1024 * 1024
CHECK_EVERY_ROWS: Final = 50  # between checks that the batch is still wanted
COLUMNS: Final = (
    "row", "file", "status", "pages", "bytes", "sha256", "error_code", "error_message",
)  # fmt: skip
_memory_lock = threading.Lock()  # only one output file is held in memory at a time


def _too_large(max_bytes: int) -> RenderFailed:
    most = f"the file would have more than {max_bytes // (1024 * 1024)} MiB"
    why = f"{most}: send the rows in several batches, or fetch each PDF on its own"
    return RenderFailed("TOO_LARGE", why)


class UnreadablePdf(ValueError):
    """The file is not a PDF that can be merged."""


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
            raise _too_large(self._max_bytes)
        entry = zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0))
        entry.create_system = 3  # Unix
        entry.external_attr = 0o644 << 16  # its permissions
        self._zip.writestr(entry, pdf)

    def finish(self, notes: Mapping[str, bytes]) -> Path:
        for name, data in notes.items():
            self.add(name, data)
        self._zip.close()
        if self._path.stat().st_size > self._max_bytes:  # now with the central directory
            raise _too_large(self._max_bytes)
        return self._path


class MergedPdfAssembly:
    """The pages of all PDFs with an outline entry each; their own outlines are lost."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._pages = 0
        self._folder = folder
        self._max_bytes = max_bytes
        self._titles: list[tuple[str, int]] = []  # and the first page of each
        self._open_group: list[Path] = []
        self._groups: list[Path] = []

    def add(self, name: str, pdf: bytes) -> None:
        """Append a PDF; raises RenderFailed, or UnreadablePdf and omits it."""
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
        if len(self._open_group) == GROUP_SIZE or _size_of(self._open_group) > GROUP_BYTES:
            self._close_group()

    def finish(self, _: Mapping[str, bytes]) -> Path:
        """Finish the PDF; it has no room for notes."""
        self._close_group()
        path = self._folder / "out.pdf"
        merge_files(self._groups, path, self._titles)
        if path.stat().st_size > self._max_bytes:
            raise _too_large(self._max_bytes)
        return path

    def _close_group(self) -> None:
        if not self._open_group:
            return
        group = self._folder / f"group-{len(self._groups)}.pdf"
        merge_files(self._open_group, group)
        for path in self._open_group:
            path.unlink()
        self._open_group = []
        self._groups.append(group)
        if _size_of(self._groups) > self._max_bytes * 1.1:  # merging makes them a little smaller
            raise _too_large(self._max_bytes)


def _size_of(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def open_assembly(output: str, folder: Path, max_bytes: int = MAX_OUTPUT_BYTES) -> ZipAssembly | MergedPdfAssembly:
    return (MergedPdfAssembly if output == "merged" else ZipAssembly)(folder, max_bytes)


def format_json(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return json.dumps(list(rows), ensure_ascii=False, separators=(",", ":")).encode()


def format_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Format rows as CSV; cells that a spreadsheet would read as formulas are quoted."""
    text = csv_text([COLUMNS, *([row[name] for name in COLUMNS] for row in rows)])
    return text.encode("utf-8-sig")  # its mark identifies UTF-8 to spreadsheets


@dataclass(slots=True)
class _BatchRun:
    """The progress of a claimed batch. Rows are counted from 0."""

    claim: Job
    batch: PdfBatch
    order: BatchOrder
    row_jobs: dict[int, feeder.RowJob]  # of every row that was enqueued
    waiting: set[int]  # rows whose jobs have not ended
    results: dict[int, feeder.BatchRowResult] = field(default_factory=dict)
    lost: dict[int, bool] = field(default_factory=dict)  # row: whether only its file is missing

    def requests(self, first: int, count: int) -> list[RenderRequest]:
        return self.order.requests(self.batch.batch_id, self.claim.tenant, first, count)

    def file_name(self, row: int) -> str:
        return entry_name(row + 1, self.order.names[row], self.order.template)

    def format_results(self, *, ids: bool) -> list[dict[str, Any]]:
        """Format the results of the rows; without job ids, equal batches give equal results."""
        return [
            {
                "row": row.row + 1,
                **({"job_id": row.job_id or None} if ids else {}),
                "file": self.file_name(row.row) if row.artifact_key else None,
                "status": "succeeded" if row.artifact_key else "failed",
                **{fact: getattr(row, fact) for fact in COLUMNS[3:]},
            }
            for _, row in sorted(self.results.items())
        ]

    def mark_lost(self, row: int, *, missing: bool) -> None:
        """Schedule a row without a PDF to be enqueued again; it fails after MAX_ROW_RETRIES."""
        self.results.pop(row, None)
        if self.row_jobs[row].retries < MAX_ROW_RETRIES:
            self.lost[row] = missing
        else:
            self.results[row] = feeder.row_result(self.row_jobs[row], None, feeder.ARTIFACT_GONE)


class BatchWorker(Worker):
    """Processes batches."""

    def __init__(
        self,
        batches: PdfBatchStore,
        *,
        max_queued: int = 1_000,
        wait: Callable[[float], None] | None = None,
        threads: int = WORKER_THREADS,
    ) -> None:
        end = self._end_batches
        super().__init__(batches.queue, self.run_batch, threads=threads, batch=1, in_transaction=end)
        self.batches = batches
        self._queue_limit = math.ceil(max_queued * RESUME_SHARE)  # jobs; then no row is enqueued
        self._wait = wait or self.pause

    def run_batch(self, job: Job, run: RunContext) -> HandlerResult:
        """Process a batch and return its result; waits while the store is unreachable."""
        while True:
            try:
                return self._run_claimed(job, run)
            except feeder.BatchInterrupted as interruption:
                action: Act = interruption.args[0]
                return action
            except StorageDown as problem:
                return Failed("STORAGE_DOWN", str(problem))
            except StoreUnreachable as problem:
                log.warning("store_unreachable", batch=job.id, why=str(problem))
                if run.stopping or run.lost:
                    return feeder.RELEASE
                self._wait(MAX_PAUSE_S)

    def _run_claimed(self, job: Job, run: RunContext) -> HandlerResult:
        self._require_wanted(job, run)
        batch = self.batches.parse_batch(job)
        try:
            order = self.batches.load_order(batch)
        except NotStored:
            return Failed("ROWS_MISSING", "the submitted rows are no longer in storage")
        row_jobs = {row_job.row: row_job for row_job in self.batches.feeder.row_jobs(job.id)}
        work = _BatchRun(job, batch, order, row_jobs, set(row_jobs))
        pause_s = MIN_PAUSE_S
        while True:
            self._require_wanted(job, run)
            changed = self._collect_ended_rows(work) + self._requeue_lost_rows(work)
            changed += self._feed_rows(work)
            if changed and job.id not in self.queue.renew([job]):
                raise feeder.BatchInterrupted(feeder.RELEASE)
            if len(work.results) == len(order.rows):
                result = self._finish(work, run)
                if result is not None:
                    return result
            elif changed:
                pause_s = MIN_PAUSE_S
            else:
                self._wait(pause_s)
                pause_s = min(pause_s * 2, MAX_PAUSE_S)

    def _require_wanted(self, job: Job, run: RunContext) -> None:
        """Raise BatchInterrupted if processing must end."""
        current = None if run.stopping or run.lost else self.queue.job(job.id)
        if current is None or current.claim_seq != job.claim_seq or current.state != "running":
            raise feeder.BatchInterrupted(feeder.RELEASE)
        if self.batches.parse_batch(current).cancel_asked:
            raise feeder.BatchInterrupted(Act("stop"))

    def _collect_ended_rows(self, work: _BatchRun) -> int:
        """Record the rows that have ended; returns their number. Only their jobs are read."""
        queue = self.batches.jobs.queue
        waiting = [work.row_jobs[row] for row in sorted(work.waiting)]
        states = queue.states([each.job_id for each in waiting if each.job_id])
        ended = [each for each in waiting if states.get(each.job_id) not in UNFINISHED]
        for at in range(0, len(ended), feeder.JOBS_PER_QUERY):
            chunk = ended[at : at + feeder.JOBS_PER_QUERY]
            jobs = queue.find([each.job_id for each in chunk if each.job_id])
            for row_job in chunk:
                self._record_row(work, row_job, jobs.get(row_job.job_id))
        return len(waiting) - len(work.waiting)

    def _record_row(self, work: _BatchRun, row_job: feeder.RowJob, job: Job | None) -> None:
        row = row_job.row
        state = feeder.row_state(job) if row_job.job_id else "failed"
        if state == "waiting":  # requeued between the two queries
            return
        work.waiting.discard(row)
        if state == "gone":
            work.mark_lost(row, missing=False)
        else:
            code = None if row_job.job_id else feeder.BAD_ROW
            work.results[row] = feeder.row_result(row_job, job, code)

    def _requeue_lost_rows(self, work: _BatchRun) -> int:
        rows = sorted(work.lost)[: max(MAX_ROWS_IN_QUEUE - len(work.waiting), 0)]
        for row in rows:
            [request] = work.requests(row, 1)
            work.row_jobs[row] = self.batches.feeder.enqueue_again(
                work.claim, work.row_jobs[row], request, missing=work.lost[row]
            )
            del work.lost[row]
            work.waiting.add(row)
        return len(rows)

    def _feed_rows(self, work: _BatchRun) -> int:
        """Enqueue the next rows, as many as the queue takes; returns their number."""
        first = len(work.row_jobs)
        left = len(work.order.rows) - first
        if not left or len(work.waiting) > REFILL_BELOW:
            return 0
        queued = self.batches.jobs.queue.stats().states["queued"]
        count = min(left, MAX_ROWS_IN_QUEUE - len(work.waiting), self._queue_limit - queued)
        if count <= 0:
            return 0
        row_jobs = self.batches.feeder.feed(work.claim, first, work.requests(first, count))
        work.row_jobs |= {row_job.row: row_job for row_job in row_jobs}
        work.waiting |= {row_job.row for row_job in row_jobs}
        return len(row_jobs)

    def _finish(self, work: _BatchRun, run: RunContext) -> Done | Act | None:
        """Return the result of a batch whose rows have all ended; None if some must be redone."""
        started = self.queue.clock.monotonic()
        rows = [work.results[row] for row in sorted(work.results)]
        succeeded = [row_result for row_result in rows if row_result.artifact_key]
        result: dict[str, Any] = {
            "rows": len(rows),
            "made": len(succeeded),
            "failed": len(rows) - len(succeeded),
            "pages": sum(row_result.pages or 0 for row_result in succeeded),
        }
        failure: tuple[str, str] | None = None
        try:
            if succeeded:
                if (stored := self._assemble(work, run)) is None:
                    return None
                result |= stored
            else:
                reason = rows[0].error_message or "no reason is known"
                failure = "EVERY_ROW_FAILED", f"row 1: {rows[0].error_code}: {reason}"
        except RenderFailed as problem:
            failure = problem.code, problem.message
        results = format_json(work.format_results(ids=True))
        key = self.batches.store_file(work.batch, "results", "json", results, "application/json")
        result |= {"results_key": key, "results_sha256": hashlib.sha256(results).hexdigest()}
        if failure is not None:  # like Failed, but with the results of the rows
            code, why = failure
            return Act("fail", code=code, message=why, category=Category.PERMANENT, result=result)
        result["seconds"] = round(self.queue.clock.monotonic() - started, 6)
        return Done(result) if len(succeeded) == len(rows) else Act("settle", result=result)

    def _assemble(self, work: _BatchRun, run: RunContext) -> dict[str, Any] | None:
        """Store the file, return its facts, or None if rows have no PDF; raises RenderFailed."""
        missing, unreadable = list[int](), list[int]()
        with tempfile.TemporaryDirectory(prefix="kesin-batch-") as folder:
            assembly = open_assembly(work.order.output, Path(folder))
            for number, row in sorted(work.results.items()):
                if number % CHECK_EVERY_ROWS == 0:
                    self._require_wanted(work.claim, run)
                if row.artifact_key is None:
                    continue
                try:
                    pdf = read_verified(self.batches.storage, row.artifact_key, row.sha256)
                    assembly.add(work.file_name(number), pdf)
                except NotStored:
                    missing.append(number)
                except UnreadablePdf:
                    unreadable.append(number)
            if missing or unreadable:
                rows_text = f"missing: {missing}, unreadable: {unreadable}"
                log.warning("batch_incomplete", batch=work.batch.batch_id, rows=rows_text)
                for at in missing:
                    work.mark_lost(at, missing=True)
                for at in unreadable:
                    failed = feeder.row_result(work.row_jobs[at], None, feeder.UNREADABLE)
                    work.results[at] = failed
                return None
            results = work.format_results(ids=False)
            notes = {"results.json": format_json(results), "results.csv": format_csv(results)}
            path = assembly.finish(notes)
            self._require_wanted(work.claim, run)
            with _memory_lock:
                data = path.read_bytes()
                extension, media_type = FILE_TYPES.get(work.order.output, FILE_TYPES["zip"])
                key = self.batches.store_file(work.batch, "out", extension, data, media_type)
        return {"artifact_key": key, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def _end_batches(self, action: str, _: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        """Delete the row records of ended batches, in the transaction that ends them."""
        for outcome in outcomes:
            if outcome.result == "moved" and outcome.state not in UNFINISHED:
                cancel = action in {"stop", "fail", "retry"}
                self.batches.feeder.end_batch(outcome.id, cancel=cancel)


def build_worker(context: WorkloadContext) -> BatchWorker:
    return BatchWorker(open_batch_store(context), max_queued=context.settings.pdf_max_queued)
