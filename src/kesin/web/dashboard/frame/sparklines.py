"""Small SVG charts, without scripts or style attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from markupsafe import Markup

from kesin.web.dashboard.state_groups import ORDER, StateGroup

_WIDTH: Final = 240
_BAR_HEIGHT: Final = 8
_SPARK_HEIGHT: Final = 36
_MIN_WIDTH: Final = 2.0  # a small share stays visible


def stacked(counts: Mapping[StateGroup, int], label: str) -> Markup:
    """One bar with a segment for each group of states."""
    total = sum(counts.values())
    parts: list[Markup] = []
    left = 0.0
    for family in ORDER:
        n = counts.get(family, 0)
        if not n:
            continue
        width = max(_MIN_WIDTH, _WIDTH * n / total)
        parts.append(
            Markup('<rect class="fill-{}" x="{:.1f}" y="0" width="{:.1f}" height="{}"/>').format(
                family, left, width, _BAR_HEIGHT
            )
        )
        left += width
    return Markup(
        '<svg class="stacked" role="img" aria-label="{}" viewBox="0 0 {:.1f} {}" '
        'preserveAspectRatio="none">{}</svg>'
    ).format(label, max(left, 1.0), _BAR_HEIGHT, Markup("").join(parts))


def sparkline(values: Sequence[int], label: str, family: StateGroup = "working") -> Markup:
    """Columns, the latest on the right."""
    top = max(values, default=0) or 1
    wide = _WIDTH / max(len(values), 1)
    parts = [
        Markup(
            '<rect class="fill-{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>'
        ).format(
            family,
            at * wide,
            _SPARK_HEIGHT - _SPARK_HEIGHT * n / top,
            max(wide - 0.6, 0.4),
            _SPARK_HEIGHT * n / top,
        )
        for at, n in enumerate(values)
        if n
    ]
    return Markup(
        '<svg class="spark" role="img" aria-label="{}" viewBox="0 0 {} {}" '
        'preserveAspectRatio="none">{}</svg>'
    ).format(label, _WIDTH, _SPARK_HEIGHT, Markup("").join(parts))
