"""`kesin serve` as a process: how it starts, what it refuses, how it stops; it loses nothing."""

import itertools
import re
import signal
import socket
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from kesin.engine.queue import Queue
from kesin.engine.replay import verify
from kesin.lifecycle.task import task_lifecycle
from kesin.workloads import lifecycles
from tests.cli.programs import Programs, wait_until
from tests.faults.proxy import Postgres, Proxy
from tests.servers import PORT
from tests.web.serving import Served, opened, own_settings, serve

PASSWORD_FILE = "first-password.txt"
LATHE = '''
"""A workload of another package: its jobs and one of its routes wait for a file."""

import threading
from pathlib import Path

from fastapi import APIRouter
from kesin import Worker, task_lifecycle
from kesin.engine.workload import Workload

HERE = Path(__file__).parent

def until(name):
    while not (HERE / name).exists():
        threading.Event().wait(0.01)

def turn(job):
    n = job.payload["n"]
    (HERE / f"started-{n}").touch()
    with (HERE / "runs").open("a") as file:
        file.write(f"{n}\\n")
    until("go" if n else "go-first")

def make_router(context):
    router = APIRouter()

    @router.get("/api/lathe/slow")
    def slow() -> dict[str, str]:
        (HERE / "requested").touch()
        until("answer")
        return {"answer": "at last"}

    return router

def make_worker(context):
    return Worker(context.queue, turn, threads=2, batch=4, poll_s=0.05)

lathe = Workload(
    "lathe", lambda: task_lifecycle("lathe"), "Turning", worker=make_worker, routes=make_router
)
'''


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    own_settings(monkeypatch, tmp_path)


@pytest.fixture
def programs(tmp_path) -> Iterator[Programs]:
    with Programs(tmp_path) as programs:
        yield programs


@pytest.fixture
def start(programs, tmp_path) -> Iterator[Callable[..., Served]]:
    """Start a service with an admin's key; its client is closed with the test."""
    started: list[Served] = []

    def begin(*words: object, **env: str) -> Served:
        started.append(serve(programs, tmp_path, *words, **env))
        return started[-1]

    yield begin
    for service in started:
        service.client.close()


@pytest.fixture
def lathe(tmp_path, monkeypatch) -> Path:
    """Plug a workload in as an installed package would; the folder with the files it waits for."""
    folder = tmp_path / "plugged"
    info = folder / "lathe-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lathe\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kesin.workloads]\nlathe = lathe_work:lathe\n")
    (folder / "lathe_work.py").write_text(LATHE)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


# The start


def test_the_first_start_leaves_the_password_of_the_admin_in_a_file_and_nowhere_else(programs, tmp_path):
    program = programs.start("serve", "--port", 0)
    file = Path(program.hear("first_password_written")["file"])
    address = program.hear("listening")["address"]
    assert file == tmp_path / "data" / PASSWORD_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    name, password = file.read_text().split()
    known = {"name": name, "password": password}
    response = httpx.post(f"{address}/api/session", json=known, timeout=60)
    assert (response.status_code, response.json()["grants"]) == (201, ["admin"])
    program.signal(signal.SIGTERM)
    assert program.end() == 0
    assert '"event": "stopped"' in program.rest()
    assert password not in program.rest()
    assert program.process.stdout.read() == ""


def test_on_a_terminal_only_the_first_start_shows_a_password_and_leaves_no_file(programs, tmp_path):
    for passwords in (1, 0):
        shown = programs.on_terminal("serve", "--port", 0, after="listening", type_in="\x03")
        assert shown.code == 0, shown.out
        assert len(re.findall("with the password", shown.out)) == passwords
        assert ("password" in shown.out) == bool(passwords)
        assert not (tmp_path / "data" / PASSWORD_FILE).exists()


