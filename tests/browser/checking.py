"""Checks of any page: accessibility, size, language."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from kesin.lifecycle.task import task_lifecycle
from kesin.workloads import built_in
from tests.web.dashboard.frame.test_catalogues import said

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text("utf-8")
# Everything of WCAG 2.2 that a program can judge, and what axe's makers know to be good beside it.
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# Rules about colours and sizes: the markup is the same in every theme and on every screen.
STYLE = ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size"]
GRAVE = {"serious", "critical"}
WIDE: ViewportSize = {"width": 1440, "height": 900}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PHONE: ViewportSize = {"width": 390, "height": 844}
# A flow is gone through at one width, and in the long form at the other too. What it shows at its
# end is checked at both: resizing a page takes less than opening it again.
_LONG = pytest.mark.long
AT_DESK = pytest.mark.parametrize("size", [WIDE, pytest.param(PHONE, marks=_LONG)], ids=["wide", "phone"])
ON_PHONE = pytest.mark.parametrize("size", [pytest.param(WIDE, marks=_LONG), PHONE], ids=["wide", "phone"])
FRAME = ["header.top", "nav.side"]  # around every page, and the same there
# Frames hold what a template or a PDF shows: no page of ours.
_RUN = """async ([runOnly, rules, within]) => {
  const found = await axe.run(within || document, {
    runOnly,
    rules,
    resultTypes: ["violations"],
    iframes: false,
    preload: false,
  });
  return found.violations.map((one) => ({
    id: one.id,
    impact: one.impact,
    nodes: one.nodes.slice(0, 5).map((node) => `${node.html.slice(0, 200)} ${node.failureSummary}`),
  }));
}"""
_DRESS = """async (sheets) => {
  document.head.replaceChildren();
  await Promise.all(sheets.map((href) => new Promise((loaded) => {
    const link = Object.assign(document.createElement("link"), {rel: "stylesheet", href});
    link.addEventListener("load", loaded);
    document.head.append(link);
  })));
  const still = new CSSStyleSheet(); // a page scrolls from under its bars: nothing stays covered
  still.replaceSync(".top, .side, .bar { position: static !important; }");
  document.adoptedStyleSheets = [still];
}"""
_COPY = """(html) => {
  const page = new DOMParser().parseFromString(html, "text/html");
  for (const one of page.querySelectorAll("iframe, object, embed")) {
    one.removeAttribute("src");
    one.removeAttribute("data");
  }
  document.title = page.title;
  document.documentElement.lang = page.documentElement.lang;
  document.documentElement.dataset.theme = page.documentElement.dataset.theme;
  document.body.replaceWith(page.body);
  for (const one of document.querySelectorAll("details:not(.menu)")) one.open = true;
  for (const one of document.querySelectorAll("dialog[open]")) {
    one.removeAttribute("open");
    one.showModal();
  }
}"""
# Empty what is around a part of the page, or the frame: it was judged already, and axe reads every
# element of a page before it judges one. The boxes stay, and with them the width of the part.
_EMPTY_AROUND = """([within, frame]) => {
  for (const one of frame.flatMap((part) => [...document.querySelectorAll(part)])) {
    one.replaceChildren();
  }
  let kept = within ? document.querySelector(within) : document.body;
  for (; kept !== document.body; kept = kept.parentElement) {
    for (const one of kept.parentElement.children) if (one !== kept) one.replaceChildren();
  }
}"""
# Every text somebody reads or hears, but for ids, codes and what jobs carry.
_TEXTS = """() => {
  const foreign = [
    ".mono, code, pre, script, style, svg, option:not([value])",
    "[lang='en'], [data-foreign], #pdf-form :not(button, select)",
  ].join(", ");
  const texts = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    if (!node.parentElement.closest(foreign)) texts.push(node.textContent);
  }
  for (const name of ["title", "placeholder", "aria-label", "alt", "data-reason", "data-failed"]) {
    for (const one of document.querySelectorAll(`[${name}]`)) {
      if (!one.closest(foreign)) texts.push(one.getAttribute(name));
    }
  }
  texts.push(document.title);
  return texts.map((one) => one.trim().replace(/\\s+/g, " ")).filter(Boolean);
}"""
_ENGLISH = re.compile(
    r"\b(the|and|of|is|are|was|were|with|from|will|has|have|this|that|your|you|cannot|nothing)\b", re.IGNORECASE
)


def prepare(judge: Page) -> None:
    """Make this tab the one that pages are judged in.

    Axe takes longer to be read and to warm up than to judge a page: it is done here once, and
    what other tabs show is copied over.
    """
    judge.goto("/sign-in")
    judge.evaluate(_DRESS, ["/static/dashboard/dashboard.css", "/static/dashboard/lifecycle.css"])
    judge.evaluate(AXE)


def show(judge: Page, html: str) -> None:
    """Copy a page as it is seen in another tab, an open sheet included."""
    judge.evaluate(_COPY, html)


def complaints(
    judge: Page, *, within: str = "", style: bool | None = False, framed: bool = True
) -> list[dict[str, Any]]:
    """Serious obstacles for users of a keyboard or a screen reader, or with weak eyes.

    With ``style`` only rules about colours and sizes judge, with ``style=False`` only the others,
    with None all. What is not to be judged is emptied, and stays so.
    """
    run = {"type": "rule", "values": STYLE} if style else {"type": "tag", "values": TAGS}
    rules = {name: {"enabled": False} for name in STYLE} if style is False else {}
    if within or not framed:
        judge.evaluate(_EMPTY_AROUND, [within, [] if framed else FRAME])
    violations: list[dict[str, Any]] = judge.evaluate(_RUN, [run, rules, within])
    return [violation for violation in violations if violation["impact"] in GRAVE]


def problems(
    judge: Page, within: str = "", *, light: bool = False, dark: bool = False, every: bool = False, framed: bool = True
) -> list[Any]:
    """Problems of the page that is shown: wide and light, then on a phone.

    The contrast of every pair of colours is computed in test_tokens.py: a browser judges colours
    and sizes only if asked to, wide in the ``light`` and on a phone in the ``dark``. With
    ``every``, all rules judge each size in each theme. Unless ``framed``, the frame of the page was
    judged on another one.
    """
    noticed: list[Any] = []
    # The size that the page has comes first: to draw it again is slow.
    for size in sorted((WIDE, PHONE), key=lambda size: size != judge.viewport_size):
        sized(judge, size)
        for theme in THEMES if every else ("dark" if dark and size == PHONE else "light",):
            if theme == "dark":
                judge.emulate_media(color_scheme="dark")
            if every or dark or size == WIDE:
                style = None if every or (light and size == WIDE) else size == PHONE
                noticed += complaints(judge, within=within, style=style, framed=framed)
            noticed += too_wide(judge)
            if theme == "dark":
                judge.emulate_media(color_scheme="light")
        noticed += too_small(judge, within) if size == PHONE else ()
    return noticed


def sized(page: Page, size: ViewportSize) -> None:
    """Resize the page if it has another size: drawing it again is slow."""
    if page.viewport_size != size:
        page.set_viewport_size(size)


def too_wide_at_any_size(page: Page) -> list[str]:
    """What makes the page scroll sideways on a desk or on a phone."""
    before, elements = page.viewport_size, []
    for size in (WIDE, PHONE):
        sized(page, size)
        elements += too_wide(page)
    if before:
        sized(page, before)
    return elements


def too_small(page: Page, within: str = "") -> list[str]:
    """Controls too small for a thumb; a checkbox may be small if its label is not."""
    elements: list[str] = page.evaluate(
        """(within) => {
          const all = (within ? document.querySelector(within) : document).querySelectorAll(
            "button, select, summary, nav a, a.button, input:not([type=hidden]), textarea");
          const touched = (one) => one.matches("[type=checkbox], [type=radio], [type=file]")
            ? one.closest("label") || one : one;
          return [...all].filter((one) => {
            const box = touched(one).getBoundingClientRect();
            return one.checkVisibility() && box.height > 1 && box.height < 43.5;
          }).slice(0, 8).map((one) => one.outerHTML.slice(0, 160));
        }""",
        within,
    )
    return elements


def too_wide(page: Page) -> list[str]:
    """Elements that make the whole page scroll sideways."""
    elements: list[str] = page.evaluate(
        """() => {
          const wide = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= wide) return [];
          const clipped = (one) => {
            for (let above = one.parentElement; above; above = above.parentElement) {
              if (getComputedStyle(above).overflowX !== "visible") return true;
            }
            return false;
          };
          const out = [...document.querySelectorAll("body *")].filter((one) =>
            one.getBoundingClientRect().right > wide + 1 && !clipped(one));
          const seen = out.slice(0, 8).map((one) => one.outerHTML.slice(0, 160));
          return seen.length ? seen : [`something placed: ${document.documentElement.scrollWidth}`];
        }"""
    )
    return elements


def is_seen_before_the_timeline(page: Page, outcome: str) -> None:
    """What came of a job is on the screen when its page opens, on a desk and on a phone."""
    for size in (WIDE, PHONE):
        sized(page, size)
        page.evaluate("scrollTo(0, 0)")
        expect(page.locator(outcome)).to_be_in_viewport()
        tops = [
            page.locator(one).evaluate("one => one.getBoundingClientRect().top")
            for one in (".job-top", outcome, "#job-next", ".timeline")
        ]
        assert tops == sorted(tops)


@cache
def _translated() -> frozenset[str]:
    """Sentences that read differently in Turkish; a state has one name in every language."""
    states = {state.name for one in built_in() for state in one.lifecycle().states}
    different = {key for key, (_, one) in said().items() if key != one.string and "%" not in key}
    return frozenset(different - states - {state.name for state in task_lifecycle().states})


def english(page: Page, carried: Collection[str] = ()) -> list[str]:
    """What a page that should be Turkish says in English, but for what jobs carry."""
    texts: list[str] = page.evaluate(_TEXTS)
    return sorted(
        {
            one
            for one in texts
            if (one in _translated() or _ENGLISH.search(one)) and not any(text in one for text in carried)
        }
    )


def outage(page: Page, watcher: Any) -> None:
    """From now on the service does not answer."""
    watcher.expects("ERR_INTERNET_DISCONNECTED|ERR_NETWORK_CHANGED|htmx:sendError")
    page.context.set_offline(True)
