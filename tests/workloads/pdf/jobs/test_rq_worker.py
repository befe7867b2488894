"""PDFs over Redis and RQ: messages are lost, repeated and forged; a job is rendered once."""

import json
import os
import pickle
import signal
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import rq
from rq.serializers import JSONSerializer

from kesin.store.errors import StoreUnreachable
from kesin.store.redis import connection
from kesin.store.redis.connection import TRANSACTION_TIMEOUT_S
from kesin.workloads.pdf.jobs import rq_queue
from kesin.workloads.pdf.jobs.dispatch import dispatch_waiting, enqueue_pdf_job
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat, check_worker_health, workers_alive
from kesin.workloads.pdf.jobs.rq_queue import DISPATCHED_KEY, RQ_QUEUE_NAME, TASK
from tests.apart import APART, crew
from tests.cli.programs import PATIENCE_S, wait_until
from tests.redis_server import RedisServer
from tests.workloads.pdf.press import payload
from tests.workloads.pdf.rq_workers import HOLDING, Workshop, ask_apart, worker_processes, workshop
from tests.workloads.pdf.templating.test_library import PAGE, write


@pytest.fixture
def shop(redis_server: RedisServer, tmp_path: Path) -> Iterator[Workshop]:
    with workshop(redis_server.url(0), tmp_path) as shop:
        shop.client.flushdb()
        shop.queue.store.open("pdf", shop.queue.lifecycle)
        yield shop


def messages(shop: Workshop) -> list[str]:
    """The jobs with a message in RQ's queue."""
    return [str(name)[:36] for name in shop.client.lrange(f"rq:queue:{RQ_QUEUE_NAME}", 0, -1)]


# Messages


def test_keys_are_laid_out_as_promised_and_a_message_is_an_id_in_json(shop):
    job = shop.ask()
    client = shop.client
    assert client.type(f"pdf:job:{job.job_id}") == "hash"
    assert client.get(f"pdf:key:{job.job_key}") == job.job_id
    assert client.zrange("pdf:jobs:queued", 0, -1, withscores=True) == [(job.job_id, round(job.created_at * 1_000_000))]
    assert client.type(f"pdf:events:{job.job_id}") == "stream"
    [message] = client.keys("rq:job:*")
    bare = shop.client.__class__.from_url(shop.store.url)
    data = zlib.decompress(bare.hget(message, "data"))
    assert json.loads(data) == [TASK, None, [job.job_id], {}]
    for key in bare.scan_iter():  # every pickle of today begins with 80
        values = bare.hvals(key) if bare.type(key) == b"hash" else []
        assert not any(value.startswith(b"\x80") for value in values), key
    bare.close()
    limits = {name: int(client.hget(message, name)) for name in ("timeout", "result_ttl")}
    assert limits == {"timeout": 720, "result_ttl": 0}
    assert shop.worker().drain() == 1
    assert shop.status(job) == "succeeded"
    assert client.keys("rq:job:*") == []


def test_equal_requests_to_two_processes_create_one_job_and_one_pdf(shop, tmp_path):
    numbers = [f"E-{n}" for n in range(5)]
    together = APART.Barrier(2)
    with crew() as start:
        other = start(ask_apart, shop.store.url, tmp_path, numbers, together)
        ids = shop.ask_together(numbers, together)
        assert other.hear() == ids
        assert (other.wait(), len(set(ids))) == (0, 5)
    assert sorted(messages(shop)) == sorted(ids)
    enqueue_pdf_job(ids[0], store=shop.store)  # and once more than needed
    assert shop.worker().drain() == 6
    assert (len(shop.engine.printed), len(shop.files())) == (5, 5)


executed: list[object] = []


def do(*given: object) -> None:
    """A function that no message may execute."""
    executed.append(given)


def test_foreign_messages_are_not_executed(shop):
    bare = rq_queue.connect_redis(shop.store.url)
    pickled = rq.Queue(RQ_QUEUE_NAME, connection=bare)
    spelled = rq.Queue(RQ_QUEUE_NAME, connection=bare, serializer=JSONSerializer)
    here = f"{__name__}.do"
    pickled.enqueue(do, "pickled")
    pickled.enqueue(TASK, "pickled", on_failure=rq.Callback(here))
    spelled.enqueue(here, "spelled")
    spelled.enqueue(TASK, "no id", on_failure=rq.Callback(here))
    spelled.enqueue(TASK, shop.ask("M-1").job_id, on_success=rq.Callback(here))
    bare.hset(spelled.enqueue(TASK, "x").key, "meta", pickle.dumps({"a": 1}))
    job = shop.ask("M-2")
    worker = shop.worker()
    worker.start()
    wait_until(lambda: shop.status(job) == "succeeded" and not messages(shop))
    worker.stop()
    worker.join()
    assert executed == []
    assert len(shop.engine.printed) == 2


# Losses


