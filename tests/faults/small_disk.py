"""Disks that are full or read-only, for a process of their own.

A small tmpfs in a mount namespace is a really full disk; where nobody may mount, a limit on the
size of files stands in for it, as a quota does. Folders are made read-only by a mount, and always
also by their modes, with a process that may not pass them over.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

SIZE_MB = 16
PATIENCE_S = 120
ROOT = Path(__file__).parents[2]
_CAPS = "-dac_override,-dac_read_search,-fowner"


class SmallDisk:
    """A folder whose disk can be filled and freed."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.real = kind == "tmpfs"
        if self.real:
            _run("mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(folder))

    def fill(self) -> None:
        """Not a byte is left."""
        if not self.real:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            return
        with suppress(OSError), (self.folder / "ballast").open("ab", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))

    def free(self) -> None:
        """Make room again."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        (self.folder / "ballast").unlink(missing_ok=True)


def make_read_only(path: Path, kind: str) -> None:
    """A folder with all below it, or a file."""
    if kind == "mount":
        _run("mount", "--bind", str(path), str(path))
        _run("mount", "-o", "remount,ro,bind", str(path))
        return
    for below in (path, *(path.rglob("*") if path.is_dir() else ())):
        below.chmod(below.stat().st_mode & 0o555)


def run_part(module: str, kind: str, folder: Path) -> None:
    """Run a module in a process under this kind of trouble; it must end well."""
    command = [*_wrapper(kind), sys.executable, "-m", module, kind, str(folder)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("KESIN_")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def can_mount() -> bool:
    """Whether this user may mount disks."""
    return _namespace() is not None


def _wrapper(kind: str) -> Sequence[str]:
    if kind == "mounts":
        namespace = _namespace()
        assert namespace is not None
        return namespace
    if os.geteuid() == 0:  # root ignores modes, unless it gives that up
        return ("setpriv", f"--bounding-set={_CAPS}", f"--inh-caps={_CAPS}")
    return ()


@cache
def _namespace() -> Sequence[str] | None:
    for flags in ("-m", "-Urm"):
        trial = ("unshare", flags, "mount", "-t", "tmpfs", "tmpfs", "/mnt")
        with suppress(FileNotFoundError):
            if subprocess.run(trial, capture_output=True, check=False).returncode == 0:
                return trial[:2]
    return None


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