def test_with_a_key_it_listens_on_any_address_and_creates_no_user(start, tmp_path):
    served = start("--host", "0.0.0.0")
    assert served.address.startswith("http://0.0.0.0:")
    with served.client.stream("GET", "/api/queues/oci/events") as response:
        lines = response.iter_lines()
        assert next(lines) == "retry: 2000"
        served.signal(signal.SIGINT)
        rest = list(lines)  # the stream ends with the service, complete
    assert rest[-1] == ""
    assert served.end() == 0
    assert "password" not in served.program.rest()
    assert not (tmp_path / "data" / PASSWORD_FILE).exists()


def test_a_public_address_is_refused_while_nobody_can_sign_in(programs):
    answer = programs.run("serve", "--host", "0.0.0.0", "--port", "0")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("kesin: no user can sign in yet, and 0.0.0.0 can be reached")
    assert answer.err.count("\n") == 1


def test_insecure_takes_a_public_address_and_a_huge_body_is_answered_not_cut_off(programs):
    program = programs.start(*("serve", "--host", "0.0.0.0", "--port", 0, "--insecure"), KESIN_BODY_LIMIT="1000000")
    address = httpx.URL(program.hear("listening")["address"])
    assert address.host == "0.0.0.0"
    head = b"POST /api/session HTTP/1.1\r\nhost: kesin\r\ncontent-length: 20000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", address.port or 0), 60) as connection:
        connection.sendall(head + bytes(20_000_000))
        assert connection.makefile("rb").readline().startswith(b"HTTP/1.1 413 ")


def test_a_port_that_is_taken_is_reported_in_a_sentence_before_anything_starts(programs, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        answer = programs.run("serve", "--port", port)
    assert (answer.code, answer.out) == (1, "")
    problem = f"kesin: cannot listen on port {port} of 127.0.0.1: address already in use; "
    assert answer.err == f"{problem}choose another one, or stop the program that uses it\n"
    assert not (tmp_path / "data" / PASSWORD_FILE).exists()


def test_an_unknown_host_is_reported_in_a_sentence(programs):
    answer = programs.run("serve", "--host", "nowhere.invalid", "--port", "0")
    assert answer.code == 1
    assert answer.err.startswith("kesin: cannot listen on port 0 of nowhere.invalid: ")
    assert answer.err.count("\n") == 1


# The stop


def stop_listening(served: Served) -> None:
    """Ask it to stop, and wait until it takes no new connection."""
    url = httpx.URL(served.address)

    def refused() -> bool:
        try:
            socket.create_connection((url.host, url.port or 0), timeout=5).close()
        except OSError:
            return True
        return False

    served.signal(signal.SIGTERM)
    wait_until(refused)


def states(folder: Path, queue: str) -> dict[str, int]:
    with opened(folder) as store:
        Queue(queue, task_lifecycle(queue), store)
        return store.stats(queue).states


def test_a_request_and_a_job_in_progress_are_finished_within_the_grace_period(start, lathe, tmp_path):
    served = start()
    served.enqueue("lathe", {"n": 1})
    with ThreadPoolExecutor(1) as pool:
        response = pool.submit(served.client.get, "/api/lathe/slow")
        wait_until((lathe / "started-1").exists)
        wait_until((lathe / "requested").exists)
        stop_listening(served)
        (lathe / "answer").touch()
        (lathe / "go").touch()
        assert response.result().json() == {"answer": "at last"}
    assert served.end() == 0
    assert states(tmp_path, "lathe")["done"] == 1


@pytest.mark.parametrize(
    "in_flight", [pytest.param(False, marks=pytest.mark.long, id="idle"), pytest.param(True, id="in flight")]
)
def test_a_second_signal_waits_for_nothing_and_releases_jobs(start, lathe, tmp_path, in_flight):
    served = start(KESIN_GRACE_S="600")
    served.enqueue("lathe", {"n": 1})
    wait_until((lathe / "started-1").exists)
    with ThreadPoolExecutor(1) as pool:
        if in_flight:
            response = pool.submit(served.client.get, "/api/lathe/slow")
            wait_until((lathe / "requested").exists)
        stop_listening(served)
        served.signal(signal.SIGTERM)
        assert served.end() == 0
        assert not in_flight or isinstance(response.exception(), httpx.HTTPError)
    assert states(tmp_path, "lathe")["ready"] == 1


# Nothing is lost


def test_every_job_answered_with_201_survives_a_stop_under_load(start, tmp_path):
    served = start(KESIN_RATE_PER_S="1000000")
    answered: list[str] = []
    enough = threading.Event()

    def produce(client_number: int) -> None:
        with httpx.Client(base_url=served.address, headers={"x-api-key": served.key}, timeout=60) as client:
            for number in itertools.count():
                jobs = [{"payload": {"by": client_number, "n": number}} for _ in range(5)]
                try:
                    response = client.post("/api/queues/pdf/jobs", json={"jobs": jobs})
                except httpx.HTTPError:
                    return  # it has stopped: nothing was promised
                if response.status_code != 201:
                    assert response.status_code == 503, response.text
                    return
                answered.extend(job["id"] for job in response.json()["jobs"])
                if len(answered) > 200:
                    enough.set()

    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(produce, number) for number in range(8)]
        assert enough.wait(60)
        served.signal(signal.SIGTERM)
        assert served.end() == 0
        for client in clients:
            client.result()
    with opened(tmp_path) as store:
        Queue("pdf", lifecycles()["pdf"](), store)
        assert set(answered) <= {job.id for job, _ in store.scan("pdf")}
        assert len(set(answered)) == len(answered)
        assert verify(store, "pdf").differences == []


