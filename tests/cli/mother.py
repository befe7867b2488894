"""A process that has imported everything once and forks: commands that start at once.

Tests start hundreds of commands, and each would spend most of its time on imports. What runs in the
child is `kesin` from its first line on, with the arguments, the environment, the folder and the
streams it was given. Where Python itself is told something else than here, a command starts from
nothing, as it does where tests call the interpreter themselves.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import importlib.util
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATH = "PYTHONPATH"
LARGEST = 1 << 20  # of an environment and its arguments
IMPORTED = (
    "kesin.cli.support.context",
    "kesin.web.app",
    "kesin.web.server",
    "uvicorn.protocols.http.h11_impl",
    "uvicorn.lifespan.on",
    "kesin.workloads.oci.api.routes",
    "kesin.workloads.oci.uploader",
    "kesin.workloads.optiplan.api.routes",
    "kesin.workloads.optiplan.pipeline.runner",
    "kesin.workloads.pdf.api",
    "kesin.foundation.passwords",
    "kesin.store.postgres.store",
    "kesin.store.sqlite.store",
    "argon2",
)


class Born(subprocess.Popen[str]):
    """A command that was forked; to whoever holds it, a process like any other."""

    _line: socket.socket

    def _execute_child(  # type: ignore[override]
        self, args: Any, _executable: Any, *rest: Any
    ) -> None:
        """As the module calls it: the pipes are made, and closed here as there."""
        _preexec, _close, _pass, cwd, env, _startup, _flags, _shell = rest[:8]
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = rest[8:14]
        words = {"argv": args, "env": dict(env), "cwd": str(cwd)}
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(f"\0{_mother()}")
        streams = array.array("i", [p2cread, c2pwrite, errwrite])
        told = json.dumps(words).encode()
        self._line.sendmsg([told], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        self._line.shutdown(socket.SHUT_WR)
        self.pid = int(self._line.recv(16, socket.MSG_WAITALL))
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """The status, as the mother tells it once she has buried the child."""
        if wait_flags & os.WNOHANG and not select.select([self._line], [], [], 0)[0]:
            return 0, 0
        told = self._line.recv(16, socket.MSG_WAITALL)
        self._line.close()
        return self.pid, int(told or 9)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:  # type: ignore[override]
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def _read_before(env: dict[str, str]) -> dict[str, str]:
    """What the loader, the C library and Python read before the first line."""
    names = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "TZ")
    found = {name: value for name, value in env.items() if name.startswith(names)}
    return {name: value for name, value in found.items() if name != PATH}


def _plugged(env: dict[str, str]) -> list[str]:
    """The folders that PYTHONPATH adds."""
    return [one for one in env.get(PATH, "").split(os.pathsep) if one]


KESIN = '''#!{python} -IS
"""`kesin`, forked by the one who has imported it."""
import array, json, os, signal, socket, sys

line = socket.socket(socket.AF_UNIX)
line.connect("\\0{mother}")
argv = ["", "-m", "kesin.cli", *sys.argv[1:]]
words = {{"argv": argv, "env": dict(os.environ), "cwd": os.getcwd()}}
streams = array.array("i", [0, 1, 2])
line.sendmsg([json.dumps(words).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
line.shutdown(socket.SHUT_WR)
child = int(line.recv(16, socket.MSG_WAITALL))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(child, number))
code = os.waitstatus_to_exitcode(int(line.recv(16, socket.MSG_WAITALL)))
sys.exit(code if code >= 0 else 128 - code)
'''


def path_with_kesin(folder: Path) -> str:
    """A search path that begins with a `kesin` in this new folder, which starts at once."""
    folder.mkdir()
    file = folder / "kesin"
    file.write_text(KESIN.format(python=sys.executable, mother=_mother()))
    file.chmod(0o755)
    return os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])


OURS = _read_before(dict(os.environ))
THEN = _plugged(dict(os.environ))


def can_be_born(env: dict[str, str]) -> bool:
    """Whether a start from nothing would begin there as it did here.

    It may find modules elsewhere, if they are none that anybody else could have imported before.
    """
    added = set(_plugged(env)) - set(THEN)
    names = {
        one.stem for folder in added for one in Path(folder).glob("*") if one.suffix != ".dist-info"
    }
    return _read_before(env) == OURS and not any(map(importlib.util.find_spec, names))


@cache
def _mother() -> str:
    """Start her; the name she listens at. She ends when the pipe to her does, with this process."""
    name = f"kesin-mother-{os.getpid()}"
    told = {name for name in os.environ if name.startswith("KESIN_")}
    told |= _read_before(dict(os.environ)).keys()
    plain = {name: value for name, value in os.environ.items() if name not in told}
    mother = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.mother", name],
        cwd=ROOT,
        env={**plain, **OURS, PATH: os.pathsep.join(THEN)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert mother.stdout is not None
    assert mother.stdout.readline() == b"ready\n"
    atexit.register(mother.communicate)
    return name


def _bear(name: str) -> dict[str, Any]:
    """Fork whenever asked, and tell how it ended; returns in the child, with what it was told."""
    here = socket.socket(socket.AF_UNIX)
    here.bind(f"\0{name}")
    here.listen(16)
    os.write(1, b"ready\n")
    lines: dict[int, tuple[int, socket.socket]] = {}  # by the handle of the child
    while True:
        ready, _, _ = select.select([0, here, *lines], [], [])
        if 0 in ready:
            os._exit(0)
        for handle in [one for one in ready if isinstance(one, int)]:
            pid, line = lines.pop(handle)
            _, status = os.waitpid(pid, 0)
            os.close(handle)
            _tell(line, status)
            line.close()
        if here not in ready:
            continue
        line, _ = here.accept()
        told, streams = _hear(line)
        pid = os.fork()
        if not pid:
            here.close()
            line.close()
            for handle, (_, other) in lines.items():
                os.close(handle)
                other.close()
            return {**told, "streams": streams}
        for one in streams:
            os.close(one)
        lines[os.pidfd_open(pid)] = (pid, line)
        _tell(line, pid)


def _hear(line: socket.socket) -> tuple[dict[str, Any], list[int]]:
    streams = array.array("i")
    told = b""
    while True:
        part, extra, _, _ = line.recvmsg(LARGEST, socket.CMSG_SPACE(3 * streams.itemsize))
        for _, _, data in extra:
            streams.frombytes(data)
        told += part
        if not part:
            return json.loads(told), list(streams)


def _tell(line: socket.socket, number: int) -> None:
    with suppress(OSError):  # nobody waits for it any more
        line.sendall(f"{number:16}".encode())


def _become(told: dict[str, Any]) -> None:
    """Be the command: its words, its environment, its folder, its streams."""
    os.environ.clear()
    os.environ.update(told["env"])
    os.chdir(told["cwd"])
    for number, stream in enumerate(told["streams"]):
        os.dup2(stream, number)
    os.closerange(3, max(told["streams"]) + 1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), encoding)
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(1, "w")),
        encoding,
        line_buffering=at_once,
        write_through=at_once,
    )
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w")), encoding, "backslashreplace", line_buffering=True
    )
    sys.path[1:] = [
        *_plugged(told["env"]),
        *(one for one in sys.path[1:] if one not in THEN),
    ]
    by_name = not told["argv"][0]  # as the script does; `python -m` looks where it stands
    sys.path[0] = str(Path(sys.executable).parent if by_name else Path.cwd())
    sys.argv = [str(ROOT / "src/kesin/cli/__main__.py"), *told["argv"][3:]]


if __name__ == "__main__":
    from kesin.cli import _start_quickly, main

    _start_quickly()
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    _become(_bear(sys.argv[1]))
    main()
