"""The dialog that corrects the data of one row, on its job's page."""

from typing import Any, Final

from fastapi.responses import HTMLResponse

from kesin.foundation.ids import is_id
from kesin.foundation.problems import NotFound
from kesin.web.dashboard.frame.page import Context, PageContext, page_router
from kesin.web.dashboard.frame.routes import FirstFields
from kesin.workloads.oci.conversions.conversion import CONVERSION_FIELDS, HASH_FIELDS, PLAIN_FIELDS
from kesin.workloads.oci.conversions.corrections import fix_rows
from kesin.workloads.oci.pages.control import (
    CHANGED,
    PATH,
    find_site,
    frame,
    only_row,
    reason_of,
    row_advice,
)
from kesin.workloads.oci.site import SiteContext

router = page_router()
_OF_PERSONS: Final = {*HASH_FIELDS, *PLAIN_FIELDS}
FIXABLE: Final = tuple(
    name for name in (*CONVERSION_FIELDS, *PLAIN_FIELDS) if name not in {"externalId", "revision"}
)


@router.get(f"{PATH}/rows/{{job_id}}/fix", response_class=HTMLResponse)
def oci_fix_dialog(ctx: Context, site_id: str, job_id: str) -> HTMLResponse:
    """The dialog that corrects the data of one row."""
    site = find_site(ctx, site_id, "operate", "oci.fix")
    return ctx.page("oci/part_fix.html", **_fix_values(ctx, site, job_id), refused=None)


@router.post(f"{PATH}/rows/{{job_id}}/fix", response_class=HTMLResponse)
def oci_fix(ctx: Context, site_id: str, job_id: str, fields: FirstFields) -> HTMLResponse:
    """Correct the row; what is refused stands in the dialog, with what was typed."""
    site = find_site(ctx, site_id, "operate", "oci.fix")
    values = _fix_values(ctx, site, job_id)
    row: dict[str, Any] = {name: fields[name] for name in FIXABLE if fields.get(name, "").strip()}
    row["externalId"] = values["payload"].get("externalId")
    again, taken = "again" in fields, bool(fields.get("taken"))
    [result] = fix_rows(site, ctx.actor, [row], reason=reason_of(fields), again=again, taken=taken)
    if result.is_change:
        return ctx.page("oci/part_row_fixed.html", headers=CHANGED, result=result, **values)
    shown = {name: value for name, value in row.items() if name not in PLAIN_FIELDS}
    values["payload"] = values["payload"] | shown
    return ctx.page("oci/part_fix.html", **values, refused=result)


def _fix_values(ctx: PageContext, site: SiteContext, job_id: str) -> dict[str, Any]:
    row = only_row(ctx, site, [job_id]) if is_id(job_id) else None
    if row is None or not isinstance(row.payload, dict):
        raise NotFound("there is no such job")
    names = [n for n in FIXABLE if site.settings.enhanced or n not in _OF_PERSONS]
    if row.state == "COMPLETED":  # Google takes a new value of these alone
        names.sort(key=lambda name: name not in {"conversionValue", "conversionCurrency"})
    values = {"row": row, "payload": row.payload, "names": names, "advice": row_advice(ctx, row)}
    return values | frame(ctx, site)
