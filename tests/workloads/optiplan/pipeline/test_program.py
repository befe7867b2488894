"""The program: one at a time, and its end is recorded, despite crashes."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline import program as module
from kesin.workloads.optiplan.pipeline import program_child
from kesin.workloads.optiplan.pipeline.program import (
    ProgramEnded,
    ProgramLaunch,
    ProgramRunning,
    StillRunning,
    end_current,
    read_state,
    start,
)
from kesin.workloads.optiplan.pipeline.program_child import LOG_BYTES, OVERTAKEN, RECORD, TAIL_BYTES
from kesin.workloads.optiplan.pipeline.shared_folder import FolderUnavailable
from tests.apart import crew
from tests.workloads.optiplan.processes import start_and_die
from tests.workloads.optiplan.programs import (
    DEAF,
    HANG,
    Whistle,
    is_alive,
    outcome,
    program,
    record,
    wait_for_end,
    with_child,
)

JOB, OTHER = "job-1", "job-2"


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "slot"
    yield folder
    end_current(folder)
    assert not (folder / RECORD).exists()


@pytest.fixture
def whistle(tmp_path: Path) -> Iterator[Whistle]:
    made = Whistle(tmp_path)
    yield made
    made.close()


@pytest.fixture
def bystander() -> Iterator[int]:
    """An unrelated process."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", HANG], start_new_session=True)
    yield process.pid
    assert process.poll() is None
    process.kill()
    process.wait()


def test_a_program_runs_in_its_folder_without_our_settings_and_a_shell_and_ends_with_0(
    slot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KESIN_STORE_URL", "postgresql://kesin:secret@db/kesin")
    file = tmp_path / "a; echo $HOME.xlsx"
    file.touch()
    ours = "[name for name in os.environ if 'KESIN' in name]"
    code = f"import os, sys; open('plan.xml', 'w').write('<a/>'); print(sys.argv[1:], {ours})"
    command = program(code, file).command
    start(slot, JOB, 1, ProgramLaunch(command, (file,), tmp_path), 60)
    tail = f"{[str(file)]} ['KESIN_OPTIPLAN_MARK']\n"
    assert outcome(slot, JOB, 1) == ProgramEnded(0, timed_out=False, tail=tail)
    assert (tmp_path / "plan.xml").read_text() == "<a/>"
    assert (slot / "job-1.1.log").read_text() == tail
    with pytest.raises(OrderProblem, match="cannot be started") as caught:
        start(slot, JOB, 2, ProgramLaunch(command, (), tmp_path / "nowhere"), 60)
    assert caught.value.code == OptiCode.OPTI_RUNNER_FAILED


class ScriptedClock:
    """The supervisor's clock: it stands still, and each of these calls returns its value."""

    def __init__(self, *readings: float | Callable[[], float]) -> None:
        self._readings = list(readings)

    def monotonic(self) -> float:
        now = self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]
        return now() if callable(now) else now


@pytest.fixture
def supervise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ProgramEnded | None]:
    """The supervisor in this process, with a clock of the test."""

    def run(code: str, clock: ScriptedClock) -> ProgramEnded | None:
        monkeypatch.setenv(program_child.MARK, secrets.token_hex(16))
        monkeypatch.setattr(program_child, "time", clock)
        program_child.run(list(program(code).command), tmp_path / "a.1.json", 60)
        return module._read_end(tmp_path / "a.1.json")

    return run


def test_at_the_time_out_a_program_may_end_by_itself(supervise, tmp_path: Path, whistle: Whistle):
    half = tmp_path / "half.xml"
    code = f"open({str(half)!r}, 'w').write('<a>'); print('half', flush=True); {whistle.blow}{HANG}"
    clock = ScriptedClock(0, lambda: 100 * len(whistle.hear()), 100)
    assert supervise(code, clock) == ProgramEnded(-signal.SIGTERM, timed_out=True, tail="half\n")


@pytest.mark.parametrize("own_session", [False, True])
def test_at_the_time_out_all_it_started_ends_even_what_is_deaf(supervise, whistle: Whistle, own_session: bool):
    pids: list[int] = []
    child = DEAF + whistle.blow + HANG
    code = with_child(child, DEAF + whistle.blow + HANG, own_session=own_session)

    def once_both_run() -> float:
        pids.extend(whistle.hear(2))
        return 100

    clock = ScriptedClock(0, once_both_run, 100, 200)
    assert supervise(code, clock) == ProgramEnded(-signal.SIGKILL, timed_out=True, tail="")
    assert len(pids) == 2
    assert not any(map(is_alive, pids))


