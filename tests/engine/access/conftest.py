"""Which tests need the second database: each statement is tested on both in ``tests/store``."""

import re

import pytest

HERE = "tests/engine/access/"  # nodes have paths from the root
# What happens at once, and what is written both or not at all.
ON_BOTH = re.compile("concurrent|during|audit_line_fails")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the other tests on PostgreSQL to the long form."""
    if config.getoption("--long"):
        return
    left_out = {
        item
        for item in items
        if "[postgres" in item.nodeid and not ON_BOTH.search(item.name) and item.nodeid.startswith(HERE)
    }
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
