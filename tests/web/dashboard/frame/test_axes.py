"""The axes of charts: few, round ticks that cover what is shown."""

import re
from datetime import datetime
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as some

from kesin.web.dashboard.frame.formatting import (
    UNITS,
    Formatter,
    count_ticks,
    duration_ticks,
    tick_unit,
    time_ticks,
    zone_named,
)
from kesin.web.dashboard.frame.templates import build_frame
from tests.tables import table

CHARTS: Any = build_frame([]).environment("en").get_template("bits_charts.html").module
EN, TR = Formatter("en"), Formatter("tr")
MINUTE_US = 60_000_000
ROUND = re.compile(r"[125]0*")
ZONES = ("UTC", "Europe/Istanbul", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")


def steps(ticks: list[int]) -> int:
    """The step between ticks that begin at 0, of which there are 2 to 4."""
    assert ticks[0] == 0
    assert 2 <= len(ticks) <= 4
    [step] = {after - before for before, after in pairwise(ticks)}
    return step


@given(some.integers(0, 10**12))
def test_counts_have_few_round_ticks_that_cover_the_most(top):
    ticks = count_ticks(top)
    step = steps(ticks)
    assert ROUND.fullmatch(str(step))
    assert max(top, 1) <= ticks[-1] < max(top, 1) + step


@given(some.integers(0, 10**16))
def test_durations_have_few_round_ticks_in_one_unit_that_cover_the_longest(top):
    ticks = duration_ticks(top)
    step, unit = steps(ticks), UNITS[tick_unit(ticks)]
    assert top <= ticks[-1]
    assert ticks[-1] - step < max(top, 1)
    assert step * 10 % unit == 0
    assert len({text for _, text in EN.duration_axis(top)}) == len(ticks)


@table(
    ("top_us", "english", "turkish"),
    [
        (0, ["0", "1 ms"], ["0", "1 ms"]),
        (340_000, ["0", "200 ms", "400 ms"], ["0", "200 ms", "400 ms"]),
        (1_400_000, ["0", "0.5 secs", "1 sec", "1.5 secs"], ["0", "0,5 sn.", "1 sn.", "1,5 sn."]),
        (50_000_000, ["0", "20 secs", "40 secs", "60 secs"], ["0", "20 sn.", "40 sn.", "60 sn."]),
        (100 * MINUTE_US, ["0", "1 hr", "2 hrs"], ["0", "1 sa.", "2 sa."]),
    ],
)
def test_a_duration_axis_names_its_unit(top_us, english, turkish):
    assert [text for _, text in EN.duration_axis(top_us)] == english
    assert [text for _, text in TR.duration_axis(top_us)] == turkish


@given(some.integers(1_600_000_000, 1_800_000_000), some.integers(10, 24 * 60), some.sampled_from(ZONES))
def test_times_are_round_in_the_zone_and_lie_between_the_ends(begin_s, minutes, name):
    begin, zone = begin_s * 1_000_000, zone_named(name)
    end = begin + minutes * MINUTE_US
    ticks = time_ticks(begin, end, zone)
    assert 2 <= len(ticks) <= 5
    assert begin <= ticks[0]
    assert ticks[-1] <= end
    figures = Formatter("en", zone)
    first, step_us = datetime.fromtimestamp(ticks[0] / 10**6, zone), ticks[1] - ticks[0]
    if first.utcoffset() == datetime.fromtimestamp(begin_s, zone).utcoffset():
        assert (first.hour * 60 + first.minute) % (step_us // MINUTE_US) == 0
    for share, text in figures.time_axis(begin, end):
        assert 0 <= share <= 100
        assert re.fullmatch(r"\d\d:\d\d", text)


def test_a_day_is_cut_at_midnight_and_noon_of_the_zone():
    begin = 1_700_000_000 * 1_000_000  # 03:43 in Kolkata
    clocks = Formatter("en", zone_named("Asia/Kolkata")).time_axis(begin, begin + 1440 * MINUTE_US)
    assert [text for _, text in clocks] == ["06:00", "12:00", "18:00", "00:00"]


def drawn(values: list[int], top: int) -> ET.Element:
    y, x = [(n, str(n)) for n in count_ticks(top)], EN.time_axis(0, 40 * MINUTE_US)
    titles = [f"{n} <b>" for n in values]
    return ET.fromstring(str(CHARTS.columns([("done", values)], y, x, titles, '"><script>')))


@given(some.lists(some.integers(0, 10**6), min_size=1, max_size=100))
def test_columns_stay_within_their_place_and_each_says_its_value(values):
    picture = drawn(values, max(values))
    groups = list(picture.iter("g"))
    assert [one.findtext("title") for one in groups] == [f"{n} <b>" for n in values]
    bars = [one.attrib for one in picture.iter("rect") if one.get("class") == "fill-done"]
    assert len(bars) == sum(1 for n in values if n)
    for bar in bars:
        assert 0 <= float(bar["x"]) <= len(values) - float(bar["width"])
        assert 0 <= float(bar["y"]) <= 90
        assert float(bar["y"]) + float(bar["height"]) <= 90.11


def test_a_chart_is_an_image_with_words_and_nothing_in_it_runs():
    picture = drawn([1, 0, 4], 4)
    assert picture.attrib["role"] == "img"
    assert picture.attrib["aria-label"] == '"><script>'
    assert picture.attrib["tabindex"] == "0"
    assert not re.search(r"<script|style=", ET.tostring(picture, "unicode"))
    texts = [one.text for one in picture.iter("text")]
    assert texts == ["0", "2", "4", "00:00", "00:10", "00:20", "00:30", "00:40"]