def test_what_a_program_leaves_running_is_watched_until_the_timeout(supervise, tmp_path: Path, whistle: Whistle):
    left: list[int] = []

    def once_it_has_ended() -> float:
        if not (tmp_path / "a.1.json").exists():
            return 0
        left.extend([] if left else whistle.hear())
        return 100

    code = with_child(whistle.blow + HANG, "print('launched')")
    ended = supervise(code, ScriptedClock(once_it_has_ended))
    assert ended == ProgramEnded(0, timed_out=False, tail="launched\n")
    assert len(left) == 1
    assert not is_alive(left[0])


def test_what_a_program_leaves_running_is_ended_by_the_next_user_of_the_slot(slot: Path, whistle: Whistle):
    silent = f"import os; os.close(1); os.close(2); {whistle.blow}{HANG}"
    start(slot, JOB, 1, program(with_child(silent, "", own_session=True)), 60)
    (left,) = whistle.hear()
    assert outcome(slot, JOB, 1) == ProgramEnded(0, timed_out=False, tail="")
    assert is_alive(left)
    end_current(slot)
    assert not is_alive(left)


def test_a_program_that_cannot_be_run_says_why(slot: Path, tmp_path: Path):
    file = tmp_path / "OptiPlanning.exe"
    file.write_text("not a program")
    start(slot, JOB, 1, ProgramLaunch((str(file),), ()), 60)
    ended = outcome(slot, JOB, 1)
    assert isinstance(ended, ProgramEnded)
    assert (ended.exit, ended.timed_out) == (127, False)
    assert "Permission denied" in ended.tail


def test_a_program_that_fails_tells_its_exit_code_and_the_last_of_its_output(slot: Path):
    code = "import sys; print('x\\n' * 500_000 + f'line 029999', 'ş' * 10, file=sys.stderr); sys.exit(3)"
    start(slot, JOB, 1, program(code), 60)
    ended = outcome(slot, JOB, 1)
    assert isinstance(ended, ProgramEnded)
    assert (ended.exit, ended.timed_out) == (3, False)
    assert ended.tail.endswith("line 029999 şşşşşşşşşş\n")
    assert len(ended.tail.encode()) <= TAIL_BYTES + 3  # half a letter becomes one character
    log = (slot / "job-1.1.log").read_bytes()
    assert len(log) == LOG_BYTES
    assert log.endswith("line 029999 şşşşşşşşşş\n".encode())


def test_nothing_is_started_for_import_files_that_are_gone(slot: Path, tmp_path: Path):
    assert read_state(slot, JOB, 1) is None
    end_current(slot)
    assert not slot.exists()
    with pytest.raises(OrderProblem, match=r"b\.xlsx is missing"):
        start(slot, JOB, 1, program("", tmp_path / "b.xlsx"), 60)
    assert read_state(slot, JOB, 1) is None


def test_starting_twice_is_starting_once(slot: Path, whistle: Whistle):
    again = program(whistle.blow + HANG)
    start(slot, JOB, 1, again, 60)
    (pid,) = whistle.hear()
    start(slot, JOB, 1, again, 60)
    assert whistle.is_silent()
    os.kill(pid, signal.SIGKILL)
    assert outcome(slot, JOB, 1) == ProgramEnded(-signal.SIGKILL, timed_out=False, tail="")
    start(slot, JOB, 1, again, 60)
    assert whistle.is_silent()


def test_the_next_user_of_the_slot_ends_the_earlier_program_and_all_it_started(slot: Path, whistle: Whistle):
    child = DEAF + whistle.blow + HANG
    start(slot, JOB, 1, program(with_child(child, whistle.blow + HANG, own_session=True)), 60)
    earlier = [record(slot)["pid"], *whistle.hear(2)]
    start(slot, OTHER, 1, program(whistle.blow + HANG), 60)
    assert not any(map(is_alive, earlier))
    assert read_state(slot, JOB, 1) is None
    assert isinstance(read_state(slot, OTHER, 1), ProgramRunning)
    assert is_alive(whistle.hear()[0])


