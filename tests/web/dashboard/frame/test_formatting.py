from datetime import datetime

from kesin.lifecycle.budget import SECOND_US
from kesin.web.dashboard.frame.formatting import Formatter, zone_named
from tests.tables import table

EN, TR = Formatter("en"), Formatter("tr")
AT = 1_700_000_000_123_456


def test_numbers_have_the_separators_of_the_language():
    assert (EN.number(18204), TR.number(18204)) == ("18,204", "18.204")
    assert (EN.number(0), EN.number(1.5), TR.number(1.5)) == ("0", "1.5", "1,5")


def test_shares_are_said_in_percent():
    assert (EN.percent(0.213), TR.percent(0.213)) == ("21%", "%21")
    assert EN.percent(0) == "0%"


@table(
    ("seconds", "english", "turkish"),
    [
        (0, "0 secs", "0 sn."),
        (0.0002, "1 ms", "1 ms"),
        (0.3404, "340 ms", "340 ms"),
        (0.9994, "999 ms", "999 ms"),
        (0.9996, "1 sec", "1 sn."),
        (1, "1 sec", "1 sn."),
        (3.44, "3.4 secs", "3,4 sn."),
        (9.96, "10 secs", "10 sn."),
        (59, "59 secs", "59 sn."),
        (12 * 60, "12 mins", "12 dk."),
        (3 * 3_600, "3 hrs", "3 sa."),
        (40 * 86_400, "6 wks", "6 hf."),
        (-5, "0 secs", "0 sn."),
    ],
)
def test_how_long_is_said_in_the_largest_unit(seconds, english, turkish):
    assert EN.duration(round(seconds * SECOND_US)) == english
    assert TR.duration(round(seconds * SECOND_US)) == turkish


def test_a_point_in_time_is_exact_and_in_the_readers_zone():
    assert (EN.moment(AT), EN.clock(AT)) == ("14 Nov 2023 22:13:20", "22:13")
    assert TR.moment(AT) == "14 Kas 2023 22:13:20"
    istanbul = Formatter("tr", zone_named("Europe/Istanbul"))
    assert (istanbul.moment(AT), istanbul.clock(AT)) == ("15 Kas 2023 01:13:20", "01:13")
    assert istanbul.utc(AT) == "14 Kas 2023 22:13:20 UTC"
    assert istanbul.iso(AT) == "2023-11-14T22:13:20.123456+00:00"


@table(
    ("at", "said"),
    [
        ("2024-03-10T06:59:00", "01:59"),  # the night on which New York's clocks go forward
        ("2024-03-10T07:00:00", "03:00"),
        ("2024-11-03T05:30:00", "01:30"),  # and the one on which 01:30 comes twice
        ("2024-11-03T06:30:00", "01:30"),
    ],
)
def test_summer_time_is_that_of_the_day_shown(at, said):
    new_york = Formatter("en", zone_named("America/New_York"))
    assert new_york.clock(micros(at)) == said


def micros(text: str) -> int:
    return round(datetime.fromisoformat(f"{text}+00:00").timestamp()) * SECOND_US


@table(
    ("seconds", "english", "turkish"),
    [
        (0, "1 sec ago", "1 sn. önce"),
        (-12 * 60, "12 min ago", "12 dk. önce"),
        (12 * 60, "in 12 min", "12 dk. sonra"),
        (-86_399, "24 hr ago", "24 sa. önce"),
        (-86_400, "13 Nov 22:13", "13 Kas 22:13"),
        (86_400 * 90, "12 Feb 2024 22:13", "12 Şub 2024 22:13"),
    ],
)
def test_times_are_relative_within_a_day_and_exact_beyond(seconds, english, turkish):
    at = AT + seconds * SECOND_US
    assert (EN.when(at, AT), TR.when(at, AT)) == (english, turkish)


def test_a_zone_is_called_by_its_city():
    cities = [zone_named(name) for name in ("Europe/Istanbul", "America/New_York", "UTC")]
    assert [TR.city(zone) for zone in cities] == ["İstanbul", "New York", "UTC"]


@table("name", ["", "UTC+3", "Mars/Olympus", "../etc/passwd", "/etc/passwd", "Europe", "a\0b", "ış", "x" * 999])
def test_a_zone_that_is_none_is_utc(name):
    assert zone_named(name).key == "UTC"


def test_what_is_not_known_is_a_dash():
    assert (EN.duration(None), EN.moment(None), EN.iso(None)) == ("–", "–", "")
    assert EN.when(None, AT) == "–"
