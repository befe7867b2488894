"""The process that runs OptiPlanning, minds its time, and writes down how it ended.

It outlives the worker that started it, so it is a script of its own: started by its path, with
nothing but the standard library, it is there at once and stays small. Who it is stands in
``program.json`` before anything is run; the ticket for that was written there by the starter, and a
starter that was overtaken by another finds its ticket gone, so two programs never run side by side.
All processes of a run carry its mark in their environment, where ``/proc`` shows it whatever
becomes of their parents.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

try:
    import fcntl
except ImportError:  # Windows: nothing is started there
    fcntl = None  # type: ignore[assignment]

MARK: Final = "KESIN_OPTIPLAN_MARK"
RECORD, LOCK = "program.json", "program.lock"
STARTED, OVERTAKEN = 0, 3
NOT_STARTED: Final = 127  # what a shell says of a command it cannot run
LOG_BYTES: Final = 64 * 1024
TAIL_BYTES: Final = 4 * 1024
GRACE_S: Final = 5.0  # between asking a program to end and ending it
_PIECE_BYTES: Final = 64 * 1024
_DRAINED: Final = 32  # pieces read after the end; who inherited the output may write for ever
_START_TIME: Final = 19  # its place in /proc/PID/stat, counted from the state
_PROC: Final = Path("/proc")


def main() -> int:
    """``STATUS_FILE TIMEOUT_S -- COMMAND…``, with the mark in the environment."""
    status_file, timeout_s, command = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[4:]
    told, tell = os.pipe()
    if os.fork():  # the starter waits for this one, and has no child to bury later
        os.close(tell)
        return STARTED if os.read(told, 1) else OVERTAKEN
    os.close(told)
    os.setsid()
    if not claim(status_file.parent, os.environ[MARK]):
        return OVERTAKEN
    os.write(tell, b"1")
    os.close(tell)
    run(command, status_file, timeout_s)
    return 0


def claim(run_folder: Path, mark: str) -> bool:
    """Say who we are on the ticket, if it is still ours."""
    with locked(run_folder):
        ticket = read_json(run_folder / RECORD)
        if ticket is None or ticket.get("mark") != mark:
            return False
        write_json(run_folder / RECORD, {**ticket, **who(os.getpid())})
        return True


def run(command: list[str], status_file: Path, timeout_s: float) -> None:
    """Run the command and write down its end.

    What it leaves running in the background goes on until the time is over, or until the next user
    of the slot ends it: some programs only start others.
    """
    log = _Log(status_file.with_suffix(".log"))
    deadline_s = time.monotonic() + timeout_s
    try:
        program = subprocess.Popen(  # noqa: S603 - no shell, and the command is configured
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    except (OSError, ValueError) as problem:
        log.add(f"{command[0]} cannot be started: {problem}\n".encode())
        _write_end(status_file, log, NOT_STARTED, timed_out=False)
        return
    watch = _Watch(program, log)
    timed_out = not watch.until_ended(deadline_s)
    if timed_out:
        watch.end(min(GRACE_S, timeout_s))
    watch.drain()
    _write_end(status_file, log, program.wait(), timed_out=timed_out)
    if not timed_out and not watch.until_silent(deadline_s):
        end_marked(os.environ[MARK], spare=os.getpid())
    watch.close()


def _write_end(status_file: Path, log: _Log, code: int, *, timed_out: bool) -> None:
    tail = log.close().decode("utf-8", errors="replace")
    write_json(status_file, {"exit": code, "timed_out": timed_out, "log_tail": tail})


class _Watch:
    """A program and its output."""

    def __init__(self, program: subprocess.Popen[bytes], log: _Log) -> None:
        assert program.stdout is not None  # noqa: S101 - for the type checker
        self._group = program.pid
        self._pipe = program.stdout
        self._output = program.stdout.fileno()
        self._ended = os.pidfd_open(program.pid)
        self._log = log
        os.set_blocking(self._output, False)

    def until_ended(self, deadline_s: float) -> bool:
        """Keep its output until it ends; whether it did in time."""
        return self._until(self._ended, deadline_s)

    def until_silent(self, deadline_s: float) -> bool:
        """Keep the output of what it left behind until that has ended too."""
        return self._until(self._output, deadline_s)

    def close(self) -> None:
        self._pipe.close()
        os.close(self._ended)

    def _until(self, wanted: int, deadline_s: float) -> bool:
        poll = select.poll()
        poll.register(wanted, select.POLLIN)
        poll.register(self._output, select.POLLIN)
        while (left_s := deadline_s - time.monotonic()) > 0:
            for handle, _ in poll.poll(left_s * 1000 + 1):
                if handle == self._output:
                    if self._keep() != b"":
                        continue
                    poll.unregister(handle)
                if handle == wanted:
                    return True
        return False

    def drain(self) -> None:
        """Keep what is there already."""
        for _ in range(_DRAINED):
            if not self._keep():
                return

    def _keep(self) -> bytes | None:
        """What came; nothing at the end, None if nothing is there now."""
        try:
            data = os.read(self._output, _PIECE_BYTES)
        except BlockingIOError:
            return None
        self._log.add(data)
        return data

    def end(self, grace_s: float) -> None:
        """Ask it to end, then end it with everything it started; it is not buried yet."""
        with suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGTERM)
        self.until_ended(time.monotonic() + grace_s)
        with suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)
        end_marked(os.environ[MARK], spare=os.getpid())


class _Log:
    """The last of what a program said: on disk at most twice, in the end once so much."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = b""
        self._on_disk = 0
        self._closed = False

    def add(self, data: bytes) -> None:
        if self._closed:
            return
        self._kept = (self._kept + data)[-LOG_BYTES:]
        self._on_disk += len(data)
        if self._on_disk > 2 * LOG_BYTES:
            self._write_anew()
        else:
            with self._path.open("ab") as file:
                file.write(data)

    def close(self) -> bytes:
        """The very last of it."""
        if self._on_disk > LOG_BYTES:
            self._write_anew()
        self._closed = True
        return self._kept[-TAIL_BYTES:]

    def _write_anew(self) -> None:
        self._path.write_bytes(self._kept)
        self._on_disk = len(self._kept)


