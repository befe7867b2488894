"""A lifecycle as table, Mermaid diagram and page: deterministic, so that tests can compare."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kesin.lifecycle.budget import Backoff
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.drawing.shape import edges, marks, retention, slots_mark
from kesin.lifecycle.drawing.svg import STYLE, svg
from kesin.lifecycle.vocabulary import GONE, STAY, After, Fixed, Guard, GuardKind, duration

__all__ = ["STYLE", "MoveRow", "markdown", "mermaid", "move_rows", "page", "svg"]

EMPTY_CELL: Final = "—"

# Guards whose own name does not explain them.
GUARDS: Final[dict[GuardKind, str]] = {
    "holds_claim": "claim held",
    "retries_left": "fewer than {number} retries",
    "code_in": "error code {names}",
    "code_not_in": "error code not {names}",
    "category_in": "error category {names}",
    "was_claimed": "claimed before",
    "option": "with {names}",
    "flag_set": "{names} is set",
    "flag_not_set": "{names} is not set",
    "age_over": "{names} at least {age} ago",
    "slot_free": "{names} is free",
    "rate": "at most {number} per tenant in {per}",
    "parents_done": "every parent succeeded",
    "parents_failed": "a parent did not succeed",
}
EFFECTS: Final = {
    ("claim", "take"): "claim taken",
    ("claim", "drop"): "claim dropped",
    ("attempt", "count"): "attempt counted",
    ("attempt", "return"): "attempt returned",
    ("attempt", "renew"): "budget renewed",
    ("retry", "count"): "retry counted",
    ("error", "record"): "error recorded",
    ("error", "clear"): "error cleared",
    ("run_at", "now"): "due now",
    ("run_at", "input"): "due at the requested time",
    ("run_at", "clear"): "not due",
    ("timer", "clear"): "timer cleared",
    ("result", "record"): "result recorded",
    ("payload", "replace"): "payload replaced",
    ("priority", "input"): "priority set",
}

# Reserved words of Mermaid; a state of that name gets an alias.
RESERVED: Final = frozenset(
    {"accdescr", "acctitle", "as", "class", "classdef", "click", "default", "direction", "end"}
    | {"hide", "href", "note", "scale", "state", "style", "title"}
)

# Mid-tones with their own text colour, as Mermaid cannot follow the reader's theme.
CLASSES: Final = (
    ("success", "fill:#e3f4e8,stroke:#1a7f37,color:#1f2328"),
    ("resting", "fill:#f3eefc,stroke:#7447c4,color:#1f2328"),
    ("terminal", "stroke-width:3px"),
    ("exclusive", "stroke-dasharray:6 3"),
)


@dataclass(frozen=True, slots=True)
class MoveRow:
    """A row of the table of moves. Every field is text ready to be shown."""

    move: str
    sources: str
    to: str
    by: str
    when: str
    effects: str
    note: str


def move_rows(lifecycle: Lifecycle) -> list[MoveRow]:
    """The rows of the table of moves, in the order of declaration."""
    return [
        MoveRow(
            move=move.name,
            sources=", ".join(move.sources) or "(new)",
            to={STAY: "(stays)", GONE: "(gone)"}.get(move.to, move.to),
            by=" or ".join(move.by) + (f" ({move.stage})" if move.stage else ""),
            when=", ".join(_conditions(lifecycle, move)) or EMPTY_CELL,
            effects=", ".join(_effects(move)) or EMPTY_CELL,
            note=move.doc,
        )
        for move in lifecycle.moves
    ]


def markdown(lifecycle: Lifecycle) -> str:
    """The states and the moves as two Markdown tables."""
    states = []
    for state in lifecycle.states:
        span = retention(lifecycle, state.name)
        words = (*marks(state), *((f"kept {span}",) if span else ()))
        states.append((f"`{state.name}`", ", ".join(words)))
    moves = [(f"`{row.move}`", row.sources, row.to, row.by, row.when, _with_note(row)) for row in move_rows(lifecycle)]
    head = ("move", "from", "to", "who", "when", "effects")
    return f"{_table(('state', 'marks'), states)}\n{_table(head, moves)}"


def mermaid(lifecycle: Lifecycle) -> str:
    """A Mermaid ``stateDiagram-v2``: one arrow per pair of states, start and end as ``[*]``."""
    ids = {state.name: _mermaid_id(lifecycle, state.name) for state in lifecycle.states}
    text = ["stateDiagram-v2"]
    for state in lifecycle.states:
        title = f"{state.name} ({slots_mark(state)})" if state.slots else state.name
        if title != ids[state.name]:
            text.append(f'    state "{title}" as {ids[state.name]}')
    ids[GONE] = "[*]"
    ending = {edge.source for edge in edges(lifecycle) if edge.to == GONE}
    text += [f"    {ids[edge.source]} --> {ids[edge.to]}: {', '.join(edge.names)}" for edge in edges(lifecycle)]
    text += [
        f"    {ids[state.name]} --> [*]" for state in lifecycle.states if state.terminal and state.name not in ending
    ]
    for mark, look in CLASSES:
        passing = lifecycle.waiting_states if mark == "resting" else ()
        marked = [ids[state.name] for state in lifecycle.states if getattr(state, mark) and state.name not in passing]
        if marked:
            text += [f"    classDef {mark} {look}", f"    class {','.join(marked)} {mark}"]
    return "\n".join(text) + "\n"


def page(lifecycle: Lifecycle) -> str:
    """A whole Markdown page; it refers to the picture ``NAME.svg`` beside it."""
    name = lifecycle.name
    limits = (
        f"A job has {lifecycle.max_attempts} attempts; graceful stops give back at most "
        f"{lifecycle.max_returns} of them. A lease lasts {duration(lifecycle.lease_seconds)} and "
        f"can be renewed for {duration(lifecycle.max_run_seconds)} after the claim."
    )
    paragraphs = (
        f"# The lifecycle `{name}`",
        lifecycle.doc,
        limits,
        f"![Diagram of the {name} lifecycle]({name}.svg)",
        markdown(lifecycle).rstrip("\n"),
        "The same diagram in Mermaid:",
        f"```mermaid\n{mermaid(lifecycle)}```",
        f"Do not edit: `kesin lifecycle show {name} --write docs/lifecycles` writes this page.",
    )
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _with_note(row: MoveRow) -> str:
    parts = (row.effects if row.effects != EMPTY_CELL else "", f"*{row.note}*" if row.note else "")
    return ". ".join(filter(None, parts)) or EMPTY_CELL


def _table(head: tuple[str, ...], body: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *body]
    cells = ([" ".join(text.split()).replace("|", "\\|") for text in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _mermaid_id(lifecycle: Lifecycle, name: str) -> str:
    if name.lower() not in RESERVED:
        return name
    alias = f"{name}_"
    while alias in lifecycle.state:
        alias += "_"
    return alias


def _conditions(lifecycle: Lifecycle, move: Move) -> Iterator[str]:
    if move.chained:
        before = [other.name for other in lifecycle.moves if other.then == move.action]
        yield f"right after {' or '.join(before)}"
    for guard in move.when:
        yield _guard(guard)
    to = lifecycle.state.get(move.to)
    if to and to.slots and not move.guard("slot_free"):
        yield f"a slot of {to.name} is free"


def _guard(guard: Guard) -> str:
    template = GUARDS.get(guard.kind, guard.kind.replace("_", " ").replace(" over", " expired"))
    if not guard.number and guard.kind in ("option", "age_over"):
        template = "without {names}" if guard.kind == "option" else "{names} reached"
    names = " or ".join(guard.names)
    spans = {"age": duration(guard.number), "per": duration(guard.per_s)}
    return template.format(names=names, number=guard.number, **spans)


def _effects(move: Move) -> Iterator[str]:
    for part in dict.fromkeys(part for part, _ in EFFECTS):
        value = getattr(move, part)
        if isinstance(value, Fixed):
            yield f"error {value.code} ({value.category}) recorded"
        elif part == "run_at" and isinstance(value, Backoff):
            yield f"due after {value}"
        elif isinstance(value, After | Backoff):
            kinds = f" for {' or '.join(move.timer_for)} errors" if move.timer_for else ""
            yield f"timer {'' if isinstance(value, After) else 'after '}{value}{kinds}"
        elif value != "keep":
            yield EFFECTS[part, value]
    yield from (f"{stamp} stamped" for stamp in move.stamp)
    yield from (f"{stamp} taken from the caller" for stamp in move.stamp_input)
    yield from (f"{stamp} cleared" for stamp in move.unstamp)
    yield from (f"{flag} set" for flag in move.flag)
    if move.prunes:
        yield "job and events deleted"
    if move.then:
        yield f"then {move.then}, if it applies"
