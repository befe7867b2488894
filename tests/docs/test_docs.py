"""Nothing in the documentation can rot: its code runs, its output is real, its links lead on."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kesin import Queue
from kesin.store.contract import Store
from tests.cli.mother import path_with_kesin
from tests.docs.pages import DOCS, PAGES, ROOT, Block, anchors, blocks, links, matches

LONGEST_S = 120
LINES_MAX = 210
READ = [*PAGES, *sorted(ROOT.glob("*.md"))]
GENERATED = {*(DOCS / "reference").glob("*.md"), DOCS / "tr" / "hatalar.md"}  # to look things up in
SHELL = ("sh", "bash", "shell", "console")
RUN = re.compile(r"(KESIN_\w+=\S+ )?(kesin |python examples/)")
SERVER = re.compile(r"export KESIN_DATABASE_URL=(\S+)")
FILE = re.compile(r"# (\w+\.py)\n")
# Pages that a test of their own follows, against a running service.
FOLLOWED = {
    "docs/api.md": "tests/docs/test_api.py",
    "docs/oci.md": "tests/docs/test_oci.py",
    "docs/ops/oci-alerts.md": "tests/docs/test_alerts.py",
    "docs/ops/oci-attempt-cap.md": "tests/docs/test_oci.py",
    "docs/ops/oci-control-smoke.md": "tests/docs/test_oci.py",
    "docs/ops/pdf-alerts.md": "tests/docs/test_alerts.py",
    "docs/optiplan.md": "tests/docs/test_optiplan.py",
    "docs/pdf-api.md": "tests/docs/test_pdf_api.py",
    "docs/pdf.md": "tests/docs/test_pdf.py",
    "docs/tr/oci.md": "tests/docs/test_oci.py",
    "docs/tr/optiplan.md": "tests/docs/test_optiplan.py",
    "docs/tr/pdf.md": "tests/docs/test_pdf_api.py",
}


def is_run(block: Block) -> bool:
    return bool(RUN.match(block.text) or SERVER.match(block.text))


class Reader:
    """Somebody who follows a page from top to bottom, in a folder of their own."""

    def __init__(self, page: Path, folder: Path, request: pytest.FixtureRequest) -> None:
        self.page = page
        self.folder = folder
        self.request = request
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.said: str | None = None
        (folder / "examples").symlink_to(ROOT / "examples")
        own = {name: one for name, one in os.environ.items() if not name.startswith("KESIN_")}
        self.environment = {
            **own,
            "PATH": path_with_kesin(folder / "bin"),
            "PYTHONIOENCODING": "utf-8",
            "KESIN_DATA_DIR": str(folder / "kesin-data"),
        }

    def follow(self, block: Block) -> None:
        """Do what a block says, or see that it shows what the one before it said."""
        where = f"{self.page.name}:{block.line}"
        if block.language == "text":
            assert self.said is not None, f"{where}: output of nothing"
            assert matches(block.text, self.said), f"{where}: it says\n{self.said}"
        elif block.language == "python":
            self.said = self._run_python(block)
        elif block.language in SHELL and name_of(self.page) not in FOLLOWED and is_run(block):
            self.said = self._run_shell(block, where)

    def _run_python(self, block: Block) -> str:
        if named := FILE.match(block.text):
            (self.folder / named[1]).write_text(block.text, "utf-8")
        text = "\n" * (block.line - 1) + block.text  # so that a traceback names the page's line
        printed = StringIO()
        with capture_logs(), redirect_stdout(printed):
            exec(compile(text, str(self.page), "exec"), self.names)
        return printed.getvalue()

    def _run_shell(self, block: Block, where: str) -> str:
        text = block.text
        if named := SERVER.match(text):
            server = self.request.getfixturevalue("postgres_server")
            url = server.create_database(f"docs_{self.page.stem.replace('-', '_')}")
            text = text.replace(named[1], f"'{url}'")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            encoding="utf-8",
            timeout=LONGEST_S,
            check=False,
        )
        assert done.returncode == 0, f"{where}: {done.stdout}{done.stderr}"
        return done.stdout

    def close(self) -> None:
        """Put away what the page opened."""
        stores = {id(one): one for one in self.names.values() if isinstance(one, Store)}
        queues = (one for one in self.names.values() if isinstance(one, Queue))
        for store in (stores | {id(one.store): one.store for one in queues}).values():
            store.close()


@contextmanager
def reading(page: Path, folder: Path, request: pytest.FixtureRequest) -> Iterator[Reader]:
    reader = Reader(page, folder, request)
    try:
        yield reader
    finally:
        reader.close()


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in READ if blocks(page)], ids=name_of)
def test_a_page_does_what_it_says(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with reading(page, tmp_path, request) as reader:
        for block in blocks(page):
            reader.follow(block)


@pytest.mark.parametrize("page", READ, ids=name_of)
def test_every_link_leads_somewhere(page):
    dead = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_the_index_names_every_page():
    named = {link.partition("#")[0] for link in links(DOCS / "README.md")}
    here = {str(page.relative_to(DOCS)) for page in PAGES if page.name != "README.md"}
    assert here <= named


def test_no_page_is_too_long_to_read():
    to_read = [page for page in PAGES if page not in GENERATED]
    lengths = {page.name: len(page.read_text("utf-8").splitlines()) for page in to_read}
    assert {name: length for name, length in lengths.items() if length > LINES_MAX} == {}


def test_the_index_names_every_example():
    named = {Path(link).name for link in links(DOCS / "README.md") if "examples/" in link}
    assert named == {path.name for path in (ROOT / "examples").glob("*.py")}
