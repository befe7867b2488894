"""Markdown pages as the tests read them: code blocks, links and headings."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
RECIPE_PAGE = DOCS / "recipes.md"

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
_SECTION = re.compile(r"^## +(.+?)\s*$", re.MULTILINE)
_RECIPE = re.compile(r"^###? +(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block, the line at which its text begins, and the anchor of its section."""

    language: str
    text: str
    line: int
    section: str = ""


@dataclass(frozen=True)
class Recipe:
    """A question of a page of recipes: its heading, the text below it and the blocks."""

    page: Path
    heading: str
    prose: str
    blocks: list[Block]


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    found = []
    section, end = "", 0
    for fence in _FENCE.finditer(text):
        for heading in _SECTION.findall(text[end : fence.start()]):
            section = _anchor(heading)
        end = fence.end()
        line = text.count("\n", 0, fence.start(2)) + 1
        found.append(Block(fence[1], fence[2], line, section))
    return found


def blocks_of(name: str) -> list[Block]:
    """The blocks of `page.md`, or of a section of it: `page.md#section`."""
    path, _, section = name.partition("#")
    return [block for block in blocks(DOCS / path) if section in ("", block.section)]


def recipes(page: Path) -> list[Recipe]:
    """The recipes of a page: its third-level headings. It has no headings inside blocks."""
    text = page.read_text("utf-8")
    headings = list(_RECIPE.finditer(text))
    found = []
    for heading, after in zip_longest(headings, headings[1:]):
        end = after.start() if after else len(text)
        lines = [text.count("\n", 0, at) + 1 for at in (heading.start(), end)]
        own = [block for block in blocks(page) if lines[0] < block.line <= lines[1]]
        prose = _FENCE.sub("", text[heading.end() : end]).strip()
        if heading[0].startswith("### "):
            found.append(Recipe(page, heading[1], prose, own))
    return found


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    """The links of a page, except those to other sites."""
    return links_in(_prose(page))


def links_in(prose: str) -> list[str]:
    plain = re.sub(r"`[^`\n]*`", "", prose)
    return [link for link in _LINK.findall(plain) if "://" not in link]


@cache
def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    seen: Counter[str] = Counter()
    names = set()
    for heading in _HEADING.findall(_prose(page)):
        name = _anchor(heading)
        names.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return names


def matches(shown: str, output: str) -> bool:
    """Whether the output is what the page shows.

    An ellipsis stands for any text in a line; a line of it alone stands for any lines.
    """
    pattern = ""
    for line in shown.splitlines():
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += re.escape(line.rstrip()).replace("…", r"[^\n]*") + r"[ \t]*\n"
    return re.fullmatch(pattern, output if output.endswith("\n") else output + "\n") is not None
