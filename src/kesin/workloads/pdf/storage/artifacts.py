"""The PDFs of jobs: one key for each finished render, and a sweep for what no job knows."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from kesin.foundation.clock import Clock, SystemClock, wall_clock_us
from kesin.foundation.logs import Logger
from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.pdf.storage.base import (
    BadKey,
    KeyTaken,
    NotStored,
    StorageBackend,
    StorageDown,
    Stored,
)

KNOWN_S: Final = 60
SETTLED_S: Final = 2  # a younger file may change once more within one tick of its clock
MOST_KNOWN: Final = 1_000  # the one found longest ago goes first: memory has a bound


class _Found(NamedTuple):
    mark: str
    sha256: str
    at_us: int


class KnownSound:
    """What one process knows; safe to share between threads."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._lock = threading.Lock()
        self._found: OrderedDict[str, _Found] = OrderedDict()  # by key

    def holds(self, file: Stored, sha256: str) -> bool:
        """Whether this very file was found to have this hash, and lately."""
        now_us = self._now_us()
        with self._lock:
            found = self._found.get(file.key)
        if found is None or (found.mark, found.sha256) != (file.mark, sha256):
            return False
        return 0 <= now_us - found.at_us < KNOWN_S * SECOND_US

    def add(self, file: Stored, sha256: str) -> None:
        """Remember it, if it can be told from what may come to lie in its place."""
        now_us = self._now_us()
        if not file.mark or now_us - file.changed_us < SETTLED_S * SECOND_US:
            return
        with self._lock:
            self._found.pop(file.key, None)
            self._found[file.key] = _Found(file.mark, sha256, now_us)
            while len(self._found) > MOST_KNOWN:
                self._found.popitem(last=False)


log = Logger("kesin.pdf")

PDF_TYPE: Final = "application/pdf"
FOLDER: Final = "pdfs"
BATCH: Final = 500  # keys a question of the sweep
PIECE_BYTES: Final = 1024 * 1024  # read at a time
_LOOKS: Final = 2  # a reading may go wrong once where the file is well
_TRIES: Final = 5
_JOB_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}", re.ASCII)
_OURS: Final = re.compile(rf"{FOLDER}/{_JOB_ID.pattern}/[0-9]{{1,20}}\.pdf", re.ASCII)


class Damaged(NotStored):
    """What lies there is not what was put there. It is gone now: asked for again, it is made."""


def require_sound(storage: StorageBackend, key: str, sha256: str) -> None:
    """Read it all and compare; what is damaged is deleted. Raises Damaged, NotStored, StorageDown.

    Deleted, because whoever asks for it again is given a new one where there is none, and would
    be given the damaged one for as long as it lies there.
    """
    for _ in range(_LOOKS):
        if _digest(storage, key) == sha256:
            return
    log.warning("artifact_damaged", key=key)
    storage.delete(key)
    raise Damaged(key)


def sound_bytes(storage: StorageBackend, key: str, sha256: str | None) -> bytes:
    """All of it, if that is what was put there; raises as ``require_sound`` does."""
    data = storage.get_bytes(key)
    if sha256 and hashlib.sha256(data).hexdigest() != sha256:
        require_sound(storage, key, sha256)
        data = storage.get_bytes(key)
    return data


def _digest(storage: StorageBackend, key: str) -> str:
    size, at, made = storage.head(key).size, 0, hashlib.sha256()
    while at < size and (piece := storage.get_range(key, at, min(at + PIECE_BYTES, size))):
        made.update(piece)
        at += len(piece)
    if at < size:
        raise StorageDown(f"{key} was not read to its end: {at} of {size} bytes")
    return made.hexdigest()


class PdfArtifactStore:
    """Keeps finished PDFs under ``pdfs/{job_id}/{timestamp}.pdf``.

    The timestamp is in microseconds and never given twice: a render that is tried again has a key
    of its own, so nobody reads a PDF that changes under his eyes.
    """

    def __init__(self, storage: StorageBackend, clock: Clock | None = None) -> None:
        self.storage = storage
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._last_us = 0
        self._sound = KnownSound(self._now_us)

    def generate_key(self, job_id: str) -> str:
        """A new key; later ones of this store are greater, even if the clock jumps back."""
        if not _JOB_ID.fullmatch(job_id):
            raise BadKey(
                "a job id has 1…128 letters, digits, '_' and '-', and begins with a letter or a "
                f"digit, got {job_id[:80]!r}"
            )
        now = self._now_us()
        with self._lock:
            self._last_us = max(now, self._last_us + 1)
            return f"{FOLDER}/{job_id}/{self._last_us:016d}.pdf"

    def store_pdf(self, job_id: str, pdf_bytes: bytes) -> str:
        """Keep a PDF, and give its key; raises StorageDown.

        Another process may have had the same key in the same microsecond: then the next is taken.
        """
        key = self.generate_key(job_id)
        for _ in range(_TRIES):
            try:
                self.storage.put_bytes(key, pdf_bytes, PDF_TYPE)
            except KeyTaken:
                key = self.generate_key(job_id)
            else:
                return key
        raise KeyTaken(key)

    def get_pdf(self, artifact_key: str) -> bytes:
        """The whole PDF; raises NotStored, which is *gone*, or StorageDown, which is *later*."""
        return self.storage.get_bytes(artifact_key)

    def require_sound(self, file: Stored, sha256: str) -> None:
        """As the function of this name, but read once for many who want a part of the file."""
        if not self._sound.holds(file, sha256):
            require_sound(self.storage, file.key, sha256)
            self._sound.add(file, sha256)

    def delete_pdf(self, artifact_key: str) -> bool:
        """Let it be gone, and say whether it was there."""
        return self.storage.delete(artifact_key)

    def exists(self, artifact_key: str) -> bool:
        """Whether it is there; raises StorageDown, which does not mean no."""
        return self.storage.exists(artifact_key)

    def sweep_orphans(self, known: Callable[[Sequence[str]], set[str]], older_than_s: float) -> int:
        """Delete what no job knows, and say how many PDFs that were.

        Artifacts come before the job that tells of them, and leave after it: a crash in between
        leaves a file nobody asks for. ``known`` is given keys, and gives back those in use, also by
        a job that is being rendered. ``older_than_s`` saves asking about fresh ones; 0 is all.
        Only what is named as our keys are is touched; a bucket may hold other things.
        """
        if older_than_s < 0:
            raise ValueError(f"older_than_s must not be negative, got {older_than_s}")
        before_us = None if older_than_s == 0 else self._now_us() - round(older_than_s * 1_000_000)
        found = self.storage.list(FOLDER, before_us=before_us)
        ours = (one.key for one in found if _OURS.fullmatch(one.key))
        swept = 0
        while keys := list(islice(ours, BATCH)):
            in_use = known(keys)
            swept += sum(self.storage.delete(key) for key in keys if key not in in_use)
        if before_us is not None:  # else who writes at this moment would lose what he has
            self.storage.tidy(before_us)
        return swept

    def _now_us(self) -> int:
        now = self._clock.now()
        return wall_clock_us() if now is None else now
