"""The supervisor process: it runs OptiPlanning, enforces its timeout and records how it ended.

It outlives the worker that started it, so it is a script of its own. It is started by path and
imports only the standard library, so it starts fast and stays small. The starter writes a ticket to
``program.json``, and the supervisor adds its own identity before it runs anything. If another
starter has overtaken the first, the ticket is gone, so two programs never run at the same time. All
processes of a run carry its mark in their environment, where ``/proc`` shows it even after their
parents have exited.
"""

import fcntl
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

MARK: Final = "KESIN_OPTIPLAN_MARK"
RECORD, LOCK = "program.json", "program.lock"
STARTED, OVERTAKEN = 0, 3
NOT_STARTED: Final = 127  # as a shell reports a command that it cannot run
LOG_BYTES: Final = 64 * 1024
TAIL_BYTES: Final = 4 * 1024
GRACE_S: Final = 5.0  # between SIGTERM and SIGKILL
_CHUNK_BYTES: Final = 64 * 1024
# Chunks read after the end: a child that inherited the output may write forever.
_MAX_DRAIN_READS: Final = 32
_START_TIME_FIELD: Final = 19  # its index in /proc/PID/stat, counted from the state
_PROC: Final = Path("/proc")


def main() -> int:
    """Run ``STATUS_FILE TIMEOUT_S -- COMMAND…``, with the mark in the environment."""
    status_file, timeout_s, command = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[4:]
    read_end, write_end = os.pipe()
    if os.fork():  # the starter waits for this process and has no child to reap later
        os.close(write_end)
        return STARTED if os.read(read_end, 1) else OVERTAKEN
    os.close(read_end)
    os.setsid()
    if not claim(status_file.parent, os.environ[MARK]):
        return OVERTAKEN
    os.write(write_end, b"1")
    os.close(write_end)
    run(command, status_file, timeout_s)
    return 0


def claim(run_folder: Path, mark: str) -> bool:
    """Add this process's identity to the ticket; returns False if the ticket is another's."""
    with lock_record(run_folder):
        ticket = read_json(run_folder / RECORD)
        if ticket is None or ticket.get("mark") != mark:
            return False
        write_json(run_folder / RECORD, {**ticket, **process_identity(os.getpid())})
        return True


def run(command: list[str], status_file: Path, timeout_s: float) -> None:
    """Run the command and record its end; what it left runs on until the timeout."""
    log = _TailLog(status_file.with_suffix(".log"))
    deadline_s = time.monotonic() + timeout_s
    try:
        program = subprocess.Popen(  # noqa: S603 - no shell, and the command is configured
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0
        )
    except (OSError, ValueError) as problem:
        log.add(f"{command[0]} cannot be started: {problem}\n".encode())
        _write_end(status_file, log, NOT_STARTED, timed_out=False)
        return
    watch = _ProgramWatch(program, log)
    timed_out = not watch.wait_for_exit(deadline_s)
    if timed_out:
        watch.terminate(min(GRACE_S, timeout_s))
    watch.drain()
    _write_end(status_file, log, program.wait(), timed_out=timed_out)
    if not timed_out and not watch.wait_for_exit(deadline_s, of_last_writer=True):
        kill_marked(os.environ[MARK], spare=os.getpid())
    watch.close()


def _write_end(status_file: Path, log: "_TailLog", code: int, *, timed_out: bool) -> None:
    tail = log.close().decode("utf-8", errors="replace")
    write_json(status_file, {"exit": code, "timed_out": timed_out, "log_tail": tail})


