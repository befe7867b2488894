"""Loads and checks the templates of folders, the later over the earlier; renders them by name.

An active version (see `versions.py`) is used in place of both; ``name@version`` is any stored one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import marshal
import os
import re
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from kesin.foundation.messages import Message
from kesin.foundation.problems import Problem
from kesin.foundation.settings import Settings
from kesin.workloads.pdf.channel import ChildLimits
from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed, public_code
from kesin.workloads.pdf.templating.fill_child import IMAGE_TYPES
from kesin.workloads.pdf.templating.filling import LIMITS, fill_helper
from kesin.workloads.pdf.templating.pictures import PictureLimits
from kesin.workloads.pdf.templating.sandbox import template_failure
from kesin.workloads.pdf.templating.variables import VariableProblem, VariableSchema

REVISION: Final = 2  # increased when a filter's output changes, so that old PDFs are not reused
MAX_FILES: Final = 200
MAX_FILE_BYTES: Final = 2 * 1024 * 1024

MAX_PINNED: Final = 16  # versions that are kept loaded beside the active ones
TEMPLATE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

Files = Mapping[str, bytes]  # of a template, by their path in it
SHARED: Final = ("partials", "fonts")
_WEIGHTS: Final = {"regular": 400, "medium": 500, "semibold": 600, "bold": 700}
_FONT: Final = re.compile(  # a .part has only some characters
    rf"fonts/([a-z0-9]+)(?:-({'|'.join(_WEIGHTS)}|[1-9]00))?(?:-(italic))?(?:\.part)?\.woff2"
)
_TRUETYPE: Final = b"wOF2\x00\x01\x00\x00"  # woff2; other outlines become fonts of Type 3
_SAMPLE: Final = re.compile(r"sample\.[a-z]{2}\.json")
_TEXT_SUFFIXES: Final = (".html", ".css", ".svg")


class PdfTemplate:
    """A template as loaded; raises RenderFailed for what is no template."""

    def __init__(self, name: str, files: Files, library: TemplateLibrary, version: str) -> None:
        if not TEMPLATE_NAME.fullmatch(name):
            reason = "a name must have 1…64 of a-z, 0-9, '_' and '-', and begin with a letter or digit"
            raise template_failure(name, reason)
        self.name = name
        self.library = library  # which fills it in
        self.version = version  # empty: it comes from a folder
        self.schema = _parse_json(name, files, "schema.json")
        self.title = str(self.schema.get("title", name))
        self.description = str(self.schema.get("description", ""))
        others = [file for file in files if _SAMPLE.fullmatch(file)]
        self.samples = {file: _parse_json(name, files, file) for file in ("sample.json", *others)}
        self.sample = self.samples["sample.json"]
        self.texts = _parse_json(name, files, "texts.json") if "texts.json" in files else {}
        own = {f"{name}/{file}": data for file, data in files.items()}
        self.content_hash = digest(f"kesin {REVISION} {name}", {**own, **library.shared})
        names = [file for file in files if Path(file).suffix.lower() in IMAGE_TYPES]
        self.pictures = {file: files[file] for file in names}
        self.variables = _load_schema(self)
        self.sources = _decode(own)

    def sample_in(self, language: str) -> dict[str, Any]:
        return self.samples.get(f"sample.{language}.json", self.sample)


class TemplateLibrary:
    """The templates of a service, thread-safe once loaded; ``broken`` has others' problems."""

    def __init__(self, shared: Files, pictures: PictureLimits, limits: ChildLimits) -> None:
        self.pictures = pictures
        self.limits = limits
        self.broken: dict[str, RenderFailed] = {}
        self.rejected: Mapping[str, RenderFailed | Problem] = {}  # why a change is not in use
        self.active: Mapping[str, str] = {}  # the version of each template that has an active one
        self.read_version: Callable[[str, str], Files] = _refuse_version
        self.fonts = {name: data for name, data in shared.items() if _FONT.fullmatch(name)}
        self.font_css = _font_faces(self.fonts)
        self.shared = shared
        self._sources: dict[str, str] = {}
        self._templates: dict[str, PdfTemplate] = {}
        self._pinned = lru_cache(MAX_PINNED)(self.with_version)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # what children read
        weakref.finalize(self, self._file.close)
        self._parts: dict[str, tuple[int, int]] = {}  # of the file: offset and size
        self._one_at_a_time = threading.Lock()
        self._unchecked: set[str] = set()  # whose sample was not filled in yet
        self._unfilled: dict[str, RenderFailed] = {}
        for file, data in shared.items():
            with self._problems_kept(file):
                self._sources |= _decode({file: data})

    @classmethod
    def load(
        cls,
        folders: Iterable[Path] = (SHIPPED,),
        *,
        pictures: PictureLimits | None = None,
        limits: ChildLimits | None = None,
        fonts: Mapping[str, bytes] | None = None,
    ) -> TemplateLibrary:
        """Load all templates; raises RenderFailed for a folder that cannot be read."""
        places: dict[str, Path] = {}
        shared: dict[str, bytes] = {}
        for folder in folders:
            if not folder.is_dir():
                raise template_failure(str(folder), "there is no such folder")
            for place in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
                if place.name in SHARED:
                    files = _read_files(place)
                    shared |= {f"{place.name}/{file}": data for file, data in files.items()}
                elif (place / "template.html").is_file():
                    places[place.name] = place
        shared |= fonts or {}
        library = cls(shared, pictures or PictureLimits(), limits or LIMITS)
        for name, place in places.items():
            with library._problems_kept(name):
                library._add(name, _read_files(place))
        library._compile()
        return library

    def use_version(self, name: str, version: str) -> None:
        """Use a version in place of what the folders have; record what is wrong with it."""
        self._templates.pop(name, None)
        self._unchecked.discard(name)
        with self._problems_kept(name):
            self.adopt(name, self.with_version(name, version))

    def with_version(self, name: str, version: str, files: Files | None = None) -> TemplateLibrary:
        """Load a version with the shared files of this library; raises RenderFailed."""
        library = TemplateLibrary(self.shared, self.pictures, self.limits)
        files = self.read_version(name, version) if files is None else files
        library._add(name, files, version)
        library._compile()
        library.get(name)
        return library

    def adopt(self, name: str, other: TemplateLibrary) -> None:
        """Use a template as another library has it, with the shared files of that one."""
        self._templates[name] = other.get(name)
        self._unchecked.add(name)
        self.broken.pop(name, None)

    @contextmanager
    def _problems_kept(self, name: str) -> Iterator[None]:
        """Record what is wrong with a template; a failure that is not its own is raised."""
        try:
            yield
        except OSError as problem:
            self.broken[name] = template_failure(name, f"it cannot be read: {problem.strerror}")
        except RenderFailed as problem:
            if not _is_own(problem):
                raise
            self.broken[name] = problem

    def _add(self, name: str, files: Files, version: str = "") -> None:
        template = PdfTemplate(name, files, self, version)
        for file, data in template.pictures.items():
            try:
                self.pictures.measure(data)
            except RenderFailed as problem:
                raise template_failure(f"{name}/{file}", problem.message) from None
        self._sources |= template.sources
        self._templates[name] = template

    def _compile(self) -> None:
        """Compile all templates, each in a process with limits, and write what children read."""
        self._write("", {"sources": self._sources, "fonts": self.font_css})
        pages = [path for path in self._sources if path.endswith(".html")]
        for path in pages:
            if path in self.shared:
                with self._problems_kept(path):
                    self.run(path, {"check": [path]})
        for name, template in list(self._templates.items()):
            del self._templates[name]
            with self._problems_kept(name):
                own = [path for path in pages if path.startswith(f"{name}/")]
                content = {"compiled": self.run(name, {"check": own}), "texts": template.texts}
                self._write(name, {**content, "pictures": template.pictures})
                self._templates[name] = template
        self._unchecked = set(self._templates)

    def _write(self, part: str, content: dict[str, Any]) -> None:
        data = marshal.dumps(content)
        self._parts[part] = (self._file.tell(), len(data))
        self._file.write(data)
        self._file.flush()

    def run(self, name: str, task: dict[str, Any], body: bytes = b"") -> bytes:
        """Run a task of a template in a child, which reads what this library wrote of it."""
        parts = [self._parts[part] for part in ("", name) if part in self._parts]
        helper = fill_helper()
        return helper.run(name, self._file.fileno(), {**task, "parts": parts}, body, self.limits)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._templates))

    def get(self, name: str) -> PdfTemplate:
        """Return a template; raises RenderFailed for an unknown name or a broken template."""
        plain, pin, version = name.partition("@")
        template = self._templates.get(plain)
        pinned = pin and TEMPLATE_NAME.fullmatch(plain)
        if pinned and (template is None or template.version != version):
            self.read_version(plain, version)  # it may have been deleted
            return self._pinned(plain, version).get(plain)
        if template is not None:
            return template
        if name in self.broken:
            raise self.broken[name]
        shown = name if TEMPLATE_NAME.fullmatch(name) else "?"
        raise template_failure(shown, "there is no template of this name")

    def find_problems(self, name: str, variables: Mapping[str, Any]) -> list[VariableProblem]:
        """Return the problems of the variables, by JSON path; empty if they are valid."""
        return self.get(name).variables.find_problems(variables) or [
            VariableProblem(path, "pixels", message) for path, message in self.pictures.find_problems(variables)
        ]

    def render_html(self, name: str, variables: Mapping[str, Any]) -> str:
        """Render the document, every value escaped once; raises RenderFailed without a value."""
        template, problems = self.get(name), self.find_problems(name, variables)
        if problems:
            field, first = f"variables{problems[0].path}", Message(problems[0].message)
            message = Message("%(field)s %(problem)s", field=field, problem=first)
            failure = template_failure(name, message)
            failure.details["problems"] = [problem._asdict() for problem in problems]
            raise failure
        task = {"fill": template.name, "pictures": self.pictures._asdict()}
        body = json.dumps(variables, default=str).encode()
        return template.library.run(template.name, task, body).decode()

    def inspect_html(self, html: str) -> str:
        """Return the title of HTML that no template made; raises RenderFailed as it is refused."""
        return self.run("HTML", {"pictures": self.pictures._asdict()}, html.encode()).decode()

    def find_unusable(self) -> dict[str, RenderFailed]:
        """Return the problems of broken templates, and of samples, each of which is tried once."""
        with self._one_at_a_time:
            for name in sorted(self._unchecked):
                try:
                    for sample in self._templates[name].samples.values():
                        self.render_html(name, sample)
                    self._unfilled.pop(name, None)
                except RenderFailed as problem:
                    self._unfilled[name] = problem
                    if not _is_own(problem):
                        continue
                self._unchecked.remove(name)
            return self.broken | self._unfilled


