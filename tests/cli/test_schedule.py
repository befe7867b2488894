"""`kesin schedule`: schedules are listed, and a job of one is enqueued."""

from kesin import Queue, Schedule, open_store, task_lifecycle

NIGHTLY = Schedule("nightly", "0 3 * * *", {"kind": "sales"}, "Europe/Istanbul")


def declare(database) -> Queue:
    return Queue("reports", task_lifecycle(), open_store(database), schedules=[NIGHTLY])


def test_schedules_are_listed_with_their_next_tick_and_the_job_of_the_latest(kesin, database):
    open_store(database).close()
    assert kesin("schedule", "list", "--json").json == []
    assert "there is no schedule" in kesin("schedule", "list").out
    queue = declare(database)
    [listed] = kesin("schedule", "list", "--json").json
    next_at = listed.pop("next_at")
    assert next_at.endswith("T00:00:00.000000Z")
    assert listed == {
        "queue": "reports",
        "name": "nightly",
        "cron": "0 3 * * *",
        "timezone": "Europe/Istanbul",
        "tenant": "default",
        "catch_up": 1,
        "payload": {"kind": "sales"},
        "last_job": None,
    }
    *table, bound = kesin("schedule", "list", "reports").out.splitlines()
    assert any(line.startswith("reports") and "nightly" in line for line in table)
    missed = "and at most 1 for all missed ticks"
    assert bound == f"reports: nightly enqueues at most 1 job per tick, {missed}."
    [made] = queue.enqueue_many([NIGHTLY.job_at(NIGHTLY.latest(queue.now(), 1)[0])])
    [listed] = kesin("schedule", "list", "--json").json
    assert listed["last_job"] == made.id


def test_a_job_is_made_at_once(kesin, database):
    queue = declare(database)
    answer = kesin("schedule", "run", "reports", "nightly", "--json").json
    assert queue.job(answer["id"]).payload == {"kind": "sales"}
    unknown = kesin("schedule", "run", "reports", "weekly")
    assert (unknown.code, unknown.err.count("\n")) == (2, 1)
    assert "no schedule 'weekly'" in unknown.err
