"""Every recipe runs alone, in an empty folder, and prints what its page shows."""

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fork_server import CHILD_PYTHON, path_with_kesin, write_stub
from tests.cli.programs import PATIENCE_S, Programs
from tests.docs.pages import RECIPE_PAGE, Recipe, links_in, matches, recipes
from tests.docs.shell import URL, run
from tests.docs.test_docs import close_stores, run_python
from tests.tables import table
from tests.web.serving import own_settings

RECIPES = recipes(RECIPE_PAGE)
RECIPES_MIN, LINES_MAX, PROSE_MAX = 30, 15, 220
OTHER_TERMINAL = "# in another terminal: kesin serve\n"
SERVER = re.compile(r"postgresql://\S+")
# What a recipe leaves beside its output, and how it begins.
FILES = {
    "Prove and draw a lifecycle of my own": ("mail.svg", b"<svg"),
    "Render a PDF": ("invoice.pdf", b"%PDF-"),
    "Add a PDF template": ("letter.pdf", b"%PDF-"),
}


def test_there_are_enough_recipes_and_each_question_is_there_once():
    headings = [recipe.heading for recipe in RECIPES]
    assert len(headings) >= RECIPES_MIN
    assert len({*headings}) == len(headings)
    assert FILES.keys() <= {*headings}


@table("recipe", RECIPES)
def test_a_recipe_is_short_and_has_a_block_its_output_and_a_link(recipe):
    assert [block.language for block in recipe.blocks] in (["python", "text"], ["sh", "text"])
    code, output = recipe.blocks
    assert output.text.strip()
    assert len([line for line in code.text.splitlines() if line]) <= LINES_MAX
    assert len(re.sub(r"\]\([^)]*\)", "", recipe.prose)) <= PROSE_MAX
    assert links_in(recipe.prose)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.heading)
def test_a_recipe_runs_alone_and_prints_what_it_shows(recipe, tmp_path, monkeypatch, request):
    own_settings(monkeypatch, tmp_path)
    monkeypatch.delenv("KESIN_DATA_DIR")  # a reader has none either
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    monkeypatch.setenv("PATH", path_with_kesin(tmp_path / "bin"))
    monkeypatch.setenv(CHILD_PYTHON, str(write_stub(tmp_path, "python")))
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    code, output = recipe.blocks
    printed = run_alone(recipe) if code.language == "python" else type_alone(recipe, folder, request)
    place = f"{recipe.page.name}:{output.line}"
    assert matches(output.text, printed), f"{place} prints\n{printed}"
    if recipe.heading in FILES:
        name, magic = FILES[recipe.heading]
        assert (folder / name).read_bytes().startswith(magic)


def run_alone(recipe: Recipe) -> str:
    """As a script does, wait at the end for the threads that the recipe has started."""
    names: dict[str, Any] = {"__name__": "__main__"}
    others = {*threading.enumerate()}
    try:
        return run_python(recipe.page, recipe.blocks[0], names)
    finally:
        for thread in {*threading.enumerate()} - others:
            if not thread.daemon:
                thread.join(PATIENCE_S)
        close_stores(names)


def type_alone(recipe: Recipe, folder: Path, request: pytest.FixtureRequest) -> str:
    """The output of the commands; the tests' own PostgreSQL stands for the server they name.

    A service starts where the recipe says so, in the same folder.
    """
    typed = recipe.blocks[0].text
    if SERVER.search(typed):
        name = "recipe_" + re.sub(r"\W", "_", recipe.heading.lower())
        url = request.getfixturevalue("postgres_server").create_database(name)
        typed = SERVER.sub(lambda _: f"'{url}'", typed)
    before, serves, after = typed.partition(OTHER_TERMINAL)
    assert bool(serves) == (URL in typed)
    printed = run(before, folder)
    if serves:
        with Programs(folder) as programs:
            program = programs.start("serve", "--port", 0)
            address = program.hear("listening")["address"]
            printed += run(after.replace(URL, address), folder)
    return printed
