"""The operator's doors and the cron caller's: what is where, what to do with it, run it now."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import StreamingResponse

from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import iso
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Invalid, Problem
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.directory import Site
from kesin.store.records import Flow
from kesin.workloads.oci import operations
from kesin.workloads.oci.advice import Language, advice
from kesin.workloads.oci.api import schemas
from kesin.workloads.oci.api.common import Asker, SiteId, cron_caller
from kesin.workloads.oci.conversions.corrections import dead_letters, fix_chosen
from kesin.workloads.oci.google.channel import MAX_ROWS
from kesin.workloads.oci.google.channels import channels_of
from kesin.workloads.oci.google.connection_check import check_site
from kesin.workloads.oci.google.credentials import Credentials, vault_name
from kesin.workloads.oci.google.pending_uploads import dismiss
from kesin.workloads.oci.operations import attempt_cap, recover_processing
from kesin.workloads.oci.site import admitted, visible
from kesin.workloads.oci.uploader import worker_of

MOST_ROWS: Final = 200
MOST_FIXES: Final = 1_000
FIXES: Final = ("CORRECT", "ENQUEUE_FIX")
DISMISS: Final = "DISMISS_WARNING"
ACTIONS: Final = (*operations.ACTIONS, *FIXES, DISMISS)
CURSOR: Final = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"

Words = Annotated[list[Annotated[str, Query(max_length=64)]] | None, Query(max_length=100)]


def control_routes(router: APIRouter, house: WorkloadContext) -> None:
    """The routes."""
    _reading(router, house)
    _acting(router, house)
    _cron(router, house)


def _reading(router: APIRouter, house: WorkloadContext) -> None:
    @router.get("/api/oci/queue-stats", response_model_exclude_unset=True)
    def queue_stats(
        actor: Asker,
        site_id: SiteId = None,
        scope: Literal["site", "multi"] = "site",
    ) -> schemas.AllTotals:
        """How a site stands, or all that are yours; with warnings."""
        if scope == "site":
            site = admitted(house, actor, site_id, "read", action="oci.stats")
            told = _totals(house, site, operations.site_stats(house, site, _flows(house)))
            return schemas.AllTotals(**told.model_dump())
        house.commands.accounts.require(actor, "read", "oci.stats", queue="oci")
        sites, flows = visible(house, actor), _flows(house)
        every = [_totals(house, one, operations.site_stats(house, one, flows)) for one in sites]
        return _together(every)

    @router.get("/api/oci/queue-rows")
    def queue_rows(  # noqa: PLR0917  # each one is a query parameter
        actor: Asker,
        site_id: SiteId = None,
        status: Words = None,
        code: Words = None,
        category: Words = None,
        search: Annotated[str | None, Query(alias="q", max_length=512)] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 100,
        cursor: Annotated[str | None, Query(pattern=CURSOR)] = None,
    ) -> schemas.RowPage:
        """A page of rows, newest first; by state, code, category, or found by any of its names."""
        site = admitted(house, actor, site_id, "read", action="oci.rows")
        wanted = {"status": status or [], "code": code or [], "category": category or []}
        found, following = operations.rows(
            house, site, wanted=wanted, search=search, limit=limit, cursor=cursor
        )
        return schemas.RowPage(
            site_id=site.id, rows=[row_body(one) for one in found], next_cursor=following
        )

    @router.get("/api/oci/codes/{code}")
    def explain_code(
        _actor: Asker,
        code: Annotated[str, Path(min_length=1, max_length=64)],
        category: Annotated[Category | None, Query()] = None,
        language: Annotated[Language, Query(alias="lang")] = "en",
    ) -> schemas.AdviceBody:
        """What an error code means, who must act, and what happens next."""
        told = advice(code, category, language)
        return schemas.AdviceBody(
            code=told.code, who=told.who, means=told.means, act=told.act, next=told.next
        )

    @router.get(
        "/api/oci/dead-letter.csv",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
    )
    def dead_letter_csv(
        actor: Asker,
        site_id: SiteId = None,
        language: Annotated[Language, Query(alias="lang")] = "en",
    ) -> StreamingResponse:
        """The FAILED rows as a file; mended and posted back, they are tried again."""
        site = admitted(house, actor, site_id, "read", action="oci.dead_letters")
        name = f"dead-letters-{site.id}.csv"
        return StreamingResponse(
            dead_letters(house, site, language=language),
            media_type="text/csv; charset=utf-8",
            headers={
                "content-disposition": f'attachment; filename="{name}"',
                "cache-control": "private, no-store",
            },
        )


def _acting(router: APIRouter, house: WorkloadContext) -> None:
    @router.post("/api/oci/queue-actions", response_model_exclude_none=True)
    def queue_actions(actor: Asker, asked: schemas.ActionBody) -> schemas.Acted:
        """An operator's action on rows of a site, by ids or by what they have in common."""
        site = admitted(house, actor, asked.site_id, "operate", action=f"queue.{asked.action[:40]}")
        if asked.action not in ACTIONS:
            raise Problem(f"action is one of {', '.join(ACTIONS)}", code="unknown_action")
        if asked.action in FIXES:
            done = _fix(house, actor, site, asked)
        elif asked.action == DISMISS:
            dismiss(house, site)
            house.commands.accounts.note(actor, "oci.dismiss", queue="oci", site=site.id)
            done = operations.Acted(0, [])
        else:
            where = None
            if asked.filter is not None:
                where = operations.filter_of(site, asked.filter.model_dump())
            done = operations.act(
                house,
                actor,
                site,
                asked.action,
                ids=asked.ids,
                where=where,
                reason=asked.reason,
                code=asked.error_code,
                category=asked.error_category,
                clear_errors=asked.clear_errors,
            )
        told = [schemas.RefusedRow(id=one, reason=why) for one, why in done.refused]
        return schemas.Acted(affected=done.affected, refused=told, more=done.more or None)

    @router.put("/api/oci/credentials")
    def put_credentials(actor: Asker, told: schemas.CredentialsBody) -> schemas.Ok:
        """Seal a site's credentials; nothing sends them back."""
        site = admitted(house, actor, told.site_id, "admin", action="oci.credentials")
        credentials = Credentials.read(told.credentials)
        house.vault.put(actor, vault_name(site.id), credentials.sealed_text())
        return schemas.Ok()

    @router.delete("/api/oci/credentials")
    def drop_credentials(actor: Asker, site_id: SiteId = None) -> schemas.Ok:
        """Forget a site's credentials."""
        site = admitted(house, actor, site_id, "admin", action="oci.credentials")
        house.vault.drop(actor, vault_name(site.id))
        return schemas.Ok()

    @router.post("/api/oci/credentials/check")
    def check_credentials(actor: Asker, site_id: SiteId = None) -> schemas.Checked:
        """Try token, account and action without recording anything; well, the breaker closes."""
        site = admitted(house, actor, site_id, "operate", action="oci.check")
        findings = check_site(house, site, channels_of(house.settings))
        house.commands.accounts.note(actor, "oci.check", queue="oci", site=site.id)
        return schemas.Checked(
            ok=all(one.ok for one in findings),
            findings=[
                schemas.FindingBody(name=one.name, ok=one.ok, detail=one.detail, advice=one.advice)
                for one in findings
            ],
        )


