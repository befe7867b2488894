"""Every path of the API: who may ask, what it takes, what it answers.

What it takes and answers is `/openapi.json`; who may ask is the table that the tests hold every
route against.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kesin.foundation.settings import Settings
from kesin.store.open import open_store
from kesin.web.app import create_app
from kesin.web.service import Service
from kesin.workloads import workloads

from .text import ROOT, anchor, number, page, plain, table

_MATRIX: Final = ROOT / "tests" / "web" / "matrix.py"
_GROUPS: Final = {
    "operator": "Queues and jobs",
    "session": "Signing in",
    "sites": "Sites",
    "operations": "Health, metrics, cron",
    "oci": "Offline conversions",
    "pdf": "PDFs",
    "optiplan": "Cutting orders",
}
_MAY: Final = {
    "cron": "the cron secret",
    "metr": "keys with `metrics`",
    "pdf": "keys with `pdf`",
    "opti": "keys with `optiplan`",
    "i": "keys with `oci:ingest`",
    "s": "keys with `oci:script`",
    "v": "viewers and keys with `read`",
    "o": "operators and keys with `operate`",
    "admin": "admins",
}
_SHUT: Final = {"401", "403", "-"}


_OPENING: Final = """# HTTP

Every path of `kesin serve`, generated from its `/openapi.json`; `/docs` shows the same in a
browser. *Access* lists roles and scopes; the tests check them on every path. A caller sees only the
jobs of the [sites and queues](../security.md) that it has access to. Examples: [operator
API](../api.md), [PDFs](../pdf-api.md), [cutting orders](../optiplan.md).

