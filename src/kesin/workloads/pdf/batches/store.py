"""The store of batches. Rows are stored before a batch exists: a crash leaves an orphaned file."""

import gzip
import hashlib
import json
import re
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kesin.engine.queue import Queue, apply_changes
from kesin.foundation.logs import Logger
from kesin.foundation.text import as_object
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import Role
from kesin.workloads.pdf.batches import feeder
from kesin.workloads.pdf.errors import ADVICE
from kesin.workloads.pdf.jobs.store import PdfJobStore, RenderRequest
from kesin.workloads.pdf.lifecycle import CANCEL_ASKED
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore, read_verified
from kesin.workloads.pdf.storage.base import KeyTaken, NotStored, StorageDown, StorageError

FOLDER: Final = "batches"
KEY_PATTERN: Final = re.compile(rf"{FOLDER}/[0-9a-f]{{32}}/[a-z]+(-[0-9]{{1,20}})?\.[a-z.]{{3,8}}")
FILE_TYPES: Final = {"zip": ("zip", "application/zip"), "merged": ("pdf", "application/pdf")}
_MAX_TRIES: Final = 5
_PUBLIC_CODES: Final = frozenset({"EVERY_ROW_FAILED", "MAX_ATTEMPTS", "ROWS_MISSING", "TOO_LARGE"})
log = Logger("kesin.pdf")


