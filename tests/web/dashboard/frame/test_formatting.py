import pytest

from kesin.lifecycle.budget import SECOND_US
from kesin.web.dashboard.frame.formatting import Formatter

EN, TR = Formatter("en"), Formatter("tr")
AT = 1_700_000_000_123_456


def test_numbers_have_the_separators_of_the_language():
    assert (EN.number(18204), TR.number(18204)) == ("18,204", "18.204")
    assert (EN.number(0), EN.number(1.5), TR.number(1.5)) == ("0", "1.5", "1,5")


def test_shares_are_said_in_percent():
    assert (EN.percent(0.213), TR.percent(0.213)) == ("21%", "%21")
    assert EN.percent(0) == "0%"


@pytest.mark.parametrize(
    ("seconds", "english", "turkish"),
    [
        (0, "0 secs", "0 sn."),
        (1, "1 sec", "1 sn."),
        (59, "59 secs", "59 sn."),
        (12 * 60, "12 mins", "12 dk."),
        (3 * 3_600, "3 hrs", "3 sa."),
        (40 * 86_400, "6 wks", "6 hf."),
        (-5, "0 secs", "0 sn."),
    ],
)
def test_how_long_is_said_in_the_largest_unit(seconds, english, turkish):
    assert EN.duration(seconds * SECOND_US) == english
    assert TR.duration(seconds * SECOND_US) == turkish


def test_a_point_in_time_is_exact_and_in_utc():
    assert EN.moment(AT) == "14 Nov 2023 22:13:20 UTC"
    assert TR.moment(AT) == "14 Kas 2023 22:13:20 UTC"
    assert EN.iso(AT) == "2023-11-14T22:13:20.123456+00:00"


def test_what_is_not_known_is_a_dash():
    assert (EN.duration(None), EN.moment(None), EN.iso(None)) == ("–", "–", "")
