"""OCI Control: one site's conversions, what is wrong with them, and what an operator does."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import Depends, Query
from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse, Response

from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Right
from kesin.foundation.problems import Invalid, Problem
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.directory import Site
from kesin.store.records import Filter
from kesin.web.auth import guarded_router
from kesin.web.dashboard.forms.uploads import Uploaded
from kesin.web.dashboard.frame.navigation import control_path
from kesin.web.dashboard.frame.page import Context, PageContext
from kesin.web.dashboard.frame.routes import form
from kesin.web.dashboard.queues import actions
from kesin.web.dashboard.queues.bulk import runs_of
from kesin.web.dashboard.queues.page import runs_shown
from kesin.web.schemas import Cursor

router = guarded_router(include_in_schema=False)

PATH: Final = "/dashboard/site/{site_id}/oci-control"
PAGE_ROWS: Final = 50
MOST_SITES: Final = 200  # of the switcher
SHOWN: Final = 25  # rows of a list in a sheet
_THERE: Final = re.compile(r"it is (\w+) already")
CHANGED: Final = {"HX-Trigger": json.dumps({"oci-changed": "", "kesin:forget": ""})}

Word = Annotated[str, Query(max_length=64)]
Fields = Annotated[dict[str, str], Depends(form)]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the page is filtered by."""

    status: str = ""
    code: str = ""
    category: str = ""
    q: str = ""

    @property
    def wanted(self) -> dict[str, list[str]]:
        """As the workload asks for it."""
        told = {"status": self.status, "code": self.code, "category": self.category}
        return {name: [value] if value else [] for name, value in told.items()}

    def query(self, **other: str) -> str:
        """The same as a part of an address, with some of it changed."""
        told = {"status": self.status, "code": self.code, "category": self.category, "q": self.q}
        kept = {name: value for name, value in {**told, **other}.items() if value}
        return f"?{urlencode(kept)}" if kept else ""


def house_of(looking: PageContext) -> WorkloadContext:
    """The workload's house."""
    service = looking.service
    return service.house(service.workloads["oci"])


def site_for(
    looking: PageContext, site_id: str, right: Right, action: str
) -> tuple[WorkloadContext, Site]:
    """The site, if the looker has this right on it."""
    from kesin.workloads.oci.site import admitted

    house = house_of(looking)
    return house, admitted(house, looking.actor, site_id, right, action=action)


def frame(looking: PageContext, house: WorkloadContext, site: Site) -> dict[str, Any]:
    """What every page of a site shows."""
    from kesin.workloads.oci.site import visible

    pauses = [
        one
        for one in house.commands.pauses(looking.actor, house.queue.name)
        if one.tenant in {"", site.id}
    ]
    return {
        "site": site,
        "path": control_path(site.id),
        "sites": [(one, control_path(one.id)) for one in visible(house, looking.actor)][
            :MOST_SITES
        ],
        "paused": bool(pauses),
        "pauses": pauses,
        "site_paused": any(one.tenant for one in pauses),
        "may_operate": looking.actor.has("operate"),
        "may_administer": looking.actor.is_admin,
        "now": house.queue.now(),
    }


@router.get(PATH, response_class=HTMLResponse)
def oci_control(  # noqa: PLR0917  # each one is a query parameter
    looking: Context,
    site_id: str,
    status: Word = "",
    code: Word = "",
    category: Word = "",
    q: Annotated[str, Query(max_length=512)] = "",
    cursor: Cursor = None,
    part: Literal["", "summary", "rows"] = "",
) -> HTMLResponse:
    """The page, or what of it is renewed: the summary, the rows, the rows that follow."""
    from kesin.workloads.oci import operations

    house, site = site_for(looking, site_id, "read", "oci.control")
    chosen = Chosen(status, code.strip(), category, q.strip())
    told: dict[str, Any] = {"chosen": chosen, "categories": [one.value for one in Category]}
    if part != "rows":
        told |= _summary(looking, house, site)
    if part != "summary":
        told |= _rows(looking, house, site, chosen, cursor)
    if not part:
        told |= {
            "offers": [
                one
                for one in actions.offers(looking, house.queue)
                if one.call in operations.ACTIONS
            ],
            "queue": house.queue,
            "runs": runs_shown(looking, house.queue),
        }
    template = f"part_oci_{part}.html" if part else "oci_control.html"
    if part == "rows" and cursor is not None:
        template = "part_oci_older.html"
    return looking.page(template, **frame(looking, house, site), **told)


def _summary(looking: PageContext, house: WorkloadContext, site: Site) -> dict[str, Any]:
    from kesin.workloads.oci import operations
    from kesin.workloads.oci.advice import advice

    stats = operations.site_stats(house, site, house.queue.store.flows(house.queue.name))
    warnings = []
    for one in stats.warnings:
        code = stats.breaker.code if one["code"] == "BREAKER_OPEN" else one["code"]
        warnings.append((one, advice(code, stats.breaker.kind or None, looking.language)))
    state = stats.breaker.state(house.queue.now()) if site.channel != "script" else None
    return {
        "stats": stats,
        "warnings": warnings,
        "breaker": state,
        "failed_at": operations.FAILED_SHARE,
    }


