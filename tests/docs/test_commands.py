"""Every command on a page is run by a test or listed here with the reason, and it exists."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer

from kesin.cli.root import app
from kesin.foundation.extras import LIBRARIES
from tests.docs.pages import RECIPE_PAGE, blocks
from tests.docs.test_docs import GENERATED, READ, SHELL, is_followed, is_run, name_of
from tests.docs.test_terminal import RQ_WORKER, SESSIONS
from tests.packaging.test_wheel import INSTALLED

# Blocks that no test runs: page and beginning, and the reason.
NOT_RUN = {
    ("docs/oci-sites.md", "gcloud auth"): "needs Google's program and an account",
    ("ARCHITECTURE.md", "operator"): "a drawing",
    ("CONTRIBUTING.md", "make install"): "make test would run itself",
    ("README.md", "make demo"): "make test would run itself; tests/cli/test_demo.py has the demo",
}
RUN_ELSEWHERE = {*INSTALLED, *SESSIONS, RQ_WORKER}
ROOT_COMMAND = typer.main.get_command(app)
_INLINE = re.compile(r"`([^`]+)`")
_EXTRAS = re.compile(r"kesin\[([\w,]+)\]")
_CALL = re.compile(r"(?<![\w.=-])kesin +((?![|=>])[^|;&>)\n]*)")


def test_every_extra_that_a_page_installs_exists():
    pages = "".join(page.read_text("utf-8") for page in READ)
    named = {name for names in _EXTRAS.findall(pages) for name in names.split(",")}
    assert {"pdf", "redis"} <= named <= {*LIBRARIES, "all"}


def test_every_block_is_run_or_the_reason_is_listed():
    """The reference is made from the help of the commands, whose examples a test parses."""
    listed = {*RUN_ELSEWHERE, *NOT_RUN}
    used, unknown = set(), set()
    for page in READ:
        for block in blocks(page) if page.parent.name != "reference" else ():
            run_whole = is_followed(page, block) or page == RECIPE_PAGE
            typed = block.language in SHELL and (is_run(page, block) or run_whole)
            if typed or block.language not in (*SHELL, ""):
                continue
            places = {(name, begin) for name, begin in listed
                      if name == name_of(page) and block.text.startswith(begin)}  # fmt: skip
            used |= places
            unknown |= set() if places else {(name_of(page), block.line)}
    assert unknown == set()
    assert used == listed


def test_every_command_and_option_on_a_page_exists():
    pages = [page for page in READ if page not in GENERATED and page.name != "CHANGELOG.md"]
    calls = {(name_of(page), call) for page in pages for call in calls_on(page)}
    assert len(calls) > 200
    wrong = {(page, call, missing_word(split(call))) for page, call in calls}
    assert {item for item in wrong if item[2]} == set()


def calls_on(page: Path) -> Iterator[str]:
    """Every `kesin …` in the blocks and the text of a page, without the shell around it."""
    typed = [block.text for block in blocks(page) if block.language in (*SHELL, "", "ini")]
    lines = [line.partition(" #")[0] for text in typed
             for line in text.replace("\\\n", " ").splitlines()]  # fmt: skip
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines += [" ".join(text.split()) for text in _INLINE.findall(prose)]
    for line in lines:
        if not line.lstrip().startswith(("#", "from kesin import ")):  # a module that is written
            yield from _CALL.findall(line)


def split(call: str) -> list[str]:
    try:
        return shlex.split(call)
    except ValueError:  # a quotation that continues on the next line
        return call.split()


def missing_word(words: list[str]) -> str | None:
    """The command or the options of a command line that do not exist."""
    command = ROOT_COMMAND
    while words and (below := commands_below(command)):
        if not re.fullmatch(r"[a-z][a-z-]+", words[0]):
            break
        if words[0] not in below:
            return words[0]
        command = below[words.pop(0)]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    used = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    return ", ".join(sorted(used - known - {"--help"})) or None


@cache
def commands_below(command: Any) -> dict[str, Any]:
    if not hasattr(command, "list_commands"):
        return {}
    context = command.context_class(command, info_name="kesin")
    return {name: command.get_command(context, name) for name in command.list_commands(context)}
