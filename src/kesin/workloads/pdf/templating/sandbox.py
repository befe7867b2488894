"""Where templates run: they see plain data and our filters, and nothing of the machine.

Escaping is always on and cannot be turned off. A name that is missing is an error, because an
invoice with a blank in it is worse than none. How long it may take is for the worker to say.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NoReturn

from jinja2 import FunctionLoader, StrictUndefined, Undefined, nodes
from jinja2.exceptions import SecurityError, TemplateNotFound, TemplateSyntaxError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.limits import MAX_HTML_BYTES
from kesin.workloads.pdf.templating.filters import FILTERS, Unprintable

MAX_REPEATED: Final = 10_000  # letters or items that ``*`` may make
_UNSAFE_FILTERS: Final = ("safe", "urlize", "pprint")
_UNWANTED_GLOBALS: Final = ("lipsum", "cycler")
_REASONS: Final[dict[type[Exception], str]] = {
    SecurityError: "it asks for what templates may not touch",
    TemplateNotFound: "it includes a file that is not there",
    OverflowError: "it counts too far",
    RecursionError: "it includes itself without end",
}


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja over files that were read beforehand, by their names: nothing is opened later."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, sources: Mapping[str, str]) -> None:
        super().__init__(
            loader=FunctionLoader(self._found),
            undefined=StrictUndefined,
            autoescape=True,
            finalize=_printable,
            auto_reload=False,
            cache_size=-1,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._sources = dict(sources)
        for name in _UNSAFE_FILTERS:
            del self.filters[name]
        for name in _UNWANTED_GLOBALS:
            del self.globals[name]
        self.filters.update(FILTERS)

    def compiled(self, name: str) -> None:
        """Raise RenderFailed if this file is no template, or turns the escaping off."""
        try:
            tree = self.parse(self._sources[name], name, name)
            for node in tree.find_all((nodes.EvalContextModifier, nodes.MarkSafe)):
                raise refused(name, "escaping cannot be turned off", line=node.lineno)
            self.get_template(name)
        except TemplateSyntaxError as problem:
            message = f"it is no template: {problem.message}"
            raise refused(problem.name or name, message, line=problem.lineno) from None

    def rendered(self, name: str, variables: Mapping[str, Any]) -> str:
        """The text of a template; raises RenderFailed with its name and line, and no values."""
        pieces, size = [], 0
        try:
            for piece in self.get_template(name).generate(variables):
                size += len(piece.encode("utf-8", "surrogatepass"))
                if size > MAX_HTML_BYTES:
                    break
                pieces.append(piece)
        except Exception as problem:  # noqa: BLE001  # templates fail in any way, and all are theirs
            self._explain(name, problem)
        if size > MAX_HTML_BYTES:
            raise refused(name, f"its HTML is larger than {MAX_HTML_BYTES} bytes")
        return "".join(pieces).encode("utf-8", "replace").decode("utf-8")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Keep ``*`` and ``**`` from making what fills the memory."""
        if operator == "**" and not _is_small(left, right):
            raise OverflowError
        for one, times in ((left, right), (right, left)):
            repeats = isinstance(one, str | list | tuple) and isinstance(times, int)
            if repeats and len(one) * times > MAX_REPEATED:
                raise OverflowError
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """What JSON says comes before what Python's dictionaries can do: ``t.values``."""
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def _found(self, name: str) -> tuple[str, str, None] | None:
        source = self._sources.get(name)
        return None if source is None else (source, name, None)

    def _explain(self, name: str, problem: Exception) -> NoReturn:
        """Raise what may be told: the chain of causes is cut, it holds values."""
        file, line = name, None
        if isinstance(problem, TemplateSyntaxError):  # of what it includes
            file, line = problem.name or name, problem.lineno
        place = problem.__traceback__
        while place is not None:
            if place.tb_frame.f_code.co_filename in self._sources:
                file, line = place.tb_frame.f_code.co_filename, place.tb_lineno
            place = place.tb_next
        raise refused(file, self._reason(file, problem), line=line) from None

    def _reason(self, file: str, problem: Exception) -> str:
        if isinstance(problem, Unprintable):
            return str(problem)
        if isinstance(problem, UndefinedError):
            return self._missing(file, str(problem.message))
        for kind, reason in _REASONS.items():
            if isinstance(problem, kind):
                return reason
        return f"it cannot be filled in ({type(problem).__name__})"

    def _missing(self, file: str, message: str) -> str:
        """Name what is missing if the template does so itself; otherwise it may be a value."""
        source = self._sources.get(file, "")
        for part in reversed(message.split("'")[1::2]):
            if part.isidentifier() and re.search(rf"\b{part}\b", source):
                return f"'{part}' is missing"
        return "a variable is missing"


def refused(name: str, message: str, *, line: int | None = None) -> RenderFailed:
    """The failure of a template, told by name and line."""
    at = f"{name}, line {line}" if line is not None else name
    details = {"template": name} | ({"line": line} if line is not None else {})
    return RenderFailed(PdfErrorCode.TEMPLATE_ERROR, f"template {at}: {message}", details=details)


def _printable(value: object) -> object:
    """Refuse what has no face on paper: nothing, whole objects, functions with their addresses."""
    if isinstance(value, str | int | float | Decimal | dt.date | Undefined):
        return value
    raise Unprintable(f"expected a text or a number, not {type(value).__name__}")


def _is_small(base: object, power: object) -> bool:
    return (
        isinstance(base, int | float)
        and isinstance(power, int | float)
        and abs(base) <= 10_000  # noqa: PLR2004
        and abs(power) <= 16  # noqa: PLR2004
    )
