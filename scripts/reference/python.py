"""Every public name of the package: what it is, how it is called, what it has."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, Final, ForwardRef

import kesin
from kesin.testing import MemoryQueue, workload_context

from .text import anchor, page, plain

_GROUPS: Final = {
    "Queues": (
        *("open_store", "Queue", "NewJob", "Outcome", "BulkResult", "Job", "Event", "Note"),
        *("Filter", "Page", "QueueStats", "Store"),
    ),
    "Workers and handlers": (
        *("Worker", "Sweeper", "RunContext", "Done", "Failed", "Wait", "Act", "StaleClaim"),
        *("Clock", "ManualClock", "verify", "Verification"),
    ),
    "Lifecycles": (
        *("task_lifecycle", "Lifecycle", "State", "Move", "GONE", "STAY", "prove", "Proof"),
        *("Unproved", "DeclarationError", "Backoff", "doubling", "After", "Fixed", "moves"),
    ),
    "Errors of handlers": (*("Category", "Verdict", "Code", "Rule", "Taxonomy", "same_everywhere"),),
    "Guards": (
        *("Guard", "due", "unclaimed", "holds_claim", "lease_over", "budget_left", "budget_spent"),
        *("retries_left", "returns_left", "was_claimed", "age_over", "timer_over"),
        *("timer_not_over", "flag_set", "flag_not_set", "option", "slot_free", "category_in"),
        *("code_in", "code_not_in", "rate", "parents_done", "parents_failed"),
    ),
    "Exceptions": (
        *("BadInput", "UpgradeRefused", "StoreError", "StoreUnreachable", "StoreTrouble", "UnknownQueue"),
        *("Problem", "Invalid", "NotFound", "NotSignedIn", "Forbidden"),
    ),
}
# A constant has no docstring: that of its class says nothing about it.
_CONSTANTS: Final = {
    "GONE": "The source of an `enqueue`, and the target of a `prune`.",
    "STAY": "The target of a move that leaves the job in its state.",
    "due": "The job's `run_at` time has been reached.",
    "unclaimed": "No worker holds the job.",
    "holds_claim": "The caller holds the claim: its token is the job's `claim_seq`.",
    "lease_over": "The job is claimed, and its lease has ended.",
    "timer_over": "The timer is armed and has expired.",
    "timer_not_over": "No timer is armed, or it has not expired yet.",
    "budget_left": "The job has attempts left.",
    "budget_spent": "The job has no attempts left.",
    "returns_left": "`return_count` is below the lifecycle's `max_returns`.",
    "was_claimed": "The job has been claimed since its payload was last replaced.",
    "parents_done": "Every parent of the job has succeeded.",
    "parents_failed": "A parent of the job has stopped without succeeding.",
    "MAX_KEY": "The maximum length of a job's key, in characters.",
    "MAX_TENANT": "The maximum length of a tenant's name, in characters.",
}
_REST: Final = "Workloads, pages and settings"
_OPENING: Final = """# Python

Everything that `kesin` and `kesin.testing` export. Other modules inside the package are private.
[Stability](../stability.md) explains what may change, and when.
"""
_HIDDEN: Final = ("self", "cls", "beside")  # the last is an old name
_OLD: Final = "The old name of"
LINE: Final = 96


def python_page() -> str:
    """The page."""
    placed = {name for names in _GROUPS.values() for name in names}
    public = kesin.__all__  # type: ignore[attr-defined]  # made of the stub
    missing = placed - set(public)
    if missing:
        raise LookupError(f"not exported by kesin: {', '.join(sorted(missing))}")
    groups = {**_GROUPS, _REST: tuple(name for name in public if name not in placed)}
    lines = [_OPENING]
    for title, names in groups.items():
        links = ", ".join(f"[`{name}`](#{anchor(name)})" for name in names)
        lines += [f"## {title}", "", links, ""]
        for name in names:
            lines += _entry(name, getattr(kesin, name))
    lines += ["## kesin.testing", "", "For [the tests of your app](../handlers.md#test-your-app).", ""]
    for value in (MemoryQueue, workload_context):
        lines += _entry(value.__name__, value)
    return page(lines)


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if inspect.ismodule(value):
        yield from (_what(value), "", *_members(value))
        return
    if not callable(value) and not isinstance(value, type):
        if isinstance(value, int | str):
            yield from (f"`{name} = {value!r}`", "")
        yield from (_CONSTANTS[name], "")
        return
    if isinstance(value, type) and issubclass(value, enum.Enum):
        yield f"`{' · '.join(member.name for member in value)}`"
    else:
        yield from ("```python", _signature(name, value), "```")
    yield ""
    yield _what(value)
    yield ""
    if isinstance(value, type):
        yield from _members(value)


def _what(value: Any) -> str:
    return plain(inspect.getdoc(value) or "")


def _signature(name: str, function: Any, *, typed: bool = True) -> str:
    """The call with its defaults; on several lines if it is long."""
    if isinstance(function, type) and _maker(function) not in ("kesin", "builtins"):
        return f"class {name}({', '.join(base.__qualname__ for base in function.__bases__)})"
    try:
        signature = inspect.signature(function)
    except ValueError:
        return name
    shown: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name in _HIDDEN or parameter.name.startswith("_"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not {"*", "*args"} & set(shown):
            shown.append("*")
        shown.append(_parameter(parameter, typed=typed))
    returns = signature.return_annotation
    plain_call = isinstance(function, type) or returns in (inspect.Signature.empty, None, "None")
    returns = returns.__name__ if isinstance(returns, type) else returns
    arrow = "" if plain_call else f" -> {returns}"
    one_line = f"{name}({', '.join(shown)}){arrow}"
    if len(one_line) <= LINE or not typed:
        return one_line
    return "\n".join([f"{name}(", *(f"    {part}," for part in shown), f"){arrow}"])


def _maker(kind: type) -> str:
    """The library whose constructor the class has."""
    homes = (home for home in kind.__mro__ if {"__init__", "__new__"} & vars(home).keys())
    return next(homes).__module__.partition(".")[0]


def _parameter(parameter: inspect.Parameter, *, typed: bool) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    kind = parameter.annotation
    kind = kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind
    typed = typed and kind is not parameter.empty
    kind = kind.__name__ if isinstance(kind, type) else kind
    text = f"{stars}{parameter.name}" + (f": {kind}" if typed else "")
    if parameter.default is parameter.empty:
        return text
    default = repr(parameter.default)
    shown = "…" if default.startswith("<") else default
    return f"{text} = {shown}" if typed else f"{text}={shown}"


def _members(home: Any) -> Iterator[str]:
    """The functions, methods and properties of a module or class that have a docstring.

    A class has those of its bases too, if they have no entry of their own.
    """
    rows = []
    homes = [home]
    if isinstance(home, type):
        public = kesin.__all__  # type: ignore[attr-defined]
        bases = takewhile(lambda base: base.__name__ not in public, home.__mro__[1:])
        homes += [b for b in bases if b.__module__.startswith(("kesin.engine", "kesin.store"))]
    for name, member in (pair for each in homes for pair in vars(each).items()):
        if name.startswith("_"):
            continue
        function = member.fget if isinstance(member, property) else member
        function = getattr(function, "__func__", function)
        if not inspect.isfunction(function) or not function.__doc__ or _OLD in function.__doc__:
            continue
        if inspect.ismodule(home) and function.__module__ != home.__name__:
            continue
        shown = name if isinstance(member, property) else _signature(name, function, typed=False)
        rows.append(f"- `{shown}`: {' '.join(_what(function).split())}")
    if rows:
        yield from (*rows, "")