def _rows(
    looking: PageContext, house: WorkloadContext, site: Site, chosen: Chosen, cursor: str | None
) -> dict[str, Any]:
    from kesin.web.dashboard.state_groups import families
    from kesin.workloads.oci import operations
    from kesin.workloads.oci.advice import advice

    found, following = operations.rows(
        house,
        site,
        wanted=chosen.wanted,
        search=chosen.q or None,
        limit=PAGE_ROWS,
        cursor=cursor,
    )
    rows = [(one, operations.columns(one), _external_id(one)) for one in found]
    advices = {
        one.error_code: advice(one.error_code, one.error_category, looking.language)
        for one in found
        if one.error_code
    }
    states = house.commands.stats(looking.actor, house.queue.name, site=site.id).states
    wanted = [chosen.status] if chosen.status else [one for one, n in states.items() if n]
    counted = not (chosen.code or chosen.category or chosen.q)
    if not counted and following is None and cursor is None:  # all that match are here
        wanted = [one for one in wanted if any(job.state == one for job in found)]
    return {
        "rows": rows,
        "matching": sum(states.get(one, 0) for one in wanted) if counted else len(rows),
        "more_match": not counted and following is not None,
        "states": wanted,
        "advices": advices,
        "following": following,
        "family": families(house.queue.lifecycle),
    }


def _external_id(job: Job) -> str:
    kept = job.data if isinstance(job.data, dict) else {}
    return str(kept.get("externalId") or "")


# Actions


@router.post(f"{PATH}/preview", response_class=HTMLResponse)
def oci_preview(looking: Context, site_id: str, fields: Fields) -> HTMLResponse:
    """A sheet that says what an action would move, before anything moves."""
    from kesin.workloads.oci import operations

    house, site = site_for(looking, site_id, "operate", "oci.preview")
    action = fields.get("action", "")
    if action not in operations.ACTIONS:
        raise Problem(f"action is one of {', '.join(operations.ACTIONS)}", code="unknown_action")
    ids, chosen = _selection(fields)
    until = actions.until_of(house.queue, fields.get("until", ""))
    where = None if ids is not None else _all_until(site, chosen, until)
    would = house.commands.would(
        looking.actor,
        "oci",
        action,
        ids=None if ids is None else operations.bare(ids),
        where=where,
        site=site.id,
    )
    missing = 0 if ids is None else len(operations.bare(ids)) - would.matched
    return looking.page(
        "part_oci_action.html",
        action=action,
        would=would,
        refused=actions.refusals(looking, would, missing),
        matched=would.matched + missing,
        in_background=where is not None and would.matched > actions.AT_ONCE,
        ids=",".join(ids or ()),
        by_filter=ids is None,
        until=until,
        chosen=chosen,
        categories=[one.value for one in Category],
        **frame(looking, house, site),
    )


@router.post(f"{PATH}/actions", response_class=HTMLResponse)
def oci_act(looking: Context, site_id: str, fields: Fields) -> HTMLResponse:
    """Do it, and say exactly what came of it; many rows move in the background."""
    from kesin.workloads.oci import operations

    action = fields.get("action", "")
    house, site = site_for(looking, site_id, "operate", f"queue.{action[:40]}")
    ids, chosen = _selection(fields)
    until = actions.until_of(house.queue, fields.get("until", ""))
    where = None if ids is not None else _all_until(site, chosen, until)
    reason = fields.get("reason", "").strip()[: actions.MOST_REASON] or None
    told: dict[str, Any] = {
        "code": fields.get("mark_code", "").strip() or None,  # ``code`` is what is filtered by
        "category": fields.get("kind") or None,
        "clear_errors": "clear_errors" in fields,
    }
    if where is not None:
        terms = operations.terms(house, site, action, **told)
        would = house.commands.would(looking.actor, "oci", action, where=where, site=site.id)
        if would.matched > actions.AT_ONCE:
            runs_of(looking).begin(
                looking.actor, "oci", action, where, would.matched, reason=reason, **terms
            )
            runs = runs_shown(looking, house.queue)
            answer = looking.page("part_oci_begun.html", queue=house.queue, runs=runs)
            answer.headers.update(CHANGED)
            return answer
    done = operations.act(
        house, looking.actor, site, action, ids=ids, where=where, reason=reason, **told
    )
    reasons: Counter[str] = Counter()
    for why, n in done.reasons.items():
        reasons[_said(looking, why)] += n
    answer = looking.page(
        "part_oci_acted.html",
        done=done,
        refused=reasons.total(),
        reasons=reasons.most_common(),
        shown=[(one, _said(looking, why)) for one, why in done.refused[:SHOWN]],
        **frame(looking, house, site),
    )
    answer.headers.update(CHANGED)
    return answer


def _all_until(site: Site, chosen: Chosen, until: int) -> Filter:
    """All that match and were there when the sheet was made."""
    from kesin.workloads.oci import operations

    return replace(operations.filter_of(site, chosen.wanted), created_before=until)


