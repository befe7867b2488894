"""Delivery of solutions to the machine, each file at most once.

The machine has a folder with ``inbox``, ``processed`` and ``failed``, and reports a result by
moving a file. Up to two hidden files that the machine ignores lie beside a file in ``inbox``: the
*staged* copy, which is renamed into the inbox and back, and a marker that the file was *sent*. So
after a crash at any point it is known whether the machine could have had the file: a file that is
sent, not staged and in no folder is being processed by the machine, and is never copied again. A
file of the same name with other content is ignored.

A failed attempt leaves files behind: refused, in the inbox, taken by the machine, or cut. The next
attempt withdraws what it can and carries over what the machine has taken, file by file, even if the
new XML differs. So only the last attempt counts.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, NoReturn, Self

from kesin.foundation.files import UNFINISHED_SUFFIX
from kesin.foundation.messages import Message
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline import shared_folder
from kesin.workloads.optiplan.pipeline.progress import ALL_BATCHES, OrderProgress, ProgressStore, batch_stem
from kesin.workloads.optiplan.pipeline.shared_folder import has_content, move_file, remove_file
from kesin.workloads.optiplan.workshop.json_file import write_atomically
from kesin.workloads.optiplan.workshop.paths import FAILED, INBOX, MACHINE_FOLDERS, PROCESSED

_STAGED, _SENT = "staged", "sent"  # beside the folders, places where a file can be
_FILE_NAME: Final = re.compile(r"[^./\\][^/\\]*\.(xml|ptx|csv)", re.IGNORECASE)
_SUFFIX: Final = re.compile(r"(\.parts)?\.[^.]+$", re.IGNORECASE)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class DeliveryFile:
    """A file to deliver: its source, its name in the inbox and the hash of its content."""

    source: Path
    name: str
    sha256: str

    def __post_init__(self) -> None:
        if not _FILE_NAME.fullmatch(self.name) or not _SHA256.fullmatch(self.sha256):
            raise ValueError(f"not a name and sha256 of a machine's file: {self.name!r}, {self.sha256!r}")


@dataclass(frozen=True, slots=True)
class Delivery:
    """The files of a delivery attempt; recorded before any of them is copied."""

    attempt: int
    files: tuple[DeliveryFile, ...]

    def as_json(self) -> dict[str, Any]:
        files = [{**asdict(file), "source": str(file.source)} for file in self.files]
        return {"try": self.attempt, "files": files}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Read a recorded delivery; raises KeyError, TypeError or ValueError."""
        rows = record["files"]
        files = (DeliveryFile(Path(row["source"]), row["name"], row["sha256"]) for row in rows)
        return cls(int(record["try"]), tuple(files))


class MachineAck(NamedTuple):
    """The files that the machine has not processed: none once it has acknowledged them all."""

    refused: tuple[str, ...] = ()  # moved to ``failed``; then the others are not listed
    awaited: tuple[str, ...] = ()  # in the inbox, or in no folder: the machine works on them


def plan_delivery(sources: Iterable[Path], job_id: str, attempt: int) -> Delivery:
    """Name files for the inbox, each attempt by its number, and hash them; raises OrderProblem."""
    files = []
    for source in sources:
        sha256 = hashlib.sha256(_read_source(source)).hexdigest()
        suffix = _suffix(source.name)
        stem = source.name.removesuffix(suffix)
        stem = stem if job_id.lower() in stem.lower() else f"{job_id}_{stem}"
        name = stem if attempt == 1 else f"{stem}_try{attempt}"
        files.append(DeliveryFile(source, f"{name}{suffix}", sha256))
    if not files or len({file.name.lower() for file in files}) != len(files):
        names = [file.name for file in files]
        raise ValueError(f"expected one file or more, of different names, got {names}")
    return Delivery(attempt, tuple(files))


def put_in_inbox(machine_folder: Path, delivery: Delivery) -> None:
    """Send what was not sent; call it before every `read_ack`. A changed file is refused."""
    with shared_folder.translate_os_errors(machine_folder):
        for name in MACHINE_FOLDERS:
            (machine_folder / name).mkdir(parents=True, exist_ok=True)
        for file in delivery.files:
            _MachineFile(machine_folder, file).put_in_inbox()


def read_ack(machine_folder: Path, delivery: Delivery) -> MachineAck:
    """Read the machine's result; FolderUnavailable means that there is none yet."""
    with shared_folder.translate_os_errors(machine_folder):
        found = {file.name: _MachineFile(machine_folder, file).find() for file in delivery.files}
    if refused := tuple(name for name, places in found.items() if FAILED in places):
        return MachineAck(refused)
    awaited = (name for name, places in found.items() if INBOX in places or PROCESSED not in places)
    return MachineAck((), tuple(awaited))


def find_sent(machine_folder: Path, files: Iterable[DeliveryFile]) -> Literal["taken", "inbox", "nowhere"]:
    """Say whether the machine has taken one of these files, or may still take one."""
    with shared_folder.translate_os_errors(machine_folder):
        found = [_MachineFile(machine_folder, file).find() for file in files]
    if any(PROCESSED in places or places == {_SENT} for places in found):
        return "taken"
    waiting = any(INBOX in places or places >= {_STAGED, _SENT} for places in found)
    return "inbox" if waiting else "nowhere"


