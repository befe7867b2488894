"""Routes and pages with PDFs in Redis: without Redis only PDFs wait."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.replay import verify
from kesin.store.redis.store import RedisStore
from kesin.store.routed import RoutedStore
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads import built_in
from kesin.workloads.pdf.jobs.rq_worker import PdfRqWorker
from kesin.workloads.pdf.jobs.submit import FALLBACK_HEADER, PDF_RENDER_UNAVAILABLE
from tests.cli.fork_server import CHILD_PYTHON, write_stub
from tests.cli.programs import Programs, is_alive, wait_until
from tests.redis_server import RedisServer
from tests.web.conftest import CRON_SECRET, error_of
from tests.web.serving import own_settings, serve
from tests.workloads.pdf.documents import text
from tests.workloads.pdf.front import NO_JOB, Front, front_over, order
from tests.workloads.pdf.press import SAMPLE
from tests.workloads.pdf.templating.test_library import PAGE, write

PDF_QUEUES = [workload.name for workload in built_in() if workload.in_redis]

AWAY = "its store is not responding"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(durable=True) as server:
        yield server


@pytest.fixture(scope="module")
def front(server: RedisServer, tmp_path_factory: pytest.TempPathFactory, ready_file: Path) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("doors")
    main = SqliteStore(shutil.copyfile(ready_file, folder / "kesin.db"))
    jobs = RedisStore(server.url(), keys_name_tenant=frozenset({"pdf"}))
    store = RoutedStore(main, dict.fromkeys(PDF_QUEUES, jobs))
    with front_over(store, folder) as front:
        yield front
    for queue in PDF_QUEUES:
        assert [str(each) for each in verify(store, queue).differences] == []
    store.close()


@pytest.fixture
def admin(front: Front) -> dict[str, str]:
    return front.cookie(front.known("ada", "admin", all_sites=True))


def page(front: Front, path: str, who: dict[str, str]) -> Any:
    return front.client.get(path, headers=who)


def measured(front: Front, name: str) -> dict[str, float]:
    lines = page(front, "/metrics", front.boss).text.splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if line.startswith(name))
    return {label.removeprefix(name): float(value) for label, value in samples}


def test_a_job_works_on_every_route_and_page(front, admin):
    me = front.owner()
    job_id = front.submit(me)
    assert front.get(me, job_id).json()["position"] == 1
    assert PdfRqWorker(front.queue, front.worker, front.queue.store.url).drain() == 1
    assert front.fetch(me, job_id).content.startswith(b"%PDF-")
    listed = front.client.get("/pdf/jobs", headers=me).json()["jobs"]
    assert [job["job_id"] for job in listed] == [job_id]
    for path in ("/dashboard", "/dashboard/queues/pdf", f"/dashboard/jobs/{job_id}"):
        shown = page(front, path, admin)
        assert (shown.status_code, AWAY in shown.text) == (200, False), path
    assert job_id[:8] in page(front, "/dashboard/queues/pdf", admin).text
    assert measured(front, "kesin_jobs")['{queue="pdf",state="succeeded"}'] == 1
    assert measured(front, "kesin_queue_up")['{queue="pdf"}'] == 1
    assert measured(front, "ptf_admin_pdf_workers")[""] == 1
    ready = front.client.get("/health/ready").json()
    assert ready["checks"]["redis"] == {"ok": True, "detail": "responds"}


def test_while_redis_is_away_only_pdfs_wait_and_afterwards_nothing_was_restarted(front, admin, server):
    me = front.owner()
    before = front.submit(me)
    server.kill()
    try:
        _only_pdfs_wait(front, me, admin, before)
    finally:
        server.start()
    front.beat()
    assert front.get(me, before).json()["status"] == "queued"
    assert front.post(me).status_code == 202
    assert AWAY not in page(front, "/dashboard", admin).text
    assert front.client.get("/health/ready").json()["checks"]["redis"]["ok"]
    assert PdfRqWorker(front.queue, front.worker, front.queue.store.url).drain() == 2
    assert front.get(me, before).json()["status"] == "succeeded"


def _only_pdfs_wait(front: Front, me: dict[str, str], admin: dict[str, str], before: str) -> None:
    refused = front.post(me)
    assert (refused.status_code, error_of(refused)["code"]) == (503, PDF_RENDER_UNAVAILABLE)
    assert refused.headers["retry-after"]
    instead = front.post(me, order(options={"fail_safe": "degrade"}))
    assert (instead.status_code, instead.headers[FALLBACK_HEADER]) == (200, "html")
    rows = {"template_name": "invoice", "rows": [SAMPLE]}
    for response in (
        front.get(me, before),
        front.get(me, NO_JOB),
        front.fetch(me, before),
        front.cancel(me, before),
        front.client.get("/pdf/jobs", headers=me),
        front.client.get(f"/pdf/batches/{NO_JOB}", headers=me),
        front.client.post("/pdf/batches", json=rows, headers=me),
    ):
        assert (response.status_code, error_of(response)["code"]) == (503, "store_away"), response.url
    for path in ("/dashboard/queues/pdf", f"/dashboard/jobs/{before}", "/dashboard/pdf"):
        assert page(front, path, admin).status_code == 503, path
    for path in ("/dashboard", "/dashboard/nav", "/dashboard/workers"):
        shown = page(front, path, admin)
        assert (shown.status_code, AWAY in shown.text) == (200, True), path
    assert page(front, "/dashboard/queues/task", admin).status_code == 200
    queues = page(front, "/api/queues", front.boss).json()
    assert {queue["name"]: queue["reachable"] for queue in queues}.items() >= {
        ("pdf", False), ("task", True),
    }  # fmt: skip
    up = measured(front, "kesin_queue_up")
    assert (up['{queue="pdf"}'], up['{queue="task"}']) == (0, 1)
    ready = front.client.get("/health/ready")
    assert (ready.status_code, ready.json()["checks"]["redis"]["ok"]) == (200, False)
    cron = {"authorization": f"Bearer {CRON_SECRET}"}
    swept = front.client.post("/api/cron/sweep", headers=cron)
    assert (swept.status_code, sorted(swept.json()["away"])) == (200, sorted(PDF_QUEUES))
    for call in front.service.every_minute:
        call()


def test_kesin_serve_renders_pdfs_through_rq(tmp_path, monkeypatch):
    """The whole way, begun without Redis: the service, the process beside it and a real engine."""
    own_settings(monkeypatch, tmp_path)
    with RedisServer() as server, Programs(tmp_path) as programs:
        server.kill()
        write(tmp_path / "own", "card", PAGE.format("{{ number }}"))
        settings = {
            "KESIN_REDIS_URL": server.url(),
            "KESIN_PDF_PROCESSES": "1",
            "KESIN_PDF_TEMPLATES": str(tmp_path / "own"),
            "KESIN_PDF_ALLOWED_TEMPLATES": "invoice,card",
        }
        child = {CHILD_PYTHON: str(write_stub(tmp_path, "python"))}
        with serve(programs, tmp_path, **settings, **child) as served:
            assert served.client.post("/pdf/jobs", json=order("RQ-0")).status_code == 503
            server.start()
            client = RedisStore(server.url(), listen=False).client
            wait_until(lambda: client.keys("pdf:worker:*"))
            worker = str(client.keys("pdf:worker:*")[0])
            wait_until(lambda: len(client.smembers("rq:workers:pdf")) == 2)
            body = {"template_name": "card", "variables": {"number": "RQ-1"}}
            body["options"] = {"engine": "weasyprint"}  # starts and ends sooner
            response = served.client.post("/pdf/jobs?wait=25", json=body)
            assert (response.status_code, response.headers["content-type"]) == (200, "application/pdf")
            assert "RQ-1" in text(response.content)
            served.signal(signal.SIGTERM)
            assert served.end() == 0
            assert not is_alive(int(worker.rsplit("-", 2)[1]))
            assert client.keys("pdf:worker:*") == []
            assert client.smembers("rq:workers:pdf") == set()
            client.close()
