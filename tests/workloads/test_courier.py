"""The courier example: deliveries, failures by category, permissions, private addresses."""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from kesin_courier import COURIER, send  # type: ignore[import-not-found]
from kesin_courier.addresses import is_public  # type: ignore[import-not-found]
from kesin_courier.send import BadAddress, read_url  # type: ignore[import-not-found]

from kesin import Job, Queue, task_lifecycle
from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.replay import verify
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import ManualClock
from kesin.foundation.permissions import Actor, system_actor
from kesin.foundation.problems import Problem
from kesin.foundation.settings import Settings
from kesin.store.directory import Directory
from kesin.store.sqlite.store import SqliteStore
from kesin.web.app import create_app
from kesin.web.service import Service
from tests.docs.pages import DOCS, blocks
from tests.web.client import Client
from tests.workloads.conftest import COURIER as FOLDER
from tests.workloads.receiver import Receiver, hang_up, nonsense, receiving, silence, trickle

ADMIN = system_actor("test")
PAST_A_PAUSE_S = 61  # the first pause is 30 s, and up to 30 s of jitter


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch):
    monkeypatch.setenv("KESIN_COURIER_ALLOW_PRIVATE", "yes")  # the receiver is on this machine
    monkeypatch.setenv("KESIN_COURIER_TIMEOUT_S", "5")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def context(clock) -> Iterator[WorkloadContext]:
    with closing(SqliteStore(":memory:")) as store:
        courier = Queue(COURIER.name, COURIER.lifecycle(), store, clock=clock, seed=1)
        other = Queue("other", task_lifecycle(), store, clock=clock, seed=2)
        accounts = Accounts(Directory(store), clock)
        for site in ("ankara", "izmir"):
            accounts.add_site(ADMIN, site)
        commands = Commands({"courier": courier, "other": other}, accounts)
        yield WorkloadContext(Settings(), commands, courier)
        assert [str(line) for line in verify(store, "courier").differences] == []


@pytest.fixture(scope="module")
def receiver_server() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


@pytest.fixture
def receiver(receiver_server: Receiver) -> Receiver:
    """A receiver that nothing has come to."""
    receiver_server.came.clear()
    receiver_server.script = []
    return receiver_server


def enqueue(context: WorkloadContext, url: str) -> str:
    return context.queue.enqueue({"url": url, "body": {"city": "İzmir"}}, tenant="ankara").id


def work(context: WorkloadContext) -> None:
    assert COURIER.worker is not None
    COURIER.worker(context).drain()


def delivered(context: WorkloadContext, url: str) -> Job:
    """The job after one try."""
    job_id = enqueue(context, url)
    work(context)
    job = context.queue.job(job_id)
    assert job is not None
    return job


# The worker


def test_a_failing_receiver_gets_the_body_again_under_the_same_key(context, receiver, clock):
    receiver.script = [500, 204]
    job = delivered(context, receiver.url)
    assert (job.state, job.error_code, job.error_category) == ("ready", "HTTP_500", "TRANSIENT")
    work(context)
    assert len(receiver.came) == 1  # the pause is not over
    clock.advance(PAST_A_PAUSE_S)
    work(context)
    job = context.queue.job(job.id)
    assert (job.state, job.result) == ("done", {"status": 204})
    for came in receiver.came:
        assert (came.path, came.body) == ("/hook?of=orders", {"city": "İzmir"})
        assert came.headers["Content-Type"] == "application/json"
        assert came.headers["Idempotency-Key"] == job.id
        assert came.headers["Host"] == f"127.0.0.1:{receiver.server_port}"
    assert len(receiver.came) == 2


