"""The doors for templates: which there are, what each takes, and how values look in it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from kesin.foundation.problems import Unknown
from kesin.workloads.pdf.api.common import Asker, SmallBody, admit, sent
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.submit import check_variables, document, template_error, usable
from kesin.workloads.pdf.schemas import MAX_NAME, PreviewRequest, TemplateBody, TemplateLine
from kesin.workloads.pdf.services import Shop, Tools

Name = Annotated[str, Path(min_length=1, max_length=MAX_NAME)]


def templates_router(shop: Shop) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/pdf", tags=["pdf"], route_class=SmallBody)

    @router.get("/templates")
    def list_templates(actor: Asker) -> list[TemplateLine]:
        """The templates you may use."""
        admit(shop.house, actor, "templates")
        tools = shop.tools
        allowed = tools.config.template_allowlist
        return [_line(tools, name) for name in tools.book.names if name in allowed]

    @router.get("/templates/{name}", response_model=TemplateBody)
    def show_template(actor: Asker, name: Name) -> Response:
        """What a template takes: the JSON Schema of its variables, and a sample that fits."""
        admit(shop.house, actor, "templates")
        tools = shop.tools
        _known(tools, name)
        template = tools.book.get(name)
        return sent(
            TemplateBody(
                **_line(tools, name).model_dump(),
                json_schema=template.schema,
                sample=template.sample,
            )
        )

    @router.post(
        "/templates/{name}/preview",
        response_class=Response,
        responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
    )
    def preview_template(actor: Asker, name: Name, asked: PreviewRequest) -> Response:
        """The document that would be printed, as HTML that runs and loads nothing."""
        admit(shop.house, actor, "preview")
        tools = shop.tools
        _known(tools, name)
        check_variables(tools.book, name, asked.variables)
        try:
            return document(tools.book.html(name, asked.variables), framed=True)
        except RenderFailed as problem:
            raise template_error(problem.message) from None

    return router


def _known(tools: Tools, name: str) -> None:
    if not usable(tools.book, tools.config, name):
        raise Unknown("there is no such template here")


def _line(tools: Tools, name: str) -> TemplateLine:
    template = tools.book.get(name)
    return TemplateLine(
        name=name,
        title=template.title,
        description=template.description,
        content_hash=template.content_hash,
    )
