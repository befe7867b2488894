"""Trends of a day, counted from notes that outlive the process."""

import json
import re
from typing import Any

from kesin.engine.results import Done, Failed
from kesin.engine.worker import Worker
from kesin.lifecycle.errors import Category
from kesin.store.directory import MetadataEntry
from kesin.store.history import MAX_NOTES, TOTALS, WORKLOAD, note_history
from kesin.web.dashboard.queues.charts import BUCKETS, Trend, trend_of
from tests.web.conftest import World

DAY_S = 86_400


def note(world: World) -> None:
    note_history(world.store, "task", world.task.lifecycle, world.task.now())


def trend(world: World, **how: bool) -> Trend:
    return trend_of(world.task, world.task.stats(), **how)


def work(world: World, done: int = 0, failed: int = 0) -> None:
    for _ in range(done + failed):
        world.job()
    answers = iter([Done()] * done + [Failed("BAD", category=Category.VALIDATION)] * failed)
    Worker(world.task, lambda _job: next(answers)).drain()


def notes(world: World) -> list[Any]:
    entry = world.accounts.directory.metadata_entry(WORKLOAD, "task", TOTALS)
    return json.loads(entry.value) if entry else []


def test_what_ended_is_counted_when_it_was_noted(world):
    note(world)
    work(world, done=3)
    world.clock.advance(60)
    note(world)
    world.clock.advance(6 * 3_600)
    work(world, done=1, failed=2)
    found = trend(world)
    assert len(found.done) == len(found.failed) == BUCKETS
    assert (sum(found.done), sum(found.failed)) == (4, 2)
    assert (found.done[-1], found.failed[-1]) == (1, 2)
    assert found.done[BUCKETS - 12] == 3


def test_what_a_person_decided_is_no_failure_of_the_trend(world):
    note(world)
    work(world, done=2)
    for _ in range(2):
        job = world.job()
        world.task.act("cancel", actor="ayse", ids=[job])
        assert world.state(job) == "failed"
    assert (sum(trend(world).done), sum(trend(world).failed)) == (2, 0)
    assert trend(world).failed_share == 0.0


def test_a_second_note_within_a_minute_is_left_out(world):
    note(world)
    world.clock.advance(30)
    note(world)
    assert len(notes(world)) == 1
    world.clock.advance(30)
    note(world)
    assert len(notes(world)) == 2


def test_another_process_has_the_same_trend_and_a_restart_loses_nothing(world):
    note(world)
    work(world, done=2, failed=1)
    world.clock.advance(60)
    note(world)
    world.clock.advance(3_600)
    before = trend(world)
    assert trend(world) == before
    assert (sum(before.done), sum(before.failed)) == (2, 1)


def test_what_happened_between_two_notes_is_counted_at_the_later_one(world):
    """A service that was away for hours comes back: nothing is lost or counted twice."""
    note(world)
    world.clock.advance(10 * 3_600)
    work(world, done=5)
    note(world)
    world.clock.advance(3_600)
    found = trend(world)
    assert sum(found.done) == 5
    assert found.done[BUCKETS - 2] == 5


def test_what_no_sweeper_noted_is_counted_when_it_last_moved(world):
    note(world)
    world.clock.advance(3_600)
    work(world, done=5)
    world.clock.advance(10 * 3_600)  # nothing ran
    note(world)
    assert trend(world).done[BUCKETS - 20] == 5


def test_what_is_older_than_the_stretch_is_left_out(world):
    note(world)
    work(world, done=3)
    world.clock.advance(60)
    note(world)
    world.clock.advance(DAY_S + 600)  # less than one part before the stretch begins
    assert sum(trend(world).done) == 0
    world.clock.advance(-700)
    assert sum(trend(world).done) == 3


def test_before_the_first_note_there_is_no_trend(world):
    work(world, done=3)
    found = trend(world)
    assert (sum(found.done), sum(found.failed)) == (0, 0)
    assert (found.since, found.failed_share) == (None, None)


def test_a_trend_has_the_time_of_its_first_note(world):
    first = world.task.now()
    note(world)
    work(world, done=1, failed=1)
    world.clock.advance(3_000)
    note(world)
    world.clock.advance(600)
    found = trend(world)
    assert (found.since, found.whole, found.failed_share) == (first, False, 0.5)
    world.clock.advance(DAY_S - 3_600)
    found = trend(world)
    assert found.whole


