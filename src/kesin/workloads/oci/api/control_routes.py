"""The routes for operators and cron callers: statistics, rows, actions, credentials, sweeps."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.responses import StreamingResponse

from kesin.engine.access.listing import found_jobs
from kesin.engine.queue import apply_changes
from kesin.engine.sweeper import BATCH, MAX_BATCHES_PER_MOVE
from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Invalid, Problem
from kesin.foundation.text import csv_text
from kesin.lifecycle.budget import MINUTE_S, SECOND_US
from kesin.lifecycle.model import Change
from kesin.store.records import Filter, MoveCount
from kesin.web.dependencies import SignedInActor, csv_response, require_cron
from kesin.web.schemas import Cursor
from kesin.workloads.common.advice import Language
from kesin.workloads.common.stores import job_pages
from kesin.workloads.oci import operations, script
from kesin.workloads.oci.api import schemas
from kesin.workloads.oci.conversions import corrections
from kesin.workloads.oci.conversions.actions import merge_actions
from kesin.workloads.oci.conversions.conversion import INPUT_FIELDS
from kesin.workloads.oci.google.channel import MAX_ROWS
from kesin.workloads.oci.google.circuit_breaker import seal_credentials
from kesin.workloads.oci.google.connection_check import channels_of, check_site
from kesin.workloads.oci.google.credentials import GoogleCredentials, vault_name
from kesin.workloads.oci.lifecycle import QUEUE
from kesin.workloads.oci.site import SiteContext, SiteSettings, require_site, validate_settings, visible_sites
from kesin.workloads.oci.uploader import AdjustmentUploader, Uploader

MAX_PAGE_ROWS: Final = 200
MAX_FIXES: Final = 1_000
FIXES: Final = ("CORRECT", "ENQUEUE_FIX")
ACTIONS: Final = (*operations.ACTIONS, *FIXES)


def _names(kind: type[GoogleCredentials | SiteSettings]) -> dict[str, Any]:
    return {"propertyNames": {"enum": [*kind.__dataclass_fields__]}}


SiteId = Annotated[str | None, Query(alias="siteId", max_length=128)]
PathId = Annotated[str, Path(min_length=1, max_length=128)]
# Objects whose fields are checked, and refused by name, where they are stored.
Document = Annotated[dict[str, Any], Body(json_schema_extra=_names(GoogleCredentials))]
Settings = Annotated[dict[str, Any], Body(json_schema_extra=_names(SiteSettings))]
FilterValues = Annotated[list[Annotated[str, Query(max_length=64)]] | None, Query(max_length=100)]


# The options of a route that sends a CSV.
CSV_FILE: Final[dict[str, Any]] = {
    "response_class": StreamingResponse,
    "responses": {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
}


def add_read_routes(router: APIRouter, context: WorkloadContext) -> None:
    @router.get("/api/oci/queue-stats", response_model_exclude_unset=True)
    def queue_stats(
        actor: SignedInActor, site_id: SiteId = None, scope: Literal["site", "multi"] = "site"
    ) -> schemas.AllTotals:
        """Counts and warnings of a site, or of all your sites."""
        if scope == "site":
            site = require_site(context, actor, site_id, "read", action="oci.stats")
            return schemas.AllTotals(**_site_totals(site).model_dump(exclude_unset=True))
        context.commands.accounts.require(actor, "read", "oci.stats", queue="oci")
        move_counts = context.queue.store.move_counts("oci")
        sites = visible_sites(context, actor)
        return _sum_totals([_site_totals(site, move_counts) for site in sites])

    @router.get("/api/oci/manager/sites")
    def manager_sites(actor: SignedInActor, *, starts: bool = False) -> list[schemas.ManagedSite]:
        """The sites for a manager script: at most 50, the least recently served first.

        Returns sites on the `script` channel that have a `customer_id` and that the key may access.
        With ``starts``, these sites come last next time, even if this run ends before serving them.
        """
        context.commands.accounts.require(actor, "oci:script", "oci.manager", queue="oci")
        made, sites = schemas.ManagedSite, script.managed_sites(context, actor, starts=starts)
        return [made(site_id=site.id, customer_id=site.settings.customer_id) for site in sites]

    @router.get("/api/oci/queue-rows")
    def queue_rows(  # noqa: PLR0917  # each one is a query parameter
        actor: SignedInActor,
        site_id: SiteId = None,
        status: FilterValues = None,
        code: FilterValues = None,
        category: FilterValues = None,
        search: Annotated[str | None, Query(alias="q", max_length=512)] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE_ROWS)] = 100,
        cursor: Cursor = None,
    ) -> schemas.RowPage:
        """A page of rows, newest first, filtered by state, code or category, or found by id.

        Searching by click id requires permission to reveal click ids.
        """
        site = require_site(context, actor, site_id, "read", action="oci.rows")
        where = {"status": status or [], "code": code or [], "category": category or []}
        sought, commands = operations.search_rows(site, actor, where, search), context.commands
        if sought.ids is None:
            read = partial(commands.jobs, limit=limit, cursor=cursor, reveal="texts")
            page = read(actor, "oci", sought.where)
            jobs, following = page.jobs, page.cursor
        else:
            found = found_jobs(commands, actor, "oci", sought, reveal="texts")
            jobs, following = found[:limit], None
        rows = [schemas.ConversionRowBody(**operations.row_columns(job)) for job in jobs]
        return schemas.RowPage(site_id=site.id, rows=rows, next_cursor=following)

    @router.get("/api/oci/dead-letter.csv", **CSV_FILE)
    def dead_letter_csv(
        actor: SignedInActor,
        site_id: SiteId = None,
        code: FilterValues = None,
        language: Annotated[Language, Query(alias="lang")] = "en",
    ) -> StreamingResponse:
        """The FAILED rows, or only those with the given codes, as a file to correct and post again.

        The file includes the click ids if you may reveal them.
        """
        site = require_site(context, actor, site_id, "read", action="oci.dead_letters")
        site.note(actor, "oci.dead_letters", {"revealed": actor.has("reveal")})
        pages = corrections.dead_letter_pages(site, actor, language, code or ())
        chunks = chain([corrections.BYTE_ORDER_MARK], map(csv_text, pages))
        return csv_response(f"dead-letters-{site.id}", chunks)


def add_action_routes(router: APIRouter, batch_router: APIRouter, context: WorkloadContext) -> None:
    @batch_router.post("/api/oci/queue-actions", response_model_exclude_none=True)
    def queue_actions(actor: SignedInActor, body: schemas.QueueActionBody) -> schemas.Acted:
        """Apply an operator's action to rows of a site, by id or by filter."""
        action = f"queue.{body.action[:40]}"
        site = require_site(context, actor, body.site_id, "operate", action=action)
        if body.action not in ACTIONS:
            raise Problem(f"action must be one of {', '.join(ACTIONS)}", code="unknown_action")
        if body.dry_run and body.action not in operations.ACTIONS:
            known = ", ".join(operations.ACTIONS)
            raise Invalid("dryRun is only for %(known)s", details={"field": "dryRun"}, known=known)
        if body.action in FIXES:
            result = _fix_rows(site, actor, body)
        else:
            criteria = None if body.filter is None else body.filter.model_dump()
            if body.all != (criteria is not None and not any(criteria.values())):
                why = "send all: true with an empty filter (all rows of the site), and only then"
                raise Invalid(why, code="bad_selection", details={"field": "all"})
            where = None if criteria is None else operations.build_filter(site, criteria)
            terms: dict[str, Any] = {"code": body.error_code, "category": body.error_category}
            terms |= {"clear_errors": body.clear_errors, "dry_run": body.dry_run}
            result = operations.run_action(
                site, actor, body.action, ids=body.ids, where=where, reason=body.reason, **terms
            )
        planned = [
            schemas.PlannedRows(state=state, reason=reason, rows=n)
            for (state, reason), n in (result.planned or {}).items()
        ]
        counts = {name: getattr(result, name) for name in ("affected", "already", "refused_count")}
        return schemas.Acted(
            asked=sum(counts.values()),
            **counts,
            refused=[schemas.RefusedRow(id=row, reason=why) for row, why in result.refused],
            planned=None if result.planned is None else planned,
            more=result.more or None,
        )

    @router.post("/api/oci/actions")
    def post_actions(actor: SignedInActor, body: schemas.ActionsBody) -> dict[str, list[str]]:
        """Store the conversion actions of a script's account; returns the names that changed."""
        site = require_site(context, actor, body.site_id, "oci:script", action="oci.actions")
        script.require_channel(site)
        listed = [(each.pop("status"), each) for each in body.model_dump()["actions"]]
        merge = partial(merge_actions, listed=listed, shortens=False)
        return site.change_actions(actor, "script", lambda own: merge(own.actions, usual=[own.conversion_name]))


