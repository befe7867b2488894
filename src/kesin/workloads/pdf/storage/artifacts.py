"""The PDFs of jobs: a key for each finished render, checks for damage, and deletion of orphans."""

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from kesin.foundation.clock import Clock, SystemClock, wall_clock_us
from kesin.foundation.logs import Logger
from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.pdf.storage import base

PDF_TYPE: Final = "application/pdf"
ARTIFACT_FOLDER: Final = "pdfs"
ORPHAN_BATCH: Final = 500  # keys checked at a time
CHUNK_BYTES: Final = 1024 * 1024  # read at a time
VERIFIED_TTL_S: Final = 60
MIN_VERIFIED_AGE_S: Final = 2  # a younger file may change again within a tick of its clock
MAX_VERIFIED_FILES: Final = 1_000  # the earliest verified is dropped first
_JOB_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_ARTIFACT_KEY: Final = re.compile(rf"{ARTIFACT_FOLDER}/{_JOB_ID.pattern}/[0-9]{{1,20}}\.pdf")
log = Logger("kesin.pdf")


class ArtifactDamaged(base.NotStored):
    """The file was damaged and has been deleted; a new request renders it again."""


def verify_artifact(storage: base.StorageBackend, key: str, sha256: str) -> None:
    """Delete a file of another hash, so that it is rendered again, and raise ArtifactDamaged."""
    for _ in range(2):  # a read may fail once although the file is intact
        if _digest(storage, key) == sha256:
            return
    log.warning("artifact_damaged", key=key)
    storage.delete(key)
    raise ArtifactDamaged(key)


def read_verified(storage: base.StorageBackend, key: str, sha256: str | None) -> bytes:
    """Return all bytes, verified against their hash; raises as ``verify_artifact`` does."""
    data = storage.get_bytes(key)
    if sha256 and hashlib.sha256(data).hexdigest() != sha256:
        verify_artifact(storage, key, sha256)
        data = storage.get_bytes(key)
    return data


def _digest(storage: base.StorageBackend, key: str) -> str:
    size, at, digest = storage.head(key).size, 0, hashlib.sha256()
    while at < size and (chunk := storage.get_range(key, at, min(at + CHUNK_BYTES, size))):
        digest.update(chunk)
        at += len(chunk)
    if at < size:
        raise base.StorageDown(f"{key} was not read completely: {at} of {size} bytes")
    return digest.hexdigest()


class PdfArtifactStore:
    """Stores PDFs as ``pdfs/{job_id}/{microseconds}.pdf``, each under a key never used before."""

    def __init__(self, storage: base.StorageBackend, clock: Clock | None = None) -> None:
        self.storage = storage
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._last_us = 0
        # The files that this process has lately verified, with their hash, and when.
        self._verified: OrderedDict[tuple[str, str, str], int] = OrderedDict()

    def generate_key(self, job_id: str) -> str:
        """Return a new key; later keys of this store are greater, even if the clock jumps back."""
        if not _JOB_ID.fullmatch(job_id):
            raise base.BadKey(
                "a job id is up to 128 letters, digits, '_' or '-', and begins with a letter or "
                f"digit, got {job_id[:80]!r}"
            )
        now = self._now_us()
        with self._lock:
            self._last_us = max(now, self._last_us + 1)
            return f"{ARTIFACT_FOLDER}/{job_id}/{self._last_us:016d}.pdf"

    def store_pdf(self, job_id: str, pdf_bytes: bytes) -> str:
        """Store a PDF under a key that no process has used, and return it; raises StorageDown."""
        for _ in range(5):
            key = self.generate_key(job_id)
            with suppress(base.KeyTaken):
                self.storage.put_bytes(key, pdf_bytes, PDF_TYPE)
                return key
        raise base.KeyTaken(f"{ARTIFACT_FOLDER}/{job_id}")

    def get_pdf(self, artifact_key: str) -> bytes:
        """Return the whole PDF; raises NotStored if it is gone, StorageDown if it may come back."""
        return self.storage.get_bytes(artifact_key)

    def verify(self, file: base.StoredObject, sha256: str) -> None:
        """Verify a file like ``verify_artifact``, but read it once for many partial downloads."""
        now_us, known = self._now_us(), (file.key, file.fingerprint, sha256)
        with self._lock:
            at_us = self._verified.get(known)
        if at_us is not None and 0 <= now_us - at_us < VERIFIED_TTL_S * SECOND_US:
            return
        verify_artifact(self.storage, file.key, sha256)
        if file.fingerprint and now_us - file.modified_us >= MIN_VERIFIED_AGE_S * SECOND_US:
            with self._lock:  # a later change to it would show
                self._verified[known] = now_us
                self._verified.move_to_end(known)
                while len(self._verified) > MAX_VERIFIED_FILES:
                    self._verified.popitem(last=False)

    def delete_pdf(self, artifact_key: str) -> bool:
        """Delete a PDF and return whether it existed."""
        return self.storage.delete(artifact_key)

    def exists(self, artifact_key: str) -> bool:
        """Whether a PDF exists; raises StorageDown if that is unknown."""
        return self.storage.exists(artifact_key)

    def is_lost(self, artifact_key: str) -> bool:
        """Whether a file that was stored is gone; False while the storage is down."""
        try:
            return not self.exists(artifact_key)
        except base.StorageError as problem:
            log.warning("storage_down", why=str(problem))
            return False

    def delete_orphans(self, find_used: Callable[[Sequence[str]], set[str]], older_than_s: float) -> int:
        """Delete PDFs that no job uses, left by a crash; return how many. 0 s: fresh ones too."""
        if older_than_s < 0:
            raise ValueError(f"older_than_s must not be negative, got {older_than_s}")
        before_us = None if older_than_s == 0 else self._now_us() - round(older_than_s * 1_000_000)
        listed = self.storage.list(ARTIFACT_FOLDER, before_us=before_us)
        ours = (file.key for file in listed if _ARTIFACT_KEY.fullmatch(file.key))
        deleted = 0
        while keys := list(islice(ours, ORPHAN_BATCH)):
            in_use = find_used(keys)
            deleted += sum(self.storage.delete(key) for key in keys if key not in in_use)
        if before_us is not None:  # otherwise a write in progress would lose its file
            self.storage.delete_partial_writes(before_us)
        return deleted

    def _now_us(self) -> int:
        now = self._clock.now()
        return wall_clock_us() if now is None else now
