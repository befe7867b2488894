"""A machine and a worker that act on the same folders, step by step, and what must hold."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from kesin.workloads.optiplan.pipeline import delivery, shared_folder
from kesin.workloads.optiplan.pipeline.delivery import plan_delivery, put_in_inbox, read_ack, remove_markers, withdraw
from kesin.workloads.optiplan.workshop import json_file

JOB = "0192f0c1-2d3e-7abc-8def-0123456789ab"
BODY, BACK = f"{JOB}_GOVDE_Mese_18mm.xml", f"{JOB}_ARKALIK_Mese_8mm.xml"


class Machine:
    """The machine's side, step by step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.in_hand: dict[str, bytes] = {}
        self.taken: Counter[bytes] = Counter()

    def inbox(self) -> list[str]:
        paths = self.folder.glob("inbox/*.xml")
        return sorted(path.name for path in paths if not path.name.startswith("."))

    def take(self, name: str | None = None) -> None:
        """Take a file: it is then in no folder."""
        for file_name in [name] if name else self.inbox()[:1]:
            path = self.folder / "inbox" / file_name
            content = self.in_hand[file_name] = path.read_bytes()
            self.taken[content] += 1
            path.unlink()

    def put(self, folder: str) -> None:
        for name, content in self.in_hand.items():
            (self.folder / folder / name).write_bytes(content)
        self.in_hand.clear()

    def everything(self) -> list[str]:
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.folder).as_posix() for path in paths)


def make_sources(folder: Path) -> list[Path]:
    paths = [folder / BODY, folder / BACK]
    for path in paths:
        path.write_text(f"<a><b>{path.name}</b></a>")
    return paths


class Killed(BaseException):
    """The worker was killed."""


def killed(*_: object) -> None:
    raise Killed


class Steps:
    """The worker's steps in the folders; between two steps, the machine may act."""

    def __init__(self, dies_at: int | None, meanwhile: Mapping[int, Callable[[], None]]) -> None:
        self._dies_at = dies_at
        self._meanwhile = meanwhile
        self.number = 0

    def before(self) -> None:
        self.number += 1
        self._meanwhile.get(self.number, lambda: None)()
        if self.number == self._dies_at:
            raise Killed

    def wrap(self, act: Callable[..., object]) -> Callable[..., object]:
        def step(*given: object) -> object:
            self.before()
            return act(*given)

        return step

    def write(self, path: Path, data: bytes) -> None:
        """Write a file; a kill in the middle leaves a part of it."""
        try:
            self.before()
        except Killed:
            path.with_name(f".{path.name}.0000.tmp").write_bytes(data[:5])
            raise
        json_file.write_atomically(path, data)
        self.before()

    def patched(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("has_content", "move_file", "remove_file"):
            patch.setattr(delivery, name, self.wrap(getattr(shared_folder, name)))
        patch.setattr(delivery, "write_atomically", self.write)


class World:
    """A machine, a worker that may be killed at every step, and the invariants."""

    def __init__(self, folder: Path, files: int, stale: set[str]) -> None:
        self.machine = Machine(folder / "saw")
        for name in ("inbox", "processed", "failed"):
            (self.machine.folder / name).mkdir(parents=True)
        for name in stale:
            (self.machine.folder / name / BODY).write_text("<stale/>")
        self.delivery = plan_delivery(make_sources(folder)[:files], JOB, 1)
        self.contents = {file.name: file.source.read_bytes() for file in self.delivery.files}
        self.over = False

    def times_taken(self) -> dict[str, int]:
        return {name: self.machine.taken[content] for name, content in self.contents.items()}

    def saw(self, verb: str) -> None:
        if verb == "take":
            self.machine.take()
        else:
            self.machine.put(verb)

    def act(self, verb: str, dies_at: int | None, meanwhile: dict[int, str]) -> int:
        """Act, and check what holds after every act; returns the number of steps taken."""
        steps = 0
        if verb in ("take", "processed", "failed"):
            self.saw(verb)
        elif not self.over:
            acts = {at: partial(self.saw, verb) for at, verb in meanwhile.items()}
            with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                (counter := Steps(dies_at, acts)).patched(patch)
                if verb == "drop":
                    put_in_inbox(self.machine.folder, self.delivery)
                else:
                    whole = verb == "cancel"
                    self.withdrawn(withdraw(self.machine.folder, self.delivery, all_or_nothing=whole), whole)
            steps = counter.number
        assert max(self.times_taken().values()) <= 1
        self.check_ack()
        return steps

    def withdrawn(self, taken: tuple[str, ...], whole: bool) -> None:
        assert all(self.times_taken()[name] == 1 for name in taken)
        if taken and whole:
            return  # the job goes on
        self.over = True
        for name, content in self.contents.items():
            refused = self.lies_in("failed", name)
            assert name in taken or refused or self.times_taken()[name] == 0
            assert name in taken or content not in self.inbox()

    def check_ack(self) -> None:
        ack = read_ack(self.machine.folder, self.delivery)
        if not any(ack):
            assert all(self.lies_in("processed", name) for name in self.contents)
        assert all(self.lies_in("failed", name) for name in ack.refused)
        assert not any(self.lies_in("processed", name) for name in ack.awaited)

    def lies_in(self, folder: str, name: str) -> bool:
        path = self.machine.folder / folder / name
        return path.exists() and path.read_bytes() == self.contents[name]

    def inbox(self) -> list[bytes]:
        folder = self.machine.folder / "inbox"
        return [(folder / name).read_bytes() for name in self.machine.inbox()]

    def finish(self) -> None:
        """Finish without kills: the machine takes what is in the inbox, but nothing withdrawn."""
        before = self.times_taken()
        if not self.over:
            put_in_inbox(self.machine.folder, self.delivery)
        while self.machine.inbox():
            self.machine.take()
        self.machine.put("processed")
        if self.over:
            assert self.times_taken() == before
        else:
            assert set(self.times_taken().values()) == {1}
            ack = read_ack(self.machine.folder, self.delivery)
            assert ack.refused or not any(ack)
        remove_markers(self.machine.folder, self.delivery)
        assert not any("/." in name for name in self.machine.everything())
