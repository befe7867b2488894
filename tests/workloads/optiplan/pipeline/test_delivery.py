"""Delivery to the machine: each file is taken once, despite crashes and races."""

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline import delivery, shared_folder
from kesin.workloads.optiplan.pipeline.delivery import (
    Delivery,
    DeliveryFile,
    FilesTaken,
    FilesWithdrawn,
    MachineAcknowledged,
    MachineRefused,
    MachineWaiting,
    plan_delivery,
    put_in_inbox,
    read_ack,
    remove_markers,
    withdraw,
)
from kesin.workloads.optiplan.pipeline.shared_folder import FolderUnavailable
from kesin.workloads.optiplan.workshop import json_file

JOB = "0192f0c1-2d3e-7abc-8def-0123456789ab"
BODY, BACK = f"{JOB}_GOVDE_Mese_18mm.xml", f"{JOB}_ARKALIK_Mese_8mm.xml"


class Machine:
    """The machine's side, one move at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.in_hand: dict[str, bytes] = {}
        self.taken: Counter[bytes] = Counter()

    def inbox(self) -> list[str]:
        found = self.folder.glob("inbox/*.xml")
        return sorted(path.name for path in found if not path.name.startswith("."))

    def take(self, name: str | None = None) -> None:
        """Take a file: it is then in no folder."""
        for one in [name] if name else self.inbox()[:1]:
            path = self.folder / "inbox" / one
            self.in_hand[one] = path.read_bytes()
            self.taken[self.in_hand[one]] += 1
            path.unlink()

    def put(self, folder: str) -> None:
        for name, content in self.in_hand.items():
            (self.folder / folder / name).write_bytes(content)
        self.in_hand.clear()

    def everything(self) -> list[str]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.folder).as_posix() for path in found)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "saw")


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    return make_sources(tmp_path)


def make_sources(folder: Path) -> list[Path]:
    paths = [folder / BODY, folder / BACK]
    for path in paths:
        path.write_text(f"<a><b>{path.name}</b></a>")
    return paths


@pytest.fixture
def one(sources: list[Path]) -> Delivery:
    return plan_delivery(sources[:1], JOB, 1)


@pytest.fixture
def two(sources: list[Path]) -> Delivery:
    return plan_delivery(sources, JOB, 1)


def test_a_plan_is_json_and_comes_back_from_it(two: Delivery, sources: list[Path]):
    assert [(file.source, file.name) for file in two.files] == [
        (sources[0], BODY),
        (sources[1], BACK),
    ]
    assert Delivery.from_json(json.loads(json.dumps(two.as_json()))) == two


def test_the_name_holds_the_job_and_from_the_second_on_the_attempt(tmp_path: Path):
    made = make_sources(tmp_path)[0]
    other = tmp_path / "Plan.XML"
    other.write_text("<a><b/></a>")

    def named(try_no: int) -> list[str]:
        return [file.name for file in plan_delivery([made, other], JOB, try_no).files]

    assert named(1) == [BODY, f"{JOB}_Plan.XML"]
    assert named(2) == [BODY.replace(".xml", "_try2.xml"), f"{JOB}_Plan_try2.XML"]


def test_a_plan_that_cannot_be_is_refused(sources: list[Path], tmp_path: Path):
    for files, try_no in ((sources, 0), ([], 1), ([sources[0], sources[0]], 1)):
        with pytest.raises(ValueError, match="got"):
            plan_delivery(files, JOB, try_no)
    for name in ("../x.xml", ".x.xml", "x.txt", "a/b.xml", "a\\b.xml", ""):
        with pytest.raises(ValueError, match="no name and sha256"):
            DeliveryFile(tmp_path, name, "0" * 64)
    with pytest.raises(OrderProblem, match="has gone"):
        plan_delivery([tmp_path / "gone.xml"], JOB, 1)


def test_the_way_of_a_file(machine: Machine, one: Delivery):
    put_in_inbox(machine.folder, one)
    assert machine.inbox() == [BODY]
    assert (machine.folder / "inbox" / BODY).read_bytes() == one.files[0].source.read_bytes()
    assert read_ack(machine.folder, one) == MachineWaiting(inbox=(BODY,), missing=())
    machine.take()
    assert read_ack(machine.folder, one) == MachineWaiting(inbox=(), missing=(BODY,))
    machine.put("processed")
    assert read_ack(machine.folder, one) == MachineAcknowledged()
    remove_markers(machine.folder, one)
    assert machine.everything() == [f"processed/{BODY}"]
    assert read_ack(machine.folder, one) == MachineAcknowledged()


def test_a_refused_file_is_reported_at_once(machine: Machine, two: Delivery):
    put_in_inbox(machine.folder, two)
    machine.take(BACK)
    machine.put("failed")
    assert read_ack(machine.folder, two) == MachineRefused((BACK,))
    put_in_inbox(machine.folder, two)
    assert machine.inbox() == [BODY]


def test_all_files_must_be_processed(machine: Machine, two: Delivery):
    put_in_inbox(machine.folder, two)
    machine.take(BODY)
    machine.put("processed")
    assert read_ack(machine.folder, two) == MachineWaiting(inbox=(BACK,), missing=())


def test_a_copy_that_is_still_in_the_inbox_is_no_ack(machine: Machine, one: Delivery):
    put_in_inbox(machine.folder, one)
    path = machine.folder / "inbox" / BODY
    (machine.folder / "processed" / BODY).write_bytes(path.read_bytes())
    assert read_ack(machine.folder, one) == MachineWaiting(inbox=(BODY,), missing=())
    assert withdraw(machine.folder, one) == FilesTaken((BODY,))
    assert machine.inbox() == [BODY]


@pytest.mark.parametrize("folder", ["inbox", "processed", "failed"])
def test_a_file_of_our_name_with_other_content_decides_nothing(
    machine: Machine, one: Delivery, folder: str
):
    stale = machine.folder / folder / BODY
    for name in ("inbox", "processed", "failed"):
        (machine.folder / name).mkdir(parents=True)
    stale.write_text("<stale/>")
    assert read_ack(machine.folder, one) == MachineWaiting(inbox=(), missing=(BODY,))
    assert withdraw(machine.folder, one) == FilesWithdrawn()
    assert stale.read_text() == "<stale/>"
    put_in_inbox(machine.folder, one)
    assert read_ack(machine.folder, one) == MachineWaiting(inbox=(BODY,), missing=())
    machine.take()
    machine.put("processed")
    assert read_ack(machine.folder, one) == MachineAcknowledged()


def test_an_earlier_attempt_never_decides_a_new_one(machine: Machine, sources: list[Path]):
    first = plan_delivery(sources[:1], JOB, 1)
    put_in_inbox(machine.folder, first)
    machine.take()
    machine.put("failed")
    assert withdraw(machine.folder, first) == FilesWithdrawn()
    second = plan_delivery(sources[:1], JOB, 2)
    assert read_ack(machine.folder, second) == MachineWaiting(
        inbox=(), missing=(second.files[0].name,)
    )
    put_in_inbox(machine.folder, second)
    machine.take()
    machine.put("processed")
    assert read_ack(machine.folder, second) == MachineAcknowledged()


def test_a_file_in_the_machines_hand_is_never_copied_again(machine: Machine, one: Delivery):
    put_in_inbox(machine.folder, one)
    machine.take()
    put_in_inbox(machine.folder, one)
    assert machine.inbox() == []
    assert withdraw(machine.folder, one) == FilesTaken((BODY,))


def test_a_source_that_changed_or_went_is_not_delivered(machine: Machine, one: Delivery):
    source = one.files[0].source
    source.write_text("<other/>")
    with pytest.raises(OrderProblem, match="not what it was") as caught:
        put_in_inbox(machine.folder, one)
    assert caught.value.code == OptiCode.OPTI_RUNNER_FAILED
    source.unlink()
    with pytest.raises(OrderProblem, match="has gone"):
        put_in_inbox(machine.folder, one)
    assert machine.everything() == []


def test_once_it_was_staged_the_source_is_not_needed(
    machine: Machine, one: Delivery, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delivery, "move_file", killed)
    with pytest.raises(Killed):
        put_in_inbox(machine.folder, one)
    monkeypatch.undo()
    one.files[0].source.unlink()
    put_in_inbox(machine.folder, one)
    assert machine.inbox() == [BODY]


def test_what_is_withdrawn_leaves_nothing_behind(machine: Machine, two: Delivery):
    put_in_inbox(machine.folder, two)
    assert withdraw(machine.folder, two) == FilesWithdrawn()
    assert machine.everything() == []
    assert withdraw(machine.folder, two) == FilesWithdrawn()


def test_where_the_machine_has_one_the_others_stay(machine: Machine, two: Delivery):
    put_in_inbox(machine.folder, two)
    machine.take(BODY)
    assert withdraw(machine.folder, two) == FilesTaken((BODY,))
    assert machine.inbox() == [BACK]
    assert withdraw(machine.folder, two, all_or_nothing=False) == FilesTaken((BODY,))
    assert machine.inbox() == []


def test_where_the_machine_is_faster_with_the_second_the_first_goes_back(
    machine: Machine, two: Delivery, monkeypatch: pytest.MonkeyPatch
):
    put_in_inbox(machine.folder, two)
    moves: list[Path] = []

    def move(source: Path, target: Path) -> None:
        moves.append(source)
        if len(moves) == 2:
            machine.take(BACK)
        shared_folder.move_file(source, target)

    monkeypatch.setattr(delivery, "move_file", move)
    assert withdraw(machine.folder, two) == FilesTaken((BACK,))
    assert machine.inbox() == [BODY]
    machine.put("processed")
    machine.take()
    machine.put("processed")
    assert read_ack(machine.folder, two) == MachineAcknowledged()


def test_a_share_that_is_away_can_be_waited_for(machine: Machine, one: Delivery, tmp_path: Path):
    for ask in (read_ack, withdraw):
        with pytest.raises(FolderUnavailable):
            ask(machine.folder, one)  # without an inbox there is no result
    (tmp_path / "file").touch()
    for ask in (put_in_inbox, read_ack, withdraw):
        with pytest.raises(FolderUnavailable, match="cannot be used"):
            ask(tmp_path / "file", one)
    with pytest.raises(FolderUnavailable):
        put_in_inbox(Path("/proc/no-such-machine"), one)


def test_a_disk_that_is_full_leaves_nothing_to_be_cut(
    machine: Machine, one: Delivery, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FolderUnavailable, match="No space left"):
        put_in_inbox(machine.folder, one)
    monkeypatch.undo()
    assert machine.inbox() == []
    put_in_inbox(machine.folder, one)
    assert machine.inbox() == [BODY]


class Killed(BaseException):
    """The worker was killed."""


def killed(*_: object) -> None:
    raise Killed


class Steps:
    """The worker's steps in the folders; between two steps, the machine may act."""

    def __init__(self, dies_at: int | None, meanwhile: dict[int, Callable[[], None]]) -> None:
        self._dies_at = dies_at
        self._meanwhile = meanwhile
        self._number = 0

    def before(self) -> None:
        self._number += 1
        self._meanwhile.get(self._number, lambda: None)()
        if self._number == self._dies_at:
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

    def act(self, verb: str, dies_at: int | None, meanwhile: dict[int, str]) -> None:
        if verb in ("take", "processed", "failed"):
            self.saw(verb)
        elif not self.over:
            acts = {at: lambda saw=saw: self.saw(saw) for at, saw in meanwhile.items()}
            with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                Steps(dies_at, acts).patched(patch)
                if verb == "drop":
                    put_in_inbox(self.machine.folder, self.delivery)
                else:
                    whole = verb == "cancel"
                    self.withdrawn(
                        withdraw(self.machine.folder, self.delivery, all_or_nothing=whole), whole
                    )
        assert max(self.times_taken().values()) <= 1
        self.check_ack()

    def withdrawn(self, answer: FilesWithdrawn | FilesTaken, whole: bool) -> None:
        taken = answer.files if isinstance(answer, FilesTaken) else ()
        assert all(self.times_taken()[name] == 1 for name in taken)
        if taken and whole:
            return  # the job goes on
        self.over = True
        for name, content in self.contents.items():
            refused = self.lies_in("failed", name)
            assert name in taken or refused or self.times_taken()[name] == 0
            assert name in taken or content not in self.inbox()

    def check_ack(self) -> None:
        match read_ack(self.machine.folder, self.delivery):
            case MachineAcknowledged():
                assert all(self.lies_in("processed", name) for name in self.contents)
            case MachineRefused(names):
                assert all(self.lies_in("failed", name) for name in names)
            case MachineWaiting(inbox, _):
                assert all(self.lies_in("inbox", name) for name in inbox)

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
            assert not isinstance(read_ack(self.machine.folder, self.delivery), MachineWaiting)
        remove_markers(self.machine.folder, self.delivery)
        assert not any("/." in name for name in self.machine.everything())


