"""From what was sent to what is asked of the queue: checked against the template, said once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kesin.foundation.problems import Invalid, Problem
from kesin.foundation.text import canonical_json
from kesin.workloads.pdf.book import TemplateBook
from kesin.workloads.pdf.config import FailSafePolicy, PdfRenderConfig
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.schemas import PdfJobRequest, PdfRenderOptions
from kesin.workloads.pdf.security import validate_template
from kesin.workloads.pdf.variables import Problem as Finding


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job to be: ``payload`` changes its bytes, ``manner`` does not."""

    template: str
    payload: dict[str, Any]
    manner: dict[str, Any]
    policy: FailSafePolicy

    @property
    def webhook_url(self) -> str | None:
        """Who is to be told."""
        url: str | None = self.manner["webhook_url"]
        return url


def wanted(book: TemplateBook, config: PdfRenderConfig, request: PdfJobRequest) -> Wanted:
    """Raises Problem: 400 for the template, 422 for its variables."""
    check_template(book, config, request.template_name)
    check_variables(book, request.template_name, request.variables)
    options = request.options or PdfRenderOptions()
    paper = options.paper().told()
    return Wanted(
        template=request.template_name,
        payload={
            "variables": request.variables,
            "engine": options.engine,
            "paper": {**paper, "margin_mm": list(paper["margin_mm"])},
            "template_hash": book.get(request.template_name).content_hash,
        },
        manner={
            "timeout": options.timeout if "timeout" in options.model_fields_set else None,
            "file_name": request.file_name,
            "webhook_url": request.webhook_url,
            "batch": None,
        },
        policy=(
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
        raise _invalid(found)
    if canonical_json(variables) != unmended(variables):
        raise _invalid([Finding("", "text", "holds characters that cannot be stored")])


def unmended(value: Mapping[str, Any]) -> str:
    """As the queue would spell it if a database could keep every character."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def template_error(message: str) -> Problem:
    """The template's fault, in the seed's word."""
    return Problem(message, code=PdfErrorCode.TEMPLATE_ERROR.value)


def _invalid(found: Iterable[Finding]) -> Invalid:
    fields = [
        {"field": f"variables{one.path.rstrip('/')}", "message": one.message, "rule": one.rule}
        for one in found
    ]
    return Invalid(f"{fields[0]['field']} {fields[0]['message']}", details={"fields": fields})
