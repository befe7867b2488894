"""What happened, told by those who did it: one line a happening, appended to one file by all.

The queue under test has no part in it, so that it can be held against it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path


class Journal:
    """The end that is written to. A line is one write: a killed writer leaves none torn."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, what: str, job: object) -> None:
        os.write(self._file, f"{what} {job} {os.getpid()} {time.time():.6f}\n".encode())


@dataclass(slots=True)
class Run:
    """A handler's call."""

    pid: int
    began: float
    ended: float | None = None


@dataclass(slots=True)
class Story:
    """The end that is read, as far as it is written."""

    path: Path
    sent: dict[str, float] = field(default_factory=dict)  # when the queue said that it has them
    runs: dict[str, list[Run]] = field(default_factory=dict)
    ends: int = 0
    _read: int = 0

    def read(self) -> None:
        with self.path.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
        self._read += len(whole) + bool(whole)
        for line in whole.decode().splitlines():
            what, job, pid, at = line.split()
            if what == "sent":
                self.sent[job] = float(at)
            elif what == "begin":
                self.runs.setdefault(job, []).append(Run(int(pid), float(at)))
            else:
                self.ends += 1
                mine = [run for run in self.runs[job] if run.pid == int(pid) and run.ended is None]
                mine[-1].ended = float(at)

    def open(self, pid: int) -> list[str]:
        """The jobs this process has begun and not ended."""
        return [job for job, runs in self.runs.items() if any(run.pid == pid and run.ended is None for run in runs)]