def _fix(
    house: WorkloadContext, actor: Actor, site: Site, asked: schemas.ActionBody
) -> operations.Acted:
    if not asked.ids:
        raise Invalid(f"{asked.action} needs ids", code="bad_selection", details={"field": "ids"})
    if asked.action == "CORRECT" and not asked.conversion:
        raise Invalid("say what to change", details={"field": "conversion"})
    if len(asked.ids) > MOST_FIXES:
        raise Invalid(f"at most {MOST_FIXES} rows a call", details={"field": "ids"})
    affected, refused = fix_chosen(
        house,
        actor,
        site,
        operations.bare(asked.ids),
        asked.conversion,
        reason=asked.reason,
        again=asked.action == "ENQUEUE_FIX",
    )
    return operations.Acted(affected, refused)


def _cron(router: APIRouter, house: WorkloadContext) -> None:
    accounts = house.commands.accounts

    def cron_recover(
        request: Request, min_age_minutes: Annotated[int, Query(ge=0, le=1_440)] = 0
    ) -> schemas.Recovered:
        """Take back rows whose claim ran out."""
        actor = cron_caller(house, request)
        asked = {"min_age_minutes": min_age_minutes}
        moved = recover_processing(house, min_age_minutes=min_age_minutes)
        accounts.note(actor, "cron.recover", queue="oci", details={"moved": moved, **asked})
        return schemas.Recovered(recovered=moved)

    def cron_attempt_cap(
        request: Request,
        max_attempts: Annotated[int | None, Query(ge=1, le=20)] = None,
        min_age_minutes: Annotated[int, Query(ge=0, le=1_440)] = 0,
    ) -> schemas.Capped:
        """Fail rows whose budget is spent."""
        actor = cron_caller(house, request)
        asked = {"max_attempts": max_attempts, "min_age_minutes": min_age_minutes}
        moved = attempt_cap(house, max_attempts=max_attempts, min_age_minutes=min_age_minutes)
        accounts.note(actor, "cron.attempt_cap", queue="oci", details={"moved": moved, **asked})
        return schemas.Capped(affected=moved)

    def cron_process(
        request: Request, limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = 50
    ) -> schemas.Processed:
        """One turn of our worker, shared fairly between the sites."""
        actor = cron_caller(house, request)
        worker = worker_of(house, channels_of(house.settings), limit=limit, threads=1)
        ended = worker.turn()
        accounts.note(actor, "cron.process", queue="oci", details={"moved": ended.total()})
        return schemas.Processed(
            processed=ended.total(),
            completed=ended["COMPLETED"],
            failed=ended["FAILED"],
            retry=ended["RETRY"],
        )

    for path, handler in (
        ("recover-processing", cron_recover),
        ("attempt-cap", cron_attempt_cap),
        ("process-offline-conversions", cron_process),
    ):
        for method in ("GET", "POST"):  # schedulers differ in what they can send
            router.add_api_route(
                f"/api/cron/oci/{path}",
                handler,
                methods=[method],
                operation_id=f"{handler.__name__}_{method.lower()}",
            )


