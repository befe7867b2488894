"""The colours of both themes can be read: at least 4.5 to 1, computed from the style sheet."""

import re
from importlib.resources import files

import pytest

from kesin.web.dashboard.state_groups import LABELS
from tests.tables import table

CSS = (files("kesin.web") / "static" / "dashboard" / "dashboard.css").read_text("utf-8")
LEAST = 4.5
SURFACES = ("paper", "ground", "hover")
WORDS = ("ink", "muted", "accent", *LABELS)
# (words, what they stand on): buttons, badges and messages turn their colours round
TURNED = (("on-accent", "accent"), ("paper", "failed"), ("paper", "ink"))


def tokens(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})\b", block))


def theme(selector: str) -> dict[str, str]:
    found = re.search(re.escape(selector) + r"\s*\{([^}]*)\}", CSS)
    assert found, selector
    return tokens(found[1])


THEMES = {
    "light": theme(":root"),
    "dark": theme(':root[data-theme="dark"]'),
    "dark by the system": theme(':root:not([data-theme="light"])'),
}


def luminance(colour: str) -> float:
    """As WCAG 2 defines it."""
    parts = []
    for at in (1, 3, 5):
        share = int(colour[at : at + 2], 16) / 255
        parts.append(share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4)
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_measure_is_the_one_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@table("name", THEMES)
def test_words_can_be_read_on_every_surface(name):
    colours = THEMES[name]
    pairs = [(word, surface) for word in WORDS for surface in SURFACES] + list(TURNED)
    ratios = {(one, on): contrast(colours[one], colours[on]) for one, on in pairs}
    assert {pair: round(ratio, 2) for pair, ratio in ratios.items() if ratio < LEAST} == {}


def test_dark_is_dark_whoever_asks_for_it():
    assert THEMES["dark"] == THEMES["dark by the system"]


def test_every_colour_of_the_light_theme_has_its_dark_one():
    assert THEMES["light"].keys() == THEMES["dark"].keys()


def test_a_family_has_a_hue_of_its_own():
    for colours in THEMES.values():
        assert len({colours[family] for family in LABELS}) == len(LABELS)


def test_no_rule_names_a_token_that_is_not_there():
    named = set(re.findall(r"var\(--([\w-]+)", CSS))
    there = set(re.findall(r"--([\w-]+):", CSS))
    assert named <= there


def test_no_colour_but_white_paper_and_shadows_is_written_beside_the_tokens():
    """A colour outside the tokens would be wrong in one of the themes."""
    rules = re.sub(r"--[\w-]+:[^;]*;", "", CSS)
    assert set(re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;\s])", rules)) <= {"#fff"}
