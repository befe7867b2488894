"""What MkDocs needs to know to make a site of pages that are written to be read in the repository.

A link that leaves `docs/` leads to a file of the repository: the site takes a copy along, under
`source/`, so that it is whole without one. A link to a folder becomes plain words there.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[1]
COPIES: Final = "source"
ALWAYS: Final = ("ARCHITECTURE.md", "CHANGELOG.md")  # in the navigation
_FENCE: Final = re.compile(r"^( *```).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`[^`\n]+`")
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^()\s:#]+)(#[^()\s]*)?\)")
_NESTED: Final = re.compile(r"^  - ", re.MULTILINE)  # MkDocs wants four spaces, GitHub two
_INDENT: Final = re.compile(r"^( +)(?=\S)", re.MULTILINE)
_MARK: Final = re.compile("\0(\\d+)\0")


def slug(heading: str, separator: str) -> str:
    """A heading's name as GitHub makes it, so that one link serves both."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    """Name headings as GitHub does."""
    config.mdx_configs["toc"]["slugify"] = slug
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Take along what the pages link to, and what those link to."""
    pages = [ROOT / "docs" / one.src_uri for one in files.documentation_pages()]
    wanted = [ROOT / name for name in ALWAYS]
    for page in pages:
        wanted += _outside(page)
    taken: set[Path] = set()
    while wanted:
        path = wanted.pop()
        if path in taken:
            continue
        taken.add(path)
        files.append(File.generated(config, _uri(path), abs_src_path=str(path)))
        if path.suffix == ".md":
            wanted += _outside(path)
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Lead links to where their files are on the site, and indent lists as MkDocs wants it."""
    uri = page.file.src_uri
    here = ROOT / (uri.removeprefix(f"{COPIES}/") if _is_copy(uri) else f"docs/{uri}")

    def led(found: re.Match[str]) -> str:
        image, words, path, anchor = found.groups()
        target = (here.parent / path).resolve()
        if target.is_dir():
            return words
        to = posixpath.relpath(_uri(target), posixpath.dirname(uri) or ".")
        return f"{image}[{words}]({to}{anchor or ''})"

    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\0{len(kept) - 1}\0"

    bare = _FENCE.sub(keep, markdown)
    if _NESTED.search(bare):
        bare = _INDENT.sub(r"\1\1", bare)
    linked = _LINK.sub(led, bare)
    return _MARK.sub(lambda found: kept[int(found[1])], linked)


def _is_copy(uri: str) -> bool:
    return uri.startswith(f"{COPIES}/")


def _uri(path: Path) -> str:
    inside = path.relative_to(ROOT).as_posix()
    return inside.removeprefix("docs/") if inside.startswith("docs/") else f"{COPIES}/{inside}"


def _outside(page: Path) -> list[Path]:
    """The files beyond `docs/` that a page links to."""
    text = _CODE.sub("", _FENCE.sub("", page.read_text("utf-8")))
    targets = ((page.parent / found[3]).resolve() for found in _LINK.finditer(text))
    return [one for one in targets if one.is_file() and not one.is_relative_to(ROOT / "docs")]
