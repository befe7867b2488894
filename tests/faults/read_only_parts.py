"""What is tried in a folder that cannot be written, in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from kesin.cli import app
from kesin.engine.queue import Queue
from kesin.foundation.settings import Settings
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreTrouble
from kesin.store.open import open_store
from kesin.web.service import Service
from tests.faults.conftest import fill
from tests.faults.promise import check_promise
from tests.faults.small_disk import make_read_only


def the_folder(kind: str, folder: Path) -> None:
    """Whoever has it open goes on; whoever comes is told what is wrong."""
    file = folder / "kesin.db"
    with closing(open_store(file)) as store:
        queue = Queue("task", task_lifecycle(), store)
        told = fill(queue, 20)
        make_read_only(folder, kind)
        assert queue.stats().states["ready"] == len(told)
        told += fill(queue, 5)
        check_promise(store, "task", queue.lifecycle, told, at_rest=False)
        for path in (file, folder / "deeper" / "kesin.db"):
            _told(path, lambda path=path: open_store(path))  # type: ignore[misc]
        for words in (("serve", "--port", "0"), ("migrate",), ("stats",)):
            code, out, err = _kesin(folder, *words)
            assert (code, out) == (1, ""), (words, out, err)
            assert "cannot be written" in err, (words, err)
            assert "let this user write" in err, (words, err)
            assert "Traceback" not in err, (words, err)
        code, out, err = _kesin(folder, "doctor")
        assert code == 1, out
        assert f"{folder} cannot be written" in out, out
        assert "let this user write" in out, out
        assert "Traceback" not in out + err


def the_file(kind: str, folder: Path) -> None:
    """The file alone: it can be read, as one looks into a backup, and nothing is written."""
    file = folder / "kesin.db"
    with closing(open_store(file)) as store:
        told = fill(Queue("task", task_lifecycle(), store), 3)
    make_read_only(file, kind)
    with closing(open_store(file)) as store:
        queue = Queue("task", task_lifecycle(), store)
        check_promise(store, "task", queue.lifecycle, told, at_rest=False)
        _told(file, lambda: queue.enqueue({}))
        service = Service(Settings(data_dir=folder), store, {}, work=False)
        assert service.checks()["disk"].detail == "cannot be written"
    code, out, _ = _kesin(folder, "doctor")
    assert code == 1, out
    assert f"{file} cannot be written" in out, out


def _told(path: Path, call: Callable[[], object]) -> None:
    with pytest.raises(StoreTrouble) as caught:
        call()
    assert caught.value.code == "read_only", str(caught.value)
    assert "let this user write" in str(caught.value)
    assert str(path) in str(caught.value)


def _kesin(folder: Path, *words: str) -> tuple[int, str, str]:
    with patch.dict(os.environ, {"KESIN_DATA_DIR": str(folder), "COLUMNS": "250"}):
        done = CliRunner().invoke(app, list(words))
    assert isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def main(kind: str, place: str) -> None:
    for part in (the_file, the_folder):
        folder = Path(place) / part.__name__
        folder.mkdir()
        part(kind, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
