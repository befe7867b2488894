"""The sandbox of templates: plain data and filters, always escaped; an undefined name fails."""

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import wraps
from typing import Any, Final, NoReturn

from jinja2 import BytecodeCache, FunctionLoader, StrictUndefined, Undefined, meta, nodes
from jinja2.bccache import Bucket
from jinja2.exceptions import SecurityError, TemplateNotFound, TemplateSyntaxError, UndefinedError
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kesin.foundation.messages import Message
from kesin.workloads.pdf.errors import TEMPLATE_TOO_COSTLY, PdfErrorCode, RenderFailed
from kesin.workloads.pdf.limits import MAX_HTML_BYTES
from kesin.workloads.pdf.templating.filters import FILTERS, Unprintable

MAX_REPEATED: Final = 10_000  # characters or items that ``*`` may produce
MAX_EXCERPT_CHARS: Final = 500  # of a line; … stands for the rest
_MAX_BASE: Final = 10_000  # of ``**``
_MAX_POWER: Final = 16
_REASONS: Final[dict[type[Exception], str]] = {
    SecurityError: "it uses something that templates may not access",
    TemplateNotFound: "it includes a file that does not exist",
    OverflowError: "a loop or number in it is too large",
    RecursionError: "it includes itself endlessly",
}


def _naming_undefined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter so that an undefined value is an error that has its name."""

    @wraps(function)
    def filtered(*values: Any, **options: Any) -> Any:
        for value in (*values, *options.values()):
            if isinstance(value, Undefined):
                str(value)
        return function(*values, **options)

    return filtered


_FILTERS: Final = {
    name: function if name in {"default", "d"} else _naming_undefined(function)
    for name, function in (JINJA_FILTERS | FILTERS).items()
    if name not in {"safe", "urlize", "pprint"}
}


class _CompiledFiles(BytecodeCache):
    """Compiled templates in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._files:
            bucket.bytecode_from_string(self._files[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._files[bucket.key] = bucket.bytecode_to_string()


class Sandbox(ImmutableSandboxedEnvironment):
    """A Jinja environment over preloaded files; ``compiled`` holds and gets those compiled."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, sources: Mapping[str, str], compiled: dict[str, bytes] | None = None) -> None:
        super().__init__(
            loader=FunctionLoader(self._load_source),
            undefined=StrictUndefined,
            autoescape=True,
            finalize=_require_printable,
            auto_reload=False,
            cache_size=-1,
            bytecode_cache=None if compiled is None else _CompiledFiles(compiled),
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._sources = dict(sources)
        for name in ("lipsum", "cycler"):
            del self.globals[name]
        self.filters = dict(_FILTERS)

    def check_files(self, names: Iterable[str]) -> None:
        """Compile files and what they include; raises RenderFailed for what is not escaped."""
        pending, checked = list(names), set[str]()
        while pending:
            name = pending.pop()
            if name in self._sources and name not in checked:
                checked.add(name)
                pending += filter(None, self._check_file(name))

    def _check_file(self, name: str) -> Iterable[str | None]:
        try:
            tree = self.parse(self._sources[name], name, name)
            for node in tree.find_all((nodes.EvalContextModifier, nodes.MarkSafe)):
                message = "escaping cannot be turned off"
                raise template_failure(name, message, line=node.lineno, source=self._sources[name])
            self.get_template(name)
        except TemplateSyntaxError as problem:
            message = Message("syntax error: %(problem)s", problem=problem.message)
            file, line = problem.name or name, problem.lineno
            source = self._sources.get(file, "")
            raise template_failure(file, message, line=line, source=source) from None
        return meta.find_referenced_templates(tree)

    def render(self, name: str, variables: Mapping[str, Any]) -> str:
        """Render a template; raises RenderFailed with its name and line, without values."""
        chunks, size = [], 0
        try:
            for chunk in self.get_template(name).generate(variables):
                size += len(chunk.encode("utf-8", "surrogatepass"))
                if size > MAX_HTML_BYTES:
                    break
                chunks.append(chunk)
        except MemoryError:
            raise  # of the process, which reports its limits
        except Exception as problem:  # noqa: BLE001  # a template can raise anything
            self._raise_failure(name, problem)
        if size > MAX_HTML_BYTES:
            reason = f"its HTML is larger than {MAX_HTML_BYTES} bytes"
            raise template_failure(name, reason, code=TEMPLATE_TOO_COSTLY)
        return "".join(chunks).encode("utf-8", "replace").decode("utf-8")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Prevent ``*`` and ``**`` from exhausting the memory."""
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        small = numbers and abs(left) <= _MAX_BASE and abs(right) <= _MAX_POWER
        if operator == "**" and not small:
            raise OverflowError
        for operand, times in ((left, right), (right, left)):
            repeats = isinstance(operand, str | list | tuple) and isinstance(times, int)
            if repeats and len(operand) * times > MAX_REPEATED:
                raise OverflowError
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Prefer a key of the data to a method of dict: ``t.values``."""
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def _load_source(self, name: str) -> tuple[str, str, None] | None:
        source = self._sources.get(name)
        return None if source is None else (source, name, None)

    def _raise_failure(self, name: str, problem: Exception) -> NoReturn:
        """Raise RenderFailed without the original exception, which may contain values."""
        file, line = name, None
        if isinstance(problem, TemplateSyntaxError):  # in an included file
            file, line = problem.name or name, problem.lineno
        traceback = problem.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename in self._sources:
                file, line = traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
            traceback = traceback.tb_next
        reason, source = self._reason(file, problem), self._sources.get(file, "")
        raise template_failure(file, reason, line=line, source=source) from None

    def _reason(self, file: str, problem: Exception) -> str:
        if isinstance(problem, Unprintable):
            return str(problem)
        if isinstance(problem, UndefinedError):
            return self._missing_name(file, str(problem.message))
        for kind, reason in _REASONS.items():
            if isinstance(problem, kind):
                return reason
        return Message("it cannot be filled in (%(problem)s)", problem=type(problem).__name__)

    def _missing_name(self, file: str, message: str) -> str:
        """Name the missing variable if the template contains the name; else it may be a value."""
        source = self._sources.get(file, "")
        for part in reversed(message.split("'")[1::2]):
            if part.isidentifier() and re.search(rf"\bt\.{part}\b", source):
                return Message("%(name)s is missing from texts.json", name=f"'{part}'")
            if part.isidentifier() and re.search(rf"\b{part}\b", source):
                return Message("%(name)s is missing", name=f"'{part}'")
        return "a variable is missing"


def template_failure(
    name: str, message: str, *, line: int | None = None, source: str = "", code: str = PdfErrorCode.TEMPLATE_ERROR
) -> RenderFailed:
    """Build the error of a template, with its name, its line and the text around the line."""
    where, details = Message(name), dict[str, Any](template=name)
    if line is not None:
        where = Message("%(file)s, line %(line)s", file=name, line=line)
        details |= {"line": line, "excerpt": _excerpt(source, line)}
    sentence = "template %(where)s: %(problem)s"
    return RenderFailed(code, sentence, details=details, where=where, problem=Message(message))


def _excerpt(source: str, line: int) -> str:
    """Return a line and its neighbours, each with its number; the line itself is marked."""
    lines = re.sub(rf"(?m)^(.{{{MAX_EXCERPT_CHARS}}}).+", r"\1…", source).split("\n")
    shown = range(max(line - 1, 1), min(line + 1, len(lines)) + 1)
    return "\n".join(f"{'>' if n == line else ' '}{n:5}  {lines[n - 1]}".rstrip() for n in shown)


def _require_printable(value: object) -> object:
    """Reject values without a printed form: None, objects, functions."""
    if isinstance(value, str | int | float | Decimal | dt.date | Undefined):
        return value
    raise Unprintable(f"expected a text or a number, not {type(value).__name__}")
