"""Every sentence of the dashboard has its Turkish, and the catalogue holds nothing else."""

import ast
import re
import tomllib
from collections import Counter
from functools import cache

from babel.messages.catalog import Message
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po

from kesin.lifecycle.drawing.layout import MAX_PAGE_WIDTH, lay_out
from kesin.lifecycle.drawing.svg import svg
from kesin.lifecycle.task import task_lifecycle
from kesin.web.dashboard.frame.i18n import Catalogue, choose_language
from kesin.web.dashboard.state_groups import LABELS
from kesin.workloads import built_in, lifecycles
from tests.tables import table
from tests.web.dashboard.python_texts import SOURCE, nodes
from tests.web.dashboard.turkish import CATALOGUES, PAGES, TEMPLATES, catalogue

METHODS = [("**/templates/**.html", "jinja2")]
KEYWORDS = {"_": None, "gettext": None, "ngettext": (1, 2), "say": None}
OPTIONS = {"**/templates/**.html": {"trimmed": "false", "silent": "false"}}
WITH_PAGES = tuple(f"{folder.relative_to(SOURCE).as_posix()}/" for folder in PAGES)
PLACES = re.compile(r"%\((\w+)\)[sd]|%%")


@cache
def wanted() -> dict[str, str]:
    """Each sentence the templates, the Python and the lifecycles say, and where."""
    titles = [workload.title for workload in built_in()]
    found = dict.fromkeys((*LABELS.values(), *titles), "state_groups.py and the workloads")
    made = {name: make() for name, make in lifecycles().items()}
    made["task with parents"] = task_lifecycle("task", parents=True)
    for name, lifecycle in made.items():
        found |= {move.doc: f"{name}: {move.name}" for move in lifecycle.moves if move.doc}
        found |= {f"state {one.name.lower()}": f"{name}: {one.name}" for one in lifecycle.states}
    for folder in PAGES:
        for name, line, message, _, _ in extract_from_dir(folder, METHODS, keywords=KEYWORDS, options_map=OPTIONS):
            for one in (message[0],) if isinstance(message, tuple) else (message,):
                found[one] = f"{folder}/{name}:{line}"
        for file in folder.glob("*_texts.toml"):  # titles, units and hints of a form
            for texts in tomllib.loads(file.read_text("utf-8")).values():
                found |= {text: file.name for text in texts if text}
    for where, node in nodes():
        match node:
            case ast.Call(func=func, args=[ast.Constant(value=str(text)), *_]) if (
                where.startswith(WITH_PAGES) and getattr(func, "id", getattr(func, "attr", "")) in KEYWORDS
            ):
                found[text] = f"{where}:{node.lineno}"
    return found


@cache
def messages() -> tuple[tuple[str, str, Message], ...]:
    """Every message of the catalogue: its file, its English and itself."""
    found = []
    for source in CATALOGUES:
        with source.open("rb") as lines:
            for message in read_po(lines, abort_invalid=True):
                key = message.id if isinstance(message.id, str) else message.id[0]
                found.append((source.name, key, message))
    return tuple(one for one in found if one[1])


@cache
def said() -> dict[str, tuple[str, Message]]:
    """What the catalogue says, and in which of its files."""
    return {key: (name, message) for name, key, message in messages()}


@cache
def literals() -> frozenset[str]:
    """Every text in our Python: what is said through a name or a table stands there."""
    return frozenset(
        node.value for _, node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def test_every_sentence_has_its_turkish_and_the_catalogue_holds_no_other():
    """But for the messages from below, whose test is `test_problems.py`."""
    missing = {one: where for one, where in wanted().items() if one not in said()}
    assert missing == {}
    used = wanted().keys() | literals() | catalogue().problems
    assert {key: where for key, (where, _) in said().items() if key not in used} == {}


def test_no_template_translates_what_it_was_given():
    """``_(name)`` would put what a name holds on the page as it is, markup and all."""
    wild = re.compile(r"(?<![\w.])n?gettext\((?![\"'])|(?<![\w.])_\((?![\"'])")
    found = {one.name: wild.findall(one.read_text("utf-8")) for one in TEMPLATES}
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_no_sentence_is_left_empty_or_doubtful():
    bad = [key for key, (_, one) in said().items() if one.fuzzy or not _strings(one)]
    assert bad == []


def test_a_sentence_keeps_its_places_in_turkish():
    """A place that is missing would hide a number, a new one would break the page."""
    wrong = {
        key: one.string
        for key, (_, one) in said().items()
        for text in _strings(one)
        if set(PLACES.findall(text)) != set(PLACES.findall(key))
    }
    assert wrong == {}


def test_no_sentence_stands_in_two_files():
    places = Counter(key for _, key, _ in messages())
    assert [key for key, times in places.items() if times > 1] == []


def _strings(message: Message) -> tuple[str, ...]:
    texts = (message.string,) if isinstance(message.string, str) else message.string or ()
    return tuple(texts) if all(texts) else ()


def test_a_sentence_without_turkish_is_said_in_english():
    assert catalogue().gettext("nobody ever says this") == "nobody ever says this"
    assert catalogue("en").gettext("Overview") == "Overview"
    assert catalogue().gettext("Overview") == "Genel bakış"


@table("name", ["oci", "optiplan"])
def test_a_lifecycle_is_drawn_with_turkish_words_around_its_own_names(name):
    lifecycle, say = lifecycles()[name](), catalogue().gettext
    picture = svg(lifecycle, translate=say)
    for english in ("operator or producer", ">clock<", "The lifecycle", "kept ", lifecycle.doc):
        assert english not in picture
        assert english in svg(lifecycle) or english == "kept "
    assert all(f'data-state="{state}"' in picture for state in lifecycle.state)
    assert lay_out(lifecycle, say).width <= MAX_PAGE_WIDTH


def test_one_and_many_are_told_apart():
    words = Catalogue("en")
    assert [words.ngettext("a row", "rows", n) for n in (0, 1, 2)] == ["rows", "a row", "rows"]


@table(
    ("cookie", "accepted", "language"),
    [
        (None, "", "en"),
        (None, "tr", "tr"),
        (None, "tr-TR,tr;q=0.9,en;q=0.8", "tr"),
        (None, "en-GB,en;q=0.9,tr;q=0.8", "en"),
        (None, "de-DE,tr;q=0.5,en;q=0.4", "tr"),
        (None, "en;q=0.1, tr;q=0.9", "tr"),
        (None, "tr;q=0, en", "en"),
        (None, "TR_tr", "tr"),
        (None, "tru", "en"),
        (None, "*", "en"),
        (None, ";;;,,,q=;tr;q=x", "en"),
        (None, "tr;q=nan", "en"),
        ("tr", "en", "tr"),
        ("en", "tr", "en"),
        ("de", "tr", "tr"),
        ("../../etc", "", "en"),
    ],
)
def test_the_language_is_the_chosen_one_else_the_browsers(cookie, accepted, language):
    assert choose_language(cookie, accepted) == language
