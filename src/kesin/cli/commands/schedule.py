"""`kesin schedule`: list schedules, and enqueue the job of a schedule now."""

from typing import Annotated, Any

import typer

from kesin.cli.support.arguments import AsJson, LifecycleName, QueueName, QueueNames, argument
from kesin.cli.support.context import open_context
from kesin.cli.support.records import print_records
from kesin.engine.schedules import ListedSchedule, listed_schedules, run_now
from kesin.foundation.clock import iso, wall_clock_us
from kesin.foundation.terminal import answer, cli_actor, say

app = typer.Typer(no_args_is_help=True)
COLUMNS = ("queue", "name", "cron", "timezone", "tenant", "catch_up", "next_at", "last_job")


@app.command("list")
def list_schedules(queues: QueueNames = None, as_json: AsJson = False) -> None:
    """List schedules with their next tick and their last job.

    A schedule enqueues at most one job per tick. After an outage, it enqueues at most catch_up jobs
    for all missed ticks together.
    """
    with open_context() as context:
        names, now = context.readable_queues(queues), wall_clock_us()
        records = [_record(listed) for name in names for listed in listed_schedules(context.store, name, now)]
    none = "there is no schedule: declare schedules with Queue(…, schedules=[…])"
    print_records(records, COLUMNS, {}, as_json=as_json, empty=none)
    for record in () if as_json else records:
        missed = f"and at most {record['catch_up']} for all missed ticks"
        say(f"{record['queue']}: {record['name']} enqueues at most 1 job per tick, {missed}.")


@app.command("run")
def run_schedule(
    queue: QueueName,
    name: Annotated[str, argument("NAME", "The schedule's name.")],
    lifecycle: LifecycleName = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue a schedule's job now, in addition to its ticks."""
    with open_context() as context:
        outcome = run_now(context.open_queue(queue, lifecycle), name, actor=cli_actor())
    text = f"{outcome.result} {outcome.id} ({outcome.state})"
    answer({"result": outcome.result, "id": outcome.id}, text, as_json=as_json)


def _record(listed: ListedSchedule) -> dict[str, Any]:
    schedule = listed.schedule
    return {
        "queue": listed.queue,
        **{name: getattr(schedule, name) for name in COLUMNS[1:6]},
        "payload": schedule.payload,
        "next_at": iso(listed.next_at),
        "last_job": listed.last_job,
    }
