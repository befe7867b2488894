"""Delivery to the machine: each file is taken once, despite crashes and races."""

import json
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline import delivery, shared_folder
from kesin.workloads.optiplan.pipeline.delivery import (
    Delivery,
    DeliveryFile,
    MachineAck,
    plan_delivery,
    put_in_inbox,
    read_ack,
    remove_markers,
    withdraw,
)
from kesin.workloads.optiplan.pipeline.shared_folder import FolderUnavailable
from tests.workloads.optiplan.deliveries import BACK, BODY, JOB, Killed, Machine, World, killed, make_sources


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "saw")


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    return make_sources(tmp_path)


@pytest.fixture
def one_file(sources: list[Path]) -> Delivery:
    return plan_delivery(sources[:1], JOB, 1)


@pytest.fixture
def two_files(sources: list[Path]) -> Delivery:
    return plan_delivery(sources, JOB, 1)


def test_a_plan_is_json_and_names_hold_the_job_and_from_the_second_on_the_attempt(
    two_files: Delivery, sources: list[Path], tmp_path: Path
):
    assert [(file.source, file.name) for file in two_files.files] == [(sources[0], BODY), (sources[1], BACK)]
    assert Delivery.from_json(json.loads(json.dumps(two_files.as_json()))) == two_files
    other = tmp_path / "Plan.XML"
    other.write_text("<a><b/></a>")
    names = [file.name for file in plan_delivery([sources[0], other], JOB, 2).files]
    assert names == [BODY.replace(".xml", "_try2.xml"), f"{JOB}_Plan_try2.XML"]


def test_a_plan_that_cannot_be_is_refused(sources: list[Path], tmp_path: Path):
    for files in ([], [sources[0], sources[0]]):
        with pytest.raises(ValueError, match="got"):
            plan_delivery(files, JOB, 1)
    for name in ("../x.xml", ".x.xml", "x.txt", "a/b.xml", "a\\b.xml", ""):
        with pytest.raises(ValueError, match="not a name and sha256"):
            DeliveryFile(tmp_path, name, "0" * 64)
    with pytest.raises(OrderProblem, match="is gone"):
        plan_delivery([tmp_path / "gone.xml"], JOB, 1)


def test_the_way_of_a_file(machine: Machine, one_file: Delivery):
    put_in_inbox(machine.folder, one_file)
    assert machine.inbox() == [BODY]
    assert (machine.folder / "inbox" / BODY).read_bytes() == one_file.files[0].source.read_bytes()
    assert read_ack(machine.folder, one_file) == MachineAck(awaited=(BODY,))
    machine.take()
    assert read_ack(machine.folder, one_file) == MachineAck(awaited=(BODY,))
    machine.put("processed")
    assert read_ack(machine.folder, one_file) == MachineAck()
    remove_markers(machine.folder, one_file)
    assert machine.everything() == [f"processed/{BODY}"]
    assert read_ack(machine.folder, one_file) == MachineAck()


def test_a_refused_file_is_reported_at_once_and_an_earlier_attempt_never_decides_a_new_one(
    machine: Machine, two_files: Delivery, sources: list[Path]
):
    put_in_inbox(machine.folder, two_files)
    machine.take(BACK)
    machine.put("failed")
    assert read_ack(machine.folder, two_files) == MachineAck((BACK,))
    put_in_inbox(machine.folder, two_files)
    assert machine.inbox() == [BODY]
    second = plan_delivery(sources[1:], JOB, 2)
    assert read_ack(machine.folder, second) == MachineAck(awaited=(second.files[0].name,))
    put_in_inbox(machine.folder, second)
    machine.take(second.files[0].name)
    machine.put("processed")
    assert read_ack(machine.folder, second) == MachineAck()


def test_a_copy_that_is_still_in_the_inbox_is_no_ack(machine: Machine, one_file: Delivery):
    put_in_inbox(machine.folder, one_file)
    path = machine.folder / "inbox" / BODY
    (machine.folder / "processed" / BODY).write_bytes(path.read_bytes())
    assert read_ack(machine.folder, one_file) == MachineAck(awaited=(BODY,))
    assert withdraw(machine.folder, one_file) == (BODY,)
    assert machine.inbox() == [BODY]


@pytest.mark.parametrize("folder", ["inbox", "processed", "failed"])
def test_a_file_of_our_name_with_other_content_decides_nothing(machine: Machine, one_file: Delivery, folder: str):
    stale = machine.folder / folder / BODY
    for name in ("inbox", "processed", "failed"):
        (machine.folder / name).mkdir(parents=True)
    stale.write_text("<stale/>")
    assert read_ack(machine.folder, one_file) == MachineAck(awaited=(BODY,))
    assert withdraw(machine.folder, one_file) == ()
    assert stale.read_text() == "<stale/>"


