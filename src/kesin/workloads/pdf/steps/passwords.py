"""Passwords of encrypted PDFs: sealed in a row beside the job, for as long as it may need them.

The job itself holds only an HMAC of them, so that identical requests meet.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from kesin.engine.queue import Queue
from kesin.foundation.encryption import KeyRing, SecretNotOpened
from kesin.foundation.text import canonical_json
from kesin.store.directory import MetadataEntry
from kesin.store.metadata import TRANSIENT, metadata_for
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed

WORKLOAD: Final = f"pdf{TRANSIENT}"


def password_mac(ring: KeyRing, owner: str, passwords: Mapping[str, str]) -> str:
    """Return an HMAC that is equal for equal passwords of an owner."""
    return ring.sign(f"kesin pdf passwords v1\n{canonical_json([owner, dict(passwords)])}")


class JobPasswords:
    """The sealed passwords of the jobs of a queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._rows = metadata_for(queue.store)

    def put(self, job_id: str, passwords: Mapping[str, str], ring: KeyRing) -> None:
        """Store them; call it in the transaction that enqueues the job."""
        sealed = json.dumps(ring.seal(f"pdf job {job_id}", canonical_json(dict(passwords))))
        self._rows.put_metadata(MetadataEntry(WORKLOAD, "", job_id, sealed, self._queue.now()))

    def open(self, job_id: str, ring: KeyRing | None) -> dict[str, str]:
        """Return the passwords of a job; raises RenderFailed if they are gone."""
        entry = self._rows.metadata_entry(WORKLOAD, "", job_id)
        if entry is not None and ring is not None:
            with suppress(SecretNotOpened):
                return dict(json.loads(ring.open(f"pdf job {job_id}", json.loads(entry.value))))
        why = "this job's passwords are gone: send the request again"
        raise RenderFailed(PdfErrorCode.PASSWORD_GONE, why)

    def forget(self, job_ids: Iterable[str]) -> None:
        """Delete those of these jobs; call it in the transaction that ends them."""
        for job_id in job_ids:
            self._rows.delete_metadata(WORKLOAD, "", job_id)

    def job_ids(self) -> list[str]:
        """The jobs that have passwords."""
        return [entry.name for entry in self._rows.metadata_entries(WORKLOAD)]
