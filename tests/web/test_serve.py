"""The real program: how it starts, what it refuses, how it stops, and that it loses nothing."""

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
from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.clock import ManualClock
from kesin.foundation.settings import Settings
from kesin.lifecycle.task import task_lifecycle
from kesin.store.open import open_store
from kesin.web.app import create_app
from kesin.web.service import SWEEPS_MISSED, WORKER_SILENT_S, Service
from kesin.workloads import lifecycles
from tests.cli.programs import Programs, wait_until
from tests.servers import PostgresServer
from tests.web.client import Client
from tests.web.serving import Served, opened, own_settings, serve

PASSWORD_FILE = "first-password.txt"
LATHE = '''
"""A workload of somebody else's: its jobs and one of its routes last until a file says go."""

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
    n = job.data["n"]
    (HERE / f"started-{n}").touch()
    with (HERE / "runs").open("a") as file:
        file.write(f"{n}\\n")
    until("go" if n else "go-first")

def make_router(house):
    router = APIRouter()

    @router.get("/api/lathe/slow")
    def slow() -> dict[str, str]:
        (HERE / "asked").touch()
        until("answer")
        return {"said": "at last"}

    return router

def make_worker(house):
    return Worker(house.queue, turn, threads=2, batch=4, poll_s=0.05)

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
    for one in started:
        one.client.close()


@pytest.fixture
def lathe(tmp_path, monkeypatch) -> Path:
    """Plug a workload in as an installed package would; the folder its handlers look into."""
    folder = tmp_path / "plugged"
    info = folder / "lathe-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lathe\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kesin.workloads]\nlathe = lathe_work:lathe\n")
    (folder / "lathe_work.py").write_text(LATHE)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


# The first start


def test_the_first_start_leaves_the_admins_password_in_a_file_for_the_owner_alone(
    programs, tmp_path
):
    program = programs.start("serve", "--port", 0)
    file = Path(program.hear("first_password_written")["file"])
    address = program.hear("listening")["address"]
    assert file == tmp_path / "data" / PASSWORD_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    name, password = file.read_text().split()
    answer = httpx.post(f"{address}/api/session", json={"name": name, "password": password})
    assert (answer.status_code, answer.json()["grants"]) == (201, ["admin"])


def test_the_first_password_is_neither_in_the_log_nor_on_standard_output(programs, tmp_path):
    program = programs.start("serve", "--port", 0)
    program.hear("listening")
    program.signal(signal.SIGTERM)
    assert program.end() == 0
    password = (tmp_path / "data" / PASSWORD_FILE).read_text().split()[1]
    assert password not in program.rest()
    assert program.process.stdout.read() == ""


def test_on_a_terminal_the_first_password_is_shown_and_put_in_no_file(programs, tmp_path):
    shown = programs.on_terminal("serve", "--port", 0, after="listening", type_in="\x03")
    assert shown.code == 0, shown.out
    assert len(re.findall("with the password", shown.out)) == 1
    assert not (tmp_path / "data" / PASSWORD_FILE).exists()


def test_the_second_start_shows_no_password(programs, tmp_path):
    for _ in range(2):
        shown = programs.on_terminal("serve", "--port", 0, after="listening", type_in="\x03")
    assert shown.code == 0, shown.out
    assert "password" not in shown.out


def test_where_there_is_a_key_the_first_start_makes_nobody(start, tmp_path):
    served = start()
    served.signal(signal.SIGTERM)
    assert served.end() == 0
    assert "password" not in served.program.rest()
    assert not (tmp_path / "data" / PASSWORD_FILE).exists()


def test_an_address_others_can_reach_is_refused_while_nobody_can_sign_in(programs):
    answer = programs.run("serve", "--host", "0.0.0.0", "--port", "0")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("kesin: nobody can sign in yet, and 0.0.0.0 can be reached")
    assert answer.err.count("\n") == 1


def test_an_address_others_can_reach_is_taken_with_insecure(programs):
    program = programs.start("serve", "--host", "0.0.0.0", "--port", 0, "--insecure")
    assert program.hear("listening")["address"].startswith("http://0.0.0.0:")


def test_an_address_others_can_reach_is_taken_where_there_is_a_key(start):
    assert start("--host", "0.0.0.0").address.startswith("http://0.0.0.0:")


@pytest.mark.usefixtures("lathe")
def test_a_port_that_is_taken_is_told_in_a_sentence_before_anything_starts(programs, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        answer = programs.run("serve", "--port", port)
    assert (answer.code, answer.out) == (1, "")
    told = f"kesin: cannot listen on port {port} of 127.0.0.1: address already in use; "
    assert answer.err == f"{told}choose another one, or end the program that has it\n"
    assert not (tmp_path / "data" / PASSWORD_FILE).exists()


def test_an_address_of_no_machine_is_told_in_a_sentence(programs):
    answer = programs.run("serve", "--host", "nowhere.invalid", "--port", "0")
    assert answer.code == 1
    assert answer.err.startswith("kesin: cannot listen on port 0 of nowhere.invalid: ")
    assert answer.err.count("\n") == 1


# Beyond the limits


def test_who_sends_far_too_much_is_told_so_and_not_cut_off(start):
    served = start(KESIN_BODY_LIMIT="1000000")
    asked = b"POST /api/session HTTP/1.1\r\nhost: kesin\r\ncontent-length: 20000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.client.base_url.port), 60) as line:
        line.sendall(asked + bytes(20_000_000))
        assert line.makefile("rb").readline().startswith(b"HTTP/1.1 413 ")


# The stop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(start, number):
    served = start()
    served.signal(number)
    assert served.end() == 0
    assert '"event": "stopped"' in served.program.rest()


def test_a_request_in_flight_is_answered_before_the_end(start, lathe):
    served = start()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(served.client.get, "/api/lathe/slow")
        wait_until((lathe / "asked").exists)
        served.signal(signal.SIGTERM)
        wait_until(lambda: not listens(served))
        (lathe / "answer").touch()
        assert answer.result().json() == {"said": "at last"}
    assert served.end() == 0


def listens(served: Served) -> bool:
    url = httpx.URL(served.address)
    try:
        socket.create_connection((url.host, url.port), timeout=5).close()
    except OSError:
        return False
    return True


def test_a_stream_ends_with_the_service(start):
    served = start()
    with served.client.stream("GET", "/api/queues/oci/events") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "retry: 2000"
        served.signal(signal.SIGTERM)
        rest = list(lines)  # it comes to an end by itself, whole
    assert rest[-1] == ""
    assert served.end() == 0


def test_a_second_signal_does_not_wait_for_requests(start, lathe):
    served = start(KESIN_GRACE_S="600")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(served.client.get, "/api/lathe/slow")
        wait_until((lathe / "asked").exists)
        served.signal(signal.SIGTERM)
        wait_until(lambda: not listens(served))
        served.signal(signal.SIGTERM)
        assert served.end() == 0
        assert isinstance(answer.exception(), httpx.HTTPError)


@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "with a request in flight"])
def test_a_second_signal_gives_jobs_back_at_once(start, lathe, tmp_path, in_flight):
    served = start(KESIN_GRACE_S="600")
    served.enqueue("lathe", {"n": 1})
    wait_until((lathe / "started-1").exists)
    with ThreadPoolExecutor(1) as pool:
        if in_flight:
            pool.submit(served.client.get, "/api/lathe/slow")
            wait_until((lathe / "asked").exists)
        served.signal(signal.SIGTERM)
        wait_until(lambda: not listens(served))
        served.signal(signal.SIGTERM)
        assert served.end() == 0
    assert states(tmp_path, "lathe")["ready"] == 1


def states(folder: Path, queue: str) -> dict[str, int]:
    with opened(folder) as store:
        Queue(queue, task_lifecycle(queue), store)
        return store.stats(queue).states


# Nothing is lost


def test_every_job_answered_with_201_survives_a_stop_under_load(start, tmp_path):
    served = start(KESIN_RATE_PER_S="1000000")
    answered: list[str] = []
    enough = threading.Event()

    def produce(client_number: int) -> None:
        with httpx.Client(
            base_url=served.address, headers={"x-api-key": served.key}, timeout=60
        ) as client:
            for number in itertools.count():
                jobs = [{"payload": {"by": client_number, "n": number}} for _ in range(5)]
                try:
                    answer = client.post("/api/queues/pdf/jobs", json={"jobs": jobs})
                except httpx.HTTPError:
                    return  # it has gone: nothing was promised
                if answer.status_code != 201:
                    assert answer.status_code == 503, answer.text
                    return
                answered.extend(one["id"] for one in answer.json()["jobs"])
                if len(answered) > 200:
                    enough.set()

    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(produce, number) for number in range(8)]
        assert enough.wait(60)
        served.signal(signal.SIGTERM)
        assert served.end() == 0
        for one in clients:
            one.result()
    with opened(tmp_path) as store:
        lifecycle = lifecycles()["pdf"]()
        queue = Queue("pdf", lifecycle, store)
        kept = {job.id for job, _ in store.scan("pdf")}
        assert set(answered) <= kept
        assert len(set(answered)) == len(answered)
        assert verify(store, queue.name).differences == []


def test_a_stop_gives_unfinished_jobs_back_and_the_next_start_finishes_them_once(
    start, lathe, tmp_path
):
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
            job.id
            for job, events in store.scan("lathe")
            for one in events
            if one.move == "complete"
        )
    assert len(completed) == 24
    assert set(completed.values()) == {1}
    assert set(ids) <= set(completed)
    runs = Counter((lathe / "runs").read_text().split())
    assert runs == Counter({**{str(n): 1 for n in range(1, 24)}, "0": 2})  # the hung one again


def test_a_job_that_ends_within_the_grace_period_is_not_given_back(start, lathe, tmp_path):
    served = start()
    served.enqueue("lathe", {"n": 1})
    wait_until((lathe / "started-1").exists)
    served.signal(signal.SIGTERM)
    wait_until(lambda: not listens(served))
    (lathe / "go").touch()
    assert served.end() == 0
    assert states(tmp_path, "lathe")["done"] == 1


# Readiness


def ready(service: Service) -> tuple[int, set[str]]:
    """The status, and the parts that are not well."""
    answer = Client(create_app(service)).get("/health/ready")
    checks = answer.json()["checks"]
    return answer.status_code, {name for name, one in checks.items() if not one["ok"]}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_service(tmp_path, clock) -> Iterator[Callable[..., Service]]:
    """A service in this process, at work under a clock that stands still."""
    made: list[Service] = []

    def make(database: str | None = None, **settings: object) -> Service:
        settings = {"data_dir": tmp_path / "data", "min_free_mb": 0, **settings}
        store = open_store(database or str(tmp_path / "here.db"), migrate=True)
        work = Workload("task", task_lifecycle, worker=make_worker)
        service = Service(Settings(**settings), store, {"task": work}, clock=clock)
        made.append(service)
        service.start()
        return service

    yield make
    for service in made:
        service.stop()


def make_worker(house: WorkloadContext):
    from kesin.engine.worker import Worker

    return Worker(house.queue, lambda job: None, poll_s=0.05)


@pytest.fixture
def service(make_service) -> Service:
    return make_service()


def test_a_service_at_work_is_ready(service):
    wait_until(lambda: ready(service) == (200, set()))


def test_a_service_asked_to_stop_is_not_ready(service):
    service.begin_stop()
    status, unwell = ready(service)
    assert status == 503
    assert "running" in unwell


def test_a_worker_whose_lane_died_is_not_ready(service):
    [worker] = service.workers
    worker.stop()
    wait_until(lambda: not worker.alive)
    assert ready(service) == (503, {"workers"})


def test_a_worker_that_does_not_reach_the_store_is_not_ready(service, monkeypatch, clock):
    [worker] = service.workers
    broken = threading.Event()

    def fail(*_: object, **__: object) -> None:
        broken.set()
        raise RuntimeError("away")

    monkeypatch.setattr(worker.queue, "claim", fail)
    assert broken.wait(60)
    clock.advance(WORKER_SILENT_S + 1)
    assert ready(service) == (503, {"workers"})


def test_a_worker_that_is_long_at_one_job_is_ready(make_service, tmp_path, clock):
    begun, go = threading.Event(), threading.Event()

    def work(job: object) -> None:
        begun.set()
        assert go.wait(60)

    service = make_service()
    [worker] = service.workers
    worker.handler = work
    service.queues["task"].enqueue({})
    assert begun.wait(60)
    clock.advance(WORKER_SILENT_S + 1)
    assert ready(service) == (200, set())
    go.set()


def test_a_sweeper_that_has_not_swept_for_long_is_not_ready(service, monkeypatch, clock):
    wait_until(lambda: service.sweeper.last_success is not None)
    service.sweeper.stop()
    clock.advance(SWEEPS_MISSED * service.settings.sweep_s + 1)
    wait_until(lambda: service.workers[0].last_success == clock.monotonic())
    assert ready(service) == (503, {"sweeper"})


def test_a_disk_that_is_nearly_full_is_not_ready(make_service):
    assert ready(make_service(min_free_mb=10**7)) == (503, {"disk"})


def test_a_store_that_is_away_is_not_ready_and_one_that_is_back_is(programs, monkeypatch, tmp_path):
    with PostgresServer(fsync=False) as server:
        monkeypatch.setenv("KESIN_DATABASE_URL", server.create_database("kesin"))
        with serve(programs, tmp_path, KESIN_REQUEST_TIMEOUT_S="3") as served:

            def status() -> tuple[int, bool]:
                answer = served.client.get("/health/ready")
                return answer.status_code, answer.json()["checks"]["store"]["ok"]

            wait_until(lambda: status() == (200, True))
            server.stop()
            wait_until(lambda: status() == (503, False))
            assert served.client.get("/health/live").status_code == 200
            assert served.client.get("/api/queues/oci/stats").status_code == 503
            server.start()
            wait_until(lambda: status() == (200, True))
            served.signal(signal.SIGTERM)
            assert served.end() == 0
