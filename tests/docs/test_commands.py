"""No command on a page is made up: each is run by a test, or named here with why it is not.

And whether it is run or only mentioned, the command and its options are there.
"""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from kesin.cli import app
from tests.docs.pages import ROOT, Block, blocks
from tests.docs.test_docs import FOLLOWED, GENERATED, READ, SHELL, is_run, name_of
from tests.docs.test_standing import RQ_WORKER, STANDING

# Blocks that a test of their own runs, by how they begin.
RUN_APART = {
    ("docs/quickstart.md", "python3 -m venv"): "tests/docs/test_installing.py",
    ("docs/baslangic.md", "python3 -m venv"): "tests/docs/test_installing.py",
    ("docs/tutorial.md", "pip install ./examples/courier"): "tests/docs/test_installing.py",
    ("docs/tutorial.md", "curl localhost:8000"): "tests/docs/test_installing.py",
    **dict.fromkeys((*STANDING, RQ_WORKER), "tests/docs/test_standing.py"),
}
# What no test runs, and why.
NOT_RUN = {
    ("docs/oci-credentials.md", "gcloud auth"): "Google's own program, and somebody's account",
    ("ARCHITECTURE.md", "operator"): "a drawing",
    ("README.md", "make demo"): "make test would run itself; tests/cli/test_demo.py has the demo",
}
ROOT_COMMAND = typer.main.get_command(app)
_INLINE = re.compile(r"`([^`]+)`")
_CALL = re.compile(r"(?<![\w.=-])kesin +((?![|=>])[^|;&>)\n]*)")


def unfollowed() -> Iterator[tuple[str, Block]]:
    """Blocks that look like commands and that no reader of pages follows."""
    for page in READ:
        if page.parent.name == "reference":
            continue  # made from the commands' own help, whose examples a test parses
        for block in blocks(page):
            if block.language not in (*SHELL, ""):
                continue
            if not block.language or not (is_run(block) or name_of(page) in FOLLOWED):
                yield name_of(page), block


def test_every_block_is_run_or_it_is_said_why_not():
    found = {
        (name, block.line): [
            begins
            for page, begins in {**RUN_APART, **NOT_RUN}
            if page == name and block.text.startswith(begins)
        ]
        for name, block in unfollowed()
    }
    assert {place for place, reasons in found.items() if not reasons} == set()
    used = {(name, begins) for (name, _), reasons in found.items() for begins in reasons}
    assert used == {*RUN_APART, *NOT_RUN}


@pytest.mark.parametrize(("page", "test"), FOLLOWED.items(), ids=FOLLOWED)
def test_a_page_that_is_followed_elsewhere_is(page, test):
    assert page.removeprefix("docs/").removeprefix("tr/") in (ROOT / test).read_text("utf-8")


@cache
def children(command: Any) -> dict[str, Any]:
    if not hasattr(command, "list_commands"):
        return {}
    context = command.context_class(command, info_name="kesin")
    return {name: command.get_command(context, name) for name in command.list_commands(context)}


def strange(words: list[str]) -> str | None:
    """What of a command line is not there: a command or an option."""
    command = ROOT_COMMAND
    while words and (below := children(command)):
        if not re.fullmatch(r"[a-z][a-z-]+", words[0]):
            break
        if words[0] not in below:
            return words[0]
        command = below[words.pop(0)]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    asked = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    return ", ".join(sorted(asked - known - {"--help"})) or None


def calls(page: Path) -> Iterator[str]:
    """Every `kesin …` of a page, typed or mentioned, without what a shell does around it."""
    typing = (*SHELL, "", "ini")
    typed = [one.text.replace("\\\n", " ") for one in blocks(page) if one.language in typing]
    lines = [line.partition(" #")[0] for text in typed for line in text.splitlines()]
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines += [" ".join(one.split()) for one in _INLINE.findall(prose)]
    for line in lines:
        if not line.lstrip().startswith("#"):
            yield from _CALL.findall(line)


def words_of(call: str) -> list[str]:
    try:
        return shlex.split(call)
    except ValueError:  # a quotation that goes on
        return call.split()


def test_every_command_and_option_named_is_there():
    pages = [page for page in READ if page not in GENERATED and page.name != "CHANGELOG.md"]
    told = {(name_of(page), call) for page in pages for call in calls(page)}
    assert len(told) > 200
    wrong = {(page, call, strange(words_of(call))) for page, call in told}
    assert {one for one in wrong if one[2]} == set()
