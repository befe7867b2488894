"""Markdown pages as the tests read them: code blocks, links and headings."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block and where its text begins."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1)
        for found in _FENCE.finditer(text)
    ]


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    """Where the page's links lead, those to other sites left out."""
    plain = re.sub(r"`[^`\n]*`", "", _prose(page))
    return [link for link in _LINK.findall(plain) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """The names GitHub gives to a page's headings."""
    seen: Counter[str] = Counter()
    names = set()
    for heading in _HEADING.findall(_prose(page)):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        names.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return names


def matches(expected: str, got: str) -> bool:
    """Whether the output is what the page shows; … stands for anything in a line.

    A line that is … alone stands for any lines.
    """
    pattern = ""
    for line in expected.splitlines():
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += re.escape(line.rstrip()).replace("…", r"[^\n]*") + r"[ \t]*\n"
    return re.fullmatch(pattern, got if got.endswith("\n") else got + "\n") is not None
