import re
from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as some

from kesin.web.dashboard.frame.templates import build_frame
from kesin.web.dashboard.state_groups import ORDER

CHARTS: Any = build_frame([]).environment("en").get_template("bits_charts.html").module
sparkline, stacked = CHARTS.sparkline, CHARTS.stacked
COUNTS = some.dictionaries(some.sampled_from(ORDER), some.integers(0, 10**9))


def bars(picture):
    return [one.attrib for one in ET.fromstring(str(picture)).iter("rect")]


def test_the_bar_has_a_part_for_each_family_in_the_order_of_all():
    found = bars(stacked({"done": 75, "waiting": 25}, "Jobs"))
    assert [one["class"] for one in found] == ["fill-waiting", "fill-done"]
    assert [float(one["width"]) for one in found] == [60, 180]
    assert [float(one["x"]) for one in found] == [0, 60]


@given(COUNTS)
def test_whatever_is_there_is_seen_and_parts_touch(counts):
    found = bars(stacked(counts, "Jobs"))
    assert len(found) == sum(1 for n in counts.values() if n)
    left = 0.0
    for one in found:
        assert float(one["width"]) >= 2
        assert abs(float(one["x"]) - left) < 1
        left = float(one["x"]) + float(one["width"])


def test_a_queue_without_jobs_has_an_empty_bar():
    assert bars(stacked({}, "Jobs")) == []
    assert bars(stacked({"done": 0}, "Jobs")) == []


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
    for picture in (stacked({"done": 1}, '"><script>'), sparkline([1], '"><script>')):
        root = ET.fromstring(str(picture))
        assert root.attrib["role"] == "img"
        assert root.attrib["aria-label"] == '"><script>'
        assert not re.search(r"<script|style=|onload", str(picture))
