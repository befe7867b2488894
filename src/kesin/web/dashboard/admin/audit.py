"""The audit log: who asked for what, and whether it was allowed."""

import json
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Query
from fastapi.responses import HTMLResponse

from kesin.engine.access.masking import Masking
from kesin.foundation.ids import is_id
from kesin.store.audit_log import LAST_AUDIT_ID, AuditLine
from kesin.web.dashboard.frame.page import Context, page_router
from kesin.web.dashboard.queues.listing import text_of

router = page_router()
PATH: Final = "/dashboard/audit"
PAGE: Final = 50
MAX_FILTER: Final = 200  # characters
FIELDS: Final = ("actor", "action", "queue", "site", "target")
MASKING: Final = Masking()


@router.get(PATH, response_class=HTMLResponse)
def audit(
    ctx: Context, before: Annotated[int, Query(ge=1, le=LAST_AUDIT_ID)] = LAST_AUDIT_ID
) -> HTMLResponse:
    """The newest matching lines; ``before`` continues below a line."""
    given = ctx.request.query_params
    filters = {name: text for name in FIELDS if (text := text_of(given, name, MAX_FILTER))}
    page = ctx.accounts.search_audit(ctx.actor, **filters, before=before, limit=PAGE)
    more = f"{PATH}?{urlencode({**filters, 'before': page.before})}" if page.before else None
    rows = ctx.in_part and ctx.request.headers.get("hx-target", "") == "more"
    return ctx.page(
        "part_audit_rows.html" if rows else "audit.html",
        lines=[_audit_row(line) for line in page.lines],
        more=more,
        wanted=filters,
        queues=list(ctx.service.queues),
    )


def _audit_row(line: AuditLine) -> tuple[AuditLine, str, bool]:
    """The line, its details as they are shown, and whether it is about a job."""
    details = ""
    if line.details:
        masked = MASKING.value(json.loads(line.details))
        details = json.dumps(masked, ensure_ascii=False)
    return line, details, line.queue is not None and is_id(line.target)