def test_counters_that_fell_are_no_negative_numbers(world):
    now = world.task.now()
    world.accounts.directory.put_metadata(MetadataEntry(WORKLOAD, "task", TOTALS, f'[[{now},{{"done":900}}]]', now))
    world.clock.advance(60)
    found = trend(world)
    assert min(found.done + found.failed) == 0


def test_no_more_than_a_day_of_notes_is_stored(world):
    now = world.task.now()
    many = [[now - (MAX_NOTES - n) * 60_000_000, {"done": n}] for n in range(MAX_NOTES)]
    world.accounts.directory.put_metadata(MetadataEntry(WORKLOAD, "task", TOTALS, json.dumps(many), now))
    world.clock.advance(60)
    note(world)
    stored = notes(world)
    assert len(stored) == MAX_NOTES
    assert stored[0] == many[1]
    assert len(json.dumps(stored)) < 60_000


def test_a_move_that_stays_where_it_was_is_no_ending(world):
    note(world)
    work(world, failed=1)
    [job] = world.task.jobs().jobs
    for _ in range(2):
        world.task.act("dismiss", actor="tests", ids=[job.id])
    world.clock.advance(60)
    assert sum(trend(world).failed) == 1


def parts(world: World) -> tuple[float, int]:
    found = trend(world, fitting=True)
    assert len(found.done) == len(found.failed)
    assert found.end == world.task.now()
    return found.period_us / 60_000_000, len(found.done)


def test_a_trend_fits_what_ended(world):
    world.clock.advance(3 * 3_600)
    note(world)
    assert parts(world) == (30, BUCKETS)  # nothing ended in the whole day
    work(world, done=2)
    for minutes, expected in ((5, (1, 10)), (35, (1, 40)), (200, (5, 48)), (1_200, (30, 48))):
        world.clock.advance(minutes * 60)
        assert parts(world) == expected
        assert sum(trend(world, fitting=True).done) == 2


def test_a_quiet_start_is_left_out(world):
    note(world)
    world.clock.advance(6 * 3_600)
    note(world)
    world.clock.advance(20 * 60)
    work(world, done=1)
    note(world)
    world.clock.advance(10 * 60)
    assert parts(world) == (1, 30)


def charted(world: World) -> str:
    page = world.client.get("/dashboard/queues/task", headers=world.cookie("ayse")).text
    return page.partition('id="chart-throughput"')[2].partition("fold-filters")[0]


def test_charts_have_axes_units_and_values(world):
    world.person("ayse", "operator", all_sites=True)
    for n in (3, 4, 0, 5):
        note(world)
        work(world, done=n, failed=1)
        world.clock.advance(600)
    text = charted(world)
    assert "jobs per 1 min" in text
    assert "last 40 mins" in text
    assert re.findall(r"<text[^>]*>([^<]+)</text>", text.partition("</figure>")[0]) == [
        *("0", "2", "4", "6"),
        *("22:20", "22:30", "22:40", "22:50"),
    ]
    assert "<title>22:23–22:24: 3 done, 1 failed</title>" in text
    assert "Throughput over the last 40 mins: 12 done, 4 failed, with a peak of 6 in 1 min" in text


def test_a_chart_with_one_bar_is_a_number(world):
    world.person("ayse", "operator", all_sites=True)
    assert "no data yet" in charted(world)
    assert "No job is done yet." in charted(world)
    note(world)
    for _ in range(2):  # which end at once
        world.job()
    world.clock.advance(0.34)
    Worker(world.task, lambda _job: Done()).drain()
    world.clock.advance(60)
    text = charted(world)
    assert "<svg" not in text
    throughput, durations = re.findall(r'<p class="figure">([^<]+)</p>', text)
    assert (throughput, durations) == ("2", "340 ms")


def test_a_quiet_chart_says_since_when_it_was_counted(world):
    world.person("ayse", "operator", all_sites=True)
    note(world)
    world.clock.advance(600)
    assert "when counting began." in charted(world)
    for _ in range(2):
        world.clock.advance(DAY_S)
        note(world)
    assert "when counting began." not in charted(world)
    assert "Nothing has ended in the last" in charted(world)