def add_site_routes(router: APIRouter, context: WorkloadContext) -> None:
    @router.put("/api/oci/credentials")
    def put_credentials(actor: SignedInActor, body: schemas.CredentialsBody) -> schemas.Ok:
        """Seal and store a site's credentials, which are never returned, and close the breaker."""
        site = require_site(context, actor, body.site_id, "admin", action="oci.credentials")
        seal_credentials(site, actor, body.credentials)
        return schemas.Ok()

    @router.put("/api/oci/sites/{site_id}/credentials")
    def put_site_credentials(actor: SignedInActor, site_id: PathId, body: Document) -> dict[str, list[str]]:
        """Seal and store the credentials in the request body; returns their field names."""
        site = require_site(context, actor, site_id, "admin", action="oci.credentials")
        seal_credentials(site, actor, body)
        return {"set": sorted(name for name, value in body.items() if value not in {None, ""})}

    @router.patch("/api/oci/sites/{site_id}/settings")
    def patch_settings(actor: SignedInActor, site_id: PathId, body: Settings) -> dict[str, Any]:
        """Change a site's settings; null removes a setting. Returns all settings that are set."""
        site = require_site(context, actor, site_id, "admin", action="site.set")
        store = context.commands.accounts.set_site_settings
        return store(actor, site.id, site.queue.name, validate_settings(body))

    @router.delete("/api/oci/credentials")
    def drop_credentials(actor: SignedInActor, site_id: SiteId = None) -> schemas.Ok:
        """Delete a site's credentials."""
        site = require_site(context, actor, site_id, "admin", action="oci.credentials")
        context.vault.drop(actor, vault_name(site.id))
        return schemas.Ok()

    @router.post("/api/oci/credentials/check")
    def check_credentials(actor: SignedInActor, site_id: SiteId = None) -> schemas.Checked:
        """Test the credentials, the account and the action; if all pass, the breaker closes."""
        site = require_site(context, actor, site_id, "operate", action="oci.check")
        findings = check_site(site)
        site.note(actor, "oci.check")
        lines = [schemas.FindingBody(**asdict(finding)) for finding in findings]
        return schemas.Checked(ok=all(finding.ok for finding in findings), findings=lines)


