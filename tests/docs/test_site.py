"""The documentation as a site: it builds without a warning, is whole, and fetches nothing."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

from tests.docs.pages import DOCS, PAGES, ROOT

CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
NOT_FETCHED = {"canonical", "next", "prev"}


class Page(HTMLParser):
    """What a page loads, where it leads, and the places it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.leads.append(given["href"])
        if given.get(FETCHED.get(tag, "")) and given.get("rel") not in NOT_FETCHED:
            self.loads.append(given[FETCHED[tag]])


def build(folder: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    said = built.stdout + built.stderr
    assert built.returncode == 0, said
    assert [line for line in said.splitlines() if not line.startswith("INFO ")] == []


def in_navigation(entries) -> set[str]:
    found = set()
    for entry in entries:
        below = [entry] if isinstance(entry, str) else list(entry.values())
        for one in below:
            found |= {one} if isinstance(one, str) else in_navigation(one)
    return found


def test_every_page_is_in_the_navigation():
    named = {one for one in in_navigation(CONFIG["nav"]) if not one.startswith("source/")}
    assert named == {page.relative_to(DOCS).as_posix() for page in PAGES}


def foreign(site: Path, pages: dict[Path, Page]) -> set[str]:
    """What a browser would fetch from elsewhere."""
    fetched = {one for page in pages.values() for one in page.loads}
    styles = [one.read_text("utf-8") for one in site.rglob("*.css")]
    fetched |= {one for text in styles for one in re.findall(r"url\(['\"]?([^)'\"]+)", text)}
    assert fetched
    return {one for one in fetched if urlsplit(one).netloc}


def dead(pages: dict[Path, Page]) -> set[tuple[str, str]]:
    """Links to files and places that are not there."""
    found = set()
    for file, page in pages.items():
        if file.name == "404.html":
            continue  # its links begin at the root of a server
        for link in page.leads + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            place = unquote(parts.fragment)
            if not target.is_file() or (place and place not in pages[target].places):
                found.add((file.name, link))
    return found


def test_it_builds_without_a_warning_fetches_nothing_and_every_link_leads_somewhere(tmp_path):
    build(tmp_path)
    pages = {one: Page(one.read_text("utf-8")) for one in sorted(tmp_path.rglob("*.html"))}
    assert len(pages) > len(PAGES)
    assert foreign(tmp_path, pages) == set()
    assert dead(pages) == set()
