"""The messages of the floors below the pages are translated by their ids, all of them."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from pydantic_core._pydantic_core import list_all_errors

from kesin.foundation.messages import Message, join_messages
from kesin.lifecycle.vocabulary import Fixed
from kesin.web.dashboard.frame.i18n import translate
from kesin.workloads import lifecycles
from tests.tables import table
from tests.web.dashboard.frame.test_catalogues import said
from tests.web.dashboard.python_texts import nodes
from tests.web.dashboard.turkish import catalogue

PLACE = re.compile(r"%\(\w+\)s")

# Problems, which fill the places of their message with the values they are given.
PROBLEMS = frozenset(
    {"Problem", "Invalid", "NotFound", "NotSignedIn", "Forbidden", "RequestConflict", "TooLarge"}
    | {"TooManyRequests", "RequestTimeout", "Unavailable", "FolderUnavailable", "OrderProblem"}
    | {"MessageError", "UnusableFile", "UnreadableSpreadsheet", "Unsendable"}
    | {"RenderFailed", "TemplateError", "BadInput", "bad_field", "invalid_field", "StoreError"}
)
# Calls that raise, record or pass on a message, which is among their arguments.
RAISED = frozenset(
    PROBLEMS
    | {"FieldProblem", "RowProblem", "require_fits"}
    | {"Failed", "Fixed", "Finding", "_warning", "_wrong", "_refuse", "_invalid"}
    | {"_failed", "_whole", "_add_file_problem", "_raise_invalid", "_template_problem"}
    | {"_runner_failed"}
)
# Modules whose messages no page shows: commands, routes for programs, what only ends the start of
# the service.
NO_PAGE = (
    "cli/",
    "lifecycle/", "web/routes/operator.py", "web/routes/probes.py",
    "workloads/common/api_client.py", "workloads/common/cli.py", "workloads/common/demo.py",
    "workloads/oci/demo.py", "workloads/optiplan/demo.py", "workloads/pdf/demo.py",
    "web/server.py", "web/routes/session.py", "web/routes/sites.py", "store/sql/migrate.py",
    "store/open.py", "store/postgres/store.py", "store/postgres/connections.py",
    "store/postgres/reachability.py", "store/redis", "store/sqlite/store.py",
    "store/sqlite/connections.py", "store/transfer/__init__.py", "store/transfer/copier",
    "workloads/oci/api/routes.py", "workloads/oci/api/control_routes.py",
    "workloads/oci/cli", "workloads/optiplan/api/routes.py",
    "workloads/optiplan/api/schemas.py",
    "workloads/optiplan/cli", "workloads/pdf/api",
    "workloads/pdf/batches/rows.py", "workloads/pdf/cli", "workloads/pdf/doctor.py",
    "workloads/pdf/safe_fetch.py", "workloads/pdf/jobs/rq_",
    "workloads/pdf/rq_task.py",
)  # fmt: skip
# Single messages that no page can meet, each with why.
UNMET = {
    "{} is not declared with retiring=True": "states are retired on the command line",
    "the state {} of {} holds {}: wait until it is empty or move them out, then retire it": "likewise",
    "the result is %(n)s bytes; the limit is %(most)s: store the data elsewhere and return a"
    " reference": "results come from handlers",
    "this code was started inside a transaction of another task, thread or process: a transaction"
    " belongs to the task that opened it; finish it first, or make this call there": "for programs",
    "another task in this thread has an open transaction on this store, which allows one at a time:"
    " do not await inside the block, or make this call in asyncio.to_thread": "likewise",
    "only an API key can get such a token": "a token is for programs",
    "unknown query parameter %(field)s; use one of: %(known)s": "pages take any parameter",
    "the cron secret is not set or does not match": "cron is no page",
    "users and keys are kept in SQLite or PostgreSQL": "the service would not start",
    "queue {}: the move {} ({} → {}) is already declared with other effects;"
    " give the changed move a new name": "the service would not start",
    "{} is not a queue name: use at most 63 lower-case letters, digits, - and _": "nor then",
    "the {} is {}": "pages enqueue nothing that is no JSON",
    "the site {} uses the channel {}: Kesin's worker uploads its rows;"
    " stop the script, or move the site back with `kesin site set --channel script`": "a script gets it",
    "conversions must be {}, not {}": "a page sends a file",
    "send one conversion, a list, or {siteId, conversions}": "a page sends CSV",
    "the body is not JSON": "a page sends CSV",
    "siteId must be text": "a page sends CSV",
    "conversions must be a list": "a page sends CSV",
    "this line is not JSON": "a page sends CSV",
    "name the site in siteId": "the address of a page names it",
    "{}: add --yes": "a command says it",
    "use --format csv, ndjson or json for {}": "a command says it",
    "this is not JSON; for JSON Lines, use --format ndjson": "a command says it",
    "lease_seconds must be positive": "a page claims nothing",
    "ids begin with {}; these do not: {}": "a script gets it",
    "once must be True or False, got {}": "for programs",
    "{}: {}": "for programs",
    "payload: {}": "for programs",
    "{} of job {} was refused: {}": "for programs",
    "the queue {} has no schedule {}": "for programs",
    "give a list of schedules, not a single one": "for programs",
    "two schedules of {} have the same name": "for programs",
    "{} is not a Schedule": "for programs",
    "search must be a list of at most {} fields": "for programs",
    "title must be text of at most {} characters": "for programs",
    "search contains a name that is not a payload field: {}": "for programs",
    "search contains a masked field: {}": "for programs",
    "title is not a valid format: {}": "for programs",
    "title may contain names of payload fields, such as {to} or {order.number}, but no conversions or"
    " format specifiers: {}": "for programs",
    "once needs a key, and an initial state that holds it": "for programs",
    "there is no time zone {}": "for programs",
    "priority must be -1, 0, 1 or 2, got %(given)s": "for programs",
    "within: only a queue in an SQL database can join a transaction": "for programs",
    "within: only a queue in PostgreSQL accepts an asynchronous connection": "for programs",
    "within: an asynchronous connection supports neither stamps nor a note": "for programs",
    "within: the connection is to another database, not the queue's": "for programs",
    "within: the queue {} has its own clock, but an asynchronous connection uses the"
    " database's time: use queue.enqueue(…, within=…) with a synchronous connection, or open the"
    " queue without clock=…": "for programs",
    "the payload is %(n)s bytes; within an asynchronous connection the limit is %(most)s, whatever"
    " the queue's limit is: use queue.enqueue(…, within=…) with a synchronous connection, or store the"
    " data elsewhere and enqueue a reference": "for programs",
    "within: the connection is in pipeline mode: enqueue outside of it": "for programs",
    "within: the connection's client_encoding must be UTF8": "for programs",
    "within: the connection is in autocommit mode, outside a transaction: {}": "for programs",
    "within: {}, not {}": "for programs",
    "within: this connection is asynchronous: await queue.aio.enqueue(…, within=…)": "for programs",
}


def texts(node: ast.expr) -> list[str]:
    """The texts an expression may be, with {} where an f-string fills something in."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(getattr(part, "value", "") if isinstance(part, ast.Constant) else "{}"
                            for part in parts)]  # fmt: skip
        case ast.IfExp(body=body, orelse=other):
            return texts(body) + texts(other)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [a + b for a in texts(left) or ["{}"] for b in texts(right) or ["{}"]]
        case _:
            return []


