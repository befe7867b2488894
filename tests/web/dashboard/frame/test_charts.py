import re
from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as some

from kesin.web.dashboard.frame.templates import build_frame

CHARTS: Any = build_frame([]).environment("en").get_template("bits_charts.html").module
sparkline = CHARTS.sparkline


def bars(picture):
    return [one.attrib for one in ET.fromstring(str(picture)).iter("rect")]


@given(some.lists(some.integers(0, 10**9), max_size=60))
def test_no_column_leaves_the_picture(values):
    found = bars(sparkline(values, "Done"))
    assert len(found) == sum(1 for n in values if n)
    for one in found:
        assert 0 <= float(one["x"]) <= 240
        assert 0 <= float(one["y"]) <= 36
        assert float(one["y"]) + float(one["height"]) <= 36.02


def test_the_highest_column_fills_the_height():
    found = bars(sparkline([1, 0, 4], "Done", "failed"))
    assert [one["height"] for one in found] == ["9.00", "36.00"]
    assert {one["class"] for one in found} == {"fill-failed"}


def test_what_a_picture_shows_is_said_and_nothing_in_it_runs():
    picture = sparkline([1], '"><script>')
    root = ET.fromstring(str(picture))
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == '"><script>'
    assert not re.search(r"<script|style=|onload", str(picture))
