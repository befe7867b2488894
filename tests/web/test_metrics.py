"""What Prometheus reads: right when the clock moves, and silent where there is nothing to say."""

import re

from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.web.service import Service
from tests.web.conftest import CRON_SECRET, World


def measured(world: World, name: str) -> dict[str, float]:
    """The samples of a metric by their labels."""
    page = world.client.get("/metrics", headers=world.key("metrics")).text
    assert f"# TYPE {name} " in page
    return {labels: float(value) for labels, value in re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", page, re.MULTILINE)}


def test_a_queue_tells_how_long_ago_a_job_succeeded(world):
    assert measured(world, "kesin_since_success_seconds") == {}
    world.job()
    Worker(world.task, lambda job: None).drain()
    world.clock.advance(90)
    assert measured(world, "kesin_since_success_seconds") == {'queue="task"': 90}


def test_a_job_that_failed_is_no_success(world):
    world.failed()
    assert measured(world, "kesin_since_success_seconds") == {}


def test_a_pass_of_the_cron_door_is_a_sweep(world):
    assert measured(world, "kesin_since_sweep_seconds") == {}
    world.client.post("/api/cron/sweep", headers={"authorization": f"Bearer {CRON_SECRET}"})
    world.clock.advance(120)
    assert measured(world, "kesin_since_sweep_seconds") == {"": 120}


def test_a_sweeper_that_never_succeeds_is_late_from_its_start(world, monkeypatch):
    monkeypatch.setattr(Sweeper, "run", lambda _: None)
    service = Service(world.settings, world.store, {}, clock=world.clock)
    service.start()
    try:
        world.clock.advance(400)
        assert "kesin_since_sweep_seconds 400.0" in service.metrics.page().decode()
    finally:
        service.begin_stop()


def test_every_move_is_counted_from_zero_and_under_one_name(world):
    name = "kesin_transitions_total"
    before = measured(world, name)
    assert set(before.values()) == {0}
    assert not [labels for labels in before if '"="' in labels]  # what stays names where it is
    world.failed()
    world.job()
    Worker(world.task, lambda job: None).drain()
    world.clock.advance(400 * 86_400)
    assert Sweeper([world.task]).sweep().total == 2
    after = measured(world, name)
    assert after.keys() == before.keys()
    assert sum(after.values()) == 7  # two births, a claim, two ends, two prunes
