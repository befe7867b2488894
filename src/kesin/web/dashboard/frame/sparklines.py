"""Small pictures drawn here: no script, no style attribute, sharp on paper too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from markupsafe import Markup

from kesin.web.dashboard.state_groups import ORDER, Family

_WIDTH: Final = 240
_BAR: Final = 8
_SPARK: Final = 36
_LEAST: Final = 2.0  # what is there is seen


def stacked(counts: Mapping[Family, int], label: str) -> Markup:
    """One bar of all families, in their order."""
    total = sum(counts.values())
    parts: list[Markup] = []
    left = 0.0
    for family in ORDER:
        n = counts.get(family, 0)
        if not n:
            continue
        width = max(_LEAST, _WIDTH * n / total)
        parts.append(
            Markup('<rect class="fill-{}" x="{:.1f}" y="0" width="{:.1f}" height="{}"/>').format(
                family, left, width, _BAR
            )
        )
        left += width
    return Markup(
        '<svg class="stacked" role="img" aria-label="{}" viewBox="0 0 {:.1f} {}" '
        'preserveAspectRatio="none">{}</svg>'
    ).format(label, max(left, 1.0), _BAR, Markup("").join(parts))


def sparkline(values: Sequence[int], label: str, family: Family = "working") -> Markup:
    """Columns, the latest on the right; empty where nothing is known."""
    top = max(values, default=0) or 1
    wide = _WIDTH / max(len(values), 1)
    parts = [
        Markup(
            '<rect class="fill-{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>'
        ).format(
            family, at * wide, _SPARK - _SPARK * n / top, max(wide - 0.6, 0.4), _SPARK * n / top
        )
        for at, n in enumerate(values)
        if n
    ]
    return Markup(
        '<svg class="spark" role="img" aria-label="{}" viewBox="0 0 {} {}" '
        'preserveAspectRatio="none">{}</svg>'
    ).format(label, _WIDTH, _SPARK, Markup("").join(parts))
