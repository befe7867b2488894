"""The code of every page runs and prints what the page shows; links and indexes are complete."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kesin import Queue
from kesin.store.contract import Store
from tests.cli.fork_server import path_with_kesin
from tests.docs.pages import DOCS, PAGES, RECIPE_PAGE, ROOT, Block, anchors, blocks, links, matches
from tests.docs.shell import run
from tests.docs.test_followed import FOLLOWED
from tests.web.serving import own_settings

LINES_MAX = 680
READ = [*PAGES, *sorted(ROOT.glob("*.md"))]
GENERATED = {*(DOCS / "reference").glob("*.md"), DOCS / "limits.md", DOCS / "tr/hatalar.md"}
BESIDE_SERVICE = {name for names in (*FOLLOWED.values(), ("api.md",)) for name in names}
# Left to the long form: translations of English pages, and a simulation of every lifecycle,
# whose command is tested in test_simulate.py.
LONG = {DOCS / "baslangic.md", DOCS / "tr/panel.md", DOCS / "reliability.md"}
SHORTER = ("--steps 2000", "--steps 20")
SHELL = ("sh", "bash", "shell", "console")
RUN = re.compile(r"(KESIN_\w+=\S+ )*(kesin |python examples/)")
SERVER = re.compile(r"export KESIN_DATABASE_URL=(\S+)")
FILE = re.compile(r"# (\w+\.py)\n")
FOREVER, ONCE = ").run()\n", ").drain()\n"  # a worker that a reader stops with Ctrl-C


def is_run(page: Path, block: Block) -> bool:
    """Whether the block is typed here; the other tests in this folder run the rest."""
    if block.language not in SHELL or is_followed(page, block):
        return False
    return bool(RUN.match(block.text) or SERVER.match(block.text))


def is_followed(page: Path, block: Block) -> bool:
    """Whether the block is typed beside a service: with its page, or with its section."""
    name = name_of(page).removeprefix("docs/")
    return not BESIDE_SERVICE.isdisjoint({name, f"{name}#{block.section}"})


def has_code(page: Path) -> bool:
    """Whether a page has code to run in its order; in the reference, it is signatures."""
    return page not in {*GENERATED, RECIPE_PAGE} and any(
        block.language == "python" or is_run(page, block) for block in blocks(page)
    )


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def pages_with_code() -> list[Any]:
    return [pytest.param(page, marks=[pytest.mark.long] * (page in LONG)) for page in READ if has_code(page)]


@pytest.mark.parametrize("page", pages_with_code(), ids=name_of)
def test_the_code_of_a_page_prints_what_it_shows(page, tmp_path, monkeypatch, request):
    own_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("KESIN_DATA_DIR", str(tmp_path / "kesin-data"))
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    monkeypatch.setenv("PATH", path_with_kesin(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, Any] = {"__name__": "__main__"}
    output: str | None = None
    try:
        for block in blocks(page):
            if block.language == "text":
                place = f"{page.name}:{block.line}"
                assert output is not None, f"{place} is the output of nothing"
                assert matches(block.text, output), f"{place} prints\n{output}"
            elif block.language == "python":
                output = run_python(page, block, names)
            elif is_run(page, block):
                typed = with_database(page, block, request).replace(*SHORTER)
                output = run(typed, tmp_path)
    finally:
        close_stores(names)


def run_python(page: Path, block: Block, names: dict[str, Any]) -> str:
    """Run a block with the names of those before it, and the tests that it defines.

    A block that names its file is written there.
    """
    if named := FILE.match(block.text):
        Path(named[1]).write_text(block.text, "utf-8")
    text = "\n" * (block.line - 1) + block.text  # so that a traceback names the line of the page
    printed = StringIO()
    with capture_logs(), redirect_stdout(printed):
        exec(compile(text.replace(FOREVER, ONCE), str(page), "exec"), names)
        for name in re.findall(r"^def (test_\w+)\(\)", block.text, re.MULTILINE):
            names[name]()
    return printed.getvalue()


def with_database(page: Path, block: Block, request: pytest.FixtureRequest) -> str:
    """The block; a PostgreSQL server that it names is replaced by the one of the tests."""
    named = SERVER.match(block.text)
    if not named:
        return block.text
    server = request.getfixturevalue("postgres_server")
    url = server.create_database(f"docs_{page.stem.replace('-', '_')}")
    return block.text.replace(named[1], f"'{url}'")


def close_stores(names: dict[str, Any]) -> None:
    stores = [value for value in names.values() if isinstance(value, Store)]
    stores += [value.store for value in names.values() if isinstance(value, Queue)]
    for store in {id(store): store for store in stores}.values():
        store.close()


def test_every_link_leads_to_a_page_and_a_heading():
    dead = []
    for page in READ:
        for link in links(page):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                dead.append((name_of(page), link))
    assert dead == []


def test_the_index_names_every_example_and_every_page_and_none_is_too_long_to_read():
    """Itself, or through the index of a section that it names."""
    examples = {(DOCS / link).resolve() for link in links(DOCS / "README.md") if "examples/" in link}
    scripts, apps = (ROOT / "examples").glob("*.py"), (ROOT / "examples").glob("*_shop/README.md")
    assert examples == {*scripts, *apps}
    lengths = {page: len(page.read_text("utf-8").splitlines()) for page in PAGES}
    assert {name_of(page) for page in lengths.keys() - GENERATED if lengths[page] > LINES_MAX} == set()
    named = {DOCS / "README.md"}
    for page in [DOCS / "README.md", *DOCS.glob("*/README.md")]:
        if page in named:
            named |= {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}
    assert set(PAGES) <= named


def test_every_paragraph_list_and_table_begins_after_a_blank_line():
    """The site shows a list or a table that follows a paragraph at once as part of its text."""
    glued = set()
    for page in PAGES:
        text = re.sub(r"^( *)```.*?^\1```", "```", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        follows = re.search(r"^(?![-#|>< `0-9*]).+\n(?:\||- |1\. )", text, re.MULTILINE)
        glued |= {name_of(page)} if follows or re.search(r"[.!?]  +[A-Z*]", text) else set()
    assert glued == set()
