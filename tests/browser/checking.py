"""What is asked of every page, whatever it shows."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from kesin.lifecycle.task import task_lifecycle
from kesin.workloads import WORKLOADS
from tests.web.dashboard.test_words import said

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text("utf-8")
# Everything of WCAG 2.2 that a program can judge, and what axe's makers know to be good beside it.
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
GRAVE = {"serious", "critical"}
_RUN = """async ([tags, rules]) => {
  const runOnly = rules.length ? {type: "rule", values: rules} : {type: "tag", values: tags};
  const found = await axe.run(document, {runOnly, resultTypes: ["violations"]});
  return found.violations.map((one) => ({
    id: one.id,
    impact: one.impact,
    nodes: one.nodes.slice(0, 5).map((node) => `${node.html.slice(0, 200)} ${node.failureSummary}`),
  }));
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
  for (const name of ["title", "placeholder", "aria-label", "alt", "data-lost", "data-failed"]) {
    for (const one of document.querySelectorAll(`[${name}]`)) {
      if (!one.closest(foreign)) texts.push(one.getAttribute(name));
    }
  }
  texts.push(document.title);
  return texts.map((one) => one.trim().replace(/\\s+/g, " ")).filter(Boolean);
}"""
_ENGLISH = re.compile(
    r"\b(the|and|of|is|are|was|were|with|from|will|has|have|this|that|your|you|cannot|nothing)\b",
    re.IGNORECASE,
)


def complaints(page: Page, *rules: str) -> list[dict[str, Any]]:
    """What is seriously hard to use for somebody with a keyboard, a reader or weak eyes."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    found: list[dict[str, Any]] = page.evaluate(_RUN, [TAGS, list(rules)])
    return [one for one in found if one["impact"] in GRAVE]


def too_wide(page: Page) -> list[str]:
    """What sticks out when the page as a whole can be moved sideways."""
    found: list[str] = page.evaluate(
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
          return out.slice(0, 8).map((one) => one.outerHTML.slice(0, 160));
        }"""
    )
    return found


@cache
def _translated() -> frozenset[str]:
    """Sentences that read differently in Turkish; a state has one name in every language."""
    states = {state.name for one in WORKLOADS for state in one.lifecycle().states}
    different = {key for key, (_, one) in said().items() if key != one.string and "%" not in key}
    return frozenset(different - states - {state.name for state in task_lifecycle().states})


def english(page: Page, carried: Collection[str] = ()) -> list[str]:
    """What a page that should be Turkish says in English, but for what jobs carry."""
    texts: list[str] = page.evaluate(_TEXTS)
    return sorted(
        {
            one
            for one in texts
            if (one in _translated() or _ENGLISH.search(one))
            and not any(text in one for text in carried)
        }
    )
