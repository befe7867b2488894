"""A simulated saw, for demos and tests: it takes inbox files and reports them as a real one."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.pipeline import shared_folder
from kesin.workloads.optiplan.pipeline.solution import check_xml
from kesin.workloads.optiplan.workshop.paths import FAILED, INBOX, MACHINE_FOLDERS, PROCESSED

_READ: Final = (".xml", ".ptx", ".csv")


class SawSimulator:
    """The machine's side of its folder, which is created at the first pass."""

    def __init__(self, machine_folder: Path) -> None:
        self._folder = machine_folder
        self._broken: set[shared_folder.FolderEntry] = set()  # unreadable at the last pass
        self._has_folders = False  # created once: missing later, they are an unavailable share

    def process_inbox(self) -> int:
        """Move complete files, return how many; a bad one that stays the same goes to failed."""
        with shared_folder.translate_os_errors(self._folder):
            for name in () if self._has_folders else MACHINE_FOLDERS:
                (self._folder / name).mkdir(parents=True, exist_ok=True)
            self._has_folders = True
            entries = shared_folder.list_plain_files(self._folder / INBOX)
        files = (entry for entry in entries if entry.name.lower().endswith(_READ))
        waiting = [entry for entry in files if not entry.name.startswith(".")]
        broken = {entry for entry in waiting if not _is_readable(entry)}
        moved = 0
        for entry in waiting:
            if entry not in broken:
                moved += self._move(entry, PROCESSED)
            elif entry in self._broken:
                moved += self._move(entry, FAILED)
        self._broken = broken
        return moved

    def run(
        self,
        stop: threading.Event,
        every_s: float,
        *,
        on_moved: Callable[[int], object] = bool,
        on_unavailable: Callable[[shared_folder.FolderUnavailable], object] = bool,
    ) -> None:
        """Process the inbox until ``stop`` is set; an unavailable share is reported once."""
        reported = ""
        while not stop.is_set():
            try:
                if moved := self.process_inbox():
                    on_moved(moved)
                reported = ""
            except shared_folder.FolderUnavailable as problem:
                if problem.message != reported:
                    on_unavailable(problem)
                reported = problem.message
            stop.wait(every_s)

    def _move(self, entry: shared_folder.FolderEntry, folder: str) -> int:
        with shared_folder.translate_os_errors(self._folder):
            try:
                shared_folder.move_file(entry.path, self._folder / folder / entry.name)
            except FileNotFoundError:
                return 0  # withdrawn
        return 1


def _is_readable(entry: shared_folder.FolderEntry) -> bool:
    if entry.path.suffix.lower() != ".xml":
        return entry.size_bytes > 0
    try:
        check_xml(entry.path)
    except OrderProblem:
        return False
    return True
