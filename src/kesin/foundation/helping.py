"""What stands below the options of a command's help."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """Command lines as they are typed; each one stands on a line of its own, however narrow."""
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in lines)])
