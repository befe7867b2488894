"""The overview: whether anything needs attention."""

import re

import pytest

from kesin.engine.queue import Queue
from kesin.engine.results import Failed
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.lifecycle.errors import Category
from kesin.lifecycle.task import task_lifecycle
from kesin.web.dashboard.queues.charts import Trends
from kesin.workloads.oci.google.channel import ConnectionTrouble
from kesin.workloads.oci.google.circuit_breaker import record_upload
from kesin.workloads.oci.site import SiteContext
from tests.web.conftest import ROOT, World


def overview(world: World, name: str = "ayse", **headers: str) -> str:
    answer = world.client.get("/dashboard", headers=world.cookie(name) | headers)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<svg.*?</svg>", "", answer.text, flags=re.DOTALL))


def fail(world: World, n: int, code: str) -> None:
    for _ in range(n):
        world.job()
    answer = Failed(code, "so the test wants it", category=Category.VALIDATION)
    Worker(world.task, lambda _job: answer).drain()


@pytest.fixture(autouse=True)
def _admin(world: World) -> None:
    world.person("ayse", "admin")


def test_healthy_queues_are_reported_in_both_languages_and_as_a_part(world):
    world.job()
    n = len(world.service.queues)
    assert f"All {n} queues are healthy." in overview(world)
    part = overview(world, **{"hx-request": "true"})
    assert "<html" not in part
    assert 'id="cards"' in part
    turkish = overview(world, **{"accept-language": "tr"})
    assert "<h1>Genel bakış</h1>" in turkish
    assert "kuyruğun hepsi sağlıklı." in turkish


def test_the_most_frequent_error_code_is_named(world):
    fail(world, 3, "NO_SUCH_STREET")
    assert "3 failed in the last hour with <code>NO_SUCH_STREET</code>" in overview(world)
    fail(world, 1, "NOBODY_HOME")
    text = overview(world)
    assert "4 failed in the last hour, 3 of them <code>NO_SUCH_STREET</code>" in text
    assert 'href="/dashboard/queues/task?state=failed&amp;code=NO_SUCH_STREET"' in text
    assert "healthy" not in text
    world.clock.advance(3_700)
    assert "healthy" in overview(world)  # it is a year until they are gone


def test_numbers_of_a_sample_are_not_shown_as_exact(world, monkeypatch):
    monkeypatch.setattr("kesin.web.dashboard.overview.MAX_FAILED_READ", 3)
    Trends(world.accounts.directory, world.service.queues).note()
    fail(world, 5, "NO_SUCH_STREET")
    text = overview(world)
    assert "at least 5 failed in the last hour, most of them <code>NO_SUCH_STREET</code>" in text


def test_a_high_share_of_failures_in_a_day_is_reported(world):
    watch = Trends(world.accounts.directory, world.service.queues)
    watch.note()
    fail(world, 1, "BAD")
    for _ in range(3):
        world.job()
    Worker(world.task, lambda _job: None).drain()
    world.clock.advance(60)
    text = overview(world)
    assert "25% of the last day failed" in text
    assert re.search(r'class="chip retrying">\s*25% failed', text)
    assert re.search(r'<dd>25% <span class="muted">since \d\d:\d\d UTC</span></dd>', text)


def test_an_unknown_value_is_not_shown_as_a_number(world):
    """Before the first note, and for whoever sees some sites only."""
    world.person("ece", sites=["north"])
    fail(world, 1, "BAD")
    assert "<dt>failed in a day</dt><dd>–</dd>" in overview(world)
    page = world.client.get("/dashboard/queues/task", headers=world.cookie("ayse")).text
    assert "not noted yet" in page
    Trends(world.accounts.directory, world.service.queues).note()
    text = overview(world, "ece")
    assert "<dt>failed in a day</dt><dd>–</dd>" in text
    assert "<dt>workers</dt><dd>–</dd>" in text
    page = world.client.get("/dashboard/queues/task", headers=world.cookie("ayse")).text
    assert "not noted yet" not in page


def test_work_without_a_worker_is_reported(world):
    world.job()
    world.clock.advance(61)
    text = overview(world)
    assert "no worker is at it" in text
    assert "the oldest waits" not in text
    world.clock.advance(15 * 60)
    assert "the oldest waits for 16 mins; no worker is at it" in overview(world)
    world.task.claim("hand", lease_seconds=60)
    world.job()
    world.clock.advance(59)
    text = overview(world)
    assert "healthy" in text
    assert "<dt>workers</dt><dd>1</dd>" in text


def test_silent_workers_and_a_late_sweeper_are_reported(world, monkeypatch):
    monkeypatch.setattr(world.service, "_work", True)  # as if it had been started, and got stuck
    world.service.workers.append(Worker(world.task, lambda _job: None))
    world.clock.advance(1_000)
    text = overview(world)
    assert "Workers of this process are silent." in text
    assert "The sweeper of this process has missed its last turns." in text
    assert "healthy" not in text
    world.service.workers.clear()


def test_a_card_has_the_time_of_the_next_sweep(world, monkeypatch):
    assert "<dt>next sweep</dt><dd>–</dd>" in overview(world)
    sweeper = Sweeper([world.task])
    sweeper._due = {"recover": world.clock.monotonic() + 30}
    monkeypatch.setattr(world.service, "sweeper", sweeper)
    assert "<dt>next sweep</dt><dd>in 30 secs</dd>" in overview(world)


def test_an_open_breaker_is_reported_to_users_of_the_site(world):
    world.person("ece", sites=["south"])
    world.accounts.set_site(ROOT, "north", channel="api")
    context = world.service.workload_context("oci")
    site = SiteContext(context, world.accounts.directory.site("north"))
    record_upload(site, ConnectionTrouble("AUTH", "BAD_LOGIN", "no"))
    text = overview(world)
    assert "the breaker is open for north" in text
    assert "breaker" not in overview(world, "ece")


def test_jobs_of_a_lost_worker_are_reported(world):
    world.job()
    world.task.claim("gone", lease_seconds=5)
    world.clock.advance(6)
    assert "1 are stuck: their worker is gone" in overview(world)


def test_a_paused_queue_is_reported(world):
    world.service.commands.pause(ROOT, "task", site="north")
    assert "paused for north" in overview(world)
    world.service.commands.pause(ROOT, "task")
    assert "</a>: paused <a" in overview(world)


def test_a_user_without_permissions_is_referred_to_an_admin(world):
    world.person("ece")
    text = overview(world, "ece")
    assert "You may not look at any queue. Ask an admin for a site or a queue." in text
    assert "/dashboard/queues/" not in text


def test_only_jobs_of_permitted_sites_are_counted(world):
    world.person("ece", sites=["south"])
    fail(world, 2, "SECRET_OF_NORTH")
    text = overview(world, "ece")
    assert "SECRET_OF_NORTH" not in text
    assert "failed in the last hour" not in text


def test_jobs_that_wait_for_others_need_nobody(world):
    queue = Queue("steps", task_lifecycle("steps", parents=True), world.store, clock=world.clock)
    world.service.queues["steps"] = queue
    queue.enqueue(2, after=[queue.enqueue(1).id])
    text = overview(world)
    assert "queues are healthy." in text
    assert '<span class="n">2</span> <span class="muted">waiting</span>' in text
    navigation = world.client.get("/dashboard/nav", headers=world.cookie("ayse")).text
    assert "badge" not in navigation
