"""The processes of a browser: found by a mark on their command line, measured, and ended.

Playwright tells no process id, and after a crash there is nobody left to ask. So every browser is
started with a mark of its own, which stays readable in ``/proc`` whatever becomes of its parents.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import TimeoutError as TooLate
from pathlib import Path
from typing import Any, Final, TypeVar

from kesin.foundation.clock import wall_clock_us
from kesin.foundation.logs import Logger

_PROC: Final = Path("/proc")
_LEFT_BEHIND: Final = "playwright_chromiumdev_profile-*"
_EMPTY_FOLDERS: Final = "playwright-artifacts-*"
_DRIVER_COMMAND: Final = b"run-driver"
_SETTLED_S: Final = 120  # a younger profile may belong to a browser that is just starting
_FORGOTTEN_S: Final = 24 * 3600  # nobody says whose an empty folder is; no browser gets so old
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def marked(mark: str) -> list[int]:
    """The processes with this word on their command line."""
    word = mark.encode()
    return [pid for pid in _pids() if word in _command(pid)]


def kill_marked(mark: str) -> None:
    """End every process with this mark, and its group."""
    for pid in marked(mark):
        kill_group(pid)


def kill_group(pid: int) -> None:
    """End a process, and with it all that it started if it leads a group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)


def drivers() -> set[int]:
    """Playwright's own helper processes among our children."""
    return {
        pid
        for pid in _pids()
        if _stat(pid)[1:2] == [str(os.getpid())] and _command(pid)[-1:] == [_DRIVER_COMMAND]
    }


def memory_bytes(leader: int) -> int:
    """What the processes of a group have in memory; pages they share are counted for each."""
    group = str(leader)
    return sum(_resident(pid) for pid in _pids() if _stat(pid)[2:3] == [group])


def sweep_profiles(
    folder: Path | None = None, *, now_us: Callable[[], int] = wall_clock_us
) -> list[Path]:
    """Remove the profiles of browsers that died without cleaning up; those removed.

    A profile stays if a live process names it, or if it is so young that its browser may be about
    to start. Only our own are touched: others' cannot be read, let alone removed.
    """
    folder = folder or Path(tempfile.gettempdir())
    swept = []
    in_use = {part for pid in _pids() for part in _command(pid)}
    for empty in folder.glob(_EMPTY_FOLDERS):
        with contextlib.suppress(OSError):  # gone, another's, or not empty
            if now_us() / 1_000_000 - empty.lstat().st_mtime > _FORGOTTEN_S:
                empty.rmdir()
    for profile in sorted(folder.glob(_LEFT_BEHIND)):
        if f"--user-data-dir={profile}".encode() in in_use:
            continue
        try:
            about = profile.lstat()
        except FileNotFoundError:
            continue
        ours = about.st_uid == os.getuid() and profile.is_dir() and not profile.is_symlink()
        if ours and now_us() / 1_000_000 - about.st_mtime > _SETTLED_S:
            shutil.rmtree(profile, ignore_errors=True)
            swept.append(profile)
    return swept


def _pids() -> Iterator[int]:
    return (int(path.name) for path in _PROC.iterdir() if path.name.isdigit())


def _command(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return []


def _stat(pid: int) -> list[str]:
    """State, parent, group and what follows; nothing for a process that is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _resident(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "statm").read_text("ascii").split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


_T = TypeVar("_T")
_STOP_S: Final = 2.0
_LAST_S: Final = 1.0
_log: Final = Logger(__name__)


class LoopStuck(Exception):
    """The loop did not answer in time: it cannot be trusted any more."""


class LoopThread:
    """Runs coroutines for other threads, one loop for all of them."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_note)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _T], *, limit_s: float) -> _T:
        """What the coroutine returns or raises; raises LoopStuck when it does neither in time."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(limit_s)
        except TooLate:
            if future.done():
                raise
            future.cancel()
            raise LoopStuck(f"no answer within {limit_s:g} s") from None

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start a coroutine that deals with its own troubles, and do not wait for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """End the loop and its thread; whatever still runs on it is cancelled."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_finished())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


def _note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody waited for: mostly the last words of a driver that was ended."""
    problem = context.get("exception") or context.get("message")
    _log.info("pdf.loop_note", problem=str(problem))


async def _finished() -> None:
    """Let tasks end by themselves, as those do whose process is gone; cancel the others."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=_LAST_S)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