def test_a_refusal_is_quoted_and_final_unless_it_may_pass(context, receiver):
    for status, state, category in (
        (400, "failed", "VALIDATION"),
        (401, "failed", "AUTH"),
        (403, "failed", "AUTH"),
        (410, "failed", "PERMANENT"),
        (408, "ready", "TRANSIENT"),
        (429, "ready", "RATE_LIMIT"),
        (502, "ready", "TRANSIENT"),
        (700, "ready", "TRANSIENT"),
    ):
        receiver.script = [status]
        job = delivered(context, receiver.url)
        failure = (job.state, job.error_code, job.error_category)
        assert failure == (state, f"HTTP_{status}", category)
        assert f"responded with {status}: what the receiver says" in (job.error_message or "")
        assert len(job.error_message or "") < 600


def test_a_receiver_that_names_a_time_is_left_alone_until_then_but_not_for_ever(context, receiver, clock):
    receiver.script = [(429, {"Retry-After": "300"})]
    job = delivered(context, receiver.url)
    assert (job.state, job.move, job.error_category) == ("ready", "later", "RATE_LIMIT")
    clock.advance(299)
    work(context)
    assert len(receiver.came) == 1
    clock.advance(1)
    work(context)
    assert context.queue.job(job.id).state == "done"
    receiver.came.clear()
    receiver.script = [(503, {"Retry-After": "1"})] * 20
    job = delivered(context, receiver.url)
    for _ in range(20):
        clock.advance(1)
        work(context)
    assert context.queue.job(job.id).state == "failed"
    assert len(receiver.came) == 8


def test_a_pause_has_a_bound_and_no_other_form():
    wanted = {"999999999": 3_600, "0": 0, "-5": None, "Fri, 31 Dec 1999 23:59:59 GMT": None}
    assert {text: send._seconds(text) for text in wanted} == wanted


def test_a_receiver_that_takes_too_long_is_cut_off(context, receiver, monkeypatch):
    monkeypatch.setenv("KESIN_COURIER_TIMEOUT_S", "0.2")
    for answer in (silence, trickle):
        receiver.script = [answer]
        job = delivered(context, receiver.url)
        assert (job.state, job.error_code, job.error_category) == ("ready", "TIMEOUT", "TRANSIENT")


def test_what_is_not_http_a_closed_port_and_a_receiver_without_tls_are_no_answer(context, receiver):
    for answer in (nonsense, hang_up):
        receiver.script = [answer]
        job = delivered(context, receiver.url)
        assert (job.state, job.error_code) == ("ready", "NO_ANSWER")
    receiver.came.clear()
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/", receiver.url.replace("http:", "https:")):
        job = delivered(context, url)
        assert (job.state, job.error_code) == ("ready", "NO_ANSWER")
    assert receiver.came == []


def test_a_redirect_is_not_followed(context, receiver):
    receiver.script = [(307, {"Location": "/elsewhere"})]
    job = delivered(context, receiver.url)
    assert (job.state, job.error_code) == ("failed", "REDIRECTED")
    assert [came.path for came in receiver.came] == ["/hook?of=orders"]


# Private addresses


def test_our_own_network_is_refused_unless_allowed(context, receiver, monkeypatch):
    monkeypatch.delenv("KESIN_COURIER_ALLOW_PRIVATE")
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"):
        job = delivered(context, f"http://{host}:{receiver.server_port}/")
        assert (job.state, job.error_code) == ("failed", "PRIVATE_ADDRESS"), host
    assert receiver.came == []
    answers = [(socket.AF_INET, 1, 6, "", (host, 80)) for host in ("93.184.215.14", "10.0.0.7")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers)
    job = delivered(context, "http://example.com/")  # one private address is enough
    assert (job.state, job.error_code) == ("failed", "PRIVATE_ADDRESS")


def test_the_address_that_was_checked_is_the_one_connected_to(context, receiver, monkeypatch):
    resolved = []
    answers = [(socket.AF_INET, 1, 6, "", ("127.0.0.1", 80))]

    def resolve(host, *args, **options):
        resolved.append(host)
        return answers if host == "example.com" else real(host, *args, **options)

    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    job = delivered(context, f"http://example.com:{receiver.server_port}/")
    assert job.state == "done"
    assert resolved == ["example.com", "127.0.0.1"]
    assert receiver.came[0].headers["Host"] == f"example.com:{receiver.server_port}"


