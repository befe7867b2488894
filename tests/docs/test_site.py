"""The documentation as a site: it builds without warnings, its links work, it fetches nothing."""

import os
import posixpath
import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from lxml import etree, html

from tests.docs.pages import DOCS, PAGES, ROOT
from tests.docs.test_docs import GENERATED as OF_REFERENCE

CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
NOT_FETCHED = {"canonical", "next", "prev"}


class Page:
    """What a page fetches, its links, and the anchors it has."""

    def __init__(self, text: str) -> None:
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        for element in html.document_fromstring(text).iter(etree.Element):
            tag, values = element.tag, dict(element.attrib)
            self.anchors |= {values[name] for name in ("id", "name") if name in values}
            if tag == "a" and "href" in values:
                self.links.append(values["href"])
            if values.get(FETCHED.get(tag, "")) and values.get("rel") not in NOT_FETCHED:
                self.fetched.append(values[FETCHED[tag]])


def pages_in(entry) -> list[str]:
    """The pages of an entry of the navigation, in their order."""
    if isinstance(entry, str):
        return [entry]
    below = entry if isinstance(entry, list) else entry.values()
    return [name for item in below for name in pages_in(item)]


USER_PAGES_MAX = 30
HEADINGS_ALONE = """
import re

def on_page_markdown(markdown, page, **_):
    generated = re.match(r"reference/|limits|tr/hatalar", page.file.src_uri)
    return "\\n\\n".join(re.findall(r"(?m)^#+ .+", markdown)) if generated else markdown
"""
FOR_USERS = pages_in([entry for entry in CONFIG["nav"] if "Contributing" not in entry])
GENERATED = {page.relative_to(DOCS).as_posix() for page in OF_REFERENCE}
USER_PAGES = [name for name in FOR_USERS if name not in GENERATED and "lifecycles/" not in name]


def test_there_are_few_pages_for_users():
    """Not counted: what is for contributors, and what is made from the code."""
    assert 0 < len(USER_PAGES) <= USER_PAGES_MAX


def test_every_page_for_users_leads_to_the_next():
    following = dict(pairwise(FOR_USERS))
    wrong = []
    for name in USER_PAGES:
        last = (DOCS / name).read_text("utf-8").rstrip().rsplit("\n\n", 1)[1]
        links = re.findall(r"^(?:Next|Sonraki): \[[^]]+\]\(([^)]+)\)$", last)
        targets = [posixpath.normpath(posixpath.join(posixpath.dirname(name), to)) for to in links]
        wrong += [] if targets == [following[name]] else [name]
    assert wrong == []


def test_every_guide_has_a_picture():
    texts = {name: (DOCS / name).read_text("utf-8") for name in USER_PAGES if name != "glossary.md"}
    assert [name for name, text in texts.items() if "![" not in text] == []


def test_every_page_is_in_the_navigation():
    named = {name for name in pages_in(CONFIG["nav"]) if not name.startswith("source/")}
    assert named == {page.relative_to(DOCS).as_posix() for page in PAGES}


@pytest.mark.parametrize("search", [False, pytest.param(True, marks=pytest.mark.long)])
def test_it_builds_without_a_warning_fetches_nothing_and_every_link_works(search, tmp_path):
    """The short form neither indexes pages nor colours code, and of generated pages it has the headings."""
    config = ROOT / "mkdocs.yml"
    if not search:
        (tmp_path / "hook.py").write_text(HEADINGS_ALONE)
        hooks = [*(str(ROOT / name) for name in CONFIG["hooks"]), str(tmp_path / "hook.py")]
        changed = {"INHERIT": str(config), "docs_dir": str(DOCS), "hooks": hooks, "plugins": []}
        plain = {"pymdownx.highlight": {"use_pygments": False}}
        extensions = CONFIG["markdown_extensions"]
        extensions = [plain if one == "pymdownx.highlight" else one for one in extensions]
        changed |= {"markdown_extensions": extensions}
        config = tmp_path / "mkdocs.yml"
        config.write_text(yaml.safe_dump(changed), "utf-8")
    site = tmp_path / "site"
    command = ("build", "--strict", "--config-file", config, "--site-dir", site)
    process = subprocess.run(
        [sys.executable, "-m", "mkdocs", *command],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    output = process.stdout + process.stderr
    assert process.returncode == 0, output
    assert [line for line in output.splitlines() if not line.startswith("INFO ")] == []
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    assert len(pages) > len(PAGES)
    fetched = {address for page in pages.values() for address in page.fetched}
    for style in site.rglob("*.css"):
        fetched |= set(re.findall(r"url\(['\"]?([^)'\"]+)", style.read_text("utf-8")))
    assert fetched
    assert {address for address in fetched if urlsplit(address).netloc} == set()
    assert dead_links(pages) == set()


def dead_links(pages: dict[Path, Page]) -> set[tuple[str, str]]:
    """Links to files and anchors that do not exist."""
    dead, resolved = set(), cache(lambda folder, path: (folder / unquote(path)).resolve())
    for file, page in pages.items():
        if file.name == "404.html":
            continue  # its links begin at the root of a server
        for link in page.links + page.fetched:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = resolved(file.parent, parts.path) if parts.path else file
            anchor = unquote(parts.fragment)
            exists = target in pages or target.is_file()
            if not exists or (anchor and anchor not in pages[target].anchors):
                dead.add((file.name, link))
    return dead
