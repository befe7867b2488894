"""The first page: whether somebody can go back to sleep."""

from __future__ import annotations

import re

from kesin.engine.answers import Failed
from kesin.engine.worker import Worker
from kesin.lifecycle.errors import Category
from kesin.web.dashboard.trends import Trends
from tests.web.conftest import ROOT, World

PROBE = "<img src=x onerror=alert(1)>"


def overview(world: World, name: str = "ayse", **headers: str) -> str:
    answer = world.client.get("/dashboard", headers=world.cookie(name) | headers)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<svg.*?</svg>", "", answer.text, flags=re.DOTALL))


def fail(world: World, n: int, code: str) -> None:
    for _ in range(n):
        world.job()
    answer = Failed(code, "so the test wants it", category=Category.VALIDATION)
    Worker(world.task, lambda _job: answer).drain()


def test_all_is_well_when_nothing_wants_anybody(world):
    world.person("ayse", "admin")
    world.job()
    n = len(world.service.queues)
    assert f"All {n} queues are healthy." in overview(world)


def test_what_most_of_the_failed_have_in_common_is_named(world):
    world.person("ayse", "admin")
    fail(world, 3, "NO_SUCH_STREET")
    fail(world, 1, "NOBODY_HOME")
    text = overview(world)
    assert "4 for a person to look at, 3 of them with NO_SUCH_STREET" in text
    assert "healthy" not in text


def test_a_day_in_which_too_many_failed_is_told(world):
    world.person("ayse", "admin")
    watch = Trends(world.accounts.directory, world.service.queues)
    watch.note()
    fail(world, 1, "BAD")
    for _ in range(3):
        world.job()
    Worker(world.task, lambda _job: None).drain()
    world.clock.advance(60)
    assert "25 % of the last day failed" in overview(world)


def test_jobs_whose_worker_is_gone_are_told(world):
    world.person("ayse", "admin")
    world.job()
    world.task.claim("gone", lease_seconds=5)
    world.clock.advance(6)
    assert "1 are stuck: their worker is gone" in overview(world)


def test_a_paused_queue_is_told(world):
    world.person("ayse", "admin")
    world.service.commands.pause(ROOT, "task")
    assert "paused" in overview(world)


def test_whoever_may_see_nothing_is_told_whom_to_ask(world):
    world.person("ece")
    text = overview(world, "ece")
    assert "You may not look at any queue. Ask an admin for a site or a queue." in text
    assert "/dashboard/queues/" not in text


def test_only_rows_that_may_be_seen_are_counted(world):
    world.person("ece", sites=["south"])
    fail(world, 2, "SECRET_OF_NORTH")
    text = overview(world, "ece")
    assert "SECRET_OF_NORTH" not in text
    assert "for a person" not in text


def test_a_part_is_the_cards_alone(world):
    world.person("ayse", "admin")
    text = overview(world, **{"hx-request": "true"})
    assert "<html" not in text
    assert 'id="cards"' in text


def test_what_a_job_says_runs_nowhere(world):
    world.person("ayse", "admin")
    fail(world, 1, PROBE)
    assert PROBE not in overview(world)


def test_it_is_told_in_turkish_too(world):
    world.person("ayse", "admin")
    text = overview(world, **{"accept-language": "tr"})
    assert "<h1>Genel bakış</h1>" in text
    assert "kuyruğun hepsi sağlıklı." in text
