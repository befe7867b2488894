"""Many orders and several runners: one optimisation at a time, and every order is cut once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from kesin.engine.replay import verify
from kesin.lifecycle.model import Job
from kesin.store.postgres.store import PostgresStore
from kesin.store.records import Filter
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.optiplan.pipeline import program
from kesin.workloads.optiplan.pipeline.saw_simulator import SawSimulator
from tests.apart import crew
from tests.engine.processes import Address
from tests.workloads.optiplan.processes import die_after, work_until_all_is_done
from tests.workloads.optiplan.workbench import POLL_S, InstantProgram, Workbench, open_bench

LONG_ON_POSTGRES = ["sqlite", pytest.param("postgres", marks=pytest.mark.long)]


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workbench]:
    with open_bench(request.param, tmp_path, request) as bench:
        yield bench


def most_in_the_slot(bench: Workbench, jobs: list[Job]) -> int:
    """Count from the events how many jobs were in OPTI_RUNNING at once, at most.

    A job that leaves when another enters counts as gone.
    """
    steps = [
        (event.at, -1 if event.from_state == "OPTI_RUNNING" else 1)
        for job in jobs
        for event in bench.queue.events(job.id)
        if "OPTI_RUNNING" in {event.from_state, event.to_state} and event.from_state != event.to_state
    ]
    inside = most = 0
    for _, step in sorted(steps):
        inside += step
        most = max(most, inside)
    return most


@pytest.mark.parametrize(
    ("bench", "workers", "threads"),
    [("sqlite", 1, 2), ("sqlite", 3, 1), pytest.param("postgres", 1, 2, marks=pytest.mark.long), ("postgres", 3, 1)],
    indirect=["bench"],
)
def test_orders_in_flight_are_all_cut_one_program_at_a_time(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, workers: int, threads: int
):
    instant = InstantProgram(bench, monkeypatch)
    jobs = [bench.order() for _ in range(4)]
    runners = [bench.new_worker() for _ in range(workers)]
    for runner in runners:
        runner.threads = threads
    with ThreadPoolExecutor(workers) as pool:
        for _ in range(60):
            bench.clock.advance(31)
            list(pool.map(lambda runner: runner.drain(), runners))
            bench.saw.process_inbox()
            if all(job.state == "DONE" for job in bench.queue.jobs(Filter()).jobs):
                break
    for job in jobs:
        bench.assert_delivered_once(job)
        assert len(bench.moves(job)) < 60
    assert instant.starts == dict.fromkeys((job.id for job in jobs), 1)
    assert most_in_the_slot(bench, jobs) == 1


# Processes


@pytest.fixture(params=LONG_ON_POSTGRES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    if request.param == "sqlite":
        SqliteStore(tmp_path / "kesin.db").close()
        return Address(str(tmp_path / "kesin.db"))
    url = request.getfixturevalue("postgres_url")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS workshop CASCADE")
    PostgresStore(url, schema="workshop", pool_size=1, listen=False, migrate=True).close()
    return Address(url, "workshop")


def test_several_processes_run_one_program_at_a_time(address: Address, tmp_path: Path):
    with closing(address.open()) as store:
        bench = Workbench(store, tmp_path)
        diary = tmp_path / "diary"
        bench.install(
            f"diary = open({str(diary)!r}, 'a')\n"
            "print('in', file=diary, flush=True)\n"
            "for file in files: solve(file)\n"
            "print('out', file=diary, flush=True)"
        )
        jobs = [bench.order() for _ in range(2)]
        stop = threading.Event()
        saw = threading.Thread(target=SawSimulator(bench.paths.machine_drop_folder).run, args=(stop, 0.05), daemon=True)
        saw.start()
        with crew() as start:
            runners = [start(work_until_all_is_done, address, tmp_path) for _ in range(2)]
            for runner in runners:
                assert runner.hear() == "ready"
            for runner in runners:
                runner.go()
            wrote = [runner.hear() for runner in runners]
            assert [runner.wait() for runner in runners] == [0, 0]
        stop.set()
        saw.join()
        assert sum(wrote) > 0
        for job in jobs:
            assert bench.reload(job).state == "DONE"
            bench.assert_delivered_once(job)
        assert diary.read_text() == "in\nout\n" * 2
        assert [str(difference) for difference in verify(store, "optiplan").differences] == []


@pytest.mark.parametrize("effects", [11, *(pytest.param(n, marks=pytest.mark.long) for n in (1, *range(2, 31, 2), 21))])
def test_an_order_is_cut_once_though_its_runner_was_killed(
    request: pytest.FixtureRequest, tmp_path: Path, effects: int
):
    with open_bench("sqlite", tmp_path, request) as bench:
        bench.install("for file in files: solve(file)")
        job = bench.two_batches()
        address = Address(str(tmp_path / "kesin.db"))
        with crew() as start:
            doomed = start(die_after, address, tmp_path, bench.clock.time_us, effects)
            assert len(doomed.last_words()) == 1
        bench.clock.advance(6 * POLL_S)  # as often as the runner polled
        bench.saw.process_inbox()
        bench.lose_runner()
        bench.until(job, "DONE", polls=10)
        bench.assert_delivered_once(job)
        program.end_current(bench.workshop.run_folder)