def _said(looking: PageContext, why: str) -> str:
    """A refusal in the looker's language; the workload says it in English."""
    there = _THERE.fullmatch(why)
    if there:
        return looking.say("it is %(state)s already", state=there[1])
    return looking.say(why)


def _selection(fields: dict[str, str]) -> tuple[list[str] | None, Chosen]:
    """The rows that were ticked, or None and what all of them have in common."""
    chosen = Chosen(*(fields.get(name, "")[:64] for name in ("status", "code", "category")))
    if fields.get("all"):
        if fields.get("q", "").strip():  # the filter has no search: more would move than is shown
            raise Invalid(
                "a search cannot be acted on as a whole: tick the rows, or clear the search",
                code="bad_selection",
            )
        return None, chosen
    ids = [one for one in fields.get("ids", "").split(",") if one]
    if not ids:
        raise Invalid("choose some rows first", code="bad_selection")
    if len(ids) > actions.MOST_PICKED:
        raise Invalid(
            f"choose at most {actions.MOST_PICKED} rows, or all that match", code="bad_selection"
        )
    return ids, chosen


@router.get(f"{PATH}/pause", response_class=HTMLResponse)
def oci_pause_sheet(looking: Context, site_id: str) -> HTMLResponse:
    """A sheet that asks why."""
    house, site = site_for(looking, site_id, "operate", "queue.pause")
    told = frame(looking, house, site)
    return looking.page("part_oci_pause.html", most_reason=actions.MOST_REASON, **told)


@router.post(f"{PATH}/pause")
def oci_pause(looking: Context, site_id: str, fields: Fields) -> Response:
    """Hand out nothing of this site, or go on."""
    house, site = site_for(looking, site_id, "operate", "queue.pause")
    if fields.get("resume"):
        house.commands.resume(looking.actor, "oci", site=site.id)
    else:
        reason = fields.get("reason", "").strip()[: actions.MOST_REASON] or None
        house.commands.pause(looking.actor, "oci", site=site.id, reason=reason)
    return RedirectResponse(control_path(site.id), status_code=303)


@router.post(f"{PATH}/dismiss")
def oci_dismiss(looking: Context, site_id: str) -> Response:
    """Somebody has seen that Google did not take all of a request."""
    from kesin.workloads.oci.google.pending_uploads import dismiss

    house, site = site_for(looking, site_id, "operate", "oci.dismiss")
    dismiss(house, site)
    house.commands.accounts.note(looking.actor, "oci.dismiss", queue="oci", site=site.id)
    return RedirectResponse(control_path(site.id), status_code=303)


# Files


@router.get(f"{PATH}/export", response_class=HTMLResponse)
def oci_export_preview(looking: Context, site_id: str) -> HTMLResponse:
    """A sheet with what the next export would hand over, and what not and why."""
    from kesin.workloads.oci import script
    from kesin.workloads.oci.advice import advice

    house, site = site_for(looking, site_id, "read", "oci.preview")
    found = script.preview(house, site, limit=script.MOST)
    left_out = {one["id"] for one in found.skipped}
    return looking.page(
        "part_oci_export.html",
        found=found,
        going=len(found.items),
        items=[{**one, "click": _masked(one)} for one in found.items[:SHOWN]],
        skipped=[
            (one, advice(one["code"], "VALIDATION", looking.language))
            for one in found.skipped[:SHOWN]
        ],
        warnings=[one for one in found.warnings if one.get("id") not in left_out],
        most=script.MOST,
        **frame(looking, house, site),
    )


def _masked(item: dict[str, Any]) -> str:
    """The kind of a click id and its last letters: enough to know it again."""
    for kind in ("gclid", "wbraid", "gbraid"):
        if item.get(kind):
            return f"{kind} …{str(item[kind])[-4:]}"
    return "–"


@router.post(f"{PATH}/fixes", response_class=HTMLResponse)
def oci_fixes(looking: Context, site_id: str, sent: Uploaded) -> HTMLResponse:
    """Dead letters that somebody mended: each is corrected, sent again, or refused with why."""
    from kesin.workloads.oci.conversions.corrections import fix
    from kesin.workloads.oci.conversions.parsing import read_body

    house, site = site_for(looking, site_id, "operate", "oci.fix")
    if not sent.data:
        raise Invalid(looking.say("The file is empty. Choose the CSV you mended."), code="no_file")
    _, rows = read_body(sent.data, "text/csv")
    reason = sent.fields.get("reason", "").strip()[: actions.MOST_REASON] or None
    results = fix(house, looking.actor, site, rows, reason=reason, again="again" in sent.fields)
    counts = Counter(one.result for one in results)
    refused: Sequence[Any] = [one for one in results if one.result == "rejected"]
    answer = looking.page(
        "part_oci_fixed.html",
        counts=counts,
        total=len(results),
        refused=refused[:SHOWN],
        refused_count=len(refused),
        **frame(looking, house, site),
    )
    answer.headers.update(CHANGED)
    return answer
