"""`kesin pause`, `kesin resume` and `kesin enqueue`: stop and resume claims, add jobs."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Annotated, Any

import typer

from kesin.cli.support import arguments
from kesin.cli.support.arguments import AsJson, QueueName, Several, argument, flag, option
from kesin.cli.support.context import local_operator, open_context
from kesin.cli.support.errors import FAILED, UsageError
from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.validation import BadInput
from kesin.foundation.terminal import answer, bars, cli_actor, say, say_json, warn
from kesin.store.records import Outcome

Lines = Iterator[tuple[int, str]]  # with their numbers
BATCH = 1_000
MAX_REPORTED_LINES = 20  # refused lines that are reported singly

OneTenant = Annotated[str | None, option("TENANT", "Only this tenant (in oci: site).", "--tenant")]


def pause(
    queue: QueueName,
    tenant: OneTenant = None,
    reason: Annotated[str | None, option("TEXT", "The reason, which `kesin stats` shows.")] = None,
) -> None:
    """Pause a queue.

    With --tenant, only that tenant is paused. Workers claim none of the paused jobs until you run
    `kesin resume`. Running jobs and the sweeper continue.
    """
    with open_context(create=True) as context:
        name = context.readable_queue(queue)
        details, actor = {"reason": reason} if reason else None, local_operator()
        with context.store.transaction():
            context.store.pause(name, tenant=tenant or "", actor=actor.name, reason=reason)
            context.accounts.note(actor, "queue.pause", queue=name, site=tenant, details=details)
    say(f"paused {_scope(name, tenant)}")


def resume(queue: QueueName, tenant: OneTenant = None) -> None:
    """Resume a paused queue.

    With --tenant, only that tenant is resumed. The command prints the pauses that remain.
    """
    with open_context() as context:
        name = context.readable_queue(queue)
        with context.store.transaction():
            was_paused = context.store.resume(name, tenant=tenant or "")
            context.accounts.note(local_operator(), "queue.resume", queue=name, site=tenant)
        left = [pause_row.tenant for pause_row in context.store.paused(name)]
    what = _scope(name, tenant)
    say(f"resumed {what}" if was_paused else f"{what} was not paused")
    if "" in left:
        say(f"still paused: all of {name}")
    elif left:
        say(f"still paused: {', '.join(left)} of {name}")


def _scope(queue: str, tenant: str | None) -> str:
    return f"{tenant} of {queue}" if tenant else queue


def enqueue(
    queue: QueueName,
    payload: Annotated[str, argument("JSON", "The payload, or - to read one from each input line.")],
    *,
    key: Annotated[str | None, option("KEY", "A key that only one open job can have.")] = None,
    once: Annotated[bool, flag("--once", "Keep the key until the job is pruned.")] = False,
    tenant: Annotated[str, option("TENANT", "The job's tenant (in oci: site).")] = "default",
    priority: Annotated[int, option("N", "Priority within the tenant: -1 low, 1 high, 2 urgent.")] = 0,
    delay: Annotated[float, option("SECONDS", "How long to wait until the job is due.", min=0)] = 0,
    after: Annotated[Several, option("ID", "Run after this job succeeds; repeatable.")] = None,
    lifecycle: arguments.LifecycleName = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue one job, or many.

    If the payload is -, each line of standard input is the payload of one job. If another open job
    already has the key, the command prints that job's id and succeeds.
    """
    if payload == "-" and key is not None:
        raise UsageError("--key is for a single payload, not for many from standard input")
    value = None if payload == "-" else _parse_payload(payload)
    with open_context(create=True) as context:
        opened = context.open_queue(queue, lifecycle)
        run_at = opened.now() + round(delay * 1_000_000) if delay else None
        new = NewJob(value, key, tenant, run_at, once=once, priority=priority, after=after or ())
        if payload == "-":
            lines = ((n, line) for n, line in enumerate(sys.stdin, 1) if line.strip())
            _enqueue_lines(opened, lines, new, as_json=as_json)
        else:
            [outcome] = opened.enqueue_many([new], actor=cli_actor())
            if isinstance(outcome, BadInput):
                raise outcome
            word = "duplicate of" if outcome.result == "duplicate" else outcome.result
            record = {"result": outcome.result, "id": outcome.id, "state": outcome.state}
            answer(record, f"{word} {outcome.id} ({outcome.state})", as_json=as_json)


def _enqueue_lines(queue: Queue, lines: Lines, new: NewJob, *, as_json: bool) -> None:
    inserted, refused = 0, list[tuple[int, str]]()
    with bars(shown=not as_json) as bar:
        advance = bar("enqueueing", None)
        while batch := list(islice(lines, BATCH)):
            for number, outcome in _enqueue_batch(queue, iter(batch), new):
                if isinstance(outcome, str):
                    refused.append((number, outcome))
                else:
                    inserted += 1
                if as_json:
                    record = {"error": outcome} if isinstance(outcome, str) else {"id": outcome.id}
                    say_json({"line": number, **record}, line=True)
            advance(len(batch))
    for number, why in refused[:MAX_REPORTED_LINES]:
        warn(f"line {number}: {why}")
    if len(refused) > MAX_REPORTED_LINES:
        warn(f"refused lines not listed: {len(refused) - MAX_REPORTED_LINES}")
    if not as_json:
        say(f"inserted {inserted:,}, refused {len(refused):,}")
    if refused:
        raise typer.Exit(FAILED)


def _enqueue_batch(queue: Queue, lines: Lines, new: NewJob) -> Iterator[tuple[int, Outcome | str]]:
    """Enqueue a batch of lines: line number and outcome, or why it was refused."""
    good: list[tuple[int, NewJob]] = []
    for number, line in lines:
        try:
            good.append((number, replace(new, payload=_parse_payload(line))))
        except UsageError as problem:
            yield number, str(problem)
    outcomes = queue.enqueue_many([job for _, job in good], actor=cli_actor())
    for (number, _), outcome in zip(good, outcomes, strict=True):
        yield number, str(outcome) if isinstance(outcome, BadInput) else outcome


def _parse_payload(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        hint = ", quote text like '\"hello\"'" if not text.lstrip().startswith(("{", "[")) else ""
        raise UsageError(f"the payload is not JSON ({problem}){hint}") from None
