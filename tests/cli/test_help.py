import subprocess
import sys

import pytest
import typer

from kesin import __version__
from kesin.cli import app

HEAVY = ("pydantic", "psycopg", "structlog", "rich", "asyncio", "kesin.store.sqlstore")


def commands(command, path=()):
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*path, name))


ALL = list(commands(typer.main.get_command(app)))
each = pytest.mark.parametrize(
    ("path", "command"), ALL, ids=["-".join(path) or "kesin" for path, _ in ALL]
)


@each
def test_every_command_has_a_help_text_that_ends_as_a_sentence(path, command):
    assert command.help
    assert command.help.strip().split("\n")[0].endswith(".")


@each
def test_the_help_of_every_command_works(kesin, path, command):
    answer = kesin(*path, "--help")
    assert answer.code == 0
    assert "Usage: " in answer.out
    assert answer.err == ""


@each
def test_every_option_is_explained(path, command):
    hidden = [one for one in command.params if not getattr(one, "hidden", False)]
    assert [one.name for one in hidden if not getattr(one, "help", None)] == []


def test_the_version_is_told(kesin):
    assert kesin("--version").out == f"kesin {__version__}\n"


def test_no_command_at_all_is_bad_usage_and_shows_the_help(kesin):
    answer = kesin()
    assert answer.code == 2
    assert "Commands:" in answer.err + answer.out


def test_an_unknown_command_gets_one_sentence_with_a_suggestion(kesin):
    answer = kesin("statz")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert "'stats'" in answer.err


def test_a_missing_argument_gets_one_sentence_that_names_the_help(kesin):
    answer = kesin("jobs", "list")
    assert answer.code == 2
    assert answer.err == "kesin: Missing argument 'QUEUE'. (try 'kesin jobs list --help')\n"


def test_the_help_imports_nothing_that_takes_long():
    script = (
        "import sys, kesin; before = set(sys.modules); import kesin.cli; "
        "print(*sorted(set(sys.modules) - before))"
    )
    new = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "kesin.cli.jobs" in new
    assert [name for name in new if name.startswith(HEAVY)] == []


def test_the_command_is_called_kesin_wherever_it_is_started(programs):
    assert "Usage: kesin " in programs.run("--help").out


def test_on_a_terminal_the_help_is_drawn(programs):
    assert "╭─" in programs.on_terminal("--help").out