class BatchStatus(StrEnum):
    """The state of a batch."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"
    EXPIRED = "expired"


class BatchOrder(NamedTuple):
    """A request for a batch: one template with each of these rows."""

    template: str
    payload: Mapping[str, Any]  # of every job, without its variables
    rows: Sequence[Mapping[str, Any]]
    names: Sequence[str]  # of the files; '' for a row without one
    output: str = "zip"
    timeout: int | None = None
    file_name: str | None = None
    webhook_url: str | None = None

    def requests(self, batch_id: str, owner: str, first: int, count: int) -> list[RenderRequest]:
        """Return the render requests of some rows, as if each had been submitted by itself."""
        common = {"timeout": self.timeout, "webhook_url": None, "batch": batch_id}
        requests = []
        for row in range(first, min(first + count, len(self.rows))):
            payload = {**self.payload, "variables": self.rows[row]}
            metadata = {**common, "file_name": self.names[row] or None}
            requests.append(RenderRequest(self.template, payload, owner, metadata))
        return requests


class PdfBatch:
    """The current state of a batch. Times are microseconds since 1970."""

    def __init__(self, job: Job, cancel_bit: int) -> None:
        body = as_object(job.payload)
        self.batch_id, self.owner = job.id, job.tenant
        self.created_at, self.finished_at = job.created_at, job.finished_at
        self.status = BatchStatus(job.state)
        self.is_over = self.status not in {BatchStatus.QUEUED, BatchStatus.RUNNING}
        self.has_file = self.status in {BatchStatus.SUCCEEDED, BatchStatus.PARTIAL}
        self.cancel_asked = bool(job.flags & cancel_bit)
        self.template_name = str(body.get("template", ""))
        self.output = str(body.get("output", "zip"))
        self.rows = rows if isinstance(rows := body.get("rows"), int) else 0
        self.input_key = str(body.get("input_key", ""))
        self.options = as_object(body.get("options"))
        self.file_name: str | None = body.get("file_name")
        self.result: Mapping[str, Any] = job.result or {}
        self.error_code, self.error_message = job.error_code, job.error_message
        if self.status is BatchStatus.EXPIRED and job.move in {"cancel", "stop"}:
            self.error_code, self.error_message = feeder.CANCELLED, "it was cancelled"
        elif job.error_code is not None and job.error_code not in _PUBLIC_CODES:
            self.error_message = ADVICE.find(job.error_code).means  # of the storage or the system


class PdfBatchStore:
    """Creates, finds and ends batches."""

    def __init__(self, queue: Queue, jobs: PdfJobStore, artifacts: PdfArtifactStore) -> None:
        self.queue = queue
        self.jobs = jobs
        self.artifacts = artifacts
        self.storage = artifacts.storage
        self.feeder = feeder.Feeder(queue, jobs)

    def submit(
        self, order: BatchOrder, *, owner: str, subscribe: Callable[[str], object] | None = None
    ) -> tuple[PdfBatch, bool]:
        """Return the batch of an order, and whether it is new; ``subscribe`` is given its id."""
        text = json.dumps(order._asdict() | {"owner": owner}, sort_keys=True, separators=(",", ":"))
        key = hashlib.sha256(text.encode("ascii")).hexdigest()
        for _ in range(_MAX_TRIES):
            holder = self.queue.holders(owner, [key]).get(key)
            existing = None if holder is None else self.get(holder)
            if existing is not None:
                key_of_file = existing.result.get("artifact_key") if existing.has_file else None
                if key_of_file is None or not self.artifacts.is_lost(key_of_file):
                    return existing, False
                # The batch has lost its file and keeps its key. Its successor gets a key derived
                # from it, which later equal orders compute in the same way.
                key = hashlib.sha256(f"{key} {existing.batch_id}".encode()).hexdigest()
                continue
            batch = self._enqueue(order, key, owner, subscribe)
            if batch is not None:
                return batch, True
        raise RuntimeError("the batch keeps changing: try again")

    def _enqueue(
        self, order: BatchOrder, key: str, owner: str, subscribe: Callable[[str], object] | None
    ) -> PdfBatch | None:
        input_key = f"{FOLDER}/{uuid.uuid4().hex}/rows.json.gz"
        rows = json.dumps({"rows": order.rows, "names": order.names}, separators=(",", ":"))
        packed = gzip.compress(rows.encode("ascii"), 6, mtime=0)
        self.storage.put_bytes(input_key, packed, "application/gzip")
        body = {
            "template": order.template,
            "output": order.output,
            "options": {"payload": dict(order.payload), "timeout": order.timeout},
            "rows": len(order.rows),
            "input_key": input_key,
            "file_name": order.file_name,
            "webhook_url": order.webhook_url,
        }
        with self.queue.store.transaction():
            outcome = self.queue.enqueue(body, key=key, tenant=owner, actor=owner)
            if outcome.result == "inserted" and subscribe is not None:
                subscribe(outcome.id)
        if outcome.result != "inserted":  # a concurrent request was faster
            with suppress(StorageError):
                self.storage.delete(input_key)
            return None
        return self.get(outcome.id)

    def load_order(self, batch: PdfBatch) -> BatchOrder:
        """Load the order that rows are rendered by; raises NotStored or StorageDown."""
        options = batch.options
        if not KEY_PATTERN.fullmatch(batch.input_key) or "payload" not in options:
            raise NotStored(batch.input_key)  # not submitted through the API
        data = self.storage.get_bytes(batch.input_key)
        try:
            content = json.loads(gzip.decompress(data))
        except (OSError, EOFError, ValueError, zlib.error):
            raise NotStored(batch.input_key) from None
        template, payload, output = batch.template_name, options["payload"], batch.output
        rows, names, timeout = content["rows"], content["names"], options.get("timeout")
        return BatchOrder(template, payload, rows, names, output, timeout)

    def get(self, batch_id: str) -> PdfBatch | None:
        job = self.queue.job(batch_id)
        return None if job is None else self.parse_batch(job)

    def parse_batch(self, job: Job) -> PdfBatch:
        return PdfBatch(job, self.queue.lifecycle.flag_bit(CANCEL_ASKED))

    def progress(self, batch: PdfBatch) -> tuple[int, int]:
        """Return how many rows have their PDF, and how many have failed."""
        if batch.is_over:
            return batch.result.get("made", 0), batch.result.get("failed", 0)
        job_ids = [row_job.job_id for row_job in self.feeder.row_jobs(batch.batch_id)]
        states = self.jobs.queue.states(list(filter(None, job_ids)))
        ended = {job_id for job_id, state in states.items() if state == "expired"}
        expired = self.jobs.queue.find(sorted(ended)).items()
        states |= {job_id: feeder.row_state(job) for job_id, job in expired}
        counts = Counter(states.get(job_id, "") if job_id else "failed" for job_id in job_ids)
        return counts["succeeded"], counts["failed"]

    def started_at(self, batch: PdfBatch) -> int | None:
        events = self.queue.events(batch.batch_id)
        return next((event.at for event in events if event.move == "claim"), None)

    def results(self, batch: PdfBatch, offset: int, limit: int) -> list[dict[str, Any]] | None:
        """Return the results of some rows; None while the storage is down."""
        if not batch.is_over:
            return self._current_results(batch, offset, limit)
        key = batch.result.get("results_key")
        if not key or batch.status is BatchStatus.EXPIRED:
            return []
        try:
            data = read_verified(self.storage, key, batch.result.get("results_sha256"))
        except NotStored:
            return []
        except StorageError as problem:
            log.warning("storage_down", why=str(problem))
            return None
        rows: list[dict[str, Any]] = json.loads(data)
        return rows[offset : offset + limit]

    def _current_results(self, batch: PdfBatch, offset: int, limit: int) -> list[dict[str, Any]]:
        row_jobs = self.feeder.row_jobs(batch.batch_id)[offset : offset + limit]
        jobs = self.jobs.queue.find([row_job.job_id for row_job in row_jobs if row_job.job_id])
        results: list[dict[str, Any]] = []
        for row_job in row_jobs:
            job = jobs.get(row_job.job_id)
            state = feeder.row_state(job)
            row: dict[str, Any] = {"row": row_job.row + 1, "job_id": row_job.job_id or None}
            if state in {"made", "failed"}:
                row["status"] = "succeeded" if state == "made" else "failed"
                result = feeder.row_result(row_job, job)
                names = ("pages", "error_code", "error_message")
                row |= {name: getattr(result, name) for name in names}
            else:
                row["status"] = job.state if job and state == "waiting" else "waiting"
            results.append(row)
        later = range(offset + len(results), min(offset + limit, batch.rows))
        return results + [{"row": row + 1, "job_id": None, "status": "waiting"} for row in later]

    def cancel(self, batch: PdfBatch, *, actor: str, audit: Callable[[], None]) -> bool:
        """Cancel a batch and its queued jobs, soon if it runs; False if it has ended."""
        role: Role = "producer" if actor == batch.owner else "operator"
        changes = [Change(batch.batch_id)]
        for action in ("cancel", "ask_cancel"):
            with self.queue.store.transaction():
                [outcome] = apply_changes(self.queue, action, changes, role=role, actor=actor)
                if outcome.result != "moved":
                    continue
                audit()
                if action == "cancel":
                    self.feeder.end_batch(batch.batch_id, cancel=True)
                return True
        current = self.get(batch.batch_id)
        return current is not None and (
            current.error_code == feeder.CANCELLED or (current.cancel_asked and not current.is_over)
        )

    def store_file(self, batch: PdfBatch, name: str, extension: str, data: bytes, media_type: str) -> str:
        """Store a file of a batch under a new key; raises StorageDown."""
        folder = batch.input_key.rpartition("/")[0]
        now = self.queue.now()
        for attempt in range(_MAX_TRIES):
            key = f"{folder}/{name}-{now + attempt:016d}.{extension}"
            with suppress(KeyTaken):
                self.storage.put_bytes(key, data, media_type)
                return key
        raise StorageDown(f"no key of {folder!r} is free")
