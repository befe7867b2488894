"""Signed links: each opens a PDF without signing in, until the link ends.

The signature covers the PDF, its owner and its file name, the end of the link and the counter of
its downloads, so none of them can be changed. It is made with the key ring, so a key that is
removed ends its links. Links are not stored, only the downloads that are left of one with a limit.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Final
from urllib.parse import urlencode

from pydantic import BaseModel, Field

from kesin.engine.queue import Queue
from kesin.engine.validation import invalid_field
from kesin.foundation.encryption import VERSION, KeyRing, NoSecretKeys, key_ring
from kesin.foundation.problems import Forbidden, RequestConflict
from kesin.foundation.settings import Settings, variable
from kesin.foundation.text import as_object
from kesin.lifecycle.budget import DAY_S, HOUR_S, SECOND_US
from kesin.store.metadata import metadata_for
from kesin.workloads.pdf.errors import Gone
from kesin.workloads.pdf.jobs.store import PdfJob

WORKLOAD: Final = "pdf_links"  # of the counters, one entry for each job
PATH: Final = "/pdf/links/{job_id}"
DEFAULT_LINK_S: Final = HOUR_S
MAX_LINK_S: Final = 7 * DAY_S
LINK_ENDED: Final = "link_ended"
MAX_COUNTED: Final = 100  # links of a PDF with a limit

Counters = dict[str, list[int]]  # by name: downloads left, the end in seconds, downloads allowed


class LinkQuery(BaseModel):
    """The query of a link."""

    e: str = Field("", description="when the link expires, in seconds since 1970")
    k: str = Field("", description="the id of the signing key")
    s: str = Field("", description="the signature")
    n: str = Field("", description="the download counter")


class PdfLinks:
    """Creates links and checks them; ``queue`` is that of the jobs."""

    def __init__(self, settings: Settings, queue: Queue) -> None:
        self._settings = settings
        self._queue = queue
        self._metadata = metadata_for(queue.store)

    @cached_property
    def _ring(self) -> KeyRing:
        ring = key_ring(self._settings)
        if ring is None:
            raise NoSecretKeys
        return ring

    def require_absolute(self) -> None:
        """Raise a Problem unless links can be sent to others: NoSecretKeys, or Invalid."""
        if self._ring.ids and not self._settings.public_url:
            why = "links in webhooks need this service's address: set %(setting)s"
            raise invalid_field("link_ttl", why, setting=variable("public_url"))

    def create(self, job: PdfJob, seconds: int, max_downloads: int | None = None, *, since_s: float) -> tuple[str, int]:
        """Return a new link and its end, in seconds since 1970: not after that of the PDF.

        The link begins with KESIN_PUBLIC_URL, or is a path without it. Raises NoSecretKeys.
        """
        file_ends_s = (job.finished_at or 0) + self._settings.pdf_ttl_hours * HOUR_S
        ends_s = int(min(since_s + seconds, file_ends_s))
        query = LinkQuery(e=str(ends_s), k=self._ring.first)
        if max_downloads is not None:
            query.n = secrets.token_urlsafe(9)
            with self._counters(job.job_id) as counters:
                if len(counters) >= MAX_COUNTED:
                    why = "this PDF has %(n)s limited links: wait until one expires or is used up"
                    raise RequestConflict(why, n=MAX_COUNTED)
                counters[query.n] = [max_downloads, ends_s, max_downloads]
        query.s = self._ring.sign(_signed_text(job, query)).rpartition(".")[2]
        path = self._settings.public_url.rstrip("/") + PATH.format(job_id=job.job_id)
        return f"{path}?{urlencode(query.model_dump(exclude_defaults=True))}", ends_s

    def require_valid(self, job: PdfJob | None, query: LinkQuery) -> PdfJob:
        """Return the job of a link; raises Forbidden or Gone."""
        signature = f"{VERSION}.{query.k}.{query.s}"
        if job is None or not self._ring.has_signed(_signed_text(job, query), signature):
            raise Forbidden("this link is not valid: ask for a new one", code="link_invalid")
        if self._now_s() >= int(query.e):
            raise Gone("this link has expired: ask for a new one", code=LINK_ENDED)
        return job

    def count(self, job_id: str, counter: str) -> None:
        """Take one of the downloads of a link; raises Gone if none is left."""
        with self._counters(job_id) as counters:
            left, *fixed = counters.pop(counter, [0])
            if not left:
                raise Gone("this link has been used up: ask for a new one", code=LINK_ENDED)
            if left > 1:
                counters[counter] = [left - 1, *fixed]

    def counted(self, job_id: str) -> list[list[int]]:
        """Return the counters of the links of a job that are valid."""
        entry = self._metadata.metadata_entry(WORKLOAD, "", job_id)
        stored, now_s = as_object(json.loads(entry.value)) if entry else {}, self._now_s()
        return sorted(each for each in stored.values() if each[1] > now_s)

    def prune(self) -> int:
        """Delete the counters of links that have ended; return how many jobs have none left."""
        pruned = 0
        for entry in self._metadata.metadata_entries(WORKLOAD):
            with self._counters(entry.name) as counters:
                pruned += not counters
        return pruned

    @contextmanager
    def _counters(self, job_id: str) -> Iterator[Counters]:
        """Lock and yield the counters of a job that have not ended; changes to them are stored."""
        with self._queue.store.transaction():
            entry = self._metadata.lock_metadata(WORKLOAD, "", job_id, self._queue.now())
            stored, now_s = as_object(json.loads(entry.value)), self._now_s()
            counters = {name: each for name, each in stored.items() if each[1] > now_s}
            yield counters
            if counters:
                self._metadata.put_metadata(entry._replace(value=json.dumps(counters)))
            else:
                self._metadata.delete_metadata(WORKLOAD, "", job_id)

    def _now_s(self) -> float:
        return self._queue.now() / SECOND_US


def _signed_text(job: PdfJob, query: LinkQuery) -> str:
    """The text that is signed; as JSON, no part of it can be read as another."""
    path, name = PATH.format(job_id=job.job_id), (job.metadata or {}).get("file_name")
    parts = ("kesin pdf link v1", "GET", path, query.e, query.k, name, job.owner, query.n)
    return json.dumps(parts)
