"""Commands of the pages that run until Ctrl-C, typed at a terminal."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis
from rq import Worker

from tests.cli.fork_server import CHILD_PYTHON, path_with_kesin, write_stub
from tests.cli.programs import PATIENCE_S, on_terminal, wait_until
from tests.docs.pages import ROOT, Block, blocks
from tests.redis_server import STANDING as DATABASE
from tests.web.serving import own_settings

PASSWORD = "a long one, and typed twice"
STOP = "\x03"
BASH = ("bash", "-euo", "pipefail", "-c")
# In short: test_users.py is asked for passwords, and docs/service.md starts a service and a worker.
ASKED = ("docs/service.md", "# asks for the password")
SERVED = ("docs/pdf-operations.md", "pip install 'kesin[pdf,redis]'")
WORKING = ("docs/pdf-operations.md", "# on each of them")
RENDERING = ("docs/pdf-operations.md", "# on each machine that renders")
LONG = {ASKED, SERVED, WORKING, RENDERING}
RQ_WORKER = ("docs/pdf-operations.md", "rq worker pdf")
Keys = list[tuple[str, str]]  # what the terminal shows, and what is typed then
# Page and beginning of the block; for each of its commands that goes on, what is typed.
SESSIONS: dict[tuple[str, str], list[Keys]] = {
    SERVED: [[("listening", STOP)]],
    WORKING: [[("worker_started", STOP)]],
    RENDERING: [[("worker_started", STOP)]],
    ("docs/service.md", "$ kesin serve"): [[("First start. Sign in as admin", ""), ("listening", STOP)]],
    ASKED: [[("Password: ", f"{PASSWORD}\n"), ("Again: ", f"{PASSWORD}\n"), ("listening", STOP)]],
    ("docs/service.md", "# the API alone"): [
        [("listening", STOP)],
        [("worker_started", STOP)],
        [("sweeper_started", STOP)],
    ],
}


def commands(block: Block, terminals: int) -> list[str]:
    """What is typed: the block at one terminal, or each line at a terminal of its own.

    Everything is installed, and what a page installs is looked at in test_commands.py.
    """
    lines = [line for line in block.text.splitlines() if not line.startswith(("#", "pip install "))]
    if block.text.startswith("$ "):  # the rest is output
        return [lines[0].removeprefix("$ ")]
    return ["\n".join(lines)] if terminals == 1 else lines


def block_of(page: str, begin: str) -> Block:
    return next(block for block in blocks(ROOT / page) if block.text.startswith(begin))


@pytest.fixture
def redis(tmp_path, monkeypatch, redis_server) -> str:
    """The address of the Redis that is set, on a machine where Kesin is installed."""
    own_settings(monkeypatch, tmp_path)
    url = str(redis_server.url(DATABASE))
    monkeypatch.setenv("KESIN_REDIS_URL", url)
    return url


@pytest.mark.parametrize(
    ("page", "begin"), [pytest.param(*place, marks=[pytest.mark.long] * (place in LONG)) for place in SESSIONS]
)
def test_a_command_that_goes_on_starts_and_stops(page, begin, tmp_path, redis, monkeypatch):
    sessions = SESSIONS[page, begin]
    if sessions[0][0][0] == "Password: ":  # asked for at the terminal that started the process
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    else:
        path = path_with_kesin(tmp_path / "bin")
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv(CHILD_PYTHON, str(write_stub(tmp_path, "python")))
    for text, keys in zip(commands(block_of(page, begin), len(sessions)), sessions, strict=True):
        typed = text.replace("0.0.0.0", "127.0.0.2")  # not to the world
        typed = typed.replace("kesin serve", "kesin serve --port 0")  # 8000 may be taken
        typed = typed.replace("redis://:PASSWORD@redis.internal:6379/0", f"'{redis}'")
        answer = on_terminal([*BASH, typed], tmp_path, keys)
        assert answer.code == 0, f"{text}\n{answer.out}"
        assert all(shown in answer.out for shown, _ in keys), f"{text}\n{answer.out}"


def test_the_worker_of_rq_starts_and_stops(tmp_path, redis, monkeypatch):
    """It loses a signal that comes while it logs, so the signal is sent once it is idle."""
    monkeypatch.setenv("PATH", path_with_kesin(tmp_path / "bin"))
    command = [*BASH, f"exec {block_of(*RQ_WORKER).text}"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        with Redis.from_url(redis) as client:
            wait_until(lambda: [worker.get_state() for worker in Worker.all(client)] == ["idle"])
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
            assert Worker.all(client) == []
    finally:
        process.kill()
        process.wait()
