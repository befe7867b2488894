"""The page of the versions of templates: upload, preview, activate, go back, delete."""

from datetime import datetime
from typing import Final, Literal
from urllib.parse import urlencode

from fastapi import Response
from fastapi.responses import HTMLResponse, RedirectResponse

from kesin.foundation.clock import time_us
from kesin.foundation.problems import Problem
from kesin.web.dashboard.forms.uploads import Uploaded
from kesin.web.dashboard.frame.page import Context, PageContext, page_router
from kesin.web.middleware import FRAMING_CSP
from kesin.workloads.pdf.api.versions import TemplateName, Version, changing
from kesin.workloads.pdf.jobs import submit
from kesin.workloads.pdf.pages import page

router = page_router()
PATH: Final = f"{page.PATH}/templates"


@router.get(PATH, response_class=HTMLResponse)
def versions_page(ctx: Context, name: page.Name = "", version: page.Name = "") -> HTMLResponse:
    """The versions of a template, and the preview of one."""
    return _versions_page(ctx, name, version)


@router.post(PATH, response_class=HTMLResponse)
def change_versions(ctx: Context, sent: Uploaded) -> Response:
    """Upload, activate or delete a version; a problem is shown with its line."""
    loader, fields = page.require_workbench(ctx, "list"), sent.fields
    name, version = (fields.get(field, "").strip() for field in ("name", "version"))
    do, versions = fields.get("do", ""), loader.templates.versions
    try:
        with changing(loader, ctx.actor, f"{do}_version", name) as change:
            if do == "upload":
                version = versions.add(change, sent.data).version
            elif do in {"activate", "delete"}:
                (versions.activate if do == "activate" else versions.delete)(change, version)
    except Problem as problem:
        return _versions_page(ctx, name, version, problem)
    return RedirectResponse(f"{PATH}?{urlencode({'name': name, 'version': version})}", 303)


@router.get(f"{PATH}/{{name}}/dialog", response_class=HTMLResponse)
def change_dialog(
    ctx: Context, name: TemplateName, do: Literal["activate", "delete"], version: page.Name
) -> HTMLResponse:
    """The dialog that asks before a version is activated or deleted."""
    loader = page.require_workbench(ctx, "list")
    with changing(loader, ctx.actor, "read_versions", name):
        row = loader.templates.versions.list(name)
    known = row.find(version)
    return ctx.page("pdf/sheet_version.html", path=PATH, name=name, known=known, row=row, do=do)


@router.get(f"{PATH}/{{name}}/{{version}}/document")
def show_version(ctx: Context, name: TemplateName, version: Version) -> Response:
    """A version with its sample as a document for a frame, or why there is none."""
    loader, reference = page.require_workbench(ctx, "preview"), f"{name}@{version}"
    try:
        with changing(loader, ctx.actor, "read_versions", name) as change:
            sample = change.library.get(reference).sample_in(ctx.language)
            return submit.preview_response(loader.services, ctx.actor.name, reference, sample)
    except Problem as problem:
        headers = submit.document_headers(framed=True)
        return ctx.page("pdf/preview_error.html", headers=headers, problem=problem, version=version)


def _versions_page(ctx: PageContext, name: str = "", version: str = "", problem: Problem | None = None) -> HTMLResponse:
    loader = page.require_workbench(ctx, "list")
    with changing(loader, ctx.actor, "read_versions", name) as change:
        lists, usable = loader.templates.versions.lists(), change.library.names
    names = sorted({*lists, *usable} & {*lists, *loader.services.config.template_allowlist})
    chosen = name or next(iter(names), "")
    row = lists.get(chosen)
    return ctx.page(
        "pdf/versions.html",
        headers={"content-security-policy": FRAMING_CSP},
        path=PATH,
        names=names,
        chosen=chosen,
        row=row,
        shown=row and (row.find(version) or row.versions[0]),
        micros=lambda text: text and time_us(datetime.fromisoformat(text), "time"),
        problem=problem,
    )