Every path can also return these errors:
"""
_REFUSED: Final = """An error is `{"error": {"code", "message", "details"?}}`;
see [what to do about each code](errors.md#http-errors).
"""


def http_page() -> str:
    """The page."""
    api = _openapi()
    tags = {asked["tags"][0] for methods in api["paths"].values() for asked in methods.values()}
    if tags - _GROUPS.keys():
        raise ValueError(f"give {tags - _GROUPS.keys()} a heading in _GROUPS: no path is left out")
    may = _who_may()
    lines = [_OPENING, *table(("status", "meaning"), _refusals(api)), _REFUSED]
    for tag, title in _GROUPS.items():
        lines += [f"## {title}", ""]
        for path, methods in api["paths"].items():
            for method, asked in methods.items():
                if asked["tags"][0] == tag:
                    lines += _section(api, method.upper(), path, asked, may)
    return page([*lines, *_shapes(api)])


def _openapi() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(str(Path(folder) / "kesin.db"))
        try:
            settings = Settings.model_construct(data_dir=Path(folder))
            service = Service(settings, store, workloads(), work=False)
            return create_app(service).openapi()
        finally:
            store.close()


def _refusals(api: Mapping[str, Any]) -> list[tuple[str, str]]:
    answers = api["paths"]["/api/queues"]["get"]["responses"]
    return [(status, one["description"]) for status, one in answers.items() if status >= "400"]


def _who_may() -> dict[tuple[str, str], str]:
    """Who is let in, by method and path, from the matrix of the tests."""
    text = _MATRIX.read_text("utf-8")
    written = text.partition('TABLE = """')[2].partition('"""')[0]
    head, *lines = written.strip().splitlines()
    columns = head.replace("|", "").split()
    let_in: dict[tuple[str, str], set[str]] = {}
    for line in lines:
        method, path, _, *statuses = line.replace("|", "").split()
        here = let_in.setdefault((method, path), set())
        here |= {
            column.partition(".")[0] for column, status in zip(columns, statuses, strict=True) if status not in _SHUT
        }
    return {where: _may(groups) for where, groups in let_in.items()}


def _may(groups: set[str]) -> str:
    if not groups:
        return "everyone, with a user name and a password"
    if "nobody" in groups:
        return "everyone"
    if groups >= {*_MAY}:
        return "all signed-in users and all keys"
    if groups >= {"v", "o", "admin"} == groups:
        return "all signed-in users, and keys with `read` or `operate`"
    return ", ".join(words for name, words in _MAY.items() if name in groups)


def _section(
    api: Mapping[str, Any], method: str, path: str, asked: Mapping[str, Any], may: Mapping[tuple[str, str], str]
) -> list[str]:
    lines = [f"### {method} {path}", "", plain(asked["description"]), ""]
    lines += [f"**Access:** {may[method, path]}.", ""]
    rows = [(f"`{one['name']}`", one["in"], _needed(one), _kind(one["schema"])) for one in asked.get("parameters", ())]
    lines += table(("parameter", "in", "default", "values"), rows)
    content = asked.get("requestBody", {}).get("content", {})
    if content:
        kinds = ", ".join(f"`{kind}`" for kind in content)
        named = sorted({_kind(one.get("schema", {})) for one in content.values()} - {"anything"})
        lines += [f"**Body:** {kinds}{': ' + ', '.join(named) if named else ''}.", ""]
    lines += [f"**Responses:** {'; '.join(_answers(api, asked))}.", ""]
    return lines


def _answers(api: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    usual = {status for status, _ in _refusals(api)}
    shown = []
    for status, one in sorted(asked["responses"].items()):
        if status in usual:
            continue
        kinds = [
            _kind(body["schema"]) if kind == "application/json" else f"`{kind}`"
            for kind, body in one.get("content", {}).items()
        ]
        said = one["description"]
        said = "" if said == "Successful Response" else f", {_lower(said)}"
        shown.append(f"{status}{' ' + ', '.join(kinds) if kinds else ''}{said}")
    return shown


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:].rstrip(".")


def _needed(parameter: Mapping[str, Any]) -> str:
    if parameter.get("required"):
        return "required"
    default = parameter["schema"].get("default")
    return "" if default is None else f"`{number(default)}`"


def _shapes(api: Mapping[str, Any]) -> list[str]:
    """The bodies by name."""
    lines = ["## Bodies", ""]
    for name, shape in sorted(api["components"]["schemas"].items(), key=lambda one: _named(one[0])):
        lines += [f"### {_named(name)}", ""]
        if shown := plain(shape.get("description", "")):
            lines += [" ".join(shown.split()), ""]
        if "properties" not in shape:
            lines += [_kind(shape) + ".", ""]
            continue
        needed = shape.get("required", ())
        rows = [
            (
                f"`{field}`",
                "required" if field in needed else _default(one),
                "; ".join(filter(None, (_kind(one), plain(one.get("description", ""))))),
            )
            for field, one in shape["properties"].items()
        ]
        lines += table(("field", "default", "is"), rows)
    return lines


def _default(schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    return "" if default is None else f"`{number(default)}`"


def _named(reference: str) -> str:
    """A schema's name without the module it comes from."""
    name = reference.rpartition("/")[2]
    module, _, last = name.rpartition("__")
    if module:
        workload = module.split("__")[2]
        return f"{last} ({workload})"
    return name


def _kind(schema: Mapping[str, Any]) -> str:
    """What a value is, in a few words."""
    if "$ref" in schema:
        name = _named(schema["$ref"])
        return f"[{name}](#{anchor(name)})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            kinds = [_kind(one) for one in schema[several] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    chosen = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if chosen:
        return ", ".join(f"`{one}`" for one in chosen)
    spell = _SPELLED.get(schema.get("type", ""))
    return spell(schema) if spell else "anything"


def _list(schema: Mapping[str, Any]) -> str:
    most = f"at most {schema['maxItems']:,} " if "maxItems" in schema else ""
    return f"list of {most}{_several(schema.get('items', {}))}"


def _object(schema: Mapping[str, Any]) -> str:
    inner = schema.get("additionalProperties")
    return f"object of {_several(inner)}" if isinstance(inner, dict) and inner else "object"


def _several(schema: Mapping[str, Any]) -> str:
    """The same for several of them."""
    return re.sub(r"^(string|whole number|number|object|list|time|date|uuid)\b", r"\1s", _kind(schema))


def _text(schema: Mapping[str, Any]) -> str:
    if schema.get("format") in {"date-time", "uuid", "date"}:
        return {"date-time": "time", "uuid": "uuid", "date": "date"}[schema["format"]]
    most = schema.get("maxLength")
    return f"string, at most {most:,} characters" if most else "string"


def _limits(schema: Mapping[str, Any]) -> str:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if least is None and most is None:
        return ""
    if most is None:
        return f", at least {number(least)}"
    return f", at most {number(most)}" if least is None else f" {number(least)}…{number(most)}"


_SPELLED: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "array": _list,
    "object": _object,
    "string": _text,
    "integer": lambda schema: f"whole number{_limits(schema)}",
    "number": lambda schema: f"number{_limits(schema)}",
    "boolean": lambda _: "true or false",
    "null": lambda _: "null",
}
