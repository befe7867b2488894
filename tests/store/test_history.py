"""The history of a day: noted from the counters, by any process, however long none ran."""

from __future__ import annotations

from kesin.store.history import PERIODS, TotalNote, note_history, read_tenants, read_totals
from tests.store.scene import DAY, HOUR, MINUTE, SECOND

HALF_AN_HOUR = 30 * MINUTE


def note(scene) -> None:
    note_history(scene.store, scene.queue, scene.lifecycle, scene.now)


def totals(scene) -> list[TotalNote]:
    return read_totals(scene.store, scene.lifecycle, scene.store.stats(scene.queue, now=scene.now))


def tenants(scene) -> list[dict]:
    return [dict(one) for one in read_tenants(scene.store, scene.queue, scene.now)]


def finish(scene, tenant: str, action: str = "complete") -> None:
    scene.create_job(tenant=tenant)
    [job] = scene.claim()
    scene.move(action, job)


def test_what_came_to_an_end_is_noted_once_a_minute(task):
    note(task)
    assert totals(task) == [TotalNote(task.now, {}), TotalNote(task.now, {})]
    task.clock.advance(30)
    finish(task, "north")
    note(task)  # another process, half a minute later
    assert [one.at for one in totals(task)] == [task.now - 30 * SECOND, task.now]
    task.clock.advance(31)
    finish(task, "south", "fail")
    note(task)
    assert totals(task)[1:] == [TotalNote(task.now, {"done": 1, "failed": 1})] * 2


def test_each_tenant_is_noted_by_the_half_hour_of_its_last_move(task):
    finish(task, "north")
    note(task)  # what came before the first note has no time
    assert tenants(task) == [{}] * PERIODS
    task.clock.advance(HALF_AN_HOUR / SECOND)
    finish(task, "north")
    finish(task, "north", "fail")
    task.clock.advance(6 * HOUR / SECOND)  # no sweeper ran for hours
    finish(task, "south")
    note(task)
    periods = tenants(task)
    assert periods[-1] == {"south": {"done": 1}}
    assert periods[-1 - 6 * HOUR // HALF_AN_HOUR] == {"north": {"done": 1, "failed": 1}}
    assert sum(map(len, periods)) == 2
    task.clock.advance(61)
    finish(task, "south")
    note(task)
    assert tenants(task)[-1] == {"south": {"done": 2}}


def test_a_day_is_kept(task):
    note(task)
    for _ in range(3):
        finish(task, "north")
        task.clock.advance(DAY * 2 // 3 / SECOND)
        note(task)
    assert sum(map(len, tenants(task))) == 1
    assert len(totals(task)) == 5
    assert totals(task)[-1].at - totals(task)[-2].at < MINUTE
