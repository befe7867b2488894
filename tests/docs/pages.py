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
    """A fenced block and the line at which its text begins."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(fence[1], fence[2], text.count("\n", 0, fence.start(2)) + 1)
        for fence in _FENCE.finditer(text)
    ]


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    """The links of a page, except those to other sites."""
    plain = re.sub(r"`[^`\n]*`", "", _prose(page))
    return [link for link in _LINK.findall(plain) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    seen: Counter[str] = Counter()
    names = set()
    for heading in _HEADING.findall(_prose(page)):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
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
