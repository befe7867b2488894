"""A saw that cuts nothing: it takes files from the inbox and says so as the real one does.

With it the whole way of an order runs on one machine, for a demonstration and for the tests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.pipeline.shared_folder import (
    Entry,
    FolderAway,
    minding,
    move,
    plain_files,
)
from kesin.workloads.optiplan.pipeline.solution import check_xml
from kesin.workloads.optiplan.workshop.paths import FAILED, INBOX, PROCESSED


class Saw:
    """The machine's side of its folder, which is made if it is not there."""

    def __init__(self, machine_folder: Path) -> None:
        self._folder = machine_folder
        self._broken: set[Entry] = set()  # as they were at the last pass

    def pass_once(self) -> int:
        """Move what is complete, and say how many files that were; raises FolderAway.

        A file that cannot be read may still be growing under its name: it goes to ``failed`` once
        it was the same at two passes.
        """
        with minding(self._folder):
            for name in (INBOX, PROCESSED, FAILED):
                (self._folder / name).mkdir(parents=True, exist_ok=True)
            entries = plain_files(self._folder / INBOX)
        waiting = [one for one in entries if _is_for_us(one.name)]
        broken = {one for one in waiting if not _is_whole(one.path)}
        moved = 0
        for one in waiting:
            if one not in broken:
                moved += self._move(one, PROCESSED)
            elif one in self._broken:
                moved += self._move(one, FAILED)
        self._broken = broken
        return moved

    def run(
        self,
        stop: threading.Event,
        every_s: float,
        *,
        took: Callable[[int], object] = bool,
        away: Callable[[FolderAway], object] = bool,
    ) -> None:
        """Pass after pass until told to stop; a share that is away is waited for."""
        while not stop.is_set():
            try:
                if moved := self.pass_once():
                    took(moved)
            except FolderAway as problem:
                away(problem)
            stop.wait(every_s)

    def _move(self, one: Entry, folder: str) -> int:
        with minding(self._folder):
            try:
                move(one.path, self._folder / folder / one.name)
            except FileNotFoundError:
                return 0  # withdrawn
        return 1


def _is_for_us(name: str) -> bool:
    return name.lower().endswith(".xml") and not name.startswith(".")


def _is_whole(path: Path) -> bool:
    try:
        check_xml(path)
    except OrderProblem:
        return False
    return True
