"""`kesin serve` is killed while clients enqueue and its worker works."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from kesin.lifecycle.task import task_lifecycle
from tests.cli.programs import Programs, wait_until
from tests.faults.promise import check_promise
from tests.servers import PostgresServer
from tests.web.serving import Served, opened, own_settings, serve

CLIENTS = 6
LEASE_S = 1  # somebody has to wait for it: the service has a clock of its own
KILLS = 8
MILL = f'''
"""A plug-in workload; its first job lasts until a file says go."""

import threading
from pathlib import Path

from kesin import Worker, task_lifecycle
from kesin.engine.workload import Workload

HERE = Path(__file__).parent

def mill(job):
    if job.payload["by"] == "first":
        (HERE / "began").touch()
        while not (HERE / "go").exists():
            threading.Event().wait(0.01)

def make_worker(context):
    return Worker(context.queue, mill, threads=2, batch=4, poll_s=0.05)

mill_workload = Workload(
    "mill",
    lambda: task_lifecycle("mill", lease_seconds={LEASE_S}, max_attempts=50),
    "Milling",
    worker=make_worker,
)
'''
RULES = task_lifecycle("mill", lease_seconds=LEASE_S, max_attempts=50)


@pytest.fixture
def mill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the workload as a package would; return the folder that it reads."""
    own_settings(monkeypatch, tmp_path)
    folder = tmp_path / "plugged"
    info = folder / "mill-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mill\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kesin.workloads]\nmill = mill_work:mill_workload\n")
    (folder / "mill_work.py").write_text(MILL)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("KESIN_RATE_PER_S", "1000000")
    monkeypatch.setenv("KESIN_SWEEP_S", "1")
    return folder


@pytest.fixture
def start(mill: Path) -> Iterator[Callable[[], Served]]:
    with ExitStack() as stack:
        programs = stack.enter_context(Programs(mill.parent))
        yield lambda: stack.enter_context(serve(programs, mill.parent))


class Clients:
    """They enqueue until the service is gone; only what was answered counts."""

    def __init__(self, served: Served) -> None:
        self.answered: list[str] = []
        self._served = served
        self._pool = ThreadPoolExecutor(CLIENTS)
        self._ended = [self._pool.submit(self._produce, number) for number in range(CLIENTS)]

    def _produce(self, number: int) -> None:
        headers = {"x-api-key": self._served.key}
        with httpx.Client(base_url=self._served.address, headers=headers, timeout=60, trust_env=False) as client:
            while True:
                jobs = [{"payload": {"by": number}}] * (3 if number % 3 == 0 else 1)
                try:
                    answer = client.post("/api/queues/mill/jobs", json={"jobs": jobs})
                except httpx.HTTPError:
                    return  # it is dead: nothing was promised
                assert answer.status_code == 201, answer.text
                self.answered.extend(one["id"] for one in answer.json()["jobs"])

    def join(self) -> list[str]:
        with self._pool:
            for one in self._ended:
                one.result()
        return self.answered


def test_every_job_that_was_answered_for_is_there_and_done_once_after_a_kill(mill: Path, start: Callable[[], Served]):
    served = start()
    answered_ids = served.enqueue("mill", {"by": "first"})
    wait_until((mill / "began").exists)
    clients = Clients(served)
    wait_until(lambda: len(clients.answered) > 20)
    served.signal(signal.SIGKILL)
    assert served.end() == -signal.SIGKILL
    answered_ids += clients.join()

    (mill / "go").touch()
    again = start()
    again.wait_for_states("mill", ready=0, running=0)
    again.signal(signal.SIGTERM)
    assert again.end() == 0
    with opened(mill.parent) as store:
        store.open("mill", RULES)
        report = check_promise(store, "mill", RULES, answered_ids)
    assert report.states == {"done": report.jobs}
    assert report.lost_claims >= 1  # the first one was in hand
    assert report.untold <= 3 * CLIENTS


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_service_killed_again_and_again_at_random_times_keeps_every_promise(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    mill: Path,
    start: Callable[[], Served],
    database: str,
):
    if database == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.create_database("killed_again", like=request.getfixturevalue("ready_postgres"))
        monkeypatch.setenv("KESIN_DATABASE_URL", url)
    chance, pause = random.Random(), threading.Event()
    (mill / "go").touch()
    answered_ids: list[str] = []
    for _ in range(KILLS):
        served = start()
        clients = Clients(served)
        pause.wait(chance.uniform(0, 2))
        served.signal(signal.SIGKILL)
        served.end()
        answered_ids += clients.join()
    again = start()
    again.wait_for_states("mill", ready=0, running=0)
    again.signal(signal.SIGTERM)
    assert again.end() == 0
    with opened(mill.parent) as store:
        store.open("mill", RULES)
        check_promise(store, "mill", RULES, answered_ids)
