"""The routes for cron callers: recover rows, apply the attempt cap, run a turn of our worker."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from kesin.engine.queue import apply_changes
from kesin.engine.sweeper import BATCH, MAX_BATCHES_PER_MOVE
from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Forbidden
from kesin.lifecycle.budget import MINUTE_S, SECOND_US
from kesin.lifecycle.model import Change
from kesin.store.records import Filter
from kesin.workloads.common.stores import job_pages
from kesin.workloads.oci.adjustments.lifecycle import QUEUE
from kesin.workloads.oci.adjustments.sender import AdjustmentUploader
from kesin.workloads.oci.api import schemas
from kesin.workloads.oci.google.channel import MAX_ROWS
from kesin.workloads.oci.google.channels import channels_of
from kesin.workloads.oci.uploader import build_worker

MINUTE_US = MINUTE_S * SECOND_US


def add_cron_routes(router: APIRouter, context: WorkloadContext) -> None:
    accounts = context.commands.accounts

    def cron_recover(
        request: Request, min_age_minutes: Annotated[int, Query(ge=0, le=1_440)] = 0
    ) -> schemas.Recovered:
        """Recover rows whose claim has expired."""
        actor = _require_cron(context, request)
        arguments = {"min_age_minutes": min_age_minutes}
        moved = _sweep(context, "recover", min_age_minutes * MINUTE_US, None)  # FAILED rows stay
        accounts.note(actor, "cron.recover", queue="oci", details={"moved": moved, **arguments})
        return schemas.Recovered(recovered=moved)

    def cron_attempt_cap(
        request: Request,
        max_attempts: Annotated[int | None, Query(ge=1, le=20)] = None,
        min_age_minutes: Annotated[int | None, Query(ge=0, le=1_440)] = None,
    ) -> schemas.Capped:
        """Fail rows whose attempts are used up; with a query parameter, also rows in PROCESSING."""
        actor = _require_cron(context, request)
        arguments = {"max_attempts": max_attempts, "min_age_minutes": min_age_minutes}
        age_us = (min_age_minutes or 0) * MINUTE_US
        moved = _sweep(context, "attempt_cap", age_us, max_attempts)
        if max_attempts is not None or min_age_minutes is not None:  # else a last attempt may end
            moved += _cap_in_flight(context, age_us, max_attempts)
        accounts.note(actor, "cron.attempt_cap", queue="oci", details={"moved": moved, **arguments})
        return schemas.Capped(affected=moved)

    def cron_process(
        request: Request, limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = 50
    ) -> schemas.Processed:
        """Run the upload workers once; sites take turns, and adjustments follow conversions."""
        actor = _require_cron(context, request)
        channels, adjusting = channels_of(context.settings), context.commands.queues[QUEUE]
        ended = build_worker(context, channels, limit=limit, threads=1).run_once()
        how: dict[str, Any] = {"limit": limit, "threads": 1, "kind": AdjustmentUploader}
        ended += build_worker(replace(context, queue=adjusting), channels, **how).run_once()
        accounts.note(actor, "cron.process", queue="oci", details={"moved": ended.total()})
        counts = {state.lower(): ended[state] for state in ("COMPLETED", "FAILED", "RETRY")}
        return schemas.Processed(processed=ended.total(), **counts)

    for task, handler in (
        ("recover-processing", cron_recover),
        ("attempt-cap", cron_attempt_cap),
        ("process-offline-conversions", cron_process),
    ):
        for method in ("GET", "POST"):  # not every scheduler can send both
            name, path = f"{handler.__name__}_{method.lower()}", f"/api/cron/oci/{task}"
            router.add_api_route(path, handler, methods=[method], operation_id=name)


def _require_cron(context: WorkloadContext, request: Request) -> Actor:
    """The actor that knows the cron secret; raises Forbidden for any other."""
    actor: Actor = request.state.actor
    if not actor.has("cron"):
        if actor.grants:  # an anonymous request is not logged: it could fill the log
            context.commands.accounts.note(actor, "cron.oci", allowed=False, queue="oci")
        raise Forbidden("the cron secret is not set or does not match")
    return actor


def _cap_in_flight(context: WorkloadContext, min_age_us: int, max_attempts: int | None) -> int:
    """Fail rows in PROCESSING whose attempts are spent, by the given cap or by that of each."""
    queue, moved = context.queue, 0
    moved_until = queue.now() - min_age_us
    for page in job_pages(queue, Filter(states=("PROCESSING",))):
        changes = [
            Change(job.id, job.claim_seq)  # a later claim is not capped
            for job in page
            if job.moved_at <= moved_until
            and job.attempt_count - job.attempt_base >= (max_attempts or job.max_attempts)
        ]
        outcomes = apply_changes(queue, "cap_in_flight", changes, actor="clock") if changes else []
        moved += sum(outcome.result == "moved" for outcome in outcomes)
    return moved


def _sweep(context: WorkloadContext, name: str, min_age_us: int, max_attempts: int | None) -> int:
    queue, moved = context.queue, 0
    limits: dict[str, Any] = {"min_age_us": min_age_us, "max_attempts": max_attempts}
    for move in [each for each in queue.lifecycle.scheduled_moves if each.name == name]:
        for _ in range(MAX_BATCHES_PER_MOVE):
            done = queue.store.sweep(queue.name, move, limit=BATCH, now=queue.clock.now(), **limits)
            moved += done
            if done < BATCH:
                break
    return moved