def test_public_and_private_addresses():
    public = {"93.184.215.14", "2606:4700::1111", "64:ff9b::5db8:d70e"}
    private = {
        *("0.0.0.0", "10.1.2.3", "100.64.0.1", "127.8.9.1", "169.254.169.254", "172.16.0.1"),
        *("192.168.1.1", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1%eth0", "fd00::1"),
        *("ff02::1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1"),
    }
    assert {address for address in public | private if is_public(address)} == public


# URLs

BAD_URLS = [
    "",
    "ftp://example.com/",
    "file:///etc/passwd",
    "example.com",
    "https://",
    "https://user:secret@example.com/",
    "https://example.com:0/",
    "https://example.com:99999/",
    "https://example.com/a b",
    "https://example.com/\r\nX-Injected: yes",
    "https://örnek.com/",
    "https://[::1/",
    "https://example.com/" + "a" * 2_048,
]


def test_what_is_no_url_is_refused_and_if_it_bypassed_the_routes_fails_for_good(context):
    for url in BAD_URLS:
        with pytest.raises(BadAddress):
            read_url(url)
    job = delivered(context, "ftp://example.com/")
    failure = (job.state, job.error_code, job.error_category)
    assert failure == ("failed", "BAD_ADDRESS", "VALIDATION")


# The routes


def actor(*grants: str, sites: tuple[str, ...] = (), queues: tuple[str, ...] = ()) -> Actor:
    return Actor("ayse", frozenset(grants), sites=frozenset(sites), queues=frozenset(queues))


class CallerClient(TestClient):
    """A client of an app that takes ``asker`` for the caller."""

    asker: Actor


@pytest.fixture
def client(context) -> Iterator[CallerClient]:
    assert COURIER.routes is not None
    app = FastAPI()
    app.include_router(COURIER.routes(context))

    @app.middleware("http")
    async def identify(request: Request, call_next):
        request.state.actor = http.asker
        return await call_next(request)

    @app.exception_handler(Problem)
    def report(_: Request, problem: Problem) -> JSONResponse:
        return JSONResponse(problem.body(), problem.status)

    with CallerClient(app) as http:
        http.asker = actor("operate", sites=("ankara",))
        yield http


WANTED = {"url": "https://example.com/hook", "body": {"n": 1}, "site": "ankara"}
DELIVERIES = "/api/courier/deliveries"


def test_a_delivery_is_accepted_done_and_reported(context, client, receiver):
    accepted = client.post(DELIVERIES, json={**WANTED, "url": receiver.url})
    assert accepted.status_code == 202
    assert accepted.json()["result"] == "inserted"
    work(context)
    report = client.get(f"{DELIVERIES}/{accepted.json()['id']}")
    assert report.status_code == 200
    assert report.json() == {
        "id": accepted.json()["id"],
        "site": "ankara",
        "state": "done",
        "attempts": 1,
        "error_code": None,
        "error_message": None,
        "result": {"status": 200},
        "moves": ["enqueue", "claim", "complete"],
    }


def test_a_key_is_taken_once_in_a_site(client):
    client.asker = actor("operate", sites=("ankara", "izmir"))
    first, again, elsewhere = (
        client.post(DELIVERIES, json={**WANTED, "key": "order-7", "site": site}).json()
        for site in ("ankara", "ankara", "izmir")
    )
    assert again == {"id": first["id"], "result": "duplicate"}
    assert elsewhere["result"] == "inserted"


def test_permission_to_create_a_delivery(client, context):
    for asker, status in (
        (actor("read", sites=("ankara",)), 403),
        (actor("operate", sites=("izmir",)), 403),
        (actor("operate"), 404),
        (actor("operate", sites=("ankara",), queues=("other",)), 404),
        (actor("pdf", sites=("ankara",)), 403),
        (actor(), 401),
    ):
        client.asker = asker
        assert client.post(DELIVERIES, json=WANTED).status_code == status, asker
    client.asker = ADMIN
    assert client.post(DELIVERIES, json={**WANTED, "site": "nowhere"}).status_code == 403
    assert context.queue.jobs().jobs == []
    for asker in (ADMIN, actor("operate", sites=("ankara",))):
        client.asker = asker
        assert client.post(DELIVERIES, json=WANTED).status_code == 202
    assert len(context.queue.jobs().jobs) == 2


def test_permission_to_read_a_report_of_this_queue(client, context):
    job_id = enqueue(context, "https://example.com/")
    for asker, status in (
        (actor("read", sites=("ankara",)), 200),
        (actor("operate", sites=("ankara",)), 200),
        (actor("operate", sites=("izmir",)), 404),
        (actor("read"), 404),
        (actor("pdf", sites=("ankara",)), 403),
        (actor(), 401),
    ):
        client.asker = asker
        assert client.get(f"{DELIVERIES}/{job_id}").status_code == status, asker
    client.asker = ADMIN
    other = context.commands.queues["other"].enqueue("x", tenant="ankara").id
    response = client.get(f"{DELIVERIES}/{other}")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")


def test_a_bad_url_and_a_body_that_is_too_large_do_not_come_in(client, context):
    for field, value, code in (("url", "ftp://example.com/", "bad_url"), ("body", "x" * 300_000, "payload_too_large")):
        response = client.post(DELIVERIES, json={**WANTED, field: value})
        assert (response.status_code, response.json()["error"]["code"]) == (422, code)
    assert context.queue.jobs().jobs == []


def test_what_was_done_and_what_was_refused_is_in_the_audit_log(client, context):
    job_id = client.post(DELIVERIES, json=WANTED).json()["id"]
    client.post(DELIVERIES, json={**WANTED, "site": "izmir"})
    lines = [line for line in context.commands.accounts.audit(ADMIN, limit=10) if line.queue]
    assert [(line.action, line.allowed, line.site, line.target) for line in lines] == [
        ("queue.enqueue", False, "izmir", None),
        ("queue.enqueue", True, "ankara", job_id),
    ]


# The page


def test_the_courier_has_a_page_as_a_built_in_workload_has(tmp_path, clock):
    with closing(SqliteStore(":memory:")) as store:
        service = Service(Settings(data_dir=tmp_path), store, {"courier": COURIER}, work=False, clock=clock)
        accounts = service.accounts
        accounts.add_site(ADMIN, "ankara")
        url = "https://hooks.example.org/secret-path"
        service.queues["courier"].enqueue({"url": url, "body": 1}, tenant="ankara")
        key, _ = accounts.create_key(ADMIN, "looks", ["read"])
        client = Client(create_app(service))
        response = client.get("/dashboard/courier", headers={"x-api-key": key})
        assert response.status_code == 200
        assert "hooks.example.org" in response.text
        assert "secret-path" not in response.text
        assert 'href="/dashboard/courier"' in response.text  # in the navigation
        turkish = {"x-api-key": key, "accept-language": "tr"}
        assert "Teslimatlar" in client.get("/dashboard/courier", headers=turkish).text


# The tutorial


def test_the_tutorial_shows_the_files_as_they_are():
    shown = [
        block.text.removeprefix("# ").partition("\n")
        for block in blocks(DOCS / "tutorial.md")
        if block.language in ("py", "toml")
    ]
    assert {name for name, _, _ in shown} == {
        "pyproject.toml",
        "kesin_courier/lifecycle.py",
        "kesin_courier/work.py",
        "kesin_courier/api.py",
        "kesin_courier/pages.py",
        "kesin_courier/__init__.py",
    }
    for name, _, text in shown:
        assert text in (FOLDER / name).read_text("utf-8"), name
