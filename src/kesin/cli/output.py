"""What commands print with, and how they show what the store keeps as text."""

from __future__ import annotations

import json
from typing import Any

from kesin.foundation.terminal import (
    NOTHING,
    WHOLE,
    Cell,
    cell,
    clock_time,
    console,
    error_console,
    lasting,
    on_terminal,
    print_table,
    rich_table,
    say,
    say_json,
    tally,
    visible,
    visible_lines,
    warn,
)

__all__ = [
    "NOTHING",
    "WHOLE",
    "Cell",
    "cell",
    "clock_time",
    "console",
    "decoded",
    "error_console",
    "lasting",
    "on_terminal",
    "print_table",
    "rich_table",
    "say",
    "say_json",
    "tally",
    "visible",
    "visible_lines",
    "warn",
]


def decoded(text: str | None) -> Any:
    """JSON text of the store as a value; text that is none stays as it is."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