def withdraw(machine_folder: Path, delivery: Delivery, *, all_or_nothing: bool = True) -> tuple[str, ...]:
    """Withdraw the files, for a cancel or before a retry; raises FolderUnavailable.

    Returns the names that the machine has taken, not those it refused: the first rename of a file
    wins. After a taken one the others stay, since the job goes on, unless ``all_or_nothing`` is
    False. To be called again after a crash, or `put_in_inbox` undoes it.
    """
    with shared_folder.translate_os_errors(machine_folder):
        files = [_MachineFile(machine_folder, file) for file in delivery.files]
        taken = [file for file in files if file.is_taken()]
        if not taken or not all_or_nothing:
            taken = [file for file in files if not file.withdraw()]
            for file in files:
                if taken and all_or_nothing:
                    file.restore()
                elif file not in taken:
                    file.remove_markers()
    return tuple(file.name for file in taken)


def remove_markers(machine_folder: Path, delivery: Delivery) -> None:
    """Remove our hidden files, once the result is recorded; raises FolderUnavailable."""
    with shared_folder.translate_os_errors(machine_folder):
        for file in delivery.files:
            _MachineFile(machine_folder, file).remove_markers()


class _MachineFile:
    """A file of a delivery in the machine's folders, and our hidden files beside it."""

    def __init__(self, machine_folder: Path, file: DeliveryFile) -> None:
        self.name = file.name
        self._source = file.source
        self._sha256 = file.sha256
        self._paths = {name: machine_folder / name / file.name for name in MACHINE_FOLDERS}
        self._inbox = self._paths[INBOX]
        hidden = f".{file.name}.{file.sha256[:12]}"
        self._staged = self._inbox.with_name(f"{hidden}{UNFINISHED_SUFFIX}")
        self._sent = self._inbox.with_name(f"{hidden}.{_SENT}")
        self._unfinished = f".{hidden}."  # the prefix of unfinished writes of either

    def find(self) -> set[str]:
        """Return where our file is; the inbox first, as a file may be moved meanwhile."""
        if not self._inbox.parent.is_dir():
            raise FileNotFoundError(2, "there is no inbox in it")
        places = {**self._paths, _STAGED: self._staged}
        found = {name for name, path in places.items() if has_content(path, self._sha256)}
        return found | {_SENT} if self._sent.exists() else found

    def is_taken(self) -> bool:
        """Whether the machine has the file: sent and in no folder, it processes it."""
        places = self.find()
        return PROCESSED in places or places == {_SENT}

    def put_in_inbox(self) -> None:
        places = self.find()
        if places & {INBOX, PROCESSED, FAILED} or places == {_SENT}:
            return
        if _STAGED not in places:
            content = _read_source(self._source)
            if hashlib.sha256(content).hexdigest() != self._sha256:
                _raise_source_problem(self._source, "is not what it was when it was checked")
            self._remove_unfinished()
            write_atomically(self._staged, content)
        if _SENT not in places:
            write_atomically(self._sent, b"")
        move_file(self._staged, self._inbox)

    def withdraw(self) -> bool:
        """Withdraw the file from the inbox; returns whether the machine does not have it."""
        if INBOX in self.find():
            with suppress(FileNotFoundError):  # the machine was faster
                move_file(self._inbox, self._staged)
        return not self.is_taken()

    def restore(self) -> None:
        """Put a withdrawn file back; an unsent one has no marker and is left to `put_in_inbox`."""
        if self.find() == {_STAGED, _SENT}:
            move_file(self._staged, self._inbox)

    def remove_markers(self) -> None:
        """Remove the marker first: without it, a staged file was never sent."""
        remove_file(self._sent)
        remove_file(self._staged)
        self._remove_unfinished()

    def _remove_unfinished(self) -> None:
        for entry in shared_folder.list_plain_files(self._staged.parent):
            if entry.name.startswith(self._unfinished) and entry.name.endswith(UNFINISHED_SUFFIX):
                remove_file(entry.path)


def _read_source(source: Path) -> bytes:
    try:
        return shared_folder.read_shared_file(source)
    except shared_folder.MissingFile:
        _raise_source_problem(source, Message("is gone"))
    except shared_folder.UnusableFile as problem:
        why = Message("cannot be sent: %(problem)s", problem=Message(str(problem)))
        _raise_source_problem(source, why)


def _raise_source_problem(source: Path, reason: str) -> NoReturn:
    why, details = "%(file)s %(what)s: create it again", {"file": str(source)}
    message = Message(why, file=source.name, what=reason)
    raise OrderProblem(OptiCode.OPTI_RUNNER_FAILED, message, details) from None


OPEN, WITHDRAWN, REFUSED = "open", "withdrawn", "refused"  # states of an attempt


