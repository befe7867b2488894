"""Solutions on their way to the machine, each taken once.

The machine has a folder with ``inbox``, ``processed`` and ``failed`` in it; by moving a file it
says what became of it. Beside a file in ``inbox`` lie at most two hidden ones that no machine looks
at: the *staged* copy, from which it comes by a rename and into which it goes back by a rename, and
a mark that it was *sent*. So after a crash at any point it is known whether the machine could have
had the file: sent, not staged and nowhere to be seen means that it has it in hand, and such a file
is never copied again. A file of our name with other content decides nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline.shared_folder import (
    NotWhole,
    holds,
    minding,
    move,
    plain_files,
    read_whole,
    remove,
    sync_folder,
)
from kesin.workloads.optiplan.workshop.json_file import UNFINISHED, write_whole
from kesin.workloads.optiplan.workshop.paths import FAILED, INBOX, PROCESSED

_SENT: Final = ".sent"
_NAME: Final = re.compile(r"[^./\\][^/\\]*\.xml", re.IGNORECASE)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Parcel:
    """One file: where it comes from, what it is called in the inbox, and what is in it."""

    source: Path
    name: str
    sha256: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or not _SHA256.fullmatch(self.sha256):
            raise ValueError(f"no name and sha256 of an XML: {self.name!r}, {self.sha256!r}")


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is to be delivered; recorded before anything is copied."""

    try_no: int
    files: tuple[Parcel, ...]

    def as_json(self) -> dict[str, Any]:
        files = [
            {"source": str(one.source), "name": one.name, "sha256": one.sha256}
            for one in self.files
        ]
        return {"try": self.try_no, "files": files}

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Delivery:
        """As it was recorded; raises KeyError, TypeError or ValueError."""
        files = (Parcel(Path(one["source"]), one["name"], one["sha256"]) for one in told["files"])
        return cls(int(told["try"]), tuple(files))


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The machine has processed every file."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The machine has put these aside as failed."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is decided yet: these lie in the inbox, those are nowhere to be seen."""

    inbox: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The machine has none of the files, and will find none."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The machine has these, or had them last."""

    files: tuple[str, ...]


def plan_delivery(xml_files: Iterable[Path], job_id: str, try_no: int) -> Delivery:
    """Name each file for the inbox and note its content; raises OrderProblem or FolderAway.

    From the second try on the name tells the try: what an earlier one left in the machine's
    folders is then no file of this one.
    """
    if try_no < 1:
        raise ValueError(f"tries are counted from 1, got {try_no}")
    files = []
    for source in xml_files:
        sha256 = hashlib.sha256(_read(source)).hexdigest()
        files.append(Parcel(source, _inbox_name(source, job_id, try_no), sha256))
    if not files or len({one.name.lower() for one in files}) != len(files):
        names = [one.name for one in files]
        raise ValueError(f"expected one file or more, of different names, got {names}")
    return Delivery(try_no, tuple(files))


def drop(machine_folder: Path, delivery: Delivery) -> None:
    """Put every file into the inbox that the machine cannot have had yet; raises FolderAway.

    To be called again on every wake-up, before `ack`. Raises OrderProblem if a file is no longer
    what was planned.
    """
    with minding(machine_folder):
        for folder in (INBOX, PROCESSED, FAILED):
            (machine_folder / folder).mkdir(parents=True, exist_ok=True)
        for parcel in delivery.files:
            _drop(_Way(machine_folder, parcel))


def ack(machine_folder: Path, delivery: Delivery) -> Acknowledged | Refused | Waiting:
    """What the machine says; raises FolderAway, which is no answer."""
    with minding(machine_folder):
        sights = {one.name: _Way(machine_folder, one).look() for one in delivery.files}
    refused = tuple(name for name, sight in sights.items() if sight.failed)
    if refused:
        return Refused(refused)
    open_ones = {name: one for name, one in sights.items() if one.inbox or not one.processed}
    if not open_ones:
        return Acknowledged()
    return Waiting(
        inbox=tuple(name for name, sight in open_ones.items() if sight.inbox),
        missing=tuple(name for name, sight in open_ones.items() if not sight.inbox),
    )


def withdraw(machine_folder: Path, delivery: Delivery, *, whole: bool = True) -> Withdrawn | Taken:
    """Take the files back, for a cancel or before a retry; raises FolderAway.

    Whoever renames a file first has it: the machine or we. If the machine has one already, the
    others stay where they are, since the job goes on; without ``whole`` they are taken back all
    the same. A refused file is not taken. To be called again after a crash, or `drop` undoes it.
    """
    with minding(machine_folder):
        ways = [_Way(machine_folder, parcel) for parcel in delivery.files]
        taken = tuple(way.parcel.name for way in ways if way.look().taken)
        if taken and whole:
            return Taken(taken)
        taken = tuple(way.parcel.name for way in ways if not _take_back(way))
        if taken and whole:
            for way in ways:
                _put_back(way)
            return Taken(taken)
        for way in ways:
            if way.parcel.name not in taken:
                _forget(way)
    return Taken(taken) if taken else Withdrawn()