def _is_own(problem: RenderFailed) -> bool:
    return public_code(problem.code) is PdfErrorCode.TEMPLATE_ERROR


def _refuse_version(name: str, version: str) -> Files:  # noqa: ARG001
    raise template_failure(name, "there is no such version")


def digest(heading: str, files: Files) -> str:
    """Return the hash of files and their names."""
    hashed = hashlib.sha256(heading.encode())
    for file in sorted(files):
        for part in (file.encode(), files[file]):
            hashed.update(len(part).to_bytes(8, "big") + part)
    return hashed.hexdigest()


def _read_files(folder: Path) -> dict[str, bytes]:
    """Read all files below a folder, by relative path; hidden files are skipped."""
    files: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or any(step.startswith(".") for step in name.split("/")):
            continue
        if len(files) >= MAX_FILES or path.stat().st_size > MAX_FILE_BYTES:
            reason = f"more than {MAX_FILES} files, or a file of more than {MAX_FILE_BYTES} bytes"
            raise template_failure(folder.name, reason)
        files[name] = path.read_bytes()
    return files


def _parse_json(name: str, files: Mapping[str, bytes], file: str) -> dict[str, Any]:
    try:
        content = json.loads(files[file])
    except KeyError:
        raise template_failure(name, f"{file} is missing") from None
    except (ValueError, RecursionError) as problem:
        raise template_failure(name, f"{file} is not JSON: {problem}") from None
    if not isinstance(content, dict):
        raise template_failure(name, f"{file} must contain an object")
    return content