def test_lost_messages_are_sent_again(shop, monkeypatch):
    jobs = [shop.ask(f"L-{n}") for n in range(3)]
    assert dispatch_waiting(shop.queue) == 0  # sent a moment ago
    monkeypatch.setattr(rq_queue, "RESEND_S", 0)
    assert dispatch_waiting(shop.queue) == 0  # still in the queue
    shop.client.delete(*shop.client.keys("rq:*"))
    assert dispatch_waiting(shop.queue) == 3
    assert sorted(messages(shop)) == sorted(job.job_id for job in jobs)
    shop.client.delete(DISPATCHED_KEY, *shop.client.keys("rq:*"))
    by_hand = shop.jobs.create_job("invoice", payload("L-9"))  # it never had a message
    assert dispatch_waiting(shop.queue) == 4
    assert shop.worker().drain() == 4
    assert all(shop.status(job) == "succeeded" for job in (*jobs, by_hand))
    assert dispatch_waiting(shop.queue) == 0


def test_a_retry_gets_a_message_when_it_is_due(shop):
    shop.engine.fails("NAVIGATION_TIMEOUT")
    shop.engine.fails("NAVIGATION_TIMEOUT")
    job = shop.ask()
    assert shop.worker().drain() == 2  # the first at once, the second after a pause
    assert (shop.status(job), messages(shop)) == ("queued", [])
    assert dispatch_waiting(shop.queue) == 0
    due = shop.client.hget(f"pdf:job:{job.job_id}", "run_at")
    assert int(due) > shop.queue.stats().now


def test_a_worker_that_stops_releases_its_job_with_a_new_message(shop):
    began, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        assert go_on.wait(PATIENCE_S)

    shop.engine.next.append(hold)
    job = shop.ask()
    worker = shop.worker()
    worker.grace_s = 0
    worker.start()
    assert began.wait(PATIENCE_S)
    assert check_worker_health(shop.store)
    worker.stop()
    worker.join()
    assert shop.status(job) == "queued"
    assert not check_worker_health(shop.store)
    go_on.set()
    for thread in worker._threads:
        thread.join(PATIENCE_S)
    assert set(messages(shop)) == {job.job_id}
    assert shop.worker().drain()
    assert shop.moves(job)[-2:] == ["claim", "succeed"]
    assert len(shop.engine.printed) == 2


def test_a_long_render_keeps_its_lease(shop):
    job = shop.ask()
    renewed: list[bool] = []

    def long() -> None:
        def later() -> bool:
            now = shop.queue.job(job.job_id)
            return now is not None and (now.lease_until or 0) - now.claimed_at > 1_200_000

        wait_until(later)
        renewed.append(True)

    shop.engine.next.append(long)
    shop.renderer.process_job(job.job_id)
    assert (renewed, shop.status(job)) == ([True], "succeeded")


