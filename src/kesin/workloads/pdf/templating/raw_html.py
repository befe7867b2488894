"""Checks HTML that a client sends in place of a template; it runs in a process with limits.

What is refused leads to another page or shows one, which the network guard blocks in any case: the
client learns it at once, and the PDF has no blank in its place.
"""

from typing import Final

from lxml import etree  # type: ignore[import-untyped]  # pikepdf brings it

from kesin.workloads.pdf.errors import HTML_REFUSED, RenderFailed

_REFUSED: Final = frozenset({"base", "iframe", "frame", "object", "embed"})


class _Inspector:
    """What the parser calls: it builds no tree, so that deep HTML costs little."""

    def __init__(self) -> None:
        self.title: list[str] = []
        self._titles = 0
        self._in_title = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._titles += tag == "title"
        self._in_title = tag == "title" and self._titles == 1
        refreshes = attributes.get("http-equiv", "").strip().lower() == "refresh"
        if tag in _REFUSED or (tag == "meta" and refreshes):
            name = '<meta http-equiv="refresh">' if refreshes else f"<{tag}>"
            raise RenderFailed(HTML_REFUSED, "%(what)s is not allowed in HTML", what=name)

    def end(self, tag: str) -> None:
        self._in_title &= tag != "title"

    def data(self, text: str) -> None:
        if self._in_title:
            self.title.append(text)

    def close(self) -> str:
        return " ".join("".join(self.title).split())[:200]


def inspect_html(html: str) -> str:
    """Return the title of a document; raises RenderFailed for an element that is refused."""
    parser = etree.HTMLParser(target=_Inspector(), huge_tree=True, encoding="utf-8")
    parser.feed(html.encode("utf-8", "replace"))
    title: str = parser.close()
    return title
