import shlex
import subprocess
import sys

import pytest
import typer

from kesin import __version__
from kesin.cli import app
from kesin.workloads import COMMAND_GROUPS

HEAVY = ("pydantic", "psycopg", "structlog", "rich", "asyncio", "kesin.store.sql.store")


def commands(command, path=()):
    yield path, command
    context = command.context_class(command)
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from commands(command.get_command(context, name), (*path, name))


ALL = list(commands(typer.main.get_command(app)))
NAMED = dict(ALL)
LEAVES = {path for path, command in ALL if not hasattr(command, "list_commands")}
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


def test_the_groups_are_told_in_the_list_as_they_tell_themselves():
    assert {name: NAMED[name,].help for name in COMMAND_GROUPS} == COMMAND_GROUPS
    groups = [path[0] for path in NAMED if len(path) == 1][-len(COMMAND_GROUPS) :]
    assert groups == list(COMMAND_GROUPS)


def test_every_help_fits_a_terminal_and_no_summary_is_cut_short(kesin, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for path, _ in ALL:
        told = kesin(*path, "--help").out.splitlines()
        assert [line for line in told if len(line) > 80] == [], path
        if path not in LEAVES:
            assert not any(line.endswith("...") for line in told[1:]), path
        assert not any("<int" in line or "<float" in line for line in told), path


def test_every_command_shows_an_example_of_itself_and_every_example_can_be_typed():
    for path, command in ALL:
        if path not in LEAVES:
            continue
        shown = [line.strip() for line in (command.epilog or "").splitlines()[2:]]
        words = [shlex.split(line.partition(" < ")[0].partition(" > ")[0]) for line in shown]
        assert any(tuple(one[1 : len(path) + 1]) == path for one in words), path
        for _, *given in words:
            asked = tuple(given[: 1 + next(n for n in range(3) if tuple(given[: n + 1]) in LEAVES)])
            NAMED[asked].make_context("kesin", given[len(asked) :])


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
    assert "kesin.cli.commands.jobs" in new
    assert [name for name in new if name.startswith(HEAVY)] == []


def test_the_command_is_called_kesin_wherever_it_is_started(programs):
    assert "Usage: kesin " in programs.run("--help").out


def test_on_a_terminal_the_help_is_drawn(programs):
    assert "╭─" in programs.on_terminal("--help").out


@pytest.mark.parametrize(
    ("shell", "typed", "offered"),
    [
        ("bash", "kesin li", ["lifecycle"]),
        ("bash", "kesin pdf ", ["render", "templates", "doctor"]),
        ("bash", "kesin lifecycle show pdf_", ["pdf_batches", "pdf_webhooks"]),
        ("bash", "kesin worker opt", ["optiplan"]),
        ("zsh", "kesin stats o", ["oci", "optiplan"]),
        ("fish", "kesin jobs sh", ["show"]),
    ],
)
def test_the_shell_is_told_how_to_go_on(programs, monkeypatch, shell, typed, offered):
    monkeypatch.setenv("_KESIN_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", typed)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    told = programs.run().out
    if shell == "bash":
        assert told.split() == offered
    else:
        assert all(word in told for word in offered)


def test_the_completion_of_each_shell_is_shown(programs):
    by_name = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    for shell in ("bash", "zsh", "fish"):
        assert f"complete_{shell}" in programs.run("--show-completion", shell, **by_name).out
