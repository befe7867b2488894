"""The template library: loads and validates all templates once, and renders them by name.

A template is a folder with ``template.html``, ``schema.json`` (of its variables) and
``sample.json``; ``texts.json`` holds its texts by language, and ``asset('logo.png')`` returns
images beside it. ``partials`` and ``fonts`` of any folder are shared by all. A template of a later
folder replaces one with the same name.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from kesin.foundation.messages import Message
from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.security import LIBRARY_CSP, csp_tag
from kesin.workloads.pdf.templating.filters import DEFAULT_LANGUAGE, Unprintable
from kesin.workloads.pdf.templating.sandbox import Sandbox, template_failure
from kesin.workloads.pdf.templating.totals import TEMPLATE_FUNCTIONS
from kesin.workloads.pdf.templating.variables import VariableProblem, VariableSchema

REVISION: Final = 1  # increased when a filter's output changes, so that old PDFs are not reused
MAX_FILES: Final = 200
MAX_FILE_BYTES: Final = 2 * 1024 * 1024

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SHARED: Final = ("partials", "fonts")
_WEIGHTS: Final = {"regular": 400, "bold": 700}
_FONT: Final = re.compile(r"fonts/([a-z]+)-(regular|bold)\.woff2")
_HEAD: Final = re.compile(r"<head(?:\s[^>]*)?>", re.IGNORECASE)
_HEAD_TAGS: Final = f'<meta charset="utf-8">{csp_tag(LIBRARY_CSP)}'
_IMAGE_TYPES: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
}
_TEXT_SUFFIXES: Final = (".html", ".css", ".svg")


@dataclass(frozen=True, slots=True)
class PdfTemplate:
    """A template as loaded."""

    name: str
    schema: dict[str, Any]
    sample: dict[str, Any]
    texts: dict[str, dict[str, Any]]
    files: dict[str, bytes]
    content_hash: str  # of its files, the shared files and REVISION
    title: str = ""
    description: str = ""


class TemplateLibrary:
    """The templates of a service; thread-safe once loaded."""

    def __init__(self, templates: Mapping[str, PdfTemplate], shared: Mapping[str, bytes]) -> None:
        self._templates = dict(templates)
        self.fonts = {name: data for name, data in shared.items() if _FONT.fullmatch(name)}
        self.font_css = _font_faces(self.fonts)
        sources = {name: _decode(name, data) for name, data in shared.items() if _is_text(name)}
        for template in templates.values():
            for file, data in template.files.items():
                if _is_text(file):
                    path = f"{template.name}/{file}"
                    sources[path] = _decode(path, data)
        self._sandbox = Sandbox(sources)
        for name in sources:
            if name.endswith(".html"):
                self._sandbox.check_file(name)
        self._schemas = {template.name: _load_schema(template) for template in templates.values()}

    @classmethod
    def load(cls, folders: Iterable[Path] = (SHIPPED,)) -> TemplateLibrary:
        """Load all templates; raises RenderFailed (TEMPLATE_ERROR) for an invalid one."""
        places: dict[str, Path] = {}
        shared: dict[str, bytes] = {}
        for folder in folders:
            if not folder.is_dir():
                raise template_failure(str(folder), "there is no such folder")
            for place in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
                if place.name in _SHARED:
                    files = _read_files(place)
                    shared |= {f"{place.name}/{file}": data for file, data in files.items()}
                elif (place / "template.html").is_file():
                    if not _NAME.fullmatch(place.name):
                        raise template_failure(
                            place.name,
                            "a name has 1…64 of a-z, 0-9, '_' and '-', a letter or a digit first",
                        )
                    places[place.name] = place
        return cls(
            {name: _load_template(name, places[name], shared) for name in sorted(places)}, shared
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._templates)

    def __contains__(self, name: object) -> bool:
        return name in self._templates

    def get(self, name: str) -> PdfTemplate:
        """Return a template; raises RenderFailed (TEMPLATE_ERROR) for an unknown name."""
        template = self._templates.get(name)
        if template is None:
            raise template_failure(
                name if _NAME.fullmatch(name) else "?", "there is no template of this name"
            )
        return template

    def find_problems(self, name: str, variables: Mapping[str, Any]) -> list[VariableProblem]:
        """Return the problems of the variables, by JSON path; empty if they are valid."""
        return self._schemas[self.get(name).name].find_problems(variables)

    def render_html(self, name: str, variables: Mapping[str, Any]) -> str:
        """Render the document, every value escaped once; the document fetches nothing.

        Raises RenderFailed with the template's name and line, never with a value.
        """
        template = self.get(name)
        problems = self.find_problems(name, variables)
        if problems:
            first = problems[0]
            failure = template_failure(
                name,
                Message(
                    "%(field)s %(problem)s",
                    field=f"variables{first.path}",
                    problem=Message(first.message),
                ),
            )
            failure.details["problems"] = [
                {"path": problem.path, "rule": problem.rule, "message": problem.message}
                for problem in problems
            ]
            raise failure
        lang = str(variables.get("lang", DEFAULT_LANGUAGE))
        if not re.fullmatch(r"[a-z]{2}(-[A-Z]{2})?", lang):
            raise template_failure(name, "variables/lang must be a language such as tr or en")
        texts = template.texts
        globals_ = {
            "lang": lang,
            "t": texts.get(lang) or texts.get(lang[:2]) or texts.get(DEFAULT_LANGUAGE) or {},
            "fonts": self.font_css,
            "asset": lambda file: _asset_uri(template, file),
            **TEMPLATE_FUNCTIONS,
        }
        page = self._sandbox.render(f"{name}/template.html", {**variables, **globals_})
        head = _HEAD.search(page)
        if head is None:
            raise template_failure(f"{name}/template.html", "it has no <head>")
        return page[: head.end()] + _HEAD_TAGS + page[head.end() :]


def _load_template(name: str, folder: Path, shared: Mapping[str, bytes]) -> PdfTemplate:
    files = _read_files(folder)
    schema = _parse_json(name, files, "schema.json")
    digest = hashlib.sha256(f"kesin {REVISION} {name}".encode())
    all_files = {f"{name}/{file}": data for file, data in files.items()} | dict(shared)
    for file in sorted(all_files):
        for part in (file.encode(), all_files[file]):
            digest.update(len(part).to_bytes(8, "big") + part)
    return PdfTemplate(
        name=name,
        schema=schema,
        sample=_parse_json(name, files, "sample.json"),
        texts=_parse_json(name, files, "texts.json") if "texts.json" in files else {},
        files=files,
        content_hash=digest.hexdigest(),
        title=str(schema.get("title", name)),
        description=str(schema.get("description", "")),
    )


def _read_files(folder: Path) -> dict[str, bytes]:
    """Read all files below a folder, by relative path; hidden files are skipped."""
    files: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or any(step.startswith(".") for step in name.split("/")):
            continue
        if len(files) >= MAX_FILES or path.stat().st_size > MAX_FILE_BYTES:
            raise template_failure(
                folder.name,
                f"more than {MAX_FILES} files, or one of more than {MAX_FILE_BYTES} bytes",
            )
        files[name] = path.read_bytes()
    return files


def _parse_json(name: str, files: Mapping[str, bytes], file: str) -> dict[str, Any]:
    try:
        content = json.loads(files[file])
    except KeyError:
        raise template_failure(name, f"{file} is missing") from None
    except (ValueError, RecursionError) as problem:
        raise template_failure(name, f"{file} is no JSON: {problem}") from None
    if not isinstance(content, dict):
        raise template_failure(name, f"{file} must hold an object")
    return content


def _load_schema(template: PdfTemplate) -> VariableSchema:
    """Load the schema of a template and validate its sample."""
    try:
        schema = VariableSchema(template.schema)
    except ValueError as problem:
        raise template_failure(template.name, f"schema.json is no schema: {problem}") from None
    for invalid in schema.find_problems(template.sample):
        raise template_failure(template.name, f"sample.json: {invalid.path} {invalid.message}")
    return schema


def _decode(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise template_failure(name, "it is not UTF-8") from None


def _is_text(file: str) -> bool:
    return file.endswith(_TEXT_SUFFIXES)


def _asset_uri(template: PdfTemplate, file: str) -> str:
    """Return an image of the template's folder as a data: URI."""
    kind = _IMAGE_TYPES.get(Path(file).suffix.lower())
    if kind is None or file not in template.files:
        raise Unprintable("expected the name of a picture in the template's folder")
    return f"data:{kind};base64,{base64.b64encode(template.files[file]).decode()}"


def _font_faces(shared: Mapping[str, bytes]) -> Markup:
    """Return the fonts as CSS: ``fonts/sans-bold.woff2`` is *Kesin Sans* in weight 700."""
    faces = []
    for name in sorted(shared):
        match = _FONT.fullmatch(name)
        if match:
            data = base64.b64encode(shared[name]).decode()
            faces.append(
                f"@font-face{{font-family:'Kesin {match[1].title()}';"
                f"font-weight:{_WEIGHTS[match[2]]};"
                f"src:url(data:font/woff2;base64,{data}) format('woff2')}}"
            )
    return Markup("\n".join(faces))  # noqa: S704  # consists of base64
