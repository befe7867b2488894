"""The saw simulator."""

import os
import threading
from pathlib import Path

import pytest

from kesin.workloads.optiplan.pipeline import saw_simulator as module
from kesin.workloads.optiplan.pipeline import solution
from kesin.workloads.optiplan.pipeline.delivery import MachineAck, plan_delivery, put_in_inbox, read_ack
from kesin.workloads.optiplan.pipeline.saw_simulator import SawSimulator
from kesin.workloads.optiplan.pipeline.shared_folder import FolderUnavailable

JOB = "0192f0c1-2d3e-7abc-8def-0123456789ab"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    return tmp_path / "saw"


def delivered(machine: Path, content: str, try_no: int = 1):
    source = machine.parent / "a.xml"
    source.write_text(content)
    delivery = plan_delivery([source], JOB, try_no)
    put_in_inbox(machine, delivery)
    return delivery


def test_it_makes_its_folders_but_not_one_again_that_has_vanished(machine: Path):
    saw = SawSimulator(machine)
    assert saw.process_inbox() == 0
    assert sorted(path.name for path in machine.iterdir()) == ["failed", "inbox", "processed"]
    (machine / "inbox").rename(machine / "gone")
    with pytest.raises(FolderUnavailable):
        saw.process_inbox()
    assert not (machine / "inbox").exists()


def test_what_is_delivered_is_acknowledged_and_what_is_broken_refused_once_it_no_longer_grows(machine: Path):
    saw = SawSimulator(machine)
    delivery = delivered(machine, "<a><b/></a>")
    assert [saw.process_inbox(), saw.process_inbox()] == [1, 0]
    assert read_ack(machine, delivery) == MachineAck()
    delivery = delivered(machine, "<a><b>", 2)
    assert [saw.process_inbox(), saw.process_inbox(), saw.process_inbox()] == [0, 1, 0]
    assert read_ack(machine, delivery) == MachineAck((delivery.files[0].name,))


def test_a_file_that_grows_under_its_name_is_waited_for(machine: Path):
    saw = SawSimulator(machine)
    saw.process_inbox()
    path = machine / "inbox" / "by-hand.xml"
    for content in ("", "<a>", "<a><b>"):
        path.write_text(content)
        assert saw.process_inbox() == 0
    path.write_text("<a><b/></a>")
    assert saw.process_inbox() == 1
    assert (machine / "processed" / "by-hand.xml").exists()


def test_other_files_are_left_alone(machine: Path, tmp_path: Path):
    saw = SawSimulator(machine)
    saw.process_inbox()
    inbox = machine / "inbox"
    for name in (".a.xml", "a.xml.tmp", "a.txt"):
        (inbox / name).write_text("<a><b/></a>")
    (tmp_path / "outside.xml").write_text("<a><b/></a>")
    (inbox / "link.xml").symlink_to(tmp_path / "outside.xml")
    (inbox / "folder.xml").mkdir()
    os.mkfifo(inbox / "pipe.xml")
    assert saw.process_inbox() == saw.process_inbox() == 0
    assert len(list(inbox.iterdir())) == 6


def test_a_file_that_is_withdrawn_meanwhile_is_not_missed(machine: Path, monkeypatch: pytest.MonkeyPatch):
    delivery = delivered(machine, "<a><b/></a>")
    path = machine / "inbox" / delivery.files[0].name
    check = solution.check_xml

    def withdrawn_then(file: Path):
        checked = check(file)
        path.unlink()
        return checked

    monkeypatch.setattr(module, "check_xml", withdrawn_then)
    assert SawSimulator(machine).process_inbox() == 0
    assert list((machine / "processed").iterdir()) == []


def test_it_runs_until_it_is_stopped_and_waits_for_an_unavailable_share(tmp_path: Path):
    folder = tmp_path / "saw"
    folder.write_text("not mounted")
    with pytest.raises(FolderUnavailable):
        SawSimulator(folder).process_inbox()

    class Stop(threading.Event):
        def __init__(self) -> None:
            super().__init__()
            self.waits: list[float | None] = []

        def wait(self, timeout: float | None = None) -> bool:
            self.waits.append(timeout)
            if len(self.waits) == 3:
                folder.unlink()
                delivered(folder, "<a><b/></a>")
            elif len(self.waits) == 4:
                self.set()
            return self.is_set()

    stop = Stop()
    said: list[FolderUnavailable] = []
    SawSimulator(folder).run(stop, 0.5, on_unavailable=said.append)
    assert stop.waits == [0.5] * 4
    assert len(said) == 1  # while it lasts
    assert len(list((folder / "processed").iterdir())) == 1
