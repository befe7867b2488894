"""What the floors below the pages say is said in Turkish on Turkish pages, all of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from re import _constants as constants
from re import _parser as parser

import pytest
from pydantic_core._pydantic_core import list_all_errors

from kesin.web.dashboard.frame.i18n import MAX_MESSAGE_CHARS, translate_problem
from tests.web.dashboard.python_texts import nodes
from tests.web.dashboard.turkish import catalogue

PLACE = re.compile(r"%\(\w+\)s")
PLAIN = {constants.LITERAL, constants.NOT_LITERAL, constants.IN, constants.ANY, constants.AT}
FIELD = re.compile(r"\{[^{}]*\}")

# What is raised, recorded or handed on to be told: its message is among the arguments.
RAISED = frozenset(
    {"Problem", "Invalid", "NotFound", "NotSignedIn", "Forbidden", "RequestConflict", "TooLarge"}
    | {"TooManyRequests"}
    | {"Unavailable", "OrderProblem", "FieldProblem", "RowProblem", "BadInput", "Unsendable"}
    | {"FolderUnavailable", "UnusableFile", "UnreadableSpreadsheet", "UnsafeXlsx", "RenderFailed"}
    | {"Failed", "Fixed", "Finding", "StoreError", "_warning", "_wrong", "_refuse", "_invalid"}
    | {"_failed", "_whole", "_add_file_problem", "_raise_invalid", "_template_problem"}
    | {"_runner_failed"}
)
# Modules whose messages no page shows: commands, doors for programs, what only ends the start of
# the service.
NO_PAGE = (
    "cli/", "engine/simulation/lifecycle_plan.py",
    "lifecycle/", "web/routes/operator.py", "web/routes/probes.py",
    "workloads/common/api_client.py", "workloads/common/demo.py", "workloads/oci/demo.py",
    "workloads/optiplan/demo.py", "workloads/pdf/demo.py",
    "web/server.py", "web/routes/session.py", "web/routes/sites.py", "store/sql/migrate.py",
    "store/open.py", "store/postgres/store.py", "store/postgres/pool.py",
    "store/postgres/reachability.py", "store/redis", "store/sqlite/store.py",
    "store/sqlite/connection.py", "store/transfer/__init__.py", "store/transfer/copier",
    "workloads/oci/api/routes.py", "workloads/oci/api/control_routes.py",
    "workloads/oci/cli", "workloads/oci/api/common.py", "workloads/optiplan/api/routes.py",
    "workloads/optiplan/cli", "workloads/optiplan/api/common.py", "workloads/pdf/api",
    "workloads/pdf/batches/rows.py", "workloads/pdf/cli", "workloads/pdf/doctor.py",
    "workloads/pdf/safe_fetch.py", "workloads/pdf/batches/submit.py", "workloads/pdf/jobs/rq_",
    "workloads/pdf/rq_task.py",
)  # fmt: skip
# Single messages that no page can meet, each with why.
UNMET = {
    "only a key gets such a token": "a token is for programs",
    "the cron secret is not set or not this one": "cron is no page",
    "people and keys are kept in SQLite or PostgreSQL": "the service would not start",
    "queue %s: the move %s (%s → %s) is already declared with other effects;"
    " give the changed move a new name": "the service would not start",
    "%s is no queue name: lower-case letters, digits, - and _, at most 63": "nor then",
    "the %s is %s": "pages enqueue nothing that is no JSON",
    "the site %s is on the channel %s: our worker uploads its rows; switch the script off,"
    " or the site back with `kesin site set --channel script`": "a script is told",
    "conversions come as %s, not as %s": "a page sends a file",
    "send one conversion, a list, or {siteId, conversions}": "a page sends CSV",
    "the body is no JSON": "a page sends CSV",
    "siteId must be text": "a page sends CSV",
    "conversions must be a list": "a page sends CSV",
    "this line is no JSON": "a page sends CSV",
    "name the site: siteId": "the address of a page names it",
    "say with --format whether %s is csv, ndjson or json": "a command says it",
    "this is no JSON; for one document a line say --format ndjson": "a command says it",
    "ids begin with %s; these do not: %s": "a script is told",
}


def normal(sentence: str) -> str:
    return PLACE.sub("%s", sentence).replace("%%", "%")


def text_of(node: ast.expr) -> list[str]:
    """The texts an expression may be, with %s where something is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            return ["".join(one.value if isinstance(one, ast.Constant) else "%s" for one in values)]
        case ast.IfExp(body=body, orelse=other):
            return text_of(body) + text_of(other)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [a + b for a in text_of(left) or ["%s"] for b in text_of(right) or ["%s"]]
        case _:
            return []


