"""From the body of a request to a RenderRequest, checked against the template."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kesin.foundation.problems import Invalid, Problem
from kesin.foundation.text import canonical_json
from kesin.workloads.pdf.config import PdfRenderConfig
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.jobs import RenderRequest
from kesin.workloads.pdf.schemas import PdfJobRequest, PdfRenderOptions
from kesin.workloads.pdf.security import validate_template

if TYPE_CHECKING:
    from kesin.workloads.pdf.book import TemplateBook


def render_request(
    book: TemplateBook, config: PdfRenderConfig, body: PdfJobRequest, owner: str
) -> RenderRequest:
    """Raises Problem: 400 for the template, 422 for its variables."""
    check_template(book, config, body.template_name)
    check_variables(book, body.template_name, body.variables)
    options = body.options or PdfRenderOptions()
    paper = options.paper().told()
    return RenderRequest(
        template=body.template_name,
        payload={
            "variables": body.variables,
            "engine": options.engine,
            "paper": {**paper, "margin_mm": list(paper["margin_mm"])},
            "template_hash": book.get(body.template_name).content_hash,
        },
        owner=owner,
        manner={
            "timeout": options.timeout if "timeout" in options.model_fields_set else None,
            "file_name": body.file_name,
            "webhook_url": body.webhook_url,
            "batch": None,
        },
        fail_safe=(
            options.fail_safe
            if "fail_safe" in options.model_fields_set
            else config.fail_safe_policy
        ),
    )


def usable(book: TemplateBook, config: PdfRenderConfig, name: str) -> bool:
    """Whether there is such a template and it may be used."""
    return validate_template(name, config.template_allowlist) and name in book


def check_template(book: TemplateBook, config: PdfRenderConfig, name: str) -> None:
    """Unknown and not allowed look the same from outside."""
    if not usable(book, config, name):
        raise template_error("there is no such template here: GET /pdf/templates lists them")


def check_variables(book: TemplateBook, name: str, variables: Mapping[str, Any]) -> None:
    """Raise Invalid with the path of everything the template cannot work with."""
    try:
        found = book.check(name, variables)
    except RenderFailed as problem:
        raise template_error(problem.message) from None
    if found:
        raise _invalid((one.path, one.message, one.rule) for one in found)
    if canonical_json(variables) != unmended(variables):
        raise _invalid([("", "holds characters that cannot be stored", "text")])


def unmended(value: Mapping[str, Any]) -> str:
    """As the queue would spell it if a database could keep every character."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def template_error(message: str) -> Problem:
    """The template's fault, in the seed's word."""
    return Problem(message, code=PdfErrorCode.TEMPLATE_ERROR.value)


def _invalid(problems: Iterable[tuple[str, str, str]]) -> Invalid:
    fields = [
        {"field": f"variables{path.rstrip('/')}", "message": message, "rule": rule}
        for path, message, rule in problems
    ]
    return Invalid(f"{fields[0]['field']} {fields[0]['message']}", details={"fields": fields})
