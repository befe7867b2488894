"""`kesin pdf …`: render a template without a queue, list the templates, check the machine."""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

from kesin.foundation.problems import Invalid, Unavailable
from kesin.foundation.terminal import argument, format_examples, option, pluralize, print_table, say, say_json
from kesin.workloads.common.cli import JsonOption, command_group, read_settings, report_checks
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed, public_code

app = command_group("Make PDFs from HTML templates.", name="pdf")
ENGINE: Final = "chromium or weasyprint; defaults to the best one installed."
TIMEOUT: Final = "The time limit; defaults to KESIN_PDF_HARD_TIMEOUT_S."
EngineName = Annotated[str | None, option("NAME", ENGINE)]


@app.command(
    "render",
    epilog=format_examples(
        "kesin pdf templates invoice > invoice.json",
        "kesin pdf render invoice data.json -o invoice.pdf",
        "kesin pdf render invoice - -o invoice.pdf --engine weasyprint < data.json",
    ),
)
def render(
    template: Annotated[str, argument("TEMPLATE", "The name of the template.")],
    data: Annotated[str, argument("DATA", "A JSON file with the variables, or - for standard input.")],
    *,
    out: Annotated[Path, option("OUT", "The PDF file to write.", "--out", "-o", dir_okay=False)],
    engine: EngineName = None,
    timeout: Annotated[int | None, option("SECONDS", TIMEOUT, min=1, max=600)] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a PDF from a template and its variables, without a queue.

    On the same machine, the same template and variables give the same bytes. Exits with 2 if the
    variables do not fit the template, and with 1 if the PDF could not be created.
    """
    from kesin.workloads.pdf.engines.base import Paper
    from kesin.workloads.pdf.services import create_pdf_engine, load_pdf_templates

    settings = read_settings()
    with _render_errors_reported():
        html = load_pdf_templates(settings).render_html(template, _read_variables(data))
        limit_s = timeout or settings.pdf_hard_timeout_s
        with closing(create_pdf_engine(settings, engine)) as renderer:
            rendered = renderer.render(html, Paper(), timeout_s=limit_s)
    try:
        out.write_bytes(rendered.pdf)
    except OSError as problem:
        raise Invalid(f"{out} cannot be written: {problem.strerror}") from None
    if as_json:
        facts = {name: getattr(rendered, name) for name in ("sha256", "engine", "warnings")}
        size = {"pages": rendered.pages, "bytes": len(rendered.pdf)}
        say_json({"file": str(out), **size, **facts})
        return
    pages = pluralize(rendered.pages, "page")
    say(f"{out}: {pages}, {len(rendered.pdf)} bytes, rendered by {rendered.engine}")
    for warning in rendered.warnings:
        say(f"  {warning}")


@app.command("templates", epilog=format_examples("kesin pdf templates", "kesin pdf templates invoice"))
def templates(
    name: Annotated[str | None, argument("NAME", "The template to show.")] = None,
    *,
    lang: Annotated[str, option("LANG", "The language of the sample, such as en.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the templates and their versions, or show one.

    Renders every template with its sample, and shows why any of them fail. With a template's
    name, prints its schema and its sample variables as JSON.
    """
    from kesin.workloads.pdf.doctor import open_pdf_queue
    from kesin.workloads.pdf.schemas import TemplateVersionList
    from kesin.workloads.pdf.services import load_pdf_templates, open_templates

    with _render_errors_reported(), open_pdf_queue(settings := read_settings()) as queue:
        source = open_templates(settings, queue) if queue else None
        library = source.library() if source else load_pdf_templates(settings)
        template = library.get(name) if name else None
        unusable = {} if template else library.find_unusable()
        lists = defaultdict(TemplateVersionList, source.versions.lists() if source else {})
    if template:
        say_json({"name": name, "schema": template.schema, "sample": template.sample_in(lang)})
        return
    usable = [library.get(each) for each in library.names if each not in unusable]
    entries = [{"name": t.name, "title": t.title, "hash": t.content_hash} for t in usable]
    entries += [{"name": each, "problem": p.message} for each, p in sorted(unusable.items())]
    inactive = sorted(lists.keys() - {entry["name"] for entry in entries})
    entries += [{"name": each, "title": "no active version"} for each in inactive]
    if as_json:
        say_json([entry | lists[entry["name"]].model_dump() for entry in entries])
        return
    lines = [
        (e["name"], e.get("title") or f"cannot be used: {e['problem']}", lists[e["name"]].summary) for e in entries
    ]
    print_table(("template", "what it is", "versions"), lines, empty="there are no templates")


@app.command("doctor", epilog=format_examples("kesin pdf doctor", "kesin pdf doctor --engine weasyprint --json"))
def doctor(*, engine: EngineName = None, as_json: JsonOption = False) -> None:
    """Check the prerequisites for PDFs, and render a test page.

    Checks templates, browser, fonts, storage and workers. Exits with 1 if a check fails.
    """
    from kesin.workloads.pdf.doctor import run_checks

    report_checks(run_checks(read_settings(), engine), as_json=as_json)


def _read_variables(data: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if data == "-" else Path(data).read_text("utf-8")
        variables = json.loads(text)
    except OSError as problem:
        raise Invalid(f"{data} cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise Invalid(f"{data} is not JSON: {problem}") from None
    if not isinstance(variables, dict):
        raise Invalid(f"{data} must contain a JSON object with the variables")
    return variables


@contextmanager
def _render_errors_reported() -> Iterator[None]:
    """Turn RenderFailed into a Problem; for wrong variables, list the path of each error."""
    try:
        yield
    except RenderFailed as problem:
        wrong = problem.details.get("problems", ())
        message = "\n  ".join([problem.message, *(f"{w['path']}: {w['message']}" for w in wrong)])
        mine = public_code(problem.code) is PdfErrorCode.TEMPLATE_ERROR
        kind = Invalid if mine else Unavailable
        raise kind(message, code=problem.code) from None