def test_a_killed_workers_job_is_rendered_by_another(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(rq_queue, "RESEND_S", 0.2)
    with worker_processes(shop.store.url, tmp_path, 2):
        held, *others = [shop.ask(number) for number in ("HOLD-1", "K-1", "K-2")]
        _, pid = shop.client.blpop([HOLDING], PATIENCE_S)
        wait_until(lambda: shop.over(*others))
        os.kill(int(pid), signal.SIGKILL)
        wait_until(lambda: shop.over(held))
    assert shop.moves(held) == ["enqueue", "claim", "lose", "requeue", "claim", "succeed"]
    assert {tuple(shop.moves(job)) for job in others} == {("enqueue", "claim", "succeed")}
    assert len(shop.files()) == 3


def test_redis_dies_under_load_and_no_job_is_lost_or_rendered_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(rq_queue, "RESEND_S", 0.2)
    with RedisServer(durable=True) as server, workshop(server.url(), tmp_path) as shop:
        jobs = [shop.ask(f"D-{n}") for n in range(12)]
        dead = threading.Event()

        def die() -> None:
            server.kill()
            dead.set()

        shop.engine.next += [lambda: None, lambda: None, lambda: None, die]
        worker = shop.worker()
        worker.start()
        assert dead.wait(PATIENCE_S)
        with pytest.raises(StoreUnreachable):
            shop.ask("D-99")
        enqueue_pdf_job(jobs[0].job_id, store=shop.store)  # is logged, and does not matter
        server.start()
        wait_until(lambda: shop.over(*jobs))
        worker.stop()
        worker.join()
        assert len(shop.files()) == len(shop.engine.printed) == len(jobs)
        for job in jobs:  # a claim whose answer was lost runs out, and the job is claimed again
            first, *again, last = shop.moves(job)
            assert (first, again[0], last) == ("enqueue", "claim", "succeed")
            assert set(again) <= {"claim", "lose", "release", "requeue"}


def test_idle_threads_and_transactions_survive_the_death_of_redis(tmp_path, monkeypatch):
    with RedisServer(durable=True) as server, workshop(server.url(), tmp_path) as shop:
        worker = shop.worker()
        failed: set[str] = set()
        pause = worker.pause

        def noted(seconds: float) -> None:
            failed.add(threading.current_thread().name)
            pause(seconds)

        monkeypatch.setattr(worker, "pause", noted)
        worker.start()
        wait_until(lambda: shop.client.scard("rq:workers:pdf") == worker.threads)
        server.kill()
        wait_until(lambda: len(failed) == worker.threads)
        server.start()
        assert shop.client.scard("rq:workers:pdf") == worker.threads  # RQ thinks they live
        job = shop.ask()
        wait_until(lambda: shop.status(job) == "succeeded")
        worker.stop()
        worker.join()

        def die_in_transaction() -> None:
            with shop.store.transaction():
                shop.jobs.create_job("invoice", payload("T-1"))
                server.kill()

        with pytest.raises(StoreUnreachable):
            die_in_transaction()
        server.start()
        since = time.monotonic()
        assert [job.id for job in shop.queue.jobs().jobs] == [job.job_id]  # it was undone
        assert time.monotonic() - since < TRANSACTION_TIMEOUT_S / 2


def test_a_redis_that_does_not_answer_is_waited_for_once(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "RESPONSE_TIMEOUT_S", 0.2)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        deaf.listen()
        shop = Workshop(f"unix://{tmp_path}/deaf", tmp_path)  # opens all the same
        deaf.accept()[0].close()
        for _ in range(3):  # whoever asks for a page of the dashboard asks more often
            with pytest.raises(StoreUnreachable, match="a moment ago"):
                shop.queue.stats()
        deaf.setblocking(False)
        with pytest.raises(BlockingIOError):
            deaf.accept()
        shop.store.close()


# Heartbeats


def test_a_heartbeat_is_a_key_that_expires_after_fifteen_seconds(shop):
    heart = Heartbeat(shop.store, "w-1", lambda: {"done": 3}, now=lambda: shop.queue.stats().now)
    heart.beat()
    assert 14_000 < shop.client.pttl("pdf:worker:w-1") <= 15_000
    assert workers_alive(shop.store) == {"w-1": {"done": 3}}
    shop.client.delete("pdf:worker:w-1")  # as Redis does it
    assert not check_worker_health(shop.store)


def test_rqs_own_workers_count_while_rq_has_their_heartbeat(shop):
    plain = rq.SimpleWorker(
        [RQ_QUEUE_NAME], name="plain", connection=rq_queue.connect_redis(shop.store.url), worker_ttl=60
    )
    elsewhere = rq.SimpleWorker(["other"], name="other", connection=rq_queue.connect_redis(shop.store.url))
    elsewhere.register_birth()
    assert not check_worker_health(shop.store)
    plain.register_birth()
    assert workers_alive(shop.store) == {"plain": {"rq": None}}
    shop.client.delete(plain.key)  # it died, and its key ended: RQ still counts it
    assert rq.Worker.count(queue=rq.Queue(RQ_QUEUE_NAME, connection=plain.connection)) == 1
    assert not check_worker_health(shop.store)
    worker = shop.worker()
    worker.start()
    ours = f"rq:worker:{worker.name}/"
    wait_until(lambda: sum(name.startswith(ours) for name in shop.client.smembers("rq:workers:pdf")) == 2)
    assert list(workers_alive(shop.store)) == [worker.name]
    shop.client.delete(f"pdf:worker:{worker.name}")  # killed: what RQ has of it says nothing
    assert not check_worker_health(shop.store)
    worker.stop()
    worker.join()


# Whole programs


@pytest.mark.usefixtures("shared")
def test_a_plain_rq_worker_renders(shop, tmp_path, monkeypatch):
    write(tmp_path / "own", "card", PAGE.format("{{ x }}"))  # the fonts of ours take their time
    job = shop.jobs.create_job("card", {"variables": {"x": 7}, "engine": "weasyprint", "paper": {}})
    enqueue_pdf_job(job.job_id, store=shop.store)
    settings = {
        "KESIN_REDIS_URL": shop.store.url,
        "KESIN_DATA_DIR": str(tmp_path),
        "KESIN_PDF_TEMPLATES": str(tmp_path / "own"),
        "KESIN_PDF_ALLOWED_TEMPLATES": "card",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    plain = rq.SimpleWorker(
        [RQ_QUEUE_NAME], connection=rq_queue.connect_redis(shop.store.url), serializer=JSONSerializer
    )
    assert plain.work(burst=True)
    rendered = shop.jobs.get_job(job.job_id)
    assert rendered.status == "succeeded", rendered.error_message
    assert rendered.result["engine"].lower().startswith("weasyprint")
    assert shop.artifacts.get_pdf(rendered.artifact_key).startswith(b"%PDF-")


def test_without_redis_no_message_is_sent(monkeypatch, tmp_path):
    monkeypatch.delenv("KESIN_REDIS_URL", raising=False)
    enqueue_pdf_job("0" * 36)
