"""Random HTML as people write it: tables with spans, nested lists, headings, figures, layouts."""

import random
from collections.abc import Callable

from tests.workloads.pdf.documents import PICTURE, page

_INLINE = (
    "word ", "<b>b</b> ", "<em>e</em>", "<strong>s</strong>", "<code>c</code>", "<sub>1</sub>",
    "<br>", "<q>q</q>", '<a href="https://x.example/">l</a>', '<a href="#a">i</a>',
    f'<img src="{PICTURE}" alt="x">', f'<img src="{PICTURE}" alt="">', "<input value=v>",
    f'<a href="https://x.example/"><img src="{PICTURE}" alt="z"></a>',
    '<span style="opacity: .5">o</span>', "<svg width=9 height=9><circle r=4 /></svg>",
    "<svg role=img aria-label=c width=9 height=9><circle r=4 /></svg>",
)  # fmt: skip
_ELEMENTS = (
    "div", "section", "article", "aside", "nav", "header", "footer", "main", "blockquote",
    "address", "fieldset", "figure", "form", "details", "center",
)  # fmt: skip
_LAYOUTS = (
    "opacity: .4", "position: absolute", "float: left", "display: flex", "display: grid",
    "columns: 2", "background: linear-gradient(red, blue)", "box-shadow: 0 0 4px red",
    "overflow: hidden", "break-before: page", "transform: rotate(9deg)", "display: none",
)  # fmt: skip
_ROLES = (
    "table", "row", "list", "listitem", "heading", "img", "note", "figure", "group", "term",
    "cell", "doc-footnote", "math", "caption", "rowgroup", "columnheader",
)  # fmt: skip


class RandomDocument:
    """One document of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.level = 0
        self.html = page(self._several(lambda: self._block(0), 5) + "<p>end</p>")

    def _several(self, make: Callable[[], str], most: int) -> str:
        return "".join(make() for _ in range(self.random.randint(0, most)))

    def _text(self) -> str:
        return self._several(lambda: self.random.choice(_INLINE), 3)

    def _block(self, depth: int) -> str:
        makers = [self._table, self._list, self._element, self._layout, self._rest]
        return self._rest(depth) if depth > 3 else self.random.choice(makers)(depth)

    def _table(self, depth: int) -> str:
        width = self.random.randint(1, 3)
        caption = "<caption>c</caption>" if self.random.random() < 0.3 else ""
        head = "<thead><tr>" + "<th>h</th>" * width + "</tr></thead>"
        rows = "".join(self._row(depth, width) for _ in range(self.random.randint(0, 3)))
        return f"<table>{caption}{self.random.choice(['', head])}{rows}</table>"

    def _row(self, depth: int, width: int) -> str:
        count = width + (self.random.random() < 0.05)
        return f"<tr>{''.join(self._cell(depth) for _ in range(count))}</tr>"

    def _cell(self, depth: int) -> str:
        spans = (("colspan", 0.1), ("rowspan", 0.05))
        given = [f"{name}={self.random.randint(1, 3)}" for name, share in spans
                 if self.random.random() < share]  # fmt: skip
        inside = self._block(depth + 1) if self.random.random() < 0.1 else self._text()
        kind = self.random.choice(["td", "td", "th"])
        return f"<{kind} {' '.join(given)}>{inside}</{kind}>"

    def _list(self, depth: int) -> str:
        kind = self.random.choice(["ul", "ol"])
        return f"<{kind}>{self._several(lambda: self._item(depth), 3)}</{kind}>"

    def _item(self, depth: int) -> str:
        nested = self._block(depth + 1) if self.random.random() < 0.3 else ""
        return f"<li>{self._text()}{nested}</li>"

    def _element(self, depth: int) -> str:
        name = self.random.choice(_ELEMENTS)
        return f"<{name}>{self._several(lambda: self._block(depth + 1), 2)}</{name}>"

    def _layout(self, depth: int) -> str:
        style = self.random.choice(_LAYOUTS)
        return f'<div style="{style}">{self._several(lambda: self._block(depth + 1), 2)}</div>'

    def _rest(self, _: int) -> str:
        self.level = max(1, min(6, self.level + self.random.choice([-1, 0, 1, 1])))
        return self.random.choice(
            (
                f"<p>{self._text()}</p>",
                f"<h{self.level}>{self._text()}</h{self.level}>",
                f'<figure><img src="{PICTURE}" alt="x"><figcaption>c</figcaption></figure>',
                f"<dl><dt>t<dd>{self._text()}</dl>",
                f"<div role={self.random.choice(_ROLES)}>{self._text()}</div>",
                "<pre>a\n b</pre><hr>",
                "<form><label>l<input type=checkbox></label><button>b</button></form>",
            )
        )