@cache
def raised() -> dict[str, str]:
    """Every message that a page may have to tell, and where it comes from."""
    found = {}
    for where, node in nodes():
        if where.startswith(NO_PAGE) or not isinstance(node, ast.Call):
            continue
        given = [*node.args, *(one.value for one in node.keywords)]
        for text in (text for one in given for text in text_of(one)):
            if _name(node.func) in RAISED and " " in text.strip():
                found[text] = f"{where}:{node.lineno}"
    return found


def _name(function: ast.expr) -> str:
    return getattr(function, "id", getattr(function, "attr", ""))


@cache
def written() -> frozenset[str]:
    """Every text in our Python, and those of pydantic."""
    found = {one["message_template_python"] for one in list_all_errors()}
    for _where, node in nodes():
        found |= {text.strip() for text in text_of(node)}
    return frozenset({FIELD.sub("%s", one) for one in found} | found)


def test_every_message_from_below_has_its_turkish():
    known = {normal(one) for one in catalogue().problems}
    missing = {text: where for text, where in raised().items() if text not in known | UNMET.keys()}
    assert missing == {}


def test_the_list_of_messages_that_no_page_meets_holds_nothing_else():
    assert [one for one in UNMET if one not in raised()] == []


def test_the_catalogue_has_no_message_that_nobody_raises():
    made = {"%s: %s", "%s %s", "must be %s", "must be one of %s"}  # put together from pieces
    plural = {one.removesuffix("%s") for one in written() if one.endswith("character%s")}
    known = written() | made | plural | {f"{one}s" for one in plural}
    assert [one for one in catalogue().problems if normal(one) not in known] == []


@pytest.mark.parametrize(
    ("message", "turkish"),
    [
        ("this site is not yours", "bu site sizin değil"),
        ("there is no site 'x y'", "'x y' adlı site yok"),
        ("kerf_mm: must lie in 0…20, got 99", "kerf_mm: 0…20 aralığında olmalı; gelen: 99"),
        ("a: is missing; b.c: is missing; and 3 more", "a: eksik; b.c: eksik; ve 3 tane daha"),
        ("limit: Input should be a valid integer", "limit: tam sayı olmalı"),
        ("developer_token is missing", "developer_token: eksik"),
        ("12 % of the finished rows failed", "biten satırların % 12 kadarı başarısız"),
        ("every request is refused: The caller is unknown.",
         "her istek geri çevriliyor: The caller is unknown."),
        ("'1.960' may be 1960 or 1.960: write it with no more than two decimals",
         "'1.960', 1960 ya da 1,960 olabilir: en çok iki ondalıkla yazın"),
        ("a.xml cannot be given to the machine: it is a link, near line 3",
         "a.xml makineye verilemez: bir bağlantı, near line 3"),
        ("PDF'ler", "PDF'ler"),
    ],
)  # fmt: skip
def test_a_message_is_recognised_with_what_was_filled_in(message, turkish):
    assert translate_problem(catalogue(), message) == turkish
    assert translate_problem(catalogue("en"), message) == message


@pytest.mark.parametrize(
    "message",
    [
        "INVALID_GRANT: Token has been expired or revoked.",
        "The click is too old.",
        "x: y",
        "a: " * 40 + "b",
        "is missing; " * 50,
        "there is no site " + "x" * MAX_MESSAGE_CHARS,
        "",
    ],
)
def test_what_others_wrote_is_left_to_them(message):
    assert translate_problem(catalogue(), message) is None


def endless(tree: object) -> Iterator[int]:
    """How many repeats without an end there are: outside of atomic groups, then inside of each."""
    here = 0
    for what, about in tree:  # type: ignore[attr-defined]
        match what:
            case constants.ATOMIC_GROUP:
                yield from endless(about)
            case constants.SUBPATTERN:
                here += sum(endless(about[-1]))
            case constants.BRANCH:
                here += max(sum(endless(one)) for one in about[1])
            case constants.MIN_REPEAT | constants.MAX_REPEAT:
                here += about[1] is constants.MAXREPEAT
            case _:
                assert what in PLAIN, what
    yield here


def test_the_time_for_a_text_grows_with_its_length_whatever_is_in_it():
    """Anybody may have written it. With one endless repeat at a time nothing is tried twice."""
    for one in catalogue().patterns:
        assert max(endless(parser.parse(one.shape.pattern, re.DOTALL))) <= 1, one.sentence


def test_a_shape_with_two_endless_places_would_be_noticed():
    assert max(endless(parser.parse("a(?P<x>.+?)b(?P<y>.+?)c"))) == 2