def _flows(house: WorkloadContext) -> list[Flow]:
    return house.queue.store.flows(house.queue.name)


def row_body(job: Job) -> schemas.RowBody:
    """A row as it is sent."""
    told = operations.columns(job)
    kept = job.data if isinstance(job.data, dict) else {}
    times = {name: iso(value) for name, value in told.items() if name.endswith("_at")}
    named = {name: _text(kept.get(name)) for name in ("orderId", "externalId")}
    return schemas.RowBody(**{**told, **times, **named})


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _totals(house: WorkloadContext, site: Site, stats: operations.SiteStats) -> schemas.SiteTotals:
    state = stats.breaker.state(house.queue.now()) if site.channel != "script" else None
    return schemas.SiteTotals(
        site_id=site.id,
        totals=stats.totals,
        stuck_processing=stats.stuck,
        failed_share=round(stats.failed_share, 4),
        oldest_queued_at=iso(stats.oldest_queued_at),
        expiring_soon=stats.expiring_soon,
        last_updated_at=iso(stats.last_updated_at),
        last_ack_at=iso(stats.last_ack_at),
        breaker=state,
        warnings=stats.warnings,
    )


def _together(every: list[schemas.SiteTotals]) -> schemas.AllTotals:
    totals = {state: sum(one.totals[state] for one in every) for state in operations.STATES}
    ended = totals["FAILED"] + totals["COMPLETED"]
    share = round(totals["FAILED"] / ended, 4) if ended else 0.0
    warnings = [
        {"siteId": one.site_id or "", **warning} for one in every for warning in one.warnings
    ]
    return schemas.AllTotals(
        site_id=None,
        totals=totals,
        stuck_processing=sum(one.stuck_processing for one in every),
        failed_share=share,
        oldest_queued_at=min(
            (one.oldest_queued_at for one in every if one.oldest_queued_at), default=None
        ),
        expiring_soon=sum(one.expiring_soon for one in every),
        last_updated_at=max(
            (one.last_updated_at for one in every if one.last_updated_at), default=None
        ),
        last_ack_at=max((one.last_ack_at for one in every if one.last_ack_at), default=None),
        breaker=None,
        warnings=warnings,
        sites=every,
    )
