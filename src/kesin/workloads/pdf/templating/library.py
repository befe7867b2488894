"""The book of templates: read once, checked, and then only looked up by name.

A template is a folder with ``template.html``, ``schema.json`` (of its variables) and
``sample.json``; ``texts.json`` holds its words by language, and pictures beside it are handed out
by ``asset('logo.png')``. ``partials`` and ``fonts`` of any folder are shared by all. A template of
a later folder takes the place of one with the same name.
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

from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.security import LIBRARY_CSP, csp_tag
from kesin.workloads.pdf.templating.filters import LANGUAGE, Unprintable
from kesin.workloads.pdf.templating.sandbox import Sandbox, refused
from kesin.workloads.pdf.templating.totals import RECKONING
from kesin.workloads.pdf.templating.variables import Expectations, Problem

REVISION: Final = 1  # raised when a filter prints something else, so that old PDFs are not reused
MAX_FILES: Final = 200
MAX_FILE_BYTES: Final = 2 * 1024 * 1024

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SHARED: Final = ("partials", "fonts")
_WEIGHTS: Final = {"regular": 400, "bold": 700}
_FONT: Final = re.compile(r"fonts/([a-z]+)-(regular|bold)\.woff2")
_HEAD: Final = re.compile(r"<head(?:\s[^>]*)?>", re.IGNORECASE)
_HEADED: Final = f'<meta charset="utf-8">{csp_tag(LIBRARY_CSP)}'
_PICTURES: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
}
_TEXTS: Final = (".html", ".css", ".svg")


@dataclass(frozen=True, slots=True)
class Template:
    """One template as it was read."""

    name: str
    schema: dict[str, Any]
    sample: dict[str, Any]
    texts: dict[str, dict[str, Any]]
    files: dict[str, bytes]
    content_hash: str  # of its files, the shared ones and our own revision
    title: str = ""
    description: str = ""


class TemplateBook:
    """The templates of a service; safe to use from several threads once loaded."""

    def __init__(self, templates: Mapping[str, Template], shared: Mapping[str, bytes]) -> None:
        self._templates = dict(templates)
        self.fonts = {name: data for name, data in shared.items() if _FONT.fullmatch(name)}
        self.font_css = _font_faces(self.fonts)
        sources = {name: _decoded(name, data) for name, data in shared.items() if _is_text(name)}
        for template in templates.values():
            for file, data in template.files.items():
                if _is_text(file):
                    at = f"{template.name}/{file}"
                    sources[at] = _decoded(at, data)
        self._sandbox = Sandbox(sources)
        for name in sources:
            if name.endswith(".html"):
                self._sandbox.compiled(name)
        self._expectations = {one.name: _expectations(one) for one in templates.values()}

    @classmethod
    def load(cls, folders: Iterable[Path] = (SHIPPED,)) -> TemplateBook:
        """Read every template; raises RenderFailed (TEMPLATE_ERROR) for one that is not sound."""
        found: dict[str, Path] = {}
        shared: dict[str, bytes] = {}
        for folder in folders:
            if not folder.is_dir():
                raise refused(str(folder), "there is no such folder")
            for place in sorted(one for one in folder.iterdir() if one.is_dir()):
                if place.name in _SHARED:
                    read = _read(place)
                    shared |= {f"{place.name}/{file}": data for file, data in read.items()}
                elif (place / "template.html").is_file():
                    if not _NAME.fullmatch(place.name):
                        raise refused(
                            place.name,
                            "a name has 1…64 of a-z, 0-9, '_' and '-', a letter or a digit first",
                        )
                    found[place.name] = place
        return cls({name: _template(name, found[name], shared) for name in sorted(found)}, shared)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._templates)

    def __contains__(self, name: object) -> bool:
        return name in self._templates

    def get(self, name: str) -> Template:
        """Raises RenderFailed (TEMPLATE_ERROR) for a name that is not in the book."""
        template = self._templates.get(name)
        if template is None:
            raise refused(
                name if _NAME.fullmatch(name) else "?", "there is no template of this name"
            )
        return template

    def check(self, name: str, variables: Mapping[str, Any]) -> list[Problem]:
        """What is wrong with the variables, by JSON path; empty if they will do."""
        return self._expectations[self.get(name).name].problems(variables)

    def html(self, name: str, variables: Mapping[str, Any]) -> str:
        """The document with these values in it, each escaped once; nothing in it is fetched.

        Raises RenderFailed with the template's name and line, never with a value.
        """
        template = self.get(name)
        problems = self.check(name, variables)
        if problems:
            first = problems[0]
            told = refused(name, f"variables{first.path} {first.message}")
            told.details["problems"] = [
                {"path": one.path, "rule": one.rule, "message": one.message} for one in problems
            ]
            raise told
        lang = str(variables.get("lang", LANGUAGE))
        if not re.fullmatch(r"[a-z]{2}(-[A-Z]{2})?", lang):
            raise refused(name, "variables/lang must be a language such as tr or en")
        texts = template.texts
        services = {
            "lang": lang,
            "t": texts.get(lang) or texts.get(lang[:2]) or texts.get(LANGUAGE) or {},
            "fonts": self.font_css,
            "asset": lambda file: _asset(template, file),
            **RECKONING,
        }
        page = self._sandbox.rendered(f"{name}/template.html", {**variables, **services})
        head = _HEAD.search(page)
        if head is None:
            raise refused(f"{name}/template.html", "it has no <head>")
        return page[: head.end()] + _HEADED + page[head.end() :]


def _template(name: str, place: Path, shared: Mapping[str, bytes]) -> Template:
    files = _read(place)
    schema = _json(name, files, "schema.json")
    digest = hashlib.sha256(f"kesin {REVISION} {name}".encode())
    every = {f"{name}/{file}": data for file, data in files.items()} | dict(shared)
    for file in sorted(every):
        for part in (file.encode(), every[file]):
            digest.update(len(part).to_bytes(8, "big") + part)
    return Template(
        name=name,
        schema=schema,
        sample=_json(name, files, "sample.json"),
        texts=_json(name, files, "texts.json") if "texts.json" in files else {},
        files=files,
        content_hash=digest.hexdigest(),
        title=str(schema.get("title", name)),
        description=str(schema.get("description", "")),
    )


def _read(place: Path) -> dict[str, bytes]:
    """Every file below a folder by its path in it; hidden ones are left alone."""
    files: dict[str, bytes] = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if not path.is_file() or any(step.startswith(".") for step in name.split("/")):
            continue
        if len(files) >= MAX_FILES or path.stat().st_size > MAX_FILE_BYTES:
            raise refused(
                place.name,
                f"more than {MAX_FILES} files, or one of more than {MAX_FILE_BYTES} bytes",
            )
        files[name] = path.read_bytes()
    return files


def _json(name: str, files: Mapping[str, bytes], file: str) -> dict[str, Any]:
    try:
        found = json.loads(files[file])
    except KeyError:
        raise refused(name, f"{file} is missing") from None
    except (ValueError, RecursionError) as problem:
        raise refused(name, f"{file} is no JSON: {problem}") from None
    if not isinstance(found, dict):
        raise refused(name, f"{file} must hold an object")
    return found


def _expectations(template: Template) -> Expectations:
    """The schema of a template, tried on its own sample."""
    try:
        expectations = Expectations(template.schema)
    except ValueError as problem:
        raise refused(template.name, f"schema.json is no schema: {problem}") from None
    for found in expectations.problems(template.sample):
        raise refused(template.name, f"sample.json: {found.path} {found.message}")
    return expectations


def _decoded(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise refused(name, "it is not UTF-8") from None


def _is_text(file: str) -> bool:
    return file.endswith(_TEXTS)


def _asset(template: Template, file: str) -> str:
    """A picture of the template's own folder as a data: URI."""
    kind = _PICTURES.get(Path(file).suffix.lower())
    if kind is None or file not in template.files:
        raise Unprintable("expected the name of a picture in the template's folder")
    return f"data:{kind};base64,{base64.b64encode(template.files[file]).decode()}"


def _font_faces(shared: Mapping[str, bytes]) -> Markup:
    """Our fonts as CSS: ``fonts/sans-bold.woff2`` is the family *Kesin Sans* in weight 700."""
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
    return Markup("\n".join(faces))  # noqa: S704  # made of base64