def test_what_was_only_staged_does_not_go_to_the_machine_without_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("os.fsync", lambda _: None)
    for dies_at in range(1, 45):
        with tempfile.TemporaryDirectory(dir=tmp_path) as temporary:
            world = World(Path(temporary), 2, set())
            world.act("drop", dies_at, {})
            if world.machine.inbox() == [BODY]:  # the second may be staged by now
                world.act("cancel", None, {12: "take"})  # after the first look at both
            world.act("take", None, {})
            world.act("drop", None, {})
            world.act("take", None, {})
            world.act("drop", None, {})
            world.finish()


SAW = st.sampled_from(["take", "processed", "failed"])
WORKER = st.sampled_from(["drop", "drop", "cancel", "retry"])
ACTS = st.lists(
    st.tuples(
        WORKER, st.none() | st.integers(1, 30), st.dictionaries(st.integers(1, 30), SAW, max_size=3)
    )
    | st.tuples(SAW, st.none(), st.just({})),
    max_size=8,
)
STALE = st.sets(st.sampled_from(["inbox", "processed", "failed"]))


@settings(max_examples=150, deadline=None)
@given(acts=ACTS, files=st.integers(1, 2), stale=STALE)
def test_every_file_is_taken_once_or_withdrawn_despite_crashes_and_races(
    acts: list[tuple[str, int | None, dict[int, str]]], files: int, stale: set[str]
):
    with tempfile.TemporaryDirectory() as temporary, pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        world = World(Path(temporary), files, stale)
        for act in acts:
            world.act(*act)
        world.finish()


@pytest.mark.parametrize("verbs", ["drop", "drop cancel", "drop cancel drop", "drop retry"])
def test_at_every_single_step_a_death_or_the_machine_changes_nothing(
    tmp_path: Path, verbs: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("os.fsync", lambda _: None)
    *earlier, last = verbs.split()
    happenings = [(at, {}) for at in range(1, 45)] + [(None, {at: "take"}) for at in range(1, 45)]
    for dies_at, meanwhile in happenings:
        with tempfile.TemporaryDirectory(dir=tmp_path) as temporary:
            world = World(Path(temporary), 2, set())
            for verb in earlier:
                world.act(verb, None, {})
            world.act(last, dies_at, meanwhile)
            world.act(last, None, {})
            world.finish()
