"""What a page starts and nobody stops: started as it stands there, seen at work, stopped.

Somebody sits at a terminal and types the block; Ctrl-C ends what goes on.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis
from rq import Worker

from tests.cli.programs import PATIENCE_S, on_terminal, wait_until
from tests.docs.pages import ROOT, Block, blocks
from tests.redis_server import STANDING as DATABASE
from tests.web.serving import own_settings

PASSWORD = "a long one, and typed twice"
STOP = "\x03"
BASH = ("bash", "-euo", "pipefail", "-c")
RQ_WORKER = ("docs/pdf-redis.md", "rq worker pdf")
Typed = list[tuple[str, str]]  # what is shown, and what is typed then
# Page and how the block begins → what happens at the terminal, for each command that goes on.
STANDING: dict[tuple[str, str], list[Typed]] = {
    ("docs/pdf-redis.md", "pip install 'kesin[pdf,redis]'"): [[("listening", STOP)]],
    ("docs/pdf-redis.md", "# on each of them"): [[("worker_started", STOP)]],
    ("docs/pdf-operations.md", "# on each machine that renders"): [[("worker_started", STOP)]],
    ("docs/service.md", "$ kesin serve"): [
        [("First start. Sign in as admin", ""), ("listening", STOP)]
    ],
    ("docs/service.md", "# the password is asked for"): [
        [("Password: ", f"{PASSWORD}\n"), ("Again: ", f"{PASSWORD}\n"), ("listening", STOP)]
    ],
    ("docs/service.md", "# the API alone"): [
        [("listening", STOP)],
        [("worker_started", STOP)],
        [("sweeper_started", STOP)],
    ],
}


def commands(block: Block, terminals: int) -> list[str]:
    """The block as it is typed: at one terminal, or each line at one of its own."""
    lines = [line for line in block.text.splitlines() if not line.startswith("#")]
    if block.text.startswith("$ "):  # the rest is what it shows
        return [lines[0].removeprefix("$ ")]
    return ["\n".join(lines)] if terminals == 1 else lines


@pytest.fixture
def redis(tmp_path, monkeypatch, redis_server) -> str:
    """The address of the Redis that is set, on a machine where Kesin is installed."""
    own_settings(monkeypatch, tmp_path)
    url = str(redis_server.url(DATABASE))
    monkeypatch.setenv("KESIN_REDIS_URL", url)
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # it is installed already: nothing changes here
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.environ["PATH"]]))
    return url


def block_of(page: str, begins: str) -> Block:
    return next(one for one in blocks(ROOT / page) if one.text.startswith(begins))


@pytest.mark.parametrize(("page", "begins"), STANDING)
def test_what_goes_on_is_at_work_and_stops(page, begins, tmp_path, redis):
    sittings = STANDING[page, begins]
    texts = commands(block_of(page, begins), len(sittings))
    for text, typed in zip(texts, sittings, strict=True):
        ours = text.replace("0.0.0.0", "127.0.0.2")  # not to the world
        ours = ours.replace("kesin serve", "kesin serve --port 0")  # another may be taken
        ours = ours.replace("redis://:PASSWORD@redis.internal:6379/0", f"'{redis}'")
        answer = on_terminal([*BASH, ours], tmp_path, typed)
        assert answer.code == 0, f"{text}\n{answer.out}"
        assert typed[0][0] in answer.out, f"{text}\n{answer.out}"


def test_rqs_own_worker_is_at_work_and_stops(tmp_path, redis):
    """A stop in the middle of one of its log lines is lost: it is asked once it is idle."""
    text = block_of(*RQ_WORKER).text
    process = subprocess.Popen([*BASH, f"exec {text}"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        with Redis.from_url(redis) as client:
            wait_until(lambda: [one.get_state() for one in Worker.all(client)] == ["idle"])
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
            assert Worker.all(client) == []
    finally:
        process.kill()
        process.wait()
