"""Commands in their own processes, watched through their output."""

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

from tests.cli.fork_server import ForkedProcess, can_fork

KESIN = [sys.executable, "-m", "kesin.cli"]
PATIENCE_S = 60.0
LOOK_S, SELDOM_S = 0.02, 0.1


@dataclass(frozen=True)
class Answer:
    """The output and the exit code of a command."""

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
        self.output: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line)
        self._lines.put(None)

    def read_line(self) -> str:
        """The next line of standard error; '' at its end."""
        line = self._lines.get(timeout=PATIENCE_S) or ""
        self.output.append(line)
        return line

    def hear(self, event: str) -> dict[str, Any]:
        """Wait for a log line of this event."""
        while True:
            line = self.read_line()
            if not line:
                raise AssertionError(f"it ended without {event!r}:\n{''.join(self.output)}")
            with suppress(ValueError):
                record = json.loads(line)
                if record.get("event") == event:
                    return record

    def rest(self) -> str:
        """All of standard error, once the program has ended."""
        while self.output[-1:] != [""]:
            self.read_line()
        return "".join(self.output)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(PATIENCE_S)


class Programs:
    """Starts `kesin` in a folder and kills what still runs at the end."""

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
        """Start a command that keeps running; its log is JSON."""
        whole = {**os.environ, "KESIN_LOG": "json", **env}
        process = (ForkedProcess if can_fork(whole) else subprocess.Popen)(
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
        with (ForkedProcess if can_fork(whole) else subprocess.Popen)(
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
        """Run a command on its own terminal; the screen's text, and the exit code.

        ``type_in`` is typed once ``after`` is shown.
        """
        return on_terminal(_command(words), self._folder, [(after, type_in)])


def on_terminal(command: list[str], folder: Path, typed: Sequence[tuple[str, str]], **env: str) -> Answer:
    """Start a program on a terminal, and type each text once the text before it is shown."""
    ours, theirs = pty.openpty()
    whole = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "50", **env}
    forked = command[: len(KESIN)] == KESIN and can_fork(whole)
    process = (ForkedProcess if forked else subprocess.Popen)(
        command,
        cwd=folder,
        env=whole,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        text=True,
        start_new_session=True,
        preexec_fn=_take_terminal,  # nothing but system calls
    )
    os.close(theirs)
    shown, left = b"", [(after.encode(), keys.encode()) for after, keys in typed if keys]
    seen = 0  # the end of the last text that was waited for
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        ready, _, _ = select.select([ours], [], [], 1.0)
        if not ready:
            if typed and typed[-1][0].endswith("?") and not left:  # a question
                # Python does not see a signal that comes just before it reads: pressed again.
                os.write(ours, typed[-1][1].encode())
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
    try:
        code = process.wait(PATIENCE_S)
    finally:
        process.kill()
        os.close(ours)  # earlier it would end the process by SIGHUP
    return Answer(code, shown.decode(errors="replace"))


def _take_terminal() -> None:
    """Make standard input the terminal that Ctrl-C comes from.

    A process started in the background ignores Ctrl-C, and its children inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _command(words: tuple[object, ...]) -> list[str]:
    return [*KESIN, *map(str, words)]


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds; fails after ``PATIENCE_S``."""
    pause, until = threading.Event(), time.monotonic() + PATIENCE_S
    seconds = LOOK_S
    while not condition():
        assert time.monotonic() < until, "the condition did not hold in time"
        pause.wait(seconds)
        seconds = min(1.2 * seconds, SELDOM_S)  # polling slows down what it waits for


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