def forget(machine_folder: Path, delivery: Delivery) -> None:
    """Remove our hidden files, once what became of the delivery is recorded; raises FolderAway."""
    with minding(machine_folder):
        for parcel in delivery.files:
            _forget(_Way(machine_folder, parcel))


@dataclass(frozen=True, slots=True)
class _Sight:
    """Where a file is, of our name and content."""

    inbox: bool
    processed: bool
    failed: bool
    staged: bool
    sent: bool

    @property
    def in_hand(self) -> bool:
        """Sent and nowhere: the machine works on it, or somebody has cleared it away."""
        return self.sent and not (self.inbox or self.processed or self.failed or self.staged)

    @property
    def taken(self) -> bool:
        return self.processed or self.in_hand


class _Way:
    """The places a file can be at."""

    def __init__(self, machine_folder: Path, parcel: Parcel) -> None:
        self.parcel = parcel
        self.inbox = machine_folder / INBOX / parcel.name
        self.processed = machine_folder / PROCESSED / parcel.name
        self.failed = machine_folder / FAILED / parcel.name
        hidden = f".{parcel.name}.{parcel.sha256[:12]}"
        self.staged = self.inbox.with_name(f"{hidden}{UNFINISHED}")
        self.sent = self.inbox.with_name(f"{hidden}{_SENT}")
        self.unfinished = f".{hidden}."  # how names begin that a write of either begins with

    def look(self) -> _Sight:
        """The inbox first: a file the machine moves meanwhile is then seen where it goes.

        Without an inbox the share is not there; without the others the machine never used them.
        """
        if not self.inbox.parent.is_dir():
            raise FileNotFoundError(2, "there is no inbox in it")
        sha256 = self.parcel.sha256
        return _Sight(
            inbox=holds(self.inbox, sha256),
            processed=holds(self.processed, sha256),
            failed=holds(self.failed, sha256),
            staged=holds(self.staged, sha256),
            sent=self.sent.exists(),
        )


def _drop(way: _Way) -> None:
    sight = way.look()
    if sight.inbox or sight.processed or sight.failed or sight.in_hand:
        return
    if not sight.staged:
        content = _read(way.parcel.source)
        if hashlib.sha256(content).hexdigest() != way.parcel.sha256:
            _changed(way.parcel.source, "is not what it was when it was checked")
        _remove_unfinished(way)
        write_whole(way.staged, content)
    if not sight.sent:
        write_whole(way.sent, b"")
    move(way.staged, way.inbox)


def _take_back(way: _Way) -> bool:
    """Whether the machine has not got it."""
    if way.look().inbox:
        with suppress(FileNotFoundError):  # the machine was faster
            move(way.inbox, way.staged)
    return not way.look().taken


def _put_back(way: _Way) -> None:
    """Only what was there before: one that was never sent has no mark, and is left to `drop`."""
    sight = way.look()
    if sight.staged and sight.sent and not (sight.inbox or sight.processed or sight.failed):
        move(way.staged, way.inbox)


def _forget(way: _Way) -> None:
    """The mark goes first: without it a staged file is one that was never sent."""
    remove(way.sent)
    remove(way.staged)
    _remove_unfinished(way)


def _remove_unfinished(way: _Way) -> None:
    for one in plain_files(way.staged.parent):
        if one.name.startswith(way.unfinished) and one.name.endswith(UNFINISHED):
            one.path.unlink(missing_ok=True)
    sync_folder(way.staged.parent)


def _inbox_name(source: Path, job_id: str, try_no: int) -> str:
    stem = source.stem if job_id.lower() in source.stem.lower() else f"{job_id}_{source.stem}"
    return f"{stem}{source.suffix}" if try_no == 1 else f"{stem}_try{try_no}{source.suffix}"


def _read(source: Path) -> bytes:
    with minding(source):
        try:
            return read_whole(source)
        except NotWhole as problem:
            _changed(source, f"cannot be sent: {problem}")
        except FileNotFoundError:
            if not source.parent.is_dir():
                raise
            _changed(source, "has gone")


def _changed(source: Path, what: str) -> NoReturn:
    raise OrderProblem(
        OptiCode.OPTI_RUNNER_FAILED,
        f"{source.name} {what}: have it made again",
        {"file": str(source)},
    ) from None
