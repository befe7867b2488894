"""The page that says where everything asked for is proved: every test named on it exists."""

import ast
import re
from functools import cache

import pytest

from tests.docs.pages import DOCS, ROOT

PAGE = (DOCS / "oci-checklist.md").read_text("utf-8")
TESTS = ROOT / "tests" / "workloads" / "oci"
NAMED = re.findall(r"`((?:\w+/)?test_\w+\.py)::(test_\w+)`", PAGE)
ROWS = [
    line for line in PAGE.splitlines() if line.startswith("| ") and not line.endswith("proved by |")
]


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    return frozenset(
        one.name
        for one in tree.body
        if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
    )


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)))
def test_a_test_that_is_named_exists(file, name):
    assert name in names_in(file)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split(" | ")[0].strip("| "))
def test_every_line_is_proved_by_something(row):
    assert re.search(r"`(?:\w+/)?test_\w+\.py::test_\w+`", row.split(" | ")[-1])


@pytest.mark.parametrize("file", ["test_locks.py", "test_checklist.py"])
def test_every_lock_and_every_step_is_on_the_page(file):
    assert names_in(file) == {name for where, name in NAMED if where == file}


def test_nothing_that_was_asked_for_is_left_out():
    steps = PAGE.partition("## The verification checklist")[2].partition("\n## ")[0]
    asked = ["Export claim", "markAsExported=false", "RETRY_SELECTED", "RESET_TO_QUEUED"]
    asked += ["MARK_FAILED (empty body)", "attempt-cap", "Script apply throw"]
    assert re.findall(r"^\| (?!step|-)(.+?) \|", steps, re.MULTILINE) == asked
    assert re.findall(r"^\| (\d)\. ", PAGE, re.MULTILINE) == ["1", "2", "3", "4", "5"]
