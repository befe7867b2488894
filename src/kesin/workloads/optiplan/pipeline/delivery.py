"""Delivery of solutions to the machine, each file at most once.

The machine has a folder with ``inbox``, ``processed`` and ``failed``, and reports a result by
moving a file. Up to two hidden files that the machine ignores lie beside a file in ``inbox``: the
*staged* copy, which is renamed into the inbox and back, and a marker that the file was *sent*. So
after a crash at any point it is known whether the machine could have had the file: a file that is
sent, not staged and in no folder is being processed by the machine, and is never copied again. A
file of the same name with other content is ignored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from kesin.foundation.messages import Message
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline.shared_folder import (
    UnusableFile,
    has_content,
    list_plain_files,
    move_file,
    read_plain_file,
    remove_file,
    translate_os_errors,
)
from kesin.workloads.optiplan.workshop.json_file import UNFINISHED_SUFFIX, write_atomically
from kesin.workloads.optiplan.workshop.paths import FAILED, INBOX, PROCESSED

_SENT_SUFFIX: Final = ".sent"
_XML_NAME: Final = re.compile(r"[^./\\][^/\\]*\.xml", re.IGNORECASE)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class DeliveryFile:
    """A file to deliver: its source, its name in the inbox and the hash of its content."""

    source: Path
    name: str
    sha256: str

    def __post_init__(self) -> None:
        if not _XML_NAME.fullmatch(self.name) or not _SHA256.fullmatch(self.sha256):
            raise ValueError(f"no name and sha256 of an XML: {self.name!r}, {self.sha256!r}")


@dataclass(frozen=True, slots=True)
class Delivery:
    """The files of a delivery attempt; recorded before any of them is copied."""

    attempt: int
    files: tuple[DeliveryFile, ...]

    def as_json(self) -> dict[str, Any]:
        files = [{**asdict(file), "source": str(file.source)} for file in self.files]
        return {"try": self.attempt, "files": files}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Delivery:
        """Read a recorded delivery; raises KeyError, TypeError or ValueError."""
        rows = record["files"]
        files = (DeliveryFile(Path(row["source"]), row["name"], row["sha256"]) for row in rows)
        return cls(int(record["try"]), tuple(files))


@dataclass(frozen=True, slots=True)
class MachineAcknowledged:
    """The machine has processed every file."""


@dataclass(frozen=True, slots=True)
class MachineRefused:
    """The machine has moved these files to ``failed``."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MachineWaiting:
    """The machine has not decided yet: some files are in the inbox, the others in no folder."""

    inbox: tuple[str, ...]
    missing: tuple[str, ...]


def plan_delivery(xml_files: Iterable[Path], job_id: str, attempt: int) -> Delivery:
    """Name each file for the inbox and hash it; raises OrderProblem or FolderUnavailable.

    From the second attempt on the name holds the attempt's number: files that an earlier attempt
    left in the machine's folders are then not mistaken for this one's.
    """
    if attempt < 1:
        raise ValueError(f"tries are counted from 1, got {attempt}")
    files = []
    for source in xml_files:
        sha256 = hashlib.sha256(_read_source(source)).hexdigest()
        files.append(DeliveryFile(source, _inbox_name(source, job_id, attempt), sha256))
    if not files or len({file.name.lower() for file in files}) != len(files):
        names = [file.name for file in files]
        raise ValueError(f"expected one file or more, of different names, got {names}")
    return Delivery(attempt, tuple(files))


def put_in_inbox(machine_folder: Path, delivery: Delivery) -> None:
    """Put every file into the inbox that the machine cannot have had; raises FolderUnavailable.

    To be called again on every wake-up, before `read_ack`. Raises OrderProblem if a file has
    changed since it was planned.
    """
    with translate_os_errors(machine_folder):
        for name in (INBOX, PROCESSED, FAILED):
            (machine_folder / name).mkdir(parents=True, exist_ok=True)
        for file in delivery.files:
            _put_file_in_inbox(_DeliveryPaths(machine_folder, file))


def read_ack(
    machine_folder: Path, delivery: Delivery
) -> MachineAcknowledged | MachineRefused | MachineWaiting:
    """Read the machine's result; FolderUnavailable means that there is none yet."""
    with translate_os_errors(machine_folder):
        statuses = {
            file.name: _DeliveryPaths(machine_folder, file).read_status() for file in delivery.files
        }
    if refused := tuple(name for name, status in statuses.items() if status.failed):
        return MachineRefused(refused)
    inbox = tuple(name for name, status in statuses.items() if status.inbox)
    unseen = (name for name, status in statuses.items() if not status.processed)
    missing = tuple(name for name in unseen if name not in inbox)
    return MachineWaiting(inbox, missing) if inbox or missing else MachineAcknowledged()


def withdraw(
    machine_folder: Path, delivery: Delivery, *, all_or_nothing: bool = True
) -> tuple[str, ...]:
    """Withdraw the files, for a cancel or before a retry; raises FolderUnavailable.

    Returns the names of those that the machine has taken. The first rename of a file wins: the
    machine's or ours. If the machine already has a file, the others stay in place, since the job
    goes on; without ``all_or_nothing`` they are withdrawn anyway. A refused file does not count as
    taken. To be called again after a crash, or `put_in_inbox` undoes it.
    """
    with translate_os_errors(machine_folder):
        path_sets = [_DeliveryPaths(machine_folder, file) for file in delivery.files]
        taken_names = tuple(paths.file.name for paths in path_sets if paths.read_status().taken)
        if taken_names and all_or_nothing:
            return taken_names
        taken_names = tuple(paths.file.name for paths in path_sets if not _withdraw_file(paths))
        if taken_names and all_or_nothing:
            for paths in path_sets:
                _restore_file(paths)
            return taken_names
        for paths in path_sets:
            if paths.file.name not in taken_names:
                _remove_file_markers(paths)
    return taken_names