class _ProgramWatch:
    def __init__(self, program: subprocess.Popen[bytes], log: "_TailLog") -> None:
        assert program.stdout is not None  # noqa: S101 - for the type checker
        self._group = program.pid
        self._pipe = program.stdout
        self._output = program.stdout.fileno()
        self._exit_fd = os.pidfd_open(program.pid)
        self._log = log
        os.set_blocking(self._output, False)

    def close(self) -> None:
        self._pipe.close()
        os.close(self._exit_fd)

    def wait_for_exit(self, deadline_s: float, *, of_last_writer: bool = False) -> bool:
        """Log the output until the program exits, or its last writer; returns if it did in time."""
        awaited = self._output if of_last_writer else self._exit_fd
        poll = select.poll()
        poll.register(awaited, select.POLLIN)
        poll.register(self._output, select.POLLIN)
        while (left_s := deadline_s - time.monotonic()) > 0:
            for handle, _ in poll.poll(left_s * 1000 + 1):
                if handle == self._output:
                    if self._read_output() != b"":
                        continue
                    poll.unregister(handle)
                if handle == awaited:
                    return True
        return False

    def drain(self) -> None:
        """Log the output that is already available."""
        for _ in range(_MAX_DRAIN_READS):
            if not self._read_output():
                return

    def _read_output(self) -> bytes | None:
        """Read and log a chunk; empty at the end of the output, None if none is available."""
        try:
            data = os.read(self._output, _CHUNK_BYTES)
        except BlockingIOError:
            return None
        self._log.add(data)
        return data

    def terminate(self, grace_s: float) -> None:
        """Terminate the program, then kill it and all it started; it is not reaped yet."""
        with suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGTERM)
        self.wait_for_exit(time.monotonic() + grace_s)
        with suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)
        kill_marked(os.environ[MARK], spare=os.getpid())


class _TailLog:
    """The end of a program's output: up to twice LOG_BYTES on disk, LOG_BYTES when closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tail = b""
        self._on_disk = 0
        self._closed = False

    def add(self, data: bytes) -> None:
        if self._closed:
            return
        self._tail = (self._tail + data)[-LOG_BYTES:]
        self._on_disk += len(data)
        if self._on_disk > 2 * LOG_BYTES:
            self._rewrite()
        else:
            with self._path.open("ab") as file:
                file.write(data)

    def close(self) -> bytes:
        """Close the log; returns its last TAIL_BYTES."""
        if self._on_disk > LOG_BYTES:
            self._rewrite()
        self._closed = True
        return self._tail[-TAIL_BYTES:]

    def _rewrite(self) -> None:
        self._path.write_bytes(self._tail)
        self._on_disk = len(self._tail)


def process_identity(pid: int) -> dict[str, Any]:
    """Return the unique identity of a process: its pid, its start time and its machine."""
    boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
    return {"pid": pid, "started": start_ticks(pid), "host": socket.gethostname(), "boot": boot}


def is_alive(record: Mapping[str, Any]) -> bool:
    """Whether the recorded process runs on this machine; a reused pid does not count."""
    pid = record.get("pid")
    if not isinstance(pid, int) or record.get("started") is None:
        return False
    return all(record.get(key) == value for key, value in process_identity(pid).items())


def start_ticks(pid: int) -> int | None:
    """Return the clock ticks from boot to its start; None if it has exited, reaped or not."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[_START_TIME_FIELD])


def kill_process(record: Mapping[str, Any], within_s: float) -> bool:
    """Kill the recorded process and the group it leads; returns whether it has exited."""
    if not is_alive(record):
        return True
    pid = int(record["pid"])
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if not is_alive(record):  # checked again: the pidfd now pins the pid
            return True
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(within_s * 1000))
    finally:
        os.close(handle)


def kill_marked(mark: str, spare: int | None = None, within_s: float = 10.0) -> bool:
    """Kill every process with the mark, also new ones; returns whether all have exited."""
    deadline_s = time.monotonic() + within_s
    while records := [record for record in find_marked(mark) if record["pid"] != spare]:
        for record in records:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not kill_process(record, left_s):
                return False
    return True


def find_marked(mark: str) -> list[dict[str, Any]]:
    """Find the processes that carry the mark; it is checked again after they are identified."""
    pids = [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]
    identities = [process_identity(pid) for pid in pids if _has_mark(pid, mark)]
    return [identity for identity in identities if _has_mark(identity["pid"], mark)]


def _has_mark(pid: int, mark: str) -> bool:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # it has exited, or belongs to another user
        return False
    return f"{MARK}={mark}".encode() in environment.split(b"\0")


@contextmanager
def lock_record(run_folder: Path) -> Iterator[None]:
    """Lock the record against other processes; a crash releases the lock."""
    with (run_folder / LOCK).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_json(path: Path) -> dict[str, Any] | None:
    """Read the JSON object in a file; None if there is none."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with hidden.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(path)


if __name__ == "__main__":
    sys.exit(main())
