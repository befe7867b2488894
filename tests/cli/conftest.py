import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count
from pathlib import Path

import argon2
import pytest
import structlog
import typer.testing
from typer.testing import CliRunner

from kesin.cli.commands import lifecycle
from kesin.cli.root import app
from kesin.cli.support.inspection import open_for_reading
from kesin.engine.proof_cache import proof_of
from kesin.foundation import passwords
from kesin.foundation.settings import load_settings
from kesin.store.contract import Store
from kesin.store.open import open_store
from tests.cli.fork_server import CHILD_PYTHON, write_stub
from tests.cli.programs import Answer, Programs

_numbers = count()


@pytest.fixture(autouse=True)
def _own_settings(tmp_path, monkeypatch):
    """A new folder for every test, and none of the KESIN_ variables of the environment."""
    for name in [name for name in os.environ if name.startswith("KESIN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KESIN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    config = structlog.get_config() if structlog.is_configured() else None
    handlers = logging.getLogger().handlers[:]
    yield
    structlog.reset_defaults()
    if config is not None:
        structlog.configure(**config)
    logging.getLogger().handlers[:] = handlers


@pytest.fixture(scope="module", autouse=True)
def _quick_hashes() -> Iterator[None]:
    """Hash passwords with the cheapest parameters of argon2."""
    quick = partial(argon2.PasswordHasher, time_cost=1, memory_cost=8, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argon2, "PasswordHasher", quick)
        _clear_hashers()
        yield
    _clear_hashers()


def _clear_hashers() -> None:
    passwords._hasher.cache_clear()
    passwords.unmatched_hash.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def _known_proofs_read() -> Iterator[None]:
    """`kesin lifecycle prove` would prove every lifecycle, as the test of the cache does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifecycle, "prove", proof_of)
        yield


Kesin = Callable[..., Answer]


_command = cache(typer.main.get_command)  # once for all runs: it takes 50 ms


@pytest.fixture
def kesin() -> Kesin:
    """Run a command in this process."""

    def run(*words: object, text: str | None = None) -> Answer:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(typer.testing, "_get_command", _command)
            patch.setattr(typer.main, "get_command", _command)
            result = CliRunner().invoke(app, [str(word) for word in words], input=text)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def programs(tmp_path) -> Iterator[Programs]:
    """Run commands in their own processes; none outlives the test."""
    with Programs(tmp_path) as programs:
        yield programs


@pytest.fixture
def quick_children(tmp_path, monkeypatch) -> None:
    """Fork the worker processes that a program starts, which takes no second."""
    monkeypatch.setenv(CHILD_PYTHON, str(write_stub(tmp_path, "python")))


@pytest.fixture
def database(tmp_path, ready_file) -> str:
    """A file with the schema in the data folder: a copy takes less time than creating it."""
    path = tmp_path / "data" / "kesin.db"
    path.parent.mkdir()
    return str(shutil.copyfile(ready_file, path))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def either_database(request, monkeypatch) -> str:
    """A database of each kind, for what may depend on it; `ON_BOTH` tries both at every run."""
    if request.param == "sqlite":
        return request.getfixturevalue("database")
    server = request.getfixturevalue("postgres_server")
    ready = request.getfixturevalue("ready_postgres")
    address = server.create_database(f"cli_{os.getpid()}_{next(_numbers)}", like=ready)
    monkeypatch.setenv("KESIN_DATABASE_URL", address)
    return address


ON_BOTH = pytest.mark.parametrize("either_database", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def empty_postgres(postgres_server, monkeypatch) -> str:
    """A PostgreSQL database without a schema."""
    address = postgres_server.create_database(f"cli_{os.getpid()}_{next(_numbers)}")
    monkeypatch.setenv("KESIN_DATABASE_URL", address)
    return address


@pytest.fixture
def module(tmp_path, monkeypatch) -> Callable[[str], str]:
    """Write a Python module into the current folder; its name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str) -> str:
        name = f"own_{os.getpid()}_{next(_numbers)}"
        Path(tmp_path, f"{name}.py").write_text(text)
        return name

    return write


@pytest.fixture
def states() -> Iterator[Callable[[str], dict[str, int]]]:
    """The number of jobs of a queue in each state, through one connection."""
    opened: list[Store] = []

    def count_jobs(queue: str) -> dict[str, int]:
        if not opened:
            opened.append(open_store(load_settings().database, migrate=False))
        open_for_reading(opened[0], queue)
        return opened[0].stats(queue).states

    yield count_jobs
    for store in opened:
        store.close()


@pytest.fixture
def fill(kesin, database) -> Callable[..., list[str]]:
    """Enqueue so many numbered jobs; their ids."""

    def enqueue(queue: str, jobs: int, *words: str) -> list[str]:
        lines = "".join(json.dumps({"n": n}) + "\n" for n in range(jobs))
        answer = kesin("enqueue", queue, "-", "--json", *words, text=lines)
        assert answer.code == 0, answer.err
        return [json.loads(line)["id"] for line in answer.out.splitlines()]

    return enqueue
