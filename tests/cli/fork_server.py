"""A process that has imported everything once and forks commands, which then start at once.

Tests start hundreds of commands, and each would spend most of its time on imports. The child runs
`kesin`, or one of the programs that it starts, from its first line on, with the given arguments,
environment, folder and streams. A command whose environment changes how Python itself starts is
started from nothing.
"""

import array
import atexit
import fcntl
import gc
import importlib
import io
import logging
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATH, ENCODING = "PYTHONPATH", "PYTHONIOENCODING"
MAX_REQUEST_BYTES = 1 << 20  # of an environment and its arguments
COMMAND = "kesin.cli"
OPTIMIZER = "kesin.workloads.optiplan.optimizer"
SCRIPT = ".py"  # how its name ends
FILL_CHILD = "kesin.workloads.pdf.templating.fill_child"  # its argument is an open file
PROVE = "kesin.cli.commands.lifecycle"
IMPORTED = (
    PROVE,
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
    "kesin.workloads.pdf.engines.chromium",
    "kesin.workloads.pdf.jobs.worker",
    "kesin.workloads.pdf.templating.library",
    "kesin.foundation.passwords",
    "kesin.store.postgres.store",
    "kesin.store.sqlite.store",
    "argon2",
    "fpdf",
    "pikepdf",
    "playwright.sync_api",
    "typer._adapters",
    f"{OPTIMIZER}.__main__",
    FILL_CHILD,
)


class ForkedProcess(subprocess.Popen[str]):
    """A forked command, with the interface of any other process."""

    _socket: socket.socket

    def _execute_child(self, args: Any, _executable: Any, *rest: Any) -> None:
        """Replace the method of Popen, which has made the pipes; close its ends of them."""
        _preexec, _close, _pass, cwd, env, _startup, _flags, _shell = rest[:8]
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = rest[8:14]
        on_terminal = bool(rest[19])  # start_new_session
        request = {"argv": args, "env": dict(env), "cwd": str(cwd), "on_terminal": on_terminal}
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(f"\0{_fork_server()}")
        streams = array.array("i", [p2cread, c2pwrite, errwrite])
        data = marshal.dumps(request)
        self._socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        self._socket.shutdown(socket.SHUT_WR)
        self.pid = int(self._socket.recv(16, socket.MSG_WAITALL))
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """The status, which the fork server sends after it has reaped the child."""
        if wait_flags & os.WNOHANG and not select.select([self._socket], [], [], 0)[0]:
            return 0, 0
        status = self._socket.recv(16, socket.MSG_WAITALL)
        self._socket.close()
        return self.pid, int(status or 9)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def _startup_variables(env: dict[str, str]) -> dict[str, str]:
    """The variables that the loader, the C library and Python read at the start.

    Not those that a forked command reads.
    """
    names, read = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "TZ"), {PATH, ENCODING}
    return {key: value for key, value in env.items() if key.startswith(names) and key not in read}


def _added_folders(env: dict[str, str]) -> list[str]:
    """The folders that PYTHONPATH adds."""
    return [folder for folder in env.get(PATH, "").split(os.pathsep) if folder]


STUB = '''#!{python} -IS
"""`kesin`, or a `python` that runs it or what it starts, forked by the server that imported it."""
import _signal as signal, _socket as socket, marshal, os, sys  # the rest takes longer to import

name, *words = sys.argv
if os.path.basename(name) == "kesin":
    argv = ["", "-m", "kesin.cli", *words]
elif words[:1] == ["-m"] and words[1] in {modules}:
    argv = sys.argv
elif words and words[0].endswith("{script}"):
    argv = ["", "", *words]
else:
    os.execv("{python}", ["{python}", *words])
connection = socket.socket(socket.AF_UNIX)
connection.connect("\\0{server}")
request = {{"argv": argv, "env": dict(os.environ), "cwd": os.getcwd()}}
numbers = [0, 1, 2, *([int(argv[3])] if argv[2] == "{fill_child}" else [])]
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
data = marshal.dumps(request)
connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
connection.shutdown(socket.SHUT_WR)
child = int(connection.recv(16, socket.MSG_WAITALL))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(child, number))
code = os.waitstatus_to_exitcode(int(connection.recv(16, socket.MSG_WAITALL)))
if code == -signal.SIGKILL and argv[0]:
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(code if code >= 0 else 128 - code)
'''
CHILD_PYTHON = "CHILD_PYTHON"  # the variable of the Python that a forked command starts