@cache
def raised() -> dict[str, str]:
    """The ids of the messages that a page may show, and where each is raised."""
    ids = {}
    for where, node in nodes():
        if where.startswith(NO_PAGE):
            continue
        for text in _ids(where, node):
            ids[text] = f"{where}:{node.lineno}"
    return ids


def _ids(where: str, node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call):
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        name = called(node)
        if name == "Message":
            yield from texts(node.args[0])
        elif name in RAISED:
            yield from (text for node in arguments for text in texts(node) if " " in text.strip())
    elif where.startswith(("workloads/", "engine/")):  # a table of messages
        yield from (text for text in texts(node) if PLACE.search(text) and not _on_page(text))


def _on_page(sentence: str) -> bool:
    """Whether pages say it themselves: it is in a catalogue, but not in one of messages."""
    return sentence in said() and sentence not in catalogue().problems


@cache
def written() -> frozenset[str]:
    """Every text in our Python, and the sentences of pydantic."""
    ids = {text for _where, node in nodes() for text in texts(node)}
    for error in list_all_errors():
        for plural in ("", "s"):
            template = error["message_template_python"].replace("{expected_plural}", plural)
            ids.add(re.sub(r"\{(\w+)\}", r"%(\1)s", template))
    return frozenset(ids)


def test_every_message_that_a_page_can_show_has_its_turkish():
    known = catalogue().problems | UNMET.keys()
    assert {text: where for text, where in raised().items() if text not in known} == {}