def test_a_stop_releases_unfinished_jobs_and_the_next_start_finishes_them_once(start, lathe, tmp_path):
    served = start(KESIN_GRACE_S="0.5")
    ids = served.enqueue("lathe", *({"n": n} for n in range(12)))
    (lathe / "go").touch()  # but the first one hangs
    served.wait_for_states("lathe", done=11)
    served.enqueue("lathe", *({"n": n} for n in range(12, 24)))
    served.signal(signal.SIGTERM)
    assert served.end() == 0
    stopped = states(tmp_path, "lathe")
    assert stopped["running"] == 0
    assert stopped["ready"] + stopped["done"] == 24
    (lathe / "go-first").touch()
    again = start()
    again.wait_for_states("lathe", done=24)
    again.signal(signal.SIGTERM)
    assert again.end() == 0
    with opened(tmp_path) as store:
        Queue("lathe", task_lifecycle("lathe"), store)
        assert verify(store, "lathe").differences == []
        completed = Counter(
            job.id for job, events in store.scan("lathe") for event in events if event.move == "complete"
        )
    assert len(completed) == 24
    assert set(completed.values()) == {1}
    assert set(ids) <= set(completed)
    runs = Counter((lathe / "runs").read_text().split())
    assert runs == Counter({**{str(n): 1 for n in range(1, 24)}, "0": 2})  # the job that hung, again


# Readiness


def test_an_unreachable_store_is_not_ready_until_it_is_back(start, postgres_server, monkeypatch):
    postgres_server.create_database("served")
    with Proxy(postgres_server.folder / f".s.PGSQL.{PORT}", Postgres()) as line:
        address = f"postgresql://postgres@127.0.0.1:{line.port}/served"
        monkeypatch.setenv("KESIN_DATABASE_URL", f"{address}?sslmode=disable&gssencmode=disable")
        served = start(KESIN_REQUEST_TIMEOUT_S="3")

        def status() -> tuple[int, bool | None]:
            response = served.client.get("/health/ready")
            checks = response.json().get("checks", {"store": {}})  # none if it took too long
            return response.status_code, checks["store"].get("ok")

        wait_until(lambda: status() == (200, True))
        line.door = "away"
        line.cut()
        wait_until(lambda: status() == (503, False))
        assert served.client.get("/health/live").status_code == 200
        assert served.client.get("/api/queues/oci/stats").status_code == 503
        line.mend()
        wait_until(lambda: status() == (200, True))
        served.signal(signal.SIGTERM)
        assert served.end() == 0