def write_stub(folder: Path, name: str) -> Path:
    """Write a `kesin` or a `python` that starts commands at once."""
    file = folder / name
    modules = {COMMAND, OPTIMIZER, FILL_CHILD}
    names = {"python": sys.executable, "server": _fork_server(), "fill_child": FILL_CHILD}
    file.write_text(STUB.format(modules=modules, script=SCRIPT, **names))
    file.chmod(0o755)
    return file


def path_with_kesin(folder: Path) -> str:
    """A search path that begins with a `kesin` and a `python` that start at once."""
    folder.mkdir()
    for name in ("kesin", "python"):
        write_stub(folder, name)
    return os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])


OUR_VARIABLES = _startup_variables(dict(os.environ))
OUR_FOLDERS = _added_folders(dict(os.environ))
OUR_PATH = sys.path[:]  # a test may add folders, and what it imports from there stays imported


def can_fork(env: dict[str, str]) -> bool:
    """Whether a command started with this environment would start as the fork server did.

    It may have more folders of modules, if the server cannot have imported any of them.
    """
    added = set(_added_folders(env)) - set(OUR_FOLDERS)
    files = (path for folder in added for path in Path(folder).glob("*"))
    names = {path.stem for path in files if path.suffix != ".dist-info"} - {"__pycache__"}
    return _startup_variables(env) == OUR_VARIABLES and not any(
        name in sys.builtin_module_names or PathFinder.find_spec(name, OUR_PATH) for name in names
    )


@cache
def _fork_server() -> str:
    """The name that the server of all test processes listens at; the first of them starts it.

    It ends with the process that has started them, or with this one if it is alone.
    """
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    name = f"kesin-fork-{owner}"
    left_out = {name for name in os.environ if name.startswith("KESIN_")}
    left_out |= _startup_variables(dict(os.environ)).keys()
    plain = {name: value for name, value in os.environ.items() if name not in left_out}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.fork_server", name, str(owner)],
        cwd=ROOT,
        env={**plain, **OUR_VARIABLES, PATH: os.pathsep.join(OUR_FOLDERS)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    with server.stdout as out:
        is_ours = out.readline() == b"listening\n"
    if is_ours:
        atexit.register(setattr, server, "returncode", 0)  # it may outlive this process
    else:
        server.wait()
    return name


def _listen(name: str) -> socket.socket:
    """Take connections from now on; ends the process if another one does that."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(f"\0{name}")
    except OSError:
        sys.exit()
    listener.listen(64)
    os.write(1, b"listening\n")
    return listener


def _serve_forks(listener: socket.socket, owner: int) -> dict[str, Any]:
    """Fork for each request and report the exit; returns in the child, with the request."""
    children: dict[int, tuple[int, socket.socket]] = {}  # by pidfd
    waiting: list[int | socket.socket]
    while True:
        waiting = [owner, listener, *children]
        ready, _, _ = select.select(waiting, [], [])
        if owner in ready:
            os._exit(0)
        for pidfd in [descriptor for descriptor in ready if isinstance(descriptor, int)]:
            pid, connection = children.pop(pidfd)
            _, status = os.waitpid(pid, 0)
            os.close(pidfd)
            _send(connection, status)
            connection.close()
        if listener not in ready:
            continue
        connection, _ = listener.accept()
        request, streams = _receive(connection)
        pid = os.fork()
        if not pid:
            os.close(owner)
            listener.close()
            connection.close()
            for pidfd, (_, other) in children.items():
                os.close(pidfd)
                other.close()
            return {**request, "streams": streams}
        for stream in streams:
            os.close(stream)
        children[os.pidfd_open(pid)] = (pid, connection)
        _send(connection, pid)


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    streams = array.array("i")
    request = b""
    while True:
        part, ancillary, _, _ = connection.recvmsg(MAX_REQUEST_BYTES, socket.CMSG_SPACE(4 * streams.itemsize))
        for _, _, data in ancillary:
            streams.frombytes(data)
        request += part
        if not part:
            return marshal.loads(request), list(streams)


def _send(connection: socket.socket, number: int) -> None:
    with suppress(OSError):  # the test no longer waits for it
        connection.sendall(f"{number:16}".encode())


def _become(request: dict[str, Any]) -> None:
    """Take the arguments, environment, folder and streams of the command."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    _, _, program, *words = request["argv"]
    opened = [0, 1, 2, *([int(words[0])] if program == FILL_CHILD else [])]
    streams = [fcntl.fcntl(stream, fcntl.F_DUPFD, max(opened) + 1) for stream in request["streams"]]
    for stream, number in zip(streams, opened, strict=True):
        os.dup2(stream, number)
    for number in {*range(3, max(streams) + 1)} - {*opened}:
        with suppress(OSError):
            os.close(number)
    if request.get("on_terminal"):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C comes from it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    encoding = os.environ.get(ENCODING, "utf-8")
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), encoding)
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(1, "w")), encoding, line_buffering=unbuffered, write_through=unbuffered
    )
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w")), encoding, "backslashreplace", line_buffering=True
    )
    sys.path[1:] = [*_added_folders(request["env"]), *(folder for folder in sys.path[1:] if folder not in OUR_FOLDERS)]
    by_name = not request["argv"][0]  # like the script; `python -m` searches the current folder
    sys.path[0] = str(Path(sys.executable).parent if by_name else Path.cwd())
    sys.executable = os.environ.get(CHILD_PYTHON, sys.executable)
    sys.argv = [str(ROOT / "src/kesin/cli/__main__.py"), *words]
    if program.endswith(SCRIPT):
        sys.path[0], sys.argv[0] = str(Path(program).resolve().parent), program