def _fix_rows(site: SiteContext, actor: Actor, body: schemas.QueueActionBody) -> operations.ActionResult:
    if not body.ids:
        raise Invalid(f"{body.action} needs ids", code="bad_selection", details={"field": "ids"})
    if body.action == "CORRECT" and not body.conversion:
        raise Invalid("CORRECT needs the fields to change", details={"field": "conversion"})
    if unknown := sorted((body.conversion or {}).keys() - {*INPUT_FIELDS}):
        name = f"conversion.{unknown[0][:64]}"
        details = {"field": name}
        raise Invalid("%(field)s is not a field of a conversion", details=details, field=name)
    if len(body.ids) > MAX_FIXES:
        raise Invalid(f"at most {MAX_FIXES} rows per request", details={"field": "ids"})
    ids, changes = operations.strip_seals(body.ids), body.conversion or {}
    if changes and len(ids) > 1:
        raise Problem("change one row at a time", code="bad_selection", details={"field": "ids"})
    payloads = site.payloads(ids)
    rows = [{**changes, "externalId": old.get("externalId")} for old in payloads.values()]
    how: dict[str, Any] = {"again": body.action == "ENQUEUE_FIX", "taken": body.taken}
    results = corrections.fix_rows(site, actor, rows, reason=body.reason, **how)
    refused = [(each, "this site has no such row") for each in ids if each not in payloads]
    refused += [
        (job_id, result.message or "it is in progress, or nothing was changed")
        for job_id, result in zip(payloads, results, strict=True)
        if not result.is_change
    ]
    return operations.ActionResult(len(ids) - len(refused), refused)


