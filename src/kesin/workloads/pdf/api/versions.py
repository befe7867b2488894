"""Routes for templates, and for their versions, which decide what documents of all users say."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Path, Request, Response

from kesin.foundation.permissions import Actor
from kesin.web.auth import GuardedRouter
from kesin.web.dependencies import RawBody, SignedInActor, json_response, run_with_body
from kesin.workloads.pdf.api.common import document_route, require_access
from kesin.workloads.pdf.jobs import submit
from kesin.workloads.pdf.schemas import PreviewRequest, TemplateBody, TemplateLine, TemplateVersion, TemplateVersionList
from kesin.workloads.pdf.services import PdfServiceLoader
from kesin.workloads.pdf.steps.model import MAX_NAME_LENGTH

if TYPE_CHECKING:
    from kesin.workloads.pdf.templating.versions import TemplateChange

TemplateName = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Version = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
VersionOrFolder = Annotated[str, Path(pattern=r"^([0-9a-f]{64}|folder)$")]
_CONTENT: Final = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}
_REQUEST_BODY: Final = {"requestBody": {"required": True, "content": _CONTENT}}


def versions_router(loader: PdfServiceLoader) -> APIRouter:
    router = GuardedRouter(prefix="/pdf/templates/{name}", tags=["pdf"])

    @router.put("", status_code=201, openapi_extra=_REQUEST_BODY)
    async def upload_template(
        request: Request, actor: SignedInActor, name: TemplateName, package: RawBody
    ) -> TemplateVersion:
        """Store a zipped template folder as a draft version if its samples can be rendered."""
        return await run_with_body(request, package, upload, actor, name, package)

    def upload(actor: Actor, name: str, package: bytes) -> TemplateVersion:
        with changing(loader, actor, "upload_version", name) as change:
            return loader.templates.versions.add(change, package)

    @router.get("/versions")
    def list_template_versions(actor: SignedInActor, name: TemplateName) -> TemplateVersionList:
        """The versions of a template, newest first."""
        with changing(loader, actor, "read_versions", name):
            return loader.templates.versions.list(name)

    @router.post("/versions/{version}/activate")
    def activate_template_version(
        actor: SignedInActor, name: TemplateName, version: VersionOrFolder
    ) -> TemplateVersionList:
        """Activate a version (or `folder`, the folder's template) for all processes; idempotent."""
        with changing(loader, actor, "activate_version", name) as change:
            return loader.templates.versions.activate(change, version)

    @router.delete("/versions/{version}", status_code=204)
    def delete_template_version(actor: SignedInActor, name: TemplateName, version: Version) -> None:
        """Delete a version that is not active."""
        with changing(loader, actor, "delete_version", name) as change:
            loader.templates.versions.delete(change, version)

    return router


TemplateOrVersion = Annotated[str, Path(min_length=1, max_length=MAX_NAME_LENGTH)]


def templates_router(loader: PdfServiceLoader) -> APIRouter:
    route_class = document_route(loader.context.settings.pdf_body_kb)
    router = GuardedRouter(prefix="/pdf", tags=["pdf"], route_class=route_class)

    @router.get("/templates")
    def list_templates(actor: SignedInActor) -> list[TemplateLine]:
        """The templates that you may use."""
        require_access(loader.context, actor, "templates")
        services = loader.services
        allowed = services.config.template_allowlist
        names = (name for name in services.library.names if name in allowed)
        return [_template_line(loader, name) for name in names]

    @router.get("/templates/{name}", response_model=TemplateBody)
    def show_template(actor: SignedInActor, name: TemplateOrVersion, lang: str = "") -> Response:
        """The JSON Schema of a template's variables, and sample values in the language `lang`."""
        require_access(loader.context, actor, "templates")
        template = submit.require_template(loader.services, name)
        line = _template_line(loader, name).model_dump()
        body = TemplateBody(**line, json_schema=template.schema, sample=template.sample_in(lang))
        return json_response(body)

    @router.post(
        "/templates/{name}/preview",
        response_class=Response,
        responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
    )
    def preview_template(actor: SignedInActor, name: TemplateOrVersion, body: PreviewRequest) -> Response:
        """The document that would be printed, as HTML without scripts or external resources."""
        require_access(loader.context, actor, "preview")
        services = loader.services
        submit.require_template(services, name)
        submit.check_variables(services, actor.name, name, body.variables)
        return submit.preview_response(services, actor.name, name, body.variables)

    return router


def _template_line(loader: PdfServiceLoader, name: str) -> TemplateLine:
    library = loader.services.library
    template, problem = library.get(name), {**library.find_unusable(), **library.rejected}.get(name)
    names = ("title", "description", "content_hash", "version")
    facts = {fact: getattr(template, fact) for fact in names}
    kept = "; the version before this change is used" if name in library.rejected else ""
    return TemplateLine(name=name, problem=problem and f"{problem.message}{kept}", **facts)


@contextmanager
def changing(loader: PdfServiceLoader, actor: Actor, action: str, name: str) -> Iterator["TemplateChange"]:
    """Let an admin change a template; raises Problem for whatever goes wrong."""
    accounts, queue = loader.context.commands.accounts, "pdf"
    accounts.require(actor, "admin", f"pdf.{action}", queue=queue, target=name)
    audit = partial(accounts.note, actor, f"pdf.{action}", queue=queue, target=name)
    library = loader.services.library
    from kesin.workloads.pdf.templating.versions import TemplateChange  # needs kesin[pdf]

    with submit.problems_raised():
        yield TemplateChange(library, name, actor.name, audit)