def test_a_killed_supervisor_leaves_no_trace_and_its_program_ends_before_another_starts(slot: Path, whistle: Whistle):
    start(slot, JOB, 1, program(whistle.blow + HANG), 60)
    supervisor, (orphan,) = record(slot)["pid"], whistle.hear()
    os.kill(supervisor, signal.SIGKILL)
    wait_for_end(supervisor)
    assert read_state(slot, JOB, 1) is None
    assert is_alive(orphan)
    start(slot, JOB, 1, program(whistle.blow + HANG), 60)
    assert not is_alive(orphan)
    assert isinstance(read_state(slot, JOB, 1), ProgramRunning)
    assert whistle.hear() != [orphan]


def test_another_process_under_its_number_is_not_it_and_is_left_alone(slot: Path, bystander: int):
    slot.mkdir()
    about = {"job_id": JOB, "run": 1, "mark": "m", **program_child.process_identity(bystander)}
    for changed in ({"started": 1}, {"host": "saw-pc"}, {"boot": "an earlier"}):
        (slot / RECORD).write_text(json.dumps({**about, **changed}))
        assert read_state(slot, JOB, 1) is None
        end_current(slot)
        assert not (slot / RECORD).exists()
        assert is_alive(bystander), changed


def test_the_process_that_is_named_ends_with_its_group(slot: Path, whistle: Whistle):
    code = with_child(whistle.blow + HANG, whistle.blow + HANG)
    process = subprocess.Popen(program(code).command, start_new_session=True)
    pids = whistle.hear(2)
    slot.mkdir()
    about = {"job_id": JOB, "run": 1, "mark": "m", **program_child.process_identity(process.pid)}
    (slot / RECORD).write_text(json.dumps(about))
    assert read_state(slot, JOB, 1) == ProgramRunning(process.pid)
    assert read_state(slot, JOB, 2) is read_state(slot, OTHER, 1) is None
    end_current(slot)
    wait_for_end(next(pid for pid in pids if pid != process.pid))
    assert process.wait() == -signal.SIGKILL


def test_a_dead_or_unreadable_record_is_cleared_away(slot: Path):
    slot.mkdir()
    dead = {"job_id": JOB, "run": 1, "mark": "m", **program_child.process_identity(os.getpid()), "pid": 2**30}
    for text in (json.dumps(dead), "{half", "[]", "", json.dumps({"pid": "x", "started": 5})):
        (slot / RECORD).write_text(text)
        assert read_state(slot, JOB, 1) is None
        end_current(slot)
        assert not (slot / RECORD).exists()


def test_a_program_that_will_not_die_is_reported_and_kept_on_record(
    slot: Path, monkeypatch: pytest.MonkeyPatch, bystander: int
):
    slot.mkdir()
    (slot / RECORD).write_text(json.dumps({"job_id": JOB, "run": 1, "pid": 1, "mark": "m"}))
    monkeypatch.setattr(program_child, "kill_process", lambda *_: False)
    with pytest.raises(StillRunning, match="job-1"):
        end_current(slot)
    with pytest.raises(StillRunning):
        start(slot, OTHER, 1, program(""), 60)
    assert (slot / RECORD).exists()
    monkeypatch.undo()


def test_an_end_that_is_written_down_wins(slot: Path):
    start(slot, JOB, 1, program(HANG), 60)
    (slot / "job-1.1.json").write_text("{")
    assert isinstance(read_state(slot, JOB, 1), ProgramRunning)
    (slot / "job-1.1.json").write_text('{"exit": 0, "timed_out": false, "log_tail": "x\\u0000"}')
    assert read_state(slot, JOB, 1) == ProgramEnded(0, timed_out=False, tail="x")


def test_a_program_that_ends_between_two_questions_is_not_lost(slot: Path, monkeypatch: pytest.MonkeyPatch):
    slot.mkdir()
    (slot / RECORD).write_text(json.dumps({"job_id": JOB, "run": 1, "mark": "m"}))

    def ends_now(_: object) -> bool:
        (slot / "job-1.1.json").write_text('{"exit": 0, "timed_out": false, "log_tail": ""}')
        return False

    monkeypatch.setattr(program_child, "is_alive", ends_now)
    assert read_state(slot, JOB, 1) == ProgramEnded(0, timed_out=False, tail="")


