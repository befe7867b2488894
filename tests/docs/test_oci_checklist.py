"""The checklist of conversions: every line names a test, and the tests exist."""

import ast
import re
from functools import cache

from tests.docs.pages import DOCS, ROOT

PAGE = (DOCS / "contributing" / "oci-checklist.md").read_text("utf-8")
TESTS = ROOT / "tests" / "workloads" / "oci"
NAMED = re.findall(r"`((?:\w+/)?test_\w+\.py)::(test_\w+)`", PAGE)
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.endswith("proved by |")]


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def test_every_test_that_is_named_exists():
    assert NAMED
    assert [place for place in sorted(set(NAMED)) if place[1] not in names_in(place[0])] == []


def test_every_line_names_a_test():
    assert ROWS
    named = re.compile(r"`(?:\w+/)?test_\w+\.py::test_\w+`")
    assert [row for row in ROWS if not named.search(row.split(" | ")[-1])] == []


def test_every_lock_is_on_the_page():
    file = "test_locks.py"
    assert names_in(file) == {name for place, name in NAMED if place == file}


def test_no_requirement_is_left_out():
    steps = PAGE.partition("## The verification checklist")[2].partition("\n## ")[0]
    required = ["Export claim", "markAsExported=false", "RETRY_SELECTED", "RESET_TO_QUEUED"]
    required += ["MARK_FAILED (empty body)", "attempt-cap", "Script apply throw"]
    assert re.findall(r"^\| (?!step|-)(.+?) \|", steps, re.MULTILINE) == required
    assert re.findall(r"^\| (\d)\. ", PAGE, re.MULTILINE) == ["1", "2", "3", "4", "5"]
