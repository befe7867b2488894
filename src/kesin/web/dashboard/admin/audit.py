"""The audit log, to be searched: who asked for what, and whether they were let."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Query
from fastapi.responses import HTMLResponse

from kesin.foundation.ids import is_id
from kesin.store.directory import LAST, AuditLine
from kesin.web.auth import guarded_router
from kesin.web.dashboard.frame.masking import masked, masked_text
from kesin.web.dashboard.frame.page import Context

router = guarded_router(include_in_schema=False)
PATH: Final = "/dashboard/audit"
PAGE: Final = 50
FIELDS: Final = ("actor", "action", "queue", "site", "target")
Word = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True, slots=True)
class Shown:
    """A line and what it says of itself."""

    line: AuditLine
    target: str
    details: str
    job: bool  # its target is a job that has a page


@router.get(PATH, response_class=HTMLResponse)
def audit(  # noqa: PLR0917  # every filter is in the address
    looking: Context,
    actor: Word = "",
    action: Word = "",
    queue: Word = "",
    site: Word = "",
    target: Word = "",
    before: Annotated[int, Query(ge=1, le=LAST)] = LAST,
) -> HTMLResponse:
    """The newest lines that fit; ``before`` asks for those below a line already seen."""
    given = dict(zip(FIELDS, (actor, action, queue, site, target), strict=True))
    wanted = {name: text.strip() for name, text in given.items() if text.strip()}
    accounts = looking.service.accounts
    found = accounts.search_audit(looking.actor, **wanted, before=before, limit=PAGE)
    more = f"{PATH}?{urlencode({**wanted, 'before': found.before})}" if found.before else None
    rows = looking.in_part and looking.request.headers.get("hx-target", "") == "more"
    return looking.page(
        "part_audit_rows.html" if rows else "audit.html",
        lines=[_shown(one) for one in found.lines],
        more=more,
        wanted=wanted,
        queues=list(looking.service.queues),
    )


def _shown(line: AuditLine) -> Shown:
    details = ""
    if line.details:
        told = masked(json.loads(line.details))
        details = json.dumps(told, ensure_ascii=False)
    is_job = line.queue is not None and is_id(line.target)
    return Shown(line, masked_text(line.target) or "", details, is_job)