def test_a_source_that_changed_or_went_is_not_delivered(machine: Machine, one_file: Delivery):
    source = one_file.files[0].source
    source.write_text("<other/>")
    with pytest.raises(OrderProblem, match="not what it was") as caught:
        put_in_inbox(machine.folder, one_file)
    assert caught.value.code == OptiCode.OPTI_RUNNER_FAILED
    source.unlink()
    with pytest.raises(OrderProblem, match="is gone"):
        put_in_inbox(machine.folder, one_file)
    assert machine.everything() == []


def test_what_is_withdrawn_leaves_nothing_behind_and_if_the_machine_has_a_file_the_others_stay(
    machine: Machine, two_files: Delivery
):
    put_in_inbox(machine.folder, two_files)
    assert withdraw(machine.folder, two_files) == ()
    assert machine.everything() == []
    assert withdraw(machine.folder, two_files) == ()
    put_in_inbox(machine.folder, two_files)
    machine.take(BODY)
    assert withdraw(machine.folder, two_files) == (BODY,)
    assert machine.inbox() == [BACK]
    assert withdraw(machine.folder, two_files, all_or_nothing=False) == (BODY,)
    assert machine.inbox() == []


def test_where_the_machine_is_faster_with_the_second_the_first_goes_back(
    machine: Machine, two_files: Delivery, monkeypatch: pytest.MonkeyPatch
):
    put_in_inbox(machine.folder, two_files)
    moves: list[Path] = []

    def move(source: Path, target: Path) -> None:
        moves.append(source)
        if len(moves) == 2:
            machine.take(BACK)
        shared_folder.move_file(source, target)

    monkeypatch.setattr(delivery, "move_file", move)
    assert withdraw(machine.folder, two_files) == (BACK,)
    assert machine.inbox() == [BODY]


def test_a_share_that_is_away_can_be_waited_for(machine: Machine, one_file: Delivery, tmp_path: Path):
    calls: list[Callable[..., object]] = [read_ack, withdraw]
    for call in calls:
        with pytest.raises(FolderUnavailable):
            call(machine.folder, one_file)  # without an inbox there is no result
    (tmp_path / "file").touch()
    for call in [*calls, put_in_inbox]:
        with pytest.raises(FolderUnavailable, match="cannot be used"):
            call(tmp_path / "file", one_file)
    with pytest.raises(FolderUnavailable):
        put_in_inbox(Path("/proc/no-such-machine"), one_file)


def test_a_disk_that_is_full_leaves_nothing_to_be_cut_and_what_is_staged_needs_no_source(
    machine: Machine, one_file: Delivery, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FolderUnavailable, match="No space left"):
        put_in_inbox(machine.folder, one_file)
    monkeypatch.undo()
    assert machine.inbox() == []
    monkeypatch.setattr(delivery, "move_file", killed)
    with pytest.raises(Killed):
        put_in_inbox(machine.folder, one_file)
    monkeypatch.undo()
    one_file.files[0].source.unlink()
    put_in_inbox(machine.folder, one_file)
    assert machine.inbox() == [BODY]


def test_what_was_only_staged_does_not_go_to_the_machine_without_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("os.fsync", lambda _: None)
    for dies_at in count(1):
        with tempfile.TemporaryDirectory(dir=tmp_path) as temporary:
            world = World(Path(temporary), 2, set())
            if world.act("drop", dies_at, {}) < dies_at:
                break
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
    st.tuples(WORKER, st.none() | st.integers(1, 30), st.dictionaries(st.integers(1, 30), SAW, max_size=3))
    | st.tuples(SAW, st.none(), st.just({})),
    max_size=8,
)
STALE = st.sets(st.sampled_from(["inbox", "processed", "failed"]))


@settings(max_examples=settings.default.max_examples // 2)
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


@pytest.mark.parametrize(
    "verbs",
    [
        *("drop", "drop cancel"),
        pytest.param("drop cancel drop", marks=pytest.mark.long),
        pytest.param("drop retry", marks=pytest.mark.long),
    ],
)
def test_at_every_single_step_a_death_or_the_machine_changes_nothing(
    tmp_path: Path, verbs: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("os.fsync", lambda _: None)
    *earlier, last = verbs.split()
    for step in count(1):
        for dies_at, meanwhile in ((None, {step: "take"}), (step, {})):
            with tempfile.TemporaryDirectory(dir=tmp_path) as temporary:
                world = World(Path(temporary), 2, set())
                for verb in earlier:
                    world.act(verb, None, {})
                steps = world.act(last, dies_at, meanwhile)
                world.act(last, None, {})
                world.finish()
        if steps < step:
            break
