"""The tables: what was measured, the ratios, and their targets."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Aim:
    """A ratio and its target; without one, it is only for comparison."""

    what: str
    value: float
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool:
        """Whether the aim holds."""
        low = self.least is None or self.value >= self.least
        return low and (self.most is None or self.value <= self.most)

    def row(self) -> tuple[str, str, str, str]:
        """A line of the table."""
        if self.least is None and self.most is None:
            return (self.what, f"{self.value:.2f}", "", "")
        aim = f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}"
        return (self.what, f"{self.value:.2f}", aim, "met" if self.met else "**missed**")


@dataclass(slots=True)
class Report:
    """Everything one run found, as Markdown."""

    title: str
    lines: list[str] = field(default_factory=list)
    aims: list[Aim] = field(default_factory=list)

    def table(self, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
        """Add a table; all but its first column is set to the right."""
        self.lines.append("| " + " | ".join(head) + " |")
        self.lines.append("|---|" + "---:|" * (len(head) - 1))
        self.lines += ["| " + " | ".join(row) + " |" for row in rows]
        self.lines.append("")

    def say(self, text: str) -> None:
        """Add a paragraph."""
        self.lines += [text, ""]

    def aim(self, what: str, value: float, *, least: float | None = None, most: float | None = None) -> None:
        """Add a ratio and its target."""
        self.aims.append(Aim(what, value, least, most))

    def text(self) -> str:
        """The whole report."""
        body = "\n".join(self.lines)
        verdicts = "\n".join("| " + " | ".join(one.row()) + " |" for one in self.aims)
        head = "| ratio | measured | target | |\n|---|---:|---:|---|"
        return f"# {self.title}\n\n{body}\n## Targets\n\n{head}\n{verdicts}\n"