def remove_markers(machine_folder: Path, delivery: Delivery) -> None:
    """Remove our hidden files, once the result is recorded; raises FolderUnavailable."""
    with translate_os_errors(machine_folder):
        for file in delivery.files:
            _remove_file_markers(_DeliveryPaths(machine_folder, file))


@dataclass(frozen=True, slots=True)
class _FileStatus:
    """The folders in which a file with our name and content is."""

    inbox: bool
    processed: bool
    failed: bool
    staged: bool
    sent: bool

    @property
    def at_machine(self) -> bool:
        """Sent and in no folder: the machine processes it, or a person has removed it."""
        return self.sent and not (self.inbox or self.processed or self.failed or self.staged)

    @property
    def taken(self) -> bool:
        return self.processed or self.at_machine


class _DeliveryPaths:
    """The paths at which a delivered file can be."""

    def __init__(self, machine_folder: Path, file: DeliveryFile) -> None:
        self.file = file
        self.inbox = machine_folder / INBOX / file.name
        self.processed = machine_folder / PROCESSED / file.name
        self.failed = machine_folder / FAILED / file.name
        hidden = f".{file.name}.{file.sha256[:12]}"
        self.staged = self.inbox.with_name(f"{hidden}{UNFINISHED_SUFFIX}")
        self.sent = self.inbox.with_name(f"{hidden}{_SENT_SUFFIX}")
        self.unfinished = f".{hidden}."  # the prefix of unfinished writes of either

    def read_status(self) -> _FileStatus:
        """Read where the file is.

        The inbox comes first: a file that the machine moves meanwhile is found in its new folder.
        A missing inbox means that the share is unavailable; the other folders may not exist yet.
        """
        if not self.inbox.parent.is_dir():
            raise FileNotFoundError(2, "there is no inbox in it")
        sha256 = self.file.sha256
        return _FileStatus(
            inbox=has_content(self.inbox, sha256),
            processed=has_content(self.processed, sha256),
            failed=has_content(self.failed, sha256),
            staged=has_content(self.staged, sha256),
            sent=self.sent.exists(),
        )


def _put_file_in_inbox(paths: _DeliveryPaths) -> None:
    status = paths.read_status()
    if status.inbox or status.processed or status.failed or status.at_machine:
        return
    if not status.staged:
        content = _read_source(paths.file.source)
        if hashlib.sha256(content).hexdigest() != paths.file.sha256:
            _raise_source_problem(paths.file.source, "is not what it was when it was checked")
        _remove_unfinished(paths)
        write_atomically(paths.staged, content)
    if not status.sent:
        write_atomically(paths.sent, b"")
    move_file(paths.staged, paths.inbox)


def _withdraw_file(paths: _DeliveryPaths) -> bool:
    """Withdraw a file from the inbox; returns whether the machine does not have it."""
    if paths.read_status().inbox:
        with suppress(FileNotFoundError):  # the machine was faster
            move_file(paths.inbox, paths.staged)
    return not paths.read_status().taken


def _restore_file(paths: _DeliveryPaths) -> None:
    """Put a withdrawn file back; an unsent file has no marker and is left to `put_in_inbox`."""
    status = paths.read_status()
    if status.staged and status.sent and not (status.inbox or status.processed or status.failed):
        move_file(paths.staged, paths.inbox)


def _remove_file_markers(paths: _DeliveryPaths) -> None:
    """Remove the marker first: without it, a staged file was never sent."""
    remove_file(paths.sent)
    remove_file(paths.staged)
    _remove_unfinished(paths)


def _remove_unfinished(paths: _DeliveryPaths) -> None:
    for entry in list_plain_files(paths.staged.parent):
        if entry.name.startswith(paths.unfinished) and entry.name.endswith(UNFINISHED_SUFFIX):
            remove_file(entry.path)


def _inbox_name(source: Path, job_id: str, attempt: int) -> str:
    stem = source.stem if job_id.lower() in source.stem.lower() else f"{job_id}_{source.stem}"
    return f"{stem}{source.suffix}" if attempt == 1 else f"{stem}_try{attempt}{source.suffix}"


def _read_source(source: Path) -> bytes:
    with translate_os_errors(source):
        try:
            return read_plain_file(source)
        except UnusableFile as problem:
            why = Message("cannot be sent: %(problem)s", problem=Message(str(problem)))
            _raise_source_problem(source, why)
        except FileNotFoundError:
            if not source.parent.is_dir():
                raise
            _raise_source_problem(source, Message("has gone"))


def _raise_source_problem(source: Path, reason: str) -> NoReturn:
    raise OrderProblem(
        OptiCode.OPTI_RUNNER_FAILED,
        Message("%(file)s %(what)s: have it made again", file=source.name, what=reason),
        {"file": str(source)},
    ) from None
