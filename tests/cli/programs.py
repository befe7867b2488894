"""Commands as processes of their own, watched through what they print."""

import fcntl
import json
import os
import pty
import queue
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.cli.mother import Born, can_be_born

PATIENCE_S = 60.0
LOOK_S, SELDOM_S = 0.02, 0.1


@dataclass(frozen=True)
class Answer:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Program:
    """A running command. Its log is read line by line, as JSON where it is JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line)
        self._lines.put(None)

    def read_line(self) -> str:
        """The next line it says on standard error; '' at its end."""
        line = self._lines.get(timeout=PATIENCE_S) or ""
        self.said.append(line)
        return line

    def hear(self, event: str) -> dict[str, Any]:
        """Wait for a log line of this event."""
        while True:
            line = self.read_line()
            if not line:
                raise AssertionError(f"it ended without {event!r}:\n{''.join(self.said)}")
            with suppress(ValueError):
                found = json.loads(line)
                if found.get("event") == event:
                    return found

    def rest(self) -> str:
        """All it said on standard error, once it has ended."""
        while self.said[-1:] != [""]:
            self.read_line()
        return "".join(self.said)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(PATIENCE_S)


class Programs:
    """Starts `kesin` in a folder and ends whatever is left of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Program] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._started:
            process = program.process
            if process.poll() is None:
                process.kill()
                process.wait()
            print(program.rest())  # noqa: T201  # shown by pytest if the test failed
            for stream in (process.stdout, process.stderr, process.stdin):
                if stream is not None:
                    stream.close()

    def start(self, *words: object, **env: str) -> Program:
        """Start a command that goes on; its log is JSON."""
        whole = {**os.environ, "KESIN_LOG": "json", **env}
        process = (Born if can_be_born(whole) else subprocess.Popen)(
            _command(words),
            cwd=self._folder,
            env=whole,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        program = Program(process)
        self._started.append(program)
        return program

    def run(self, *words: object, text: str = "", **env: str) -> Answer:
        """Run a command to its end."""
        whole = {**os.environ, **env}
        with (Born if can_be_born(whole) else subprocess.Popen)(
            _command(words),
            cwd=self._folder,
            env=whole,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                out, err = process.communicate(text, PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Answer(process.returncode, out, err)

    def on_terminal(self, *words: object, after: str = "", type_in: str = "") -> Answer:
        """Run a command on a terminal of its own; what the screen would show, and the code.

        What is typed is typed once ``after`` has been shown.
        """
        return on_terminal(_command(words), self._folder, [(after, type_in)])


def on_terminal(
    command: list[str], folder: Path, typed: Sequence[tuple[str, str]], **env: str
) -> Answer:
    """Sit at a terminal: start a program, and type something each time something was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "50", **env},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=_take_terminal,  # noqa: PLW1509  # nothing but system calls
    )
    os.close(theirs)
    shown, left = b"", [(after.encode(), keys.encode()) for after, keys in typed if keys]
    seen = 0  # up to where it was answered
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        ready, _, _ = select.select([ours], [], [], 1.0)
        if not ready:
            continue
        try:
            part = os.read(ours, 65536)
        except OSError:
            break  # the other side is closed
        if not part:
            break
        shown += part
        while left and (at := shown.find(left[0][0], seen)) >= 0:
            after, keys = left.pop(0)
            seen = at + len(after)
            os.write(ours, keys)
    os.close(ours)
    try:
        code = process.wait(PATIENCE_S)
    finally:
        process.kill()
    return Answer(code, shown.decode(errors="replace"))


def _take_terminal() -> None:
    """Make standard input the terminal that Ctrl-C comes from.

    Who was started in the background ignores Ctrl-C, and so would whatever it starts.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _command(words: tuple[object, ...]) -> list[str]:
    return [sys.executable, "-m", "kesin.cli", *map(str, words)]


def wait_until(fact: Callable[[], object]) -> None:
    """Look until it is so; fails when patience ends."""
    pause, until = threading.Event(), time.monotonic() + PATIENCE_S
    seconds = LOOK_S
    while not fact():
        assert time.monotonic() < until, "it did not come about in time"
        pause.wait(seconds)
        seconds = min(1.2 * seconds, SELDOM_S)  # looking takes from what it waits for


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that waits to be buried does not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