def _load_schema(template: PdfTemplate) -> VariableSchema:
    try:
        schema = VariableSchema(template.schema)
    except ValueError as problem:
        raise template_failure(template.name, f"schema.json is not a schema: {problem}") from None
    for file, sample in template.samples.items():
        for invalid in schema.find_problems(sample):
            raise template_failure(template.name, f"{file}: {invalid.path} {invalid.message}")
    return schema


def _decode(files: Mapping[str, bytes]) -> dict[str, str]:
    texts = {}
    for name, data in files.items():
        if name.endswith(_TEXT_SUFFIXES):
            try:
                texts[name] = data.decode("utf-8")
            except UnicodeDecodeError:
                raise template_failure(name, "it is not UTF-8") from None
    return texts


def _font_faces(fonts: Mapping[str, bytes]) -> str:
    """Return fonts as CSS: ``fonts/sans-600-italic.woff2`` is *Kesin Sans*, weight 600, italic."""
    faces: dict[str, bytes] = {}  # one file each, the last: WeasyPrint mixes up glyphs of several
    for name, data in fonts.items():
        if match := _FONT.fullmatch(name):
            weight = _WEIGHTS.get(match[2] or "regular", match[2])
            style = f"font-weight:{weight};font-style:{match[3] or 'normal'}"
            faces[f"font-family:'Kesin {match[1].title()}';{style}"] = base64.b64encode(data)
    sources = ((face, f"data:font/woff2;base64,{data.decode()}") for face, data in faces.items())
    return "\n".join(f"@font-face{{{face};src:url({url})}}" for face, url in sources)


def read_further_fonts(folder: Path, settings: Settings) -> dict[str, bytes]:
    """Read the fonts of a folder; raises RenderFailed with the name of a file that is refused."""
    fonts: dict[str, bytes] = {}
    for path in sorted(set(folder.glob("[!.]*")) - set(folder.glob("*.txt"))):  # no licences
        name = f"fonts/{path.name}"
        if not (_FONT.fullmatch(name) and path.is_file() and os.access(path, os.R_OK)):
            raise template_failure(name, "expected a readable file such as serif-600-italic.woff2")
        with path.open("rb") as file:
            fonts[name] = data = file.read(settings.pdf_font_kib * 1024 + 1)
        total = sum(map(len, fonts.values()))
        for why, size, most in (
            ("it is larger than %(most)s KiB", len(data) / 1024, settings.pdf_font_kib),
            ("at most %(most)s fonts are allowed", len(fonts), settings.pdf_max_fonts),
            ("with it, the fonts exceed %(most)s KiB", total / 1024, settings.pdf_all_fonts_kib),
        ):
            if size > most:
                raise template_failure(name, Message(why, most=most))
        if data[:8] != _TRUETYPE or int.from_bytes(data[8:12]) != len(data):
            raise template_failure(name, "it is not a complete woff2 file with TrueType outlines")
    return fonts