def add_attempt(machine_folder: Path, export_folder: Path, job_id: str, progress: OrderProgress) -> None:
    """Plan and record the next attempt; the caller saves it before any file is sent."""
    taken = _withdraw_last(machine_folder, progress)
    hashes = _checked_hashes(progress)
    files = {_key(progress, name): export_folder / name for name in hashes}
    batches = {batch for batch, _ in taken}
    if ALL_BATCHES in batches:
        files = {}
    if taken and any(batch == ALL_BATCHES for batch, _ in files):
        why = Message("the saw already has part of the order, but the new XML covers all of it")
        raise OrderProblem(OptiCode.OSI_ACK_FAILED, why, _names(taken.values()))
    number = len(progress.deliveries) + 1
    new_files = {key: path for key, path in files.items() if key not in taken}
    unfinished = batches & {batch for batch, _ in new_files}
    of_them = (file for (batch, _), file in taken.items() if batch in unfinished)
    if any(file.sha256 != hashes.get(file.source.name) for file in of_them):
        why = Message("the saw already has files from another plan for this order: reissue the order")
        raise OrderProblem(OptiCode.OSI_ACK_FAILED, why, _names(taken.values()))
    sources = new_files.values()
    planned_files = plan_delivery(sources, job_id, number).files if new_files else ()
    _check_unchanged(planned_files, hashes)
    delivery = Delivery(number, (*planned_files, *taken.values()))
    progress.deliveries.append({"delivery": delivery.as_json(), "state": OPEN})
    progress.current = number - 1


def withdraw_attempts(machine_folder: Path, progress: OrderProgress, *, all_or_nothing: bool = True) -> bool:
    """Withdraw the attempts; False if the machine has taken a file: then the others stay."""
    withdrawn_all = True
    for attempt in progress.deliveries:
        delivery = Delivery.from_json(attempt["delivery"])
        all_stay = all_or_nothing and attempt["state"] != REFUSED
        taken = withdraw(machine_folder, delivery, all_or_nothing=all_stay)
        if taken and attempt["state"] != REFUSED:
            withdrawn_all = False
        elif attempt["state"] == OPEN:
            attempt["state"] = WITHDRAWN
    return withdrawn_all


def withdraw_job_files(
    machine_folder: Path, progress_store: ProgressStore, job_id: str, *, all_or_nothing: bool = True
) -> bool:
    """Withdraw the files of a job that no runner has claimed or can claim meanwhile."""
    progress = progress_store.read(job_id)
    withdrawn_all = withdraw_attempts(machine_folder, progress, all_or_nothing=all_or_nothing)
    if progress.deliveries:
        progress_store.write(job_id, progress)
    return withdrawn_all


def check_inbox_exists(machine_folder: Path) -> None:
    """Raise FolderUnavailable without an inbox: creating one would hide the missing share."""
    if not (machine_folder / INBOX).is_dir():
        why = "%(place)s cannot be used: there is no %(folder)s in it"
        message = Message(why, place=machine_folder, folder=INBOX)
        details = {"place": str(machine_folder), "reason": f"no {INBOX}"}
        raise shared_folder.FolderUnavailable(message, details=details)


def _suffix(name: str) -> str:
    match = _SUFFIX.search(name)
    return match[0] if match else ""


_FileKey = tuple[str, str]  # the batch that a file belongs to, and its suffix


def _key(progress: OrderProgress, name: str) -> _FileKey:
    return batch_stem(progress.stems, name), _suffix(name).lower()


def _names(files: Iterable[DeliveryFile]) -> dict[str, list[str]]:
    return {"files": [file.name for file in files]}


def _withdraw_last(machine_folder: Path, progress: OrderProgress) -> dict[_FileKey, DeliveryFile]:
    """Withdraw the last attempt; returns the files that the machine has taken."""
    if not progress.deliveries:
        return {}
    last = progress.deliveries[-1]
    delivery = Delivery.from_json(last["delivery"])
    names = withdraw(machine_folder, delivery, all_or_nothing=False)
    if last["state"] == OPEN:
        last["state"] = WITHDRAWN
    taken = [file for file in delivery.files if file.name in names]
    return {_key(progress, file.source.name): file for file in taken}


def _checked_hashes(progress: OrderProgress) -> dict[str, str]:
    """Return the hashes of the files to send, by name; the XMLs if only they were checked."""
    if (files := progress.summary.get("machine_files")) is not None:
        return {file["name"]: file["sha256"] for file in files}
    hashes = (file["sha256"] for file in progress.summary.get("files", ()))
    return dict(zip(progress.xml, hashes, strict=True))


def _check_unchanged(files: tuple[DeliveryFile, ...], hashes: Mapping[str, str]) -> None:
    """Raise OrderProblem if a file differs from the one that was checked."""
    if changed := [file.source.name for file in files if file.sha256 != hashes[file.source.name]]:
        why, names = "%(files)s changed after the check: retry", ", ".join(changed)
        raise OrderProblem(OptiCode.OPTI_RUNNER_FAILED, why, {"files": changed}, files=names)
