"""Batches as they are asked for, looked at and given up.

What was sent lies in the storage of artifacts, because a queue is no place for ten megabytes. It is
written before the batch exists: a crash in between leaves an object that nobody knows, and the
next tidying finds it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kesin.engine.queue import Queue
from kesin.foundation.logs import Logger
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import Role
from kesin.store.records import Filter
from kesin.workloads.pdf.batches.feeder import (
    CANCELLED,
    Feeder,
    Progress,
    failed_of,
    means,
    standing,
)
from kesin.workloads.pdf.batches.lifecycle import CANCEL_ASKED
from kesin.workloads.pdf.jobs.store import PdfJobStore, RenderRequest, job_of
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore, sound_bytes
from kesin.workloads.pdf.storage.base import KeyTaken, NotStored, StorageDown, StorageError

FOLDER: Final = "batches"
OURS: Final = re.compile(rf"{FOLDER}/[0-9a-f]{{32}}/[a-z]+(?:-[0-9]{{1,20}})?\.[a-z.]{{3,8}}")
JSON_TYPE: Final = "application/json"
GZIP_TYPE: Final = "application/gzip"
_TRIES: Final = 5
_IN_OUR_WORDS: Final = frozenset({"EVERY_ROW_FAILED", "MAX_ATTEMPTS", "ROWS_MISSING", "TOO_LARGE"})
log = Logger("kesin.pdf")


class BatchStatus(StrEnum):
    """Where a batch is."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Order:
    """What somebody wants: one template with each of these rows."""

    template: str
    payload: Mapping[str, Any]  # of every job, without its variables
    rows: Sequence[Mapping[str, Any]]
    names: Sequence[str]  # of files, '' for a row without one
    output: str = "zip"
    timeout: int | None = None
    file_name: str | None = None
    webhook_url: str | None = None

    def requests(self, batch_id: str, owner: str, first: int, count: int) -> list[RenderRequest]:
        """The requests of some rows, exactly as if each had been sent by itself."""
        return [
            RenderRequest(
                template=self.template,
                payload={**self.payload, "variables": self.rows[row]},
                owner=owner,
                manner={
                    "timeout": self.timeout,
                    "file_name": self.names[row] or None,
                    "webhook_url": None,
                    "batch": batch_id,
                },
            )
            for row in range(first, min(first + count, len(self.rows)))
        ]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it is now. Times are microseconds since 1970."""

    batch_id: str
    status: BatchStatus
    owner: str
    template_name: str
    output: str
    rows: int
    created_at: int
    finished_at: int | None
    input_key: str
    options: Mapping[str, Any]
    file_name: str | None
    webhook_url: str | None
    cancel_asked: bool
    error_code: str | None
    error_message: str | None
    result: Mapping[str, Any]

    @property
    def artifact_key(self) -> str | None:
        """Where its file is."""
        key: str | None = self.result.get("artifact_key")
        return key

    @property
    def is_over(self) -> bool:
        """Whether nothing more is done for it."""
        return self.status not in {BatchStatus.QUEUED, BatchStatus.RUNNING}

    @property
    def has_file(self) -> bool:
        """Whether it came to a file that is still kept."""
        return self.status in {BatchStatus.SUCCEEDED, BatchStatus.PARTIAL}

    @property
    def used_keys(self) -> set[str]:
        """What the storage must keep for it; while it is on its way, everything of its folder."""
        if self.status is BatchStatus.EXPIRED:
            return set()
        names = ("artifact_key", "results_key")
        return {self.result[name] for name in names if self.result.get(name)}


class AskedBatch(NamedTuple):
    """A batch that serves a request, and whether it was made for it."""

    batch: Batch
    new: bool


class PdfBatchStore:
    """Creates, finds and ends batches."""

    def __init__(self, queue: Queue, jobs: PdfJobStore, artifacts: PdfArtifactStore) -> None:
        self.queue = queue
        self.jobs = jobs
        self.storage = artifacts.storage
        self.feeder = Feeder(queue, jobs)

    # Births

    def ask(
        self, order: Order, *, owner: str, promise: Callable[[str], object] | None = None
    ) -> AskedBatch:
        """The batch for this order: a new one, or the one that has its file or will.

        ``promise`` is told the id of a new one in the transaction that makes it. Raises
        StorageDown.
        """
        key = _key_of(order, owner)
        for _ in range(_TRIES):
            holder = self.queue.holders(owner, [key]).get(key)
            held = None if holder is None else self.get(holder)
            if held is not None:
                if not self._is_gone(held):
                    return AskedBatch(held, new=False)
                # Its file is lost and it keeps the key: the next of this kind has one of its own,
                # which everybody who asks after this one finds by the same way.
                key = hashlib.sha256(f"{key} {held.batch_id}".encode()).hexdigest()
                continue
            made = self._born(order, key, owner, promise)
            if made is not None:
                return AskedBatch(made, new=True)
        raise RuntimeError("the batch keeps changing hands: try again")

    def _born(
        self, order: Order, key: str, owner: str, promise: Callable[[str], object] | None
    ) -> Batch | None:
        input_key = f"{FOLDER}/{uuid.uuid4().hex}/rows.json.gz"
        self.storage.put_bytes(input_key, _packed(order), GZIP_TYPE)
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
            if outcome.result == "inserted" and promise is not None:
                promise(outcome.id)
        if outcome.result != "inserted":  # somebody was quicker
            with suppress(StorageError):
                self.storage.delete(input_key)
            return None
        return self.get(outcome.id)

    def _is_gone(self, batch: Batch) -> bool:
        """Whether a finished batch has lost its file; a storage that is down has lost nothing."""
        if batch.artifact_key is None or not batch.has_file:
            return False
        try:
            return not self.storage.exists(batch.artifact_key)
        except StorageError as problem:
            log.warning("storage_down", why=str(problem))
            return False

    def order_of(self, batch: Batch) -> Order:
        """What was sent; raises NotStored or StorageDown."""
        options = batch.options
        if not OURS.fullmatch(batch.input_key) or "payload" not in options:
            raise NotStored(batch.input_key)  # no batch that came through our door
        data = self.storage.get_bytes(batch.input_key)
        try:
            kept = json.loads(gzip.decompress(data))
        except (OSError, EOFError, ValueError, zlib.error):
            raise NotStored(batch.input_key) from None
        return Order(
            template=batch.template_name,
            payload=options["payload"],
            rows=kept["rows"],
            names=kept["names"],
            output=batch.output,
            timeout=options.get("timeout"),
            file_name=batch.file_name,
            webhook_url=batch.webhook_url,
        )

    # Looking

    def get(self, batch_id: str) -> Batch | None:
        """The batch with this id."""
        job = self.queue.job(batch_id)
        return None if job is None else self.batch_of(job)

    def batch_of(self, job: Job) -> Batch:
        """A row of the queue in our words."""
        body = job.data if isinstance(job.data, dict) else {}
        given_up = job.state == BatchStatus.EXPIRED and job.move in {"cancel", "stop"}
        return Batch(
            batch_id=job.id,
            status=BatchStatus(job.state),
            owner=job.tenant,
            template_name=str(body.get("template", "")),
            output=str(body.get("output", "zip")),
            rows=rows if isinstance(rows := body.get("rows"), int) else 0,
            created_at=job.created_at,
            finished_at=job.finished_at,
            input_key=str(body.get("input_key", "")),
            options=options if isinstance(options := body.get("options"), dict) else {},
            file_name=body.get("file_name"),
            webhook_url=body.get("webhook_url"),
            cancel_asked=bool(job.flags & self.queue.lifecycle.flag_bit(CANCEL_ASKED)),
            error_code=CANCELLED if given_up else job.error_code,
            error_message="it was cancelled" if given_up else _why(job),
            result=job.outcome or {},
        )

    def page(
        self,
        *,
        owner: str | None,
        status: BatchStatus | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[list[Batch], str | None]:
        """Some batches, newest first, of one owner or of all, and where the next page begins."""
        where = Filter(
            states=() if status is None else (status.value,),
            tenants=None if owner is None else (owner,),
        )
        page = self.queue.jobs(where, limit=limit, cursor=cursor)
        return [self.batch_of(one) for one in page.jobs], page.cursor

    def progress(self, batch: Batch) -> Progress:
        """How many rows came through and how many did not, so far."""
        if batch.is_over:
            told = batch.result
            return Progress(batch.rows, told.get("made", 0), told.get("failed", 0))
        return self.feeder.progress(batch.batch_id)

    def started_at(self, batch: Batch) -> int | None:
        """When somebody first began with it."""
        events = self.queue.events(batch.batch_id)
        return next((one.at for one in events if one.move == "claim"), None)

    def results(self, batch: Batch, offset: int, limit: int) -> list[dict[str, Any]] | None:
        """What came of some rows; None while the storage, which knows, does not answer."""
        if not batch.is_over:
            return self._so_far(batch, offset, limit)
        key = batch.result.get("results_key")
        if not key or batch.status is BatchStatus.EXPIRED:
            return []
        try:
            told = sound_bytes(self.storage, key, batch.result.get("results_sha256"))
        except NotStored:
            return []
        except StorageError as problem:
            log.warning("storage_down", why=str(problem))
            return None
        rows: list[dict[str, Any]] = json.loads(told)
        return rows[offset : offset + limit]

    def _so_far(self, batch: Batch, offset: int, limit: int) -> list[dict[str, Any]]:
        fed = self.feeder.fed(batch.batch_id)[offset : offset + limit]
        jobs = self.jobs.queue.find([one.job_id for one in fed if one.job_id])
        told: list[dict[str, Any]] = []
        for one in fed:
            job = jobs.get(one.job_id)
            stands = standing(job)
            row: dict[str, Any] = {"row": one.row + 1, "job_id": one.job_id or None}
            if stands == "made" and job is not None:
                row |= {"status": "succeeded", "pages": (job_of(job).made or {}).get("pages")}
            elif stands == "failed":
                failed = failed_of(one, job)
                row |= {"status": "failed", "error_code": failed.error_code}
                row |= {"error_message": failed.error_message}
            else:
                row |= {"status": job.state if job and stands == "waiting" else "waiting"}
            told.append(row)
        rest = range(offset + len(told), min(offset + limit, batch.rows))
        return told + [{"row": row + 1, "job_id": None, "status": "waiting"} for row in rest]

    # Ends

    def cancel(self, batch: Batch, *, actor: str, witness: Callable[[], None]) -> bool:
        """Want it no more: at once if it waits, soon if it runs; False if it is over.

        Rows in the line go with it, and what is being rendered is finished for nobody. The
        witness is told in the transaction that moves it.
        """
        role: Role = "producer" if actor == batch.owner else "operator"
        for call in ("cancel", "ask_cancel"):
            with self.queue.store.transaction():
                [done] = self.queue.apply(call, [Change(batch.batch_id)], role=role, actor=actor)
                if done.result != "moved":
                    continue
                witness()
                if call == "cancel":
                    self.feeder.end(batch.batch_id, cancel=True)
                return True
        now = self.get(batch.batch_id)
        return now is not None and (
            now.error_code == CANCELLED or (now.cancel_asked and not now.is_over)
        )

    # Files

    def put_new(self, batch: Batch, name: str, ending: str, data: bytes, media_type: str) -> str:
        """Keep a file of a batch under a key of its own; raises StorageDown."""
        folder = batch.input_key.rpartition("/")[0]
        at = self.queue.now()
        for attempt in range(_TRIES):
            key = f"{folder}/{name}-{at + attempt:016d}.{ending}"
            try:
                self.storage.put_bytes(key, data, media_type)
            except KeyTaken:
                continue
            return key
        raise StorageDown(f"no key of {folder!r} is free")


def _why(job: Job) -> str | None:
    """An error in words; what a storage or a system said names things of the inside."""
    if job.error_code is None or job.error_code in _IN_OUR_WORDS:
        return job.error_message
    return means(job.error_code)


def _key_of(order: Order, owner: str) -> str:
    """Equal for equal orders of one owner: whatever is sent counts."""
    told = {
        "owner": owner,
        "template": order.template,
        "payload": order.payload,
        "rows": order.rows,
        "names": order.names,
        "output": order.output,
        "timeout": order.timeout,
        "file_name": order.file_name,
        "webhook_url": order.webhook_url,
    }
    text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _packed(order: Order) -> bytes:
    kept = {"rows": order.rows, "names": order.names}
    return gzip.compress(json.dumps(kept, separators=(",", ":")).encode("ascii"), 6, mtime=0)
