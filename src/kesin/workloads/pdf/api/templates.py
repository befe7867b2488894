"""Routes for templates: list, show the schema, preview."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from kesin.web.auth import GuardedRouter
from kesin.web.dependencies import SignedInActor, json_response
from kesin.workloads.pdf.api.common import document_route, require_access
from kesin.workloads.pdf.jobs import submit
from kesin.workloads.pdf.schemas import PreviewRequest, TemplateBody, TemplateLine
from kesin.workloads.pdf.services import PdfServiceLoader
from kesin.workloads.pdf.steps.model import MAX_NAME_LENGTH

TemplateName = Annotated[str, Path(min_length=1, max_length=MAX_NAME_LENGTH)]


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
    def show_template(actor: SignedInActor, name: TemplateName, lang: str = "") -> Response:
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
    def preview_template(
        actor: SignedInActor, name: TemplateName, body: PreviewRequest
    ) -> Response:
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