def who(pid: int) -> dict[str, Any]:
    """A process as nobody else will ever be: its number, its start, and on which machine."""
    boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
    return {"pid": pid, "started": started(pid), "host": socket.gethostname(), "boot": boot}


def lives(record: Mapping[str, Any]) -> bool:
    """Whether the process in the record is alive, here, and not another under its number."""
    pid = record.get("pid")
    if not isinstance(pid, int) or record.get("started") is None:
        return False
    return all(record.get(key) == value for key, value in who(pid).items())


def started(pid: int) -> int | None:
    """Clock ticks from boot to its start; None for one that is gone or only not yet buried."""
    try:
        told = (_PROC / str(pid) / "stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    fields = told.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[_START_TIME])


def end_one(record: Mapping[str, Any], within_s: float) -> bool:
    """End the process in the record with the group it leads; whether it has ended."""
    if not lives(record):
        return True
    pid = int(record["pid"])
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if not lives(record):  # asked again: from here on the number cannot change hands
            return True
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        return _has_ended(handle, within_s)
    finally:
        os.close(handle)


def end_marked(mark: str, spare: int | None = None, within_s: float = 10.0) -> bool:
    """End every process with the mark, and what those start meanwhile; whether all have ended."""
    deadline_s = time.monotonic() + within_s
    while found := [one for one in marked(mark) if one["pid"] != spare]:
        for one in found:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not end_one(one, left_s):
                return False
    return True


def marked(mark: str) -> list[dict[str, Any]]:
    """The processes that carry the mark; it is read again once it is known who they are."""
    pids = [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]
    found = [who(pid) for pid in pids if _carries(pid, mark)]
    return [one for one in found if _carries(one["pid"], mark)]


def _carries(pid: int, mark: str) -> bool:
    try:
        told = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # gone, or somebody else's
        return False
    return f"{MARK}={mark}".encode() in told.split(b"\0")


def _has_ended(handle: int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


@contextmanager
def locked(run_folder: Path) -> Iterator[None]:
    """Nobody else reads and changes the record meanwhile; death gives the lock back."""
    with (run_folder / LOCK).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if there is none."""
    try:
        told = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def write_json(path: Path, told: Mapping[str, Any]) -> None:
    """Write a file whole or not at all."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with hidden.open("w", encoding="utf-8") as file:
        json.dump(told, file)
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(path)


if __name__ == "__main__":
    sys.exit(main())
