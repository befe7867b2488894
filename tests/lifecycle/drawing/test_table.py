import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.drawing.layout import DiagramLayout, DrawnEdge, lay_out
from kesin.lifecycle.drawing.shape import FAMILIES, edges, family, plan_drawing
from kesin.lifecycle.drawing.svg import STYLE
from kesin.lifecycle.drawing.table import markdown, mermaid, move_rows, page, svg
from kesin.lifecycle.errors import Category, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.moves import claim, complete, enqueue, fail, prioritize
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import GONE, STAY, Fixed, due, unclaimed
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.tables import table

PAGES = Path(__file__).parents[3] / "docs" / "lifecycles"
ALL = [oci_lifecycle(), pdf_lifecycle(), optiplan_lifecycle(), task_lifecycle()]
OCI, PDF, OPTIPLAN, TASK = ALL
RANKED = replace(TASK, moves=(*TASK.moves, prioritize("ready")))
SVG = "{http://www.w3.org/2000/svg}"
LIGHT, DARK = (dict(re.findall(r"--life-([a-z-]+):(#\w+)", theme)) for theme in STYLE.splitlines()[:2])
DRIFT = "docs/lifecycles/{file} differs from the declaration: run `kesin lifecycle show {name} --write docs/lifecycles`"

each = table("lifecycle", ALL)


def line_of(lifecycle: Lifecycle, move: str):
    return next(line for line in move_rows(lifecycle) if line.move == move)


# The table


def test_a_claim_reads_as_a_sentence_without_python():
    line = line_of(OCI, "claim")
    assert (line.sources, line.to, line.by) == ("QUEUED, RETRY", "PROCESSING", "worker")
    assert line.when == "due, unclaimed, budget left"
    assert line.effects == "claim taken, attempt counted"
    conditions = [line.when for line in move_rows(OCI) if line.move == "RESET_TO_QUEUED"]
    others = "error code not CONSENT_DENIED or RETRACTED"
    assert conditions == [f"{others}, without clearErrors", f"{others}, with clearErrors"]


@table(
    ("lifecycle", "move", "cell", "text"),
    [
        (OCI, "too_recent", "effects", "due after backoff(21600 s by attempts)"),
        (OCI, "ack_failed", "effects", "for TRANSIENT or RATE_LIMIT errors"),
        (OCI, "expire", "effects", "error EXPIRED (VALIDATION) recorded"),
        (OCI, "revive", "by", "clock (revive)"),
        (RANKED, "prioritize", "effects", "priority set"),
        (PDF, "requeue", "when", "right after fail or release or lose, "),
        (OPTIPLAN, "enqueue", "sources", "(new)"),
        (OPTIPLAN, "wait", "to", "(stays)"),
        (OPTIPLAN, "prune", "to", "(gone)"),
    ],
)
def test_a_cell_says_what_is_declared(lifecycle, move, cell, text):
    assert text in getattr(line_of(lifecycle, move), cell)


@each
def test_every_line_of_a_markdown_table_has_as_many_cells_as_its_head(lifecycle):
    for part in markdown(lifecycle).split("\n\n"):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in part.strip().splitlines()}
        assert len(counts) == 1
    moves = [Move("odd", ("ready",), "running", by=("operator",), doc="this | that")]
    assert r"this \| that" in markdown(small(moves))
    assert "| `COMPLETED` | success, terminal, holds key, kept 90 d |" in markdown(OCI)


# Mermaid


@each
def test_mermaid_has_one_arrow_for_a_pair_of_states(lifecycle):
    arrows = re.findall(r"^    (\S+) --> ([^\s:]+)", mermaid(lifecycle), re.MULTILINE)
    assert len(arrows) == len(set(arrows))
    named = {(source or "[*]", to or "[*]") for source, to in (e.pair for e in edges(lifecycle))}
    assert named <= set(arrows)


def test_mermaid_draws_arrows_dots_loops_and_marks():
    oci, optiplan = mermaid(OCI), mermaid(OPTIPLAN)
    assert "PROCESSING --> COMPLETED: ack, ack_duplicate\n" in oci
    assert "[*] --> QUEUED: enqueue\n" in oci
    assert "COMPLETED --> [*]: prune\n" in oci
    assert "    done --> [*]\n" in mermaid(small()), "terminal and never pruned"
    assert "FAILED --> FAILED: reissue\n" in optiplan
    for marked in ("HOLD,FAILED resting", "DONE success", "DONE terminal", "OPTI_RUNNING exclusive"):
        assert f"class {marked}" in optiplan
    text = mermaid(small([Move("odd", ("ready",), "end", by=("operator",))], extra=["end"]))
    assert 'state "end" as end_\n' in text, "a word that Mermaid keeps for itself"
    assert "ready --> end_: odd\n" in text


# The picture: what it shows