def _build_app() -> None:
    """Do once what every service does at its start: analyse its routes."""
    from kesin.foundation.settings import Settings
    from kesin.store.sqlite.store import SqliteStore
    from kesin.web.app import create_app
    from kesin.web.service import Service
    from kesin.workloads import built_in
    from tests.web.route_cache import analyse_once

    analyse_once()
    store = SqliteStore(":memory:")
    workloads = {workload.name: workload for workload in built_in()}
    create_app(Service(Settings(data_dir=ROOT / "none"), store, workloads, work=False))
    store.close()


def _run(main: Callable[[], None]) -> None:
    """Run the command; end without taking all that was imported apart, which takes far longer."""
    try:
        main()
        code: Any = None
    except SystemExit as end:
        code = end.code
    if code is None or isinstance(code, int):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError):  # Python itself says what cannot be written
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit((code or 0) & 0xFF)
    sys.exit(code)


if __name__ == "__main__":
    listener, owner = _listen(sys.argv[1]), os.pidfd_open(int(sys.argv[2]))

    import typer

    from kesin.cli import main
    from kesin.cli.root import app, import_structlog
    from kesin.engine.proof_cache import proof_of

    gc.set_threshold(20_000)
    import_structlog()
    imported: dict[str, Any] = {name: importlib.import_module(name) for name in IMPORTED}
    typer.main.get_command = get_command = cache(typer.main.get_command)
    group: Any = get_command(app)
    for name in group.list_commands(None):
        group.get_command(None, name)
    argon2 = imported["argon2"]  # the cheapest parameters, as in the tests
    quick = partial(argon2.PasswordHasher, time_cost=1, memory_cost=8, parallelism=1)
    argon2.PasswordHasher = quick
    _build_app()
    imported[PROVE].prove = proof_of  # what ships is not proved again, as in the tests
    gc.freeze()
    atexit._clear()  # what libraries do at the end of a process takes their objects apart
    atexit.register(logging.shutdown)
    request = _serve_forks(listener, owner)
    _become(request)
    if any(name.startswith("_TYPER_") for name in os.environ):  # it has other options then
        get_command.cache_clear()
    program = request["argv"][2]
    optimizer, fill_child = imported[f"{OPTIMIZER}.__main__"], imported[FILL_CHILD]
    mains = {OPTIMIZER: lambda: sys.exit(optimizer.main()), FILL_CHILD: fill_child.main}
    if program.endswith(SCRIPT):
        mains[program] = partial(runpy.run_path, program, run_name="__main__")
    _run(mains.get(program, main))
