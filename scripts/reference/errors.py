"""A runbook of error codes in two languages: what each means, whose turn it is, what to do.

The texts are those that the dashboard, the command line and the API show.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from kesin.foundation import problems
from kesin.foundation.encryption import NoSecretKeys, SecretNotOpened
from kesin.foundation.problems import Problem
from kesin.lifecycle.errors import Taxonomy
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreTrouble
from kesin.store.limits import MAX_CODE
from kesin.workloads import workloads
from kesin.workloads.oci.lifecycle import ADVICE as OCI
from kesin.workloads.optiplan.errors import ADVICE as OPTIPLAN
from kesin.workloads.optiplan.errors import OptiCode
from kesin.workloads.pdf.errors import ADVICE as PDF
from kesin.workloads.pdf.lifecycle import INTERRUPTED, RETRYABLE

from .text import ROOT, page, table

Language = Literal["en", "tr"]
Describe = Callable[[str], Mapping[str, Any]]
Words = Mapping[str, Any]

_HOME: Final = Path(__file__).parent
_REQUEUED: Final = {*RETRYABLE, INTERRUPTED.code}  # a PDF's verdict is *fail*; *requeue* follows
_BY_HAND: Final = {(405, "method_not_allowed"), (500, "internal")}  # no kind has this status


def errors_page(language: Language) -> str:
    """The page in one language."""
    advice = tomllib.loads((_HOME / "errors.toml").read_text("utf-8"))
    words = {"language": language, **advice["words"][language]}
    rules = {name: one.lifecycle().errors for name, one in workloads().items()}
    of_pdf = [rules[name] for name in ("pdf", "pdf_batches", "pdf_webhooks")]
    task = advice["task"]
    lines = [
        f"# {words['title']}",
        "",
        words["opening"],
        *_workload(words, "task", task, task.__getitem__, [task_lifecycle().errors]),
        words["plain"],
        *_workload(words, "oci", OCI.codes, OCI.describe, [rules["oci"], rules["oci_adjustments"]]),
        *_workload(words, "pdf", PDF.codes, PDF.describe, of_pdf),
        *_workload(words, "optiplan", OptiCode, OPTIPLAN.describe, [rules["optiplan"]]),
        *_refusals(words, advice["problem"]),
    ]
    return page(lines, words["made"])


def _workload(
    words: Words, name: str, codes: Iterable[str], describe: Describe, rules: Sequence[Taxonomy]
) -> list[str]:
    """A section for each text; codes that share one share the section."""
    declared = {one.name for taxonomy in rules for one in taxonomy.codes}
    shown = {code[:MAX_CODE] for code in codes}
    sections: dict[str, tuple[list[str], Mapping[str, Any], list[str]]] = {}
    for code in (*codes, *sorted(declared - shown)):
        advice, kinds = describe(code), _kinds(words, code, rules)
        sections.setdefault(repr((advice, kinds)), ([], advice, kinds))[0].append(code)
    lines = [f"## {words['workloads'][name]}", ""]
    for section in sections.values():
        lines += _section(words, *section)
    return lines


def _section(words: Words, named: Sequence[str], advice: Mapping[str, Any], kinds: Sequence[str]) -> list[str]:
    first, *others = named
    text = advice[words["language"]]
    lines = [f"### {first}", ""]
    if others:
        said = words["also"][len(others) > 1]
        lines += [said.format(_listed(words["kinds"], [f"`{code}`" for code in others])), ""]
    who = advice.get("who", "none")
    points = {
        "means": text["means"],
        "kind": f"{words['kinds']['join'].join(kinds)}." if kinds else "",
        "turn": f"{words['who'][who]}." if who != "none" else "",
        "act": text["act"],
        "next": text.get("next", ""),
    }
    lines += [f"- **{words[name]}:** {said}" for name, said in points.items() if said]
    return [*lines, ""]


def _kinds(words: Words, code: str, rules: Sequence[Taxonomy]) -> list[str]:
    """The category and what becomes of the job, by channel where they differ."""
    stored, kinds = code[:MAX_CODE], words["kinds"]
    found = []
    for taxonomy in rules:
        if taxonomy.code(stored) is None:
            continue
        channels: dict[str, list[str]] = {}
        for channel in taxonomy.channels:
            verdict = taxonomy.resolve(stored, channel=channel).verdict
            end = words["verdicts"]["retry" if stored in _REQUEUED else verdict]
            channels.setdefault(end, []).append(channel)
        category = taxonomy.resolve(stored).category
        ends = [_end(kinds, verdict, where) if len(channels) > 1 else verdict for verdict, where in channels.items()]
        found.append(kinds["same"].format(category=category, ends=", ".join(ends)))
    return list(dict.fromkeys(found))


def _end(kinds: Mapping[str, str], verdict: str, where: Sequence[str]) -> str:
    said = kinds["each_of" if len(where) > 1 else "each"]
    return said.format(verdict=verdict, channels=_listed(kinds, where))


def _listed(kinds: Mapping[str, str], names: Sequence[str]) -> str:
    *most, last = names
    return kinds["and"].join([", ".join(most), last] if most else [last])


def _refusals(words: Words, advice: Mapping[str, Any]) -> list[str]:
    rows = []
    for status, code in _statuses():
        text = advice[code][words["language"]]
        rows.append((str(status), f"`{code}`", text["means"], text["act"]))
    lines = [f"## {words['refusals']}", "", words["refused"], *table(words["columns"], rows)]
    if "exact" in words:
        exact = [(str(status), f"`{code}`", said) for status, code, said in _exact()]
        lines += [words["exact"], "", *table(("status", "code", "message"), exact)]
    return lines


def _statuses() -> list[tuple[int, str]]:
    """Every kind of refusal, by status; one without a text fails here."""
    values = vars(problems).values()
    kinds: list[type[Problem]] = [value for value in values if isinstance(value, type) and issubclass(value, Problem)]
    kinds += [NoSecretKeys, SecretNotOpened, *SecretNotOpened.__subclasses__()]
    refusals = {(kind.status, kind.code) for kind in kinds}
    of_disks = re.findall(r"``(\w+)``", (StoreTrouble.__doc__ or "").partition(" is ")[2])
    return sorted(refusals | {(503, code) for code in of_disks} | _BY_HAND)


def _exact() -> list[tuple[int, str, str]]:
    """Refusals with a code of their own, as they are raised."""
    statuses = {
        name: one.status for name, one in vars(problems).items() if isinstance(one, type) and issubclass(one, Problem)
    }
    found: dict[tuple[int, str], dict[str, None]] = {}
    for file in sorted((ROOT / "src" / "kesin").rglob("*.py")):
        text = file.read_text("utf-8")
        for kind, code, said in _raised(ast.parse(text)) if "code=" in text else ():
            if kind in statuses and code not in {other for _, other in _BY_HAND}:
                found.setdefault((statuses[kind], code), {})[said] = None
    return [(status, code, "; ".join(said)) for (status, code), said in sorted(found.items())]


def _raised(module: ast.AST) -> Iterator[tuple[str, str, str]]:
    texts = sorted(_texts(module))
    for call in ast.walk(module):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or not call.args:
            continue
        given = next((one.value for one in call.keywords if one.arg == "code"), None)
        if given is None:
            continue
        named = {name: value for line, name, value in texts if line <= call.lineno}  # the last one
        code = named.get(given.id, given) if isinstance(given, ast.Name) else given
        first = call.args[0]
        said = _said(named.get(first.id, first) if isinstance(first, ast.Name) else first)
        if isinstance(code, ast.Constant) and isinstance(code.value, str) and said:
            yield call.func.id, code.value, said


class _Text(ast.Constant):
    """A text that a name stands for; texts of one line have no order."""

    def __lt__(self, _: object) -> bool:
        return False


def _texts(module: ast.AST) -> Iterator[tuple[int, str, ast.Constant]]:
    """The names that stand for a text, alone or as one of several, with their lines."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        names, values = node.targets[0], node.value
        pairs = [(names, values)]
        if isinstance(names, ast.Tuple) and isinstance(values, ast.Tuple):
            pairs = list(zip(names.elts, values.elts, strict=False))
        for name, value in pairs:
            if isinstance(name, ast.Name) and isinstance(value, ast.Constant):
                yield node.lineno, name.id, _Text(value.value)


def _said(argument: ast.expr) -> str:
    """A message as it stands in the code, with … for what is filled in."""
    if isinstance(argument, ast.Constant):
        return re.sub(r"%\(\w+\)s", "…", str(argument.value))
    if isinstance(argument, ast.JoinedStr):
        parts = (one.value if isinstance(one, ast.Constant) else "…" for one in argument.values)
        return "".join(map(str, parts))
    if isinstance(argument, ast.Call) and argument.args:  # said in the looker's language
        return _said(argument.args[0])
    return "…"
