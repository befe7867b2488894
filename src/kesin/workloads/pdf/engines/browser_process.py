"""A browser's processes, found by a mark since Playwright hides their ids; and its event loop."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import TimeoutError as TooLate
from pathlib import Path
from typing import Any, Final, TypeVar

from kesin.foundation.child_environment import child_environment
from kesin.foundation.clock import wall_clock_us
from kesin.foundation.logs import Logger

_PROC: Final = Path("/proc")
_DRIVER_VARIABLES: Final = ("PW_LANG_NAME", "PW_LANG_NAME_VERSION", "PW_CLI_DISPLAY_VERSION")
_MIN_PROFILE_AGE_S: Final = 120  # the browser of a younger profile may be about to start
_MIN_EMPTY_FOLDER_AGE_S: Final = 24 * 3600  # its owner is unknown; no browser gets this old
_STOP_S: Final = 2.0
_TASKS_END_S: Final = 1.0
_T = TypeVar("_T")
_log: Final = Logger(__name__)


def find_marked(mark: str) -> list[int]:
    return [pid for pid in _pids() if mark.encode() in _command(pid)]


def kill_marked(mark: str) -> None:
    for pid in find_marked(mark):
        kill_group(pid)


def kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)


def find_drivers() -> set[int]:
    parent = [str(os.getpid())]
    children = [pid for pid in _pids() if _stat(pid)[1:2] == parent]
    return {pid for pid in children if _command(pid)[-1:] == [b"run-driver"]}


def group_members(leader: int) -> list[int]:
    return [pid for pid in _pids() if _stat(pid)[2:3] == [str(leader)]]


def memory_bytes(leader: int) -> int:
    """Return the resident memory of a process group; shared pages count for each process."""
    pages = (_read(pid, "statm").split()[1:2] for pid in group_members(leader))
    return sum(int(resident) for [resident] in filter(None, pages)) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pids: Iterable[int]) -> float:
    used = (int(stat[11]) + int(stat[12]) for stat in map(_stat, pids) if stat)
    return sum(used) / os.sysconf("SC_CLK_TCK")


def delete_stale_profiles(folder: Path | None = None, *, now_us: Callable[[], int] = wall_clock_us) -> list[Path]:
    """Delete old profiles of our user that no live browser uses; return them."""
    folder = folder or Path(tempfile.gettempdir())
    deleted = []
    in_use = {part for pid in _pids() for part in _command(pid)}
    for empty in folder.glob("playwright-artifacts-*"):
        with contextlib.suppress(OSError):  # gone, not ours, or not empty
            if now_us() / 1_000_000 - empty.lstat().st_mtime > _MIN_EMPTY_FOLDER_AGE_S:
                empty.rmdir()
    for profile in sorted(folder.glob("playwright_chromiumdev_profile-*")):
        if f"--user-data-dir={profile}".encode() in in_use:
            continue
        with contextlib.suppress(FileNotFoundError):
            status = profile.lstat()
            ours = status.st_uid == os.getuid() and profile.is_dir() and not profile.is_symlink()
            if ours and now_us() / 1_000_000 - status.st_mtime > _MIN_PROFILE_AGE_S:
                shutil.rmtree(profile, ignore_errors=True)
                deleted.append(profile)
    return deleted


def _pids() -> Iterator[int]:
    return (int(path.name) for path in _PROC.iterdir() if path.name.isdigit())


def _read(pid: int, name: str) -> bytes:
    """Return what the system says of a process; nothing of one that is gone."""
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def _command(pid: int) -> list[bytes]:
    return _read(pid, "cmdline").rstrip(b"\0").split(b"\0")


def _stat(pid: int) -> list[str]:
    """Return state, parent, group and the following fields; empty for a process that is gone."""
    return _read(pid, "stat").decode("utf-8", "replace").rpartition(")")[2].split()


class LoopStuck(Exception):
    """The event loop did not respond in time and is no longer usable."""


class _MinimalEnvironmentLoop(asyncio.SelectorEventLoop):
    """Gives child processes a minimal environment; Playwright's driver would get a copy of ours."""

    async def subprocess_exec(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        environment = child_environment(*_DRIVER_VARIABLES, environment=options.pop("env", None))
        return await super().subprocess_exec(protocol_factory, *args, env=environment, **options)


class LoopThread:
    """An event loop in a thread, which runs coroutines for other threads."""

    def __init__(self, name: str) -> None:
        self._loop = _MinimalEnvironmentLoop()
        self._loop.set_exception_handler(_log_loop_exception)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _T], *, limit_s: float) -> _T:
        """Run a coroutine and return its result; raises LoopStuck if it does not end in time."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(limit_s)
        except TooLate:
            if future.done():
                raise
            future.cancel()
            raise LoopStuck(f"no response within {limit_s:g} s") from None

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start a coroutine that handles its own errors, without waiting for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """Stop the loop and its thread; tasks that still run are cancelled."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_end_tasks())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


def _log_loop_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that no caller awaits: mostly from a driver that was killed."""
    problem = context.get("exception") or context.get("message")
    _log.info("pdf.loop_exception", problem=str(problem))


async def _end_tasks() -> None:
    """Let tasks end by themselves, as those of a dead process do; cancel the rest."""
    unfinished = asyncio.all_tasks() - {asyncio.current_task()}
    if unfinished:
        _, unfinished = await asyncio.wait(unfinished, timeout=_TASKS_END_S)
    for task in unfinished:
        task.cancel()
    await asyncio.gather(*unfinished, return_exceptions=True)
