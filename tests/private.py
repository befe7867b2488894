"""How a server of our own begins and ends: with a block, in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

GUARD = 'read -r _; {end}; cd / && rm -rf "$1"'


class PrivateServer(ABC):
    """It disappears with the process that started it, however that process ends.

    A guard sees to that: it ends the server by the shell's words in ``end`` ("$1" is the folder)
    and removes the folder, when told to, or when its input ends with ours.
    """

    end: str
    user: pwd.struct_passwd | None = None  # who runs it, if not we
    _folder: Path | None = None
    _guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="kesin-"))
        if self.user:
            os.chown(self._folder, self.user.pw_uid, self.user.pw_gid)
        try:
            self._guard = subprocess.Popen(
                ["sh", "-c", GUARD.format(end=self.end), "sh", self._folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                **self.somebody,
            )
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise RuntimeError(f"it is not open; use `with {type(self).__name__}()`")
        return self._folder

    @property
    def somebody(self) -> dict[str, Any]:
        """Where and as whom its programs run."""
        who = self.user
        ids = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []} if who else {}
        return {"cwd": self.folder, **ids}

    @abstractmethod
    def start(self) -> None:
        """Start, or start again; returns when it answers."""

    def close(self) -> None:
        """End the server and remove its folder."""
        if self._guard:
            self._guard.communicate()
        elif self._folder:
            shutil.rmtree(self._folder)
        self._guard = self._folder = None


class OneProcess(PrivateServer):
    """A server that is one process, started by us."""

    end = 'kill -9 "$(cat "$1/pid")"'
    _process: subprocess.Popen[str] | None = None

    def launch(self, *command: str | Path, **how: Any) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(command, text=True, start_new_session=True, **how)
        (self.folder / "pid").write_text(str(self._process.pid))
        return self._process

    def kill(self) -> None:
        """Crash: nothing more is written."""
        if self._process is not None:
            (self.folder / "pid").unlink(missing_ok=True)  # soon it may be somebody else's
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.kill()
        super().close()