def _site_totals(site: SiteContext, moves: Sequence[MoveCount] | None = None) -> schemas.SiteTotals:
    stats = operations.SiteStats(site, moves)
    return schemas.SiteTotals(site_id=site.id, stuck_processing=stats.stuck, **stats.record())


def _sum_totals(sites: list[schemas.SiteTotals]) -> schemas.AllTotals:
    totals = {state: sum(site.totals[state] for site in sites) for state in operations.STATES}
    counted = ("stuck_processing", "expiring_soon", "withheld")
    sums: dict[str, Any] = {name: sum(getattr(it, name) for it in sites) for name in counted}
    failed = totals["FAILED"] - sums["withheld"]
    ended = failed + totals["COMPLETED"]
    sums["failed_share"] = round(failed / ended, 4) if ended else 0.0
    if not sums["withheld"]:
        del sums["withheld"]
    for name, pick in {"oldest_queued_at": min, "last_updated_at": max, "last_ack_at": max}.items():
        sums[name] = pick(filter(None, (getattr(it, name) for it in sites)), default=None)
    warned = [{"siteId": site.site_id or "", **each} for site in sites for each in site.warnings]
    about = {"site_id": None, "breaker": None, "warnings": warned, "sites": sites}
    return schemas.AllTotals(totals=totals, **about, **sums)


MINUTE_US = MINUTE_S * SECOND_US


def add_cron_routes(router: APIRouter, context: WorkloadContext) -> None:
    accounts = context.commands.accounts

    def cron_recover(request: Request, min_age_minutes: Annotated[int, Query(ge=0, le=1_440)] = 0) -> schemas.Recovered:
        """Recover rows whose claim has expired."""
        actor = require_cron(request, "cron.oci", "oci")
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
        actor = require_cron(request, "cron.oci", "oci")
        arguments = {"max_attempts": max_attempts, "min_age_minutes": min_age_minutes}
        age_us = (min_age_minutes or 0) * MINUTE_US
        moved = _sweep(context, "attempt_cap", age_us, max_attempts)
        if max_attempts is not None or min_age_minutes is not None:  # else a last attempt may end
            moved += _cap_in_flight(context, age_us, max_attempts)
        accounts.note(actor, "cron.attempt_cap", queue="oci", details={"moved": moved, **arguments})
        return schemas.Capped(affected=moved)

    def cron_process(request: Request, limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = 50) -> schemas.Processed:
        """Run the upload workers once; sites take turns, and adjustments follow conversions."""
        actor = require_cron(request, "cron.oci", "oci")
        channels, adjusting = channels_of(context.settings), context.commands.queues[QUEUE]
        ended = Uploader(context, channels, limit=limit, threads=1).run_once()
        beside = replace(context, queue=adjusting)
        ended += AdjustmentUploader(beside, channels, limit=limit, threads=1).run_once()
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
