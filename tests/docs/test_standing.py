"""What a page starts and nobody stops: started as it stands there, seen at work, stopped.

Somebody sits at a terminal and types the block; Ctrl-C ends what goes on.
"""

import os
import sys
from pathlib import Path

import pytest

from tests.cli.programs import on_terminal
from tests.docs.pages import ROOT, Block, blocks
from tests.redis_server import STANDING as DATABASE
from tests.web.serving import own_settings

PASSWORD = "a long one, and typed twice"
STOP = "\x03"
Typed = list[tuple[str, str]]  # what is shown, and what is typed then
# Page and how the block begins → what happens at the terminal, for each command that goes on.
STANDING: dict[tuple[str, str], list[Typed]] = {
    ("docs/pdf-redis.md", "pip install 'kesin[pdf,redis]'"): [[("listening", STOP)]],
    ("docs/pdf-redis.md", "# on each of them"): [[("worker_started", STOP)]],
    ("docs/pdf-redis.md", "rq worker pdf"): [  # a stop in the middle of a log line is lost there
        [("cleaning registries", STOP), ("Logging error", STOP)]
    ],
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


@pytest.mark.parametrize(("page", "begins"), STANDING)
def test_what_goes_on_is_at_work_and_stops(page, begins, tmp_path, monkeypatch, redis_server):
    own_settings(monkeypatch, tmp_path)
    redis = redis_server.url(DATABASE)
    monkeypatch.setenv("KESIN_REDIS_URL", redis)
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # it is installed already: nothing changes here
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.environ["PATH"]]))
    block = next(one for one in blocks(ROOT / page) if one.text.startswith(begins))
    sittings = STANDING[page, begins]
    for text, typed in zip(commands(block, len(sittings)), sittings, strict=True):
        ours = text.replace("0.0.0.0", "127.0.0.2")  # not to the world
        ours = ours.replace("kesin serve", "kesin serve --port 0")  # another may be taken
        ours = ours.replace("redis://:PASSWORD@redis.internal:6379/0", f"'{redis}'")
        answer = on_terminal(["bash", "-euo", "pipefail", "-c", ours], tmp_path, typed)
        assert answer.code == 0, f"{text}\n{answer.out}"
        assert typed[0][0] in answer.out, f"{text}\n{answer.out}"