def test_every_error_that_a_lifecycle_records_itself_has_its_turkish():
    """A code that stands for a message is the same in every language."""
    rules = [make() for make in lifecycles().values()]
    recorded = {move.error for one in rules for move in one.moves if isinstance(move.error, Fixed)}
    recorded |= {error for one in rules for _action, error in one.default_errors}
    messages = {error.message for error in recorded if " " in error.message}
    assert messages
    assert messages - catalogue().problems == set()


def called(node: ast.Call) -> str:
    """The name of what is called, with or without its module."""
    return str(getattr(node.func, "id", getattr(node.func, "attr", "")))


def test_every_message_is_given_the_values_it_has_places_for():
    wrong = {
        f"{where}:{node.lineno}": sentence
        for where, node in nodes()
        if isinstance(node, ast.Call) and called(node) == "Message"
        for sentence in texts(node.args[0])
        if {f"%({keyword.arg})s" for keyword in node.keywords} != set(PLACE.findall(sentence))
    }
    assert wrong == {}


def test_every_problem_is_given_the_values_its_message_has_places_for():
    options = {"code", "details", "retry_after_s"}
    wrong = {
        f"{where}:{node.lineno}": sentence
        for where, node in nodes()
        if isinstance(node, ast.Call) and called(node) in PROBLEMS and node.args
        for sentence in (text for arg in node.args for text in texts(arg) if " " in text)
        if {f"%({keyword.arg})s" for keyword in node.keywords if keyword.arg not in options}
        != set(PLACE.findall(sentence))
    }
    assert wrong == {}


def test_the_list_of_messages_that_no_page_meets_holds_nothing_else():
    assert [text for text in UNMET if text not in raised()] == []


def test_the_catalogue_has_no_message_that_nobody_raises():
    assert catalogue().problems - written() == set()


@table(
    ("message", "turkish"),
    [
        ("you have no access to this site", "bu siteye erişiminiz yok"),
        (Message("you have no access to this site"), "bu siteye erişiminiz yok"),
        (Message("there is no site %(site)s", site=repr("x y")), "'x y' kimlikli site yok"),
        (
            Message("%(share)s%% of finished rows have failed", share=12),
            "sonuçlanan satırlarda başarısızlık oranı: %12",
        ),
        (Message("%(field)s: %(problem)s", field="a", problem=Message("is missing")), "a: eksik"),
        (
            Message("every request is refused: %(problem)s", problem=Message("Caller unknown.")),
            "her istek reddediliyor: Caller unknown.",
        ),
        (
            Message(
                "%(problem)s; and %(n)s more",
                n=3,
                problem=join_messages(["is missing", Message("must not be empty"), "x: y"]),
            ),
            "eksik; boş olamaz; x: y; 3 sorun daha var",
        ),
    ],
)
def test_a_message_is_translated_with_its_values(message, turkish):
    assert translate(catalogue(), message) == turkish
    assert translate(catalogue("en"), message) == message


def test_a_value_that_is_no_message_stays_as_it_is():
    translated = translate(catalogue(), Message("there is no site %(site)s", site="is missing"))
    assert translated == "is missing kimlikli site yok"


@table(
    "message",
    [
        "INVALID_GRANT: Token has been expired or revoked.",
        "there is no site 'x'",  # a text is no message: nothing in it is recognised
        Message("a sentence of %(whom)s", whom="others"),
        "",
    ],
)
def test_what_others_wrote_is_left_to_them(message):
    assert translate(catalogue(), message) is None