@pytest.mark.parametrize("when", ["after the start", "before the launch"])
def test_a_worker_that_is_killed_loses_no_program_and_starts_no_second(slot: Path, whistle: Whistle, when: str):
    code = program(whistle.blow + HANG)
    with crew() as start_process:
        start_process(start_and_die, slot, JOB, code, when == "before the launch").last_words()
    state = read_state(slot, JOB, 1)
    assert state is None if when == "before the launch" else isinstance(state, ProgramRunning)
    start(slot, JOB, 1, code, 60)
    assert isinstance(read_state(slot, JOB, 1), ProgramRunning)
    assert len(whistle.hear()) == 1
    assert whistle.is_silent()


def test_a_late_supervisor_finds_its_ticket_gone_and_runs_nothing(slot: Path, whistle: Whistle):
    slot.mkdir()
    late = module._write_ticket(slot, JOB, 1)
    start(slot, OTHER, 1, program(HANG), 60)
    status = slot / "job-1.1.json"
    assert module._launch(status, late, program(whistle.blow), 60) == OVERTAKEN
    assert not status.exists()
    assert whistle.is_silent()
    assert isinstance(read_state(slot, OTHER, 1), ProgramRunning)


def test_a_starter_that_is_overtaken_leaves_the_slot_to_the_other(
    slot: Path, whistle: Whistle, monkeypatch: pytest.MonkeyPatch
):
    launch = module._launch

    def overtaken(*args) -> int:
        monkeypatch.undo()
        start(slot, JOB, 1, program(HANG), 60)
        return launch(*args)

    monkeypatch.setattr(module, "_launch", overtaken)
    start(slot, JOB, 1, program(whistle.blow), 60)
    assert isinstance(read_state(slot, JOB, 1), ProgramRunning)
    assert whistle.is_silent()


def test_a_broken_supervisor_is_a_failure_with_its_last_output(
    slot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for code, output in (("raise SystemExit('broken')", "broken"), ("import os; os._exit(3)", "")):
        broken = tmp_path / "broken.py"
        broken.write_text(code)
        monkeypatch.setattr(program_child, "__file__", str(broken))
        with pytest.raises(OrderProblem, match="supervisor ended") as caught:
            start(slot, JOB, 1, program(""), 60)
        assert output in caught.value.details.get("tail", "")


def test_a_supervisor_that_hangs_is_ended(slot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    slow = tmp_path / "slow.py"
    slow.write_text(HANG)
    monkeypatch.setattr(program_child, "__file__", str(slow))
    monkeypatch.setattr(module, "_START_TIMEOUT_S", 0.3)
    with pytest.raises(OrderProblem, match="did not start within"):
        start(slot, JOB, 1, program(""), 60)
    assert not (slot / RECORD).exists()


def test_only_the_last_runs_are_kept(slot: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_KEPT_RUNS", 1)
    slot.mkdir()
    for run in range(2):
        (slot / f"job-1.{run}.json").touch()
        os.utime(slot / f"job-1.{run}.json", (run, run))
    start(slot, OTHER, 1, program(""), 60)
    outcome(slot, OTHER, 1)
    assert {path.name for path in slot.glob("*.*.json")} == {"job-1.1.json", "job-2.1.json"}


def test_a_run_folder_that_cannot_be_used_can_be_waited_for(tmp_path: Path):
    (tmp_path / "slot").write_text("a file")
    with pytest.raises(FolderUnavailable):
        read_state(tmp_path / "slot", JOB, 1)
    with pytest.raises(FolderUnavailable):
        start(tmp_path / "slot", JOB, 1, program(""), 60)


def test_names_that_would_leave_the_folder_are_refused(slot: Path):
    for job_id, run in (("../x", 1), ("", 1), ("a/b", 1), ("a", -1)):
        with pytest.raises(ValueError, match="expected a job's id"):
            read_state(slot, job_id, run)


def test_the_supervisor_script_needs_nothing_but_python():
    """It is started by path, without our packages, and stays small."""
    assert "kesin" not in Path(program_child.__file__).read_text()
