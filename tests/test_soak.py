"""`make soak` itself: what it tells of parts that failed, crashed, hung or were interrupted."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOAK = Path(__file__).parents[1] / "scripts" / "soak.py"
FAILED = """....
================ FAILURES ================
the first failure
{lines}
the last failure
========= 1 failed, 3 passed in 61.20s (0:01:01) =========
"""


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    spec = importlib.util.spec_from_file_location("soak", SOAK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["soak"] = module  # where its dataclasses look for their annotations
    spec.loader.exec_module(module)
    return module


ENDS = (
    (0, "....\n4 passed in 9.01s\n", "4 passed"),
    (1, FAILED.format(lines="why"), "1 failed, 3 passed"),
    (3, "INTERNALERROR> oh\n", "crashed: exit status 3; INTERNALERROR> oh"),
    (-9, "..", "killed by SIGKILL; .."),
    (None, "", "ended after 240 minutes, unfinished"),
)


def test_only_what_passed_to_the_end_held_and_what_failed_is_shown_from_its_beginning_to_its_end(soak, capsys):
    for status, said, detail in ENDS:
        result = soak.judged("model", soak.Ended(status, said))
        assert (result.held, result.detail) == (status == 0, detail)
    capsys.readouterr()
    soak.judged("model", soak.Ended(1, FAILED.format(lines="why\n" * 2 * soak.SHOWN)))
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == soak.SHOWN + 1
    assert shown[1] == "the first failure"
    assert shown[-2] == "the last failure"


def test_the_table_of_the_attacks_is_shown(soak, capsys):
    head = "========== what the attacks tried =========="
    said = f"....\n{head}\nATTACK  TRIED\nbombs       9\n4 passed in 9.01s\n"
    assert soak.judged("attacks", soak.Ended(0, said)).held
    assert capsys.readouterr().out == "ATTACK  TRIED\nbombs       9\n"


@pytest.mark.parametrize(
    ("code", "held", "detail"),
    [
        ("print('sizes'); print('sqlite: 1.02')", True, "sqlite: 1.02"),
        ("print('sizes'); print('sqlite: 1.71'); raise SystemExit(1)", False, "sqlite: 1.71"),
        ("import os; os.kill(os.getpid(), 9)", False, "killed by SIGKILL"),
    ],
)
def test_waves_that_leave_something_behind_did_not_hold(soak, monkeypatch, code, held, detail):
    run = soak.run
    monkeypatch.setattr(soak, "run", lambda _: run([sys.executable, "-c", code]))
    result = soak.waved()
    assert (result.held, result.detail) == (held, detail)


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)"])
def test_a_simulation_that_gives_no_answer_did_not_hold(soak, monkeypatch, tmp_path, code):
    run = soak.run
    monkeypatch.setattr(soak, "run", lambda _: run([sys.executable, "-c", code]))
    monkeypatch.setattr(soak, "LEDGER", tmp_path / "done.jsonl")
    result = soak.simulated(1, 1, workers=1)
    assert not result.held
    assert result.detail in {"seed 1: crashed: exit status 3", "seed 1: killed by SIGKILL"}


def test_a_simulation_goes_on_where_it_was_stopped(soak, monkeypatch, tmp_path):
    asked: list[int] = []

    def simulate(seed: int, steps: int):
        asked.append(seed)
        if seed == interrupted_at:
            raise KeyboardInterrupt
        each = {"steps": steps, "jobs": 1, "moves": {"claim": 2}, "faults": {"died": 1}}
        return soak.Ended(0, json.dumps({"runs": [each], "hash": str(seed), "holds": seed != 9}))

    monkeypatch.setattr(soak, "LEDGER", tmp_path / "new" / "done.jsonl")
    monkeypatch.setattr(soak, "_simulate", simulate)
    monkeypatch.setattr(soak, "RUN_STEPS", 10)
    interrupted_at = 3
    with pytest.raises(KeyboardInterrupt):
        soak.simulated(1, 40, workers=1)
    interrupted_at = 0
    result = soak.simulated(1, 40, workers=2)
    assert [asked.count(seed) for seed in (1, 2, 3)] == [1, 1, 2]
    assert result.detail.startswith("40 steps, 4 jobs, 8 moves, 4 faults; seeds 1 to 4, trace hash ")
    asked.clear()
    assert soak.simulated(1, 40, workers=2) == result
    assert asked == []
    monkeypatch.setattr(soak, "simulated_code", lambda: "changed")
    assert soak.simulated(1, 10, workers=1).held
    assert asked == [1]
    assert soak.simulated(9, 10, workers=1).detail == "seed 9 broke a promise"


def test_who_takes_too_long_is_ended(soak, monkeypatch):
    monkeypatch.setattr(soak, "LONGEST_S", 0)
    monkeypatch.setattr(soak, "GRACE_S", 0.2)
    assert soak.run(["sleep", "1000"]).status is None


# Hears no Ctrl-C, and is not alone.
DEAF = """
import signal, subprocess
signal.signal(signal.SIGINT, signal.SIG_IGN)
other = subprocess.Popen(["sleep", "1000"])
print("ready", flush=True)
other.wait()
"""


def test_who_is_ended_is_ended_with_all_that_it_started(soak, monkeypatch):
    monkeypatch.setattr(soak, "GRACE_S", 0.2)
    ours, theirs = os.pipe()  # which is read to its end when nobody holds it any more
    process = subprocess.Popen(
        [sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=theirs, text=True, start_new_session=True
    )
    os.close(theirs)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    soak._ended(process)
    assert process.wait() == -signal.SIGKILL
    with os.fdopen(ours) as held:
        assert held.read() == ""


def pressed(*_how: object, **_more: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_leaves_nobody_behind(soak, monkeypatch):
    processes = []

    class Process(subprocess.Popen):
        def communicate(self, *how, **more):
            if self in processes:
                return super().communicate(*how, **more)
            processes.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(soak, "GRACE_S", 0.2)  # tests in the background ignore Ctrl-C
    with pytest.raises(KeyboardInterrupt):
        soak.run(["sleep", "1000"])
    assert processes[0].returncode in {-signal.SIGINT, -signal.SIGKILL}


@pytest.mark.parametrize(("held", "status"), [(True, 130), (False, 130), (None, 1)])
def test_the_summary_tells_what_was_tried_and_how_it_ended(soak, monkeypatch, capsys, held, status):
    """With Ctrl-C in the second part; without, one that did not hold."""
    first = soak.Result("simulation", held=bool(held), detail="10 steps")
    monkeypatch.setattr(soak, "simulated", lambda *_: first)
    monkeypatch.setattr(soak, "tested", pressed)
    parts = [*soak.PARTS] if held is not None else ["simulation"]
    monkeypatch.setattr(sys, "argv", ["soak", *parts])
    assert soak.main() == status
    detail = [line.split() for line in capsys.readouterr().out.partition("PART")[2].splitlines()]
    assert detail[1] == ["simulation", "yes" if held else "NO", "0.0", "10", "steps"]
    assert detail[2:] == ([["model", "NO", "0.0", "interrupted"]] if held is not None else [])


def test_every_part_tries_what_is_there(soak):
    assert [*soak.TESTS] == [part for part in soak.PARTS if part not in ("simulation", "waves")]
    paths = [one for some in soak.TESTS.values() for one in some if not one.startswith("-")]
    assert [path for path in paths if not (soak.ROOT / path).exists()] == []


def test_every_long_form_is_in_a_part(soak):
    parts = [one for some in soak.TESTS.values() for one in some if not one.startswith("-")]
    tried = tuple(str((soak.ROOT / part).resolve()) for part in parts)
    forms = re.compile(r"mark\.long|getoption\(.--long|KESIN_HISTORIES|@given|@example")
    missing = [
        path.relative_to(soak.ROOT).as_posix()
        for path in sorted((soak.ROOT / "tests").rglob("test_*.py"))
        if forms.search(path.read_text("utf-8")) and not str(path).startswith(tried)
    ]
    assert [path for path in missing if path != "tests/test_soak.py"] == []