@each
def test_the_picture_shows_every_state_and_every_edge_but_pruning(lifecycle):
    root = ET.fromstring(svg(lifecycle))
    assert svg(lifecycle) == svg(lifecycle)
    states = {one.get("data-state") for one in root.iter(f"{SVG}g")} - {None}
    drawn = [(one.get("data-from"), one.get("data-to")) for one in root.iter(f"{SVG}g") if shown(one)]
    assert states == set(lifecycle.state)
    assert sorted(drawn) == sorted(edge.pair for edge in edges(lifecycle) if edge.to != GONE)


@each
def test_the_picture_has_a_title_tells_itself_in_words_and_needs_nothing_from_elsewhere(lifecycle):
    root = ET.fromstring(svg(lifecycle))
    assert root.get("role") == "img"
    told = {one.get("id"): one.text for one in root if one.tag in (f"{SVG}title", f"{SVG}desc")}
    assert set(told) == set((root.get("aria-labelledby") or "").split())
    assert lifecycle.name in (told[f"life-{lifecycle.name}-title"] or "")
    assert "enqueue" in (told[f"life-{lifecycle.name}-desc"] or "")
    text = svg(lifecycle).replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|url\(|href|<script|@import|style=", text), "it needs nothing from elsewhere"


def test_a_travelled_edge_and_the_state_a_job_is_in_stand_out_and_the_others_step_back():
    root = ET.fromstring(svg(OCI, highlighted=[("QUEUED", "PROCESSING")]))
    kinds = {(one.get("data-from"), one.get("data-to")): one.get("class") for one in root.iter()}
    assert kinds["QUEUED", "PROCESSING"] == "edge worker lit"
    assert kinds["FAILED", "RETRY"] == "edge clock unlit"
    assert '<g class="stays lit" data-from="NEW" data-to="NEW">' in svg(OPTIPLAN, [("NEW", "NEW")])
    root = ET.fromstring(svg(OCI, current="FAILED"))
    here = [one.get("data-state") for one in root.iter() if "here" in one.get("class", "").split()]
    assert here == ["FAILED"]
    assert "The job is in FAILED." in (root.findtext(f"{SVG}desc") or "")
    assert svg(OCI, highlighted=[("A", "B")], current="C") == svg(OCI), "undeclared edges are passed over"


def test_text_from_the_declaration_is_escaped():
    odd = small(doc='<b> & "quotes"')
    description = ET.fromstring(svg(odd)).findtext(f"{SVG}desc", "")
    assert description.startswith('<b> & "quotes"')


def test_a_rule_of_the_style_reaches_no_further_than_the_picture():
    rules = [line for line in STYLE.splitlines() if not line.startswith("@media")]
    selectors = [one for line in rules for one in line.split("{")[0].split(",")]
    assert all(one.startswith((".kesin-life", ":where(.kesin-life)")) for one in selectors)
    assert STYLE in svg(OCI)
    assert "<style>" not in svg(OCI, styled=False), "a page with its own style sheet can leave it out"


# The picture: how it reads


def test_text_and_families_stand_out_from_their_ground_in_both_themes():
    assert LIGHT.keys() == DARK.keys()
    grounds = ["paper", *(f"{name}-fill" for name in FAMILIES)]
    pairs = [(ink, ground) for ground in grounds for ink in ("ink", "muted", "accent")]
    pairs += [(name, ground) for name in FAMILIES for ground in ("paper", f"{name}-fill")]
    for theme in (LIGHT, DARK):
        for ink, ground in pairs:
            assert contrast(theme[ink], theme[ground]) >= 4.5, (ink, ground)


def test_a_colour_falls_back_to_the_light_theme():
    fallbacks = re.findall(r"(?:fill|stroke):(#\w+);(?:fill|stroke):var\(--life-([a-z-]+)\)", STYLE)
    assert {name: colour for colour, name in fallbacks} == LIGHT
    assert all(LIGHT[name] == colour for colour, name in fallbacks)


def test_families_are_read_from_marks_and_verdicts():
    told = {state: family(OCI, state) for state in OCI.state}
    assert told == {
        "QUEUED": "waiting",
        "RETRY": "retrying",
        "PROCESSING": "working",
        "COMPLETED": "done",
        "FAILED": "failed",
    }
    assert family(OPTIPLAN, "HOLD") == "resting"
    assert family(PDF, "expired") == "expired"


def test_the_happy_way_runs_down_and_what_goes_wrong_stands_aside():
    assert plan_drawing(OCI).rows == ("QUEUED", "PROCESSING", "COMPLETED")
    assert (plan_drawing(OCI).left, plan_drawing(OCI).right) == ("RETRY", "FAILED")
    assert plan_drawing(PDF).rows == ("queued", "running", "succeeded", "expired")
    assert plan_drawing(OPTIPLAN).rows == tuple(OPTIPLAN.state)[:8]
    assert (plan_drawing(OPTIPLAN).left, plan_drawing(OPTIPLAN).right) == ("HOLD", "FAILED")
    found = plan_drawing(small(extra=["one", "two", "three"]))
    assert found.rows == ("ready", "running", "done", "two", "three"), "without a place beside it, below it"
    assert {found.left, found.right} == {"failed", "one"}


@each
def test_the_picture_fits_a_page_of_900_pixels_and_nothing_covers_anything_else(lifecycle):
    picture = lay_out(lifecycle)
    assert picture.width <= 900
    assert collisions(picture) == []


@st.composite
def any_lifecycle(draw: st.DrawFn) -> Lifecycle:
    """The plain four states, some more, and any moves between all of them."""
    extra = [f"STATE_{index}" for index in range(draw(st.integers(0, 5)))]
    names = ["ready", "running", "done", "failed", *extra]
    moves = []
    for index in range(draw(st.integers(0, 16))):
        sources = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        move = Move(
            draw(st.sampled_from(["go", "RETRY_SELECTED", "wait_for_the_machine"])) + f"_{index}",
            tuple(sources),
            draw(st.sampled_from([*names, STAY])),
            by=draw(st.sampled_from([("worker",), ("operator",), ("producer", "operator")])),
            stamp=("finished_at",),
            run_at="now",
        )
        moves.append(move)
    return small(moves, extra=extra)


@settings(max_examples=settings().max_examples // 4)
@given(lifecycle=any_lifecycle())
def test_nothing_covers_anything_else_in_any_other_lifecycle(lifecycle):
    ET.fromstring(svg(lifecycle))
    assert collisions(lay_out(lifecycle)) == []


# The pages


@each
def test_the_page_in_the_docs_is_the_one_the_declaration_gives(lifecycle):
    for ending, fresh in (("md", page(lifecycle)), ("svg", svg(lifecycle))):
        file = f"{lifecycle.name}.{ending}"
        kept = (PAGES / file).read_text("utf-8") if (PAGES / file).exists() else ""
        if kept != fresh:
            pytest.fail(DRIFT.format(file=file, name=lifecycle.name), pytrace=False)


# What the tests above are made of


def small(moves=(), *, extra=(), doc="A small one.") -> Lifecycle:
    """ready → running → done or failed, and whatever a test adds."""
    oops = Fixed("OOPS", Category.PERMANENT, "no")
    return Lifecycle(
        name="small",
        doc=doc,
        states=(
            State("ready", initial=True),
            State("running"),
            State("done", terminal=True, success=True),
            State("failed", resting=True),
            *(State(name) for name in extra),
        ),
        moves=(
            enqueue("ready"),
            claim("ready", "running", when=(due, unclaimed), attempt="keep"),
            complete("running", "done", name="finish", error="keep", result="keep"),
            fail("running", "failed", when=(), error=oops),
            *moves,
        ),
        errors=Taxonomy(
            channels=("worker",),
            rules=same_everywhere(("worker",), dict.fromkeys(Category, Verdict.FAIL)),
            moves=((Verdict.FAIL, "fail"),),
        ),
    )


def shown(element: ET.Element) -> bool:
    return element.get("data-from") is not None


class Area(NamedTuple):
    """A rectangle of the picture."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Area", slack: float = 0.5) -> bool:
        return (
            self.left < other.right - slack
            and other.left < self.right - slack
            and self.top < other.bottom - slack
            and other.top < self.bottom - slack
        )


def label_area(wire: DrawnEdge) -> Area:
    return Area(wire.x, wire.y, wire.x + wire.label.width, wire.y + wire.label.height)


def legs(wire: DrawnEdge) -> Iterator[Area]:
    """The straight pieces of a line, a pixel to either side."""
    for (x1, y1), (x2, y2) in pairwise(wire.points):
        yield Area(min(x1, x2) - 1, min(y1, y2) - 1, max(x1, x2) + 1, max(y1, y2) + 1)


def collisions(picture: DiagramLayout) -> list[str]:
    """Everything that covers what it should not."""
    boxes = {f"box {box.cell.name}": Area(box.x, box.y, box.x + box.width, box.y + box.height) for box in picture.boxes}
    labels = {f"label {wire.edge.pair}": label_area(wire) for wire in picture.edges}
    lines = [(f"line {wire.edge.pair}", leg) for wire in picture.edges for leg in legs(wire)]
    texts_and_boxes = combinations([*boxes.items(), *labels.items()], 2)
    found = [f"{one} covers {other}" for (one, a), (other, b) in texts_and_boxes if a.meets(b)]
    for line, leg in lines:
        found += [f"{line} crosses {text}" for text, area in labels.items() if leg.meets(area)]
        found += [f"{line} crosses {box}" for box, area in boxes.items() if leg.meets(area, 2)]
    for (one, leg), (other, second) in combinations(lines, 2):
        if one != other and leg.meets(second) and lies_along(leg, second):
            found.append(f"{one} runs along {other}")
    for text, area in {**boxes, **labels}.items():
        if min(area) < 0 or area.right > picture.width or area.bottom > picture.height:
            found.append(f"{text} leaves the picture")
    return found


def lies_along(one: Area, other: Area) -> bool:
    """Two legs that share more than the point in which they cross."""
    wide = min(one.right, other.right) - max(one.left, other.left)
    tall = min(one.bottom, other.bottom) - max(one.top, other.top)
    return wide > 2.5 or tall > 2.5


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG 2 has it."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
