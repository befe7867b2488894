"""`kesin lifecycle list|show|prove|check|retire`: the rules, drawn, proved and upgraded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from kesin.cli.support import arguments
from kesin.cli.support.arguments import AsJson, argument, flag, option
from kesin.cli.support.context import find_lifecycle, open_context
from kesin.cli.support.errors import FAILED, UsageError
from kesin.cli.support.records import record_of
from kesin.engine.sweeper import STAGE_INTERVALS_S
from kesin.engine.turns import turns_bound
from kesin.foundation.terminal import print_table, say, say_json
from kesin.lifecycle.codec import lifecycle_from_json, lifecycle_json
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.drawing import table as draw
from kesin.lifecycle.drawing.shape import marks
from kesin.lifecycle.proof.rules import Proof, prove
from kesin.lifecycle.proof.upgrade import prove_upgrade
from kesin.lifecycle.vocabulary import duration
from kesin.store.rules import upgrade_proof
from kesin.workloads import lifecycles

app = typer.Typer(no_args_is_help=True)

_COMPLETE = {"autocompletion": arguments.complete_lifecycles}
Name = Annotated[str, argument("NAME", "A registered name, or module:attribute for your own.", **_COMPLETE)]


@app.command("list")
def list_lifecycles(as_json: AsJson = False) -> None:
    """List the lifecycles that come with Kesin."""
    listed = [make() for make in lifecycles().values()]
    if as_json:
        say_json([_limits(lifecycle) for lifecycle in listed])
        return
    rows = [(rules.name, len(rules.states), len(rules.moves), rules.max_attempts, rules.doc) for rules in listed]
    print_table(("name", "states", "moves", "attempts", "what it is for"), rows)


@app.command("show")
def show_lifecycle(
    name: Name,
    file: Annotated[Path | None, argument("FILE", "File for --svg or --mermaid; defaults to standard output.")] = None,
    *,
    svg: Annotated[bool, flag("--svg", "Draw the diagram as SVG.")] = False,
    mermaid: Annotated[bool, flag("--mermaid", "Print only the Mermaid diagram.")] = False,
    write: Annotated[
        Path | None, option("DIR", "Write NAME.md and NAME.svg into this folder.", file_okay=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a lifecycle: its states, its moves and a Mermaid diagram.

    The diagram is printed, or written to a file, as in: kesin lifecycle show task --svg task.svg
    """
    if sum((svg, mermaid, write is not None, as_json)) > 1:
        raise UsageError("choose one of --svg, --mermaid, --write and --json")
    if file is not None and not (svg or mermaid):
        taken = "only --svg and --mermaid accept a file"
        raise UsageError(f"{str(file)!r} is one argument too many: {taken}")
    lifecycle = find_lifecycle(name)
    if write is not None:
        write.mkdir(parents=True, exist_ok=True)
        for ending, text in (("md", draw.page(lifecycle)), ("svg", draw.svg(lifecycle))):
            target = write / f"{lifecycle.name}.{ending}"
            target.write_text(text, "utf-8")
            say(f"wrote {target}")
    elif svg or mermaid:
        text = draw.svg(lifecycle) if svg else draw.mermaid(lifecycle)
        if file is None:
            say(text.rstrip("\n"))
        else:
            file.write_text(text, "utf-8")
            say(f"wrote {file}")
    elif as_json:
        say_json(_record(lifecycle))
    else:
        _print(lifecycle)


def _print(lifecycle: Lifecycle) -> None:
    say(f"{lifecycle.name}: {lifecycle.doc}" if lifecycle.doc else lifecycle.name)
    say()
    rows = [(state.name, ", ".join(marks(state))) for state in lifecycle.states]
    print_table(("state", "marks"), rows)
    say()
    print_table(
        ("move", "from", "to", "who", "when", "effects"),
        [
            (
                *(line.move, line.sources, line.to, line.by, line.when),
                f"{line.effects}. {line.note}" if line.note else line.effects,
            )
            for line in draw.move_rows(lifecycle)
        ],
    )
    say()
    say(f"Between tenants: {turns_bound()}.")
    _print_bounds(lifecycle)
    say()
    say(draw.mermaid(lifecycle).rstrip("\n"))


def _bounds(lifecycle: Lifecycle) -> Iterator[str]:
    """What slots, a rate and jobs before others promise; nothing where there are none."""
    rate = lifecycle.claims[0].guard("rate")
    in_rate = f"⌈k/{rate.number}⌉ times {rate.per_s} s" if rate else ""
    limited = {lifecycle.state[move.to] for move in lifecycle.claims if lifecycle.capacity_of(move)}
    stay = " + ".join(
        (
            f"{duration(lifecycle.max_run_seconds)} (the longest run)",
            f"{duration(lifecycle.lease_seconds)} (a lease)",
            f"{duration(round(STAGE_INTERVALS_S['recover']))} (a sweep)",
        )
    )
    both = False
    for state in sorted(limited, key=lambda state: state.name):
        in_slots = f"⌈k/{state.capacity}⌉ stays in {state.name}"
        if state.per_tenant and in_rate:
            in_slots, both = f"{in_slots} and {in_rate}", True
        yield f"{_starts(tenant=state.per_tenant)} {in_slots}; each stay ends within {stay}"
    if in_rate and not both:
        too = ", plus the wait for a slot" if limited else ""
        yield f"{_starts(tenant=True)} {in_rate}{too}"
    span = duration(round(STAGE_INTERVALS_S["settle"]))
    for waiting in sorted(lifecycle.waiting_states):
        yield f"a job leaves {waiting} within one sweep ({span}) after its last parent rests"


def _starts(*, tenant: bool) -> str:
    return f"the k-th waiting job of {'a tenant' if tenant else 'the queue'} starts after at most"


def _print_bounds(lifecycle: Lifecycle) -> None:
    for sentence in _bounds(lifecycle):
        say(f"{lifecycle.name}: {sentence}.")


def _limits(lifecycle: Lifecycle) -> dict[str, Any]:
    names = ("name", "doc", "max_attempts", "max_returns", "lease_seconds", "max_run_seconds")
    return record_of(lifecycle, *names)


def _record(lifecycle: Lifecycle) -> dict[str, Any]:
    return {
        **_limits(lifecycle),
        **record_of(lifecycle, "stamps", "flags"),
        "bounds": [turns_bound(), *_bounds(lifecycle)],
        "states": [{"name": state.name, "marks": list(marks(state))} for state in lifecycle.states],
        "moves": [
            {
                "move": move.name,
                "call": move.action,  # deprecated: the name of `action` until the next release
                "action": move.action,
                "from": list(move.sources),
                "to": line.to,
                "by": list(move.by),
                "stage": move.stage,
                "when": [str(guard) for guard in move.when],
                "effects": line.effects,
                "note": line.note,
            }
            for move, line in zip(lifecycle.moves, draw.move_rows(lifecycle), strict=True)
        ],
    }


@app.command("prove")
def prove_lifecycles(
    names: Annotated[
        list[str] | None,
        argument("NAME", "Registered names, or module:attribute for your own; by default, all.", **_COMPLETE),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Prove that every job ends.

    Prints the highest possible number of automatic moves. If a rule is broken, prints the shortest
    path that breaks it and exits with 1.
    """
    chosen = [find_lifecycle(name) for name in names or lifecycles()]
    proofs = [prove(lifecycle) for lifecycle in chosen]
    if as_json:
        say_json([_proof_record(proof) for proof in proofs])
    else:
        print_table(
            ("lifecycle", "result", "configurations", "automatic moves at most"),
            [(p.lifecycle, "proved" if p else "BROKEN", p.configurations, p.bound) for p in proofs],
        )
        say(f"Between tenants: {turns_bound()}.")
        for lifecycle in chosen:
            _print_bounds(lifecycle)
        for proof in proofs:
            if not proof:
                say(f"\n{proof.lifecycle} could not be proved to end:\n{proof}")
    if not all(proofs):
        raise typer.Exit(FAILED)


def _proof_record(proof: Proof) -> dict[str, Any]:
    return {
        "lifecycle": proof.lifecycle,
        "proved": bool(proof),
        **record_of(proof, "configurations", "bound"),
        "broken": [record_of(broken, "rule", "why", "path") for broken in proof.broken],
    }


@app.command("check")
def check_upgrade(
    name: Name,
    *,
    queue: Annotated[str | None, option("QUEUE", "The queue; defaults to the one with the lifecycle's name.")] = None,
    against: Annotated[Path | None, option("FILE", "Compare with a file of rules instead of a store (for CI).")] = None,
    update: Annotated[bool, flag("--update", "Write the rules to the file if they pass the check.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check whether stored jobs fit the current rules.

    Flags and stamps must keep their positions, no state with jobs may disappear, and every job must
    still come to rest. If a rule is broken, prints the path that breaks it and, for a store, the
    number of jobs, and exits with 1.
    """
    if update and against is None:
        raise UsageError("--update needs a file: name it with --against")
    if queue is not None and against is not None:
        raise UsageError("choose one of --queue and --against")
    lifecycle = find_lifecycle(name)
    if against is not None and not (update or against.exists()):
        raise UsageError(f"there is no file {against}: --update creates it")
    proof = _prove_upgrade(lifecycle, queue or lifecycle.name, against)
    if as_json:
        say_json(None if proof is None else _proof_record(proof))
    elif proof is None:
        say(f"{lifecycle.name}: nothing is stored yet, so nothing can break")
    elif proof:
        say(f"{lifecycle.name}: the stored jobs fit these rules")
        _print_bounds(lifecycle)
    else:
        say(f"{lifecycle.name}: the stored jobs do not fit these rules:\n{proof}")
    if proof is not None and not proof:
        raise typer.Exit(FAILED)
    if update and against is not None:
        against.parent.mkdir(parents=True, exist_ok=True)
        against.write_text(lifecycle_json(lifecycle) + "\n", "utf-8")


def _prove_upgrade(lifecycle: Lifecycle, queue: str, file: Path | None) -> Proof | None:
    """Prove that jobs under the stored rules fit these; None if no rules are stored."""
    if file is not None and not file.exists():
        return None
    if file is not None:
        return prove_upgrade(lifecycle_from_json(file.read_text("utf-8")), lifecycle)
    with open_context() as context:
        store = context.store.store_for(queue)
        versions = store.rules(queue)
        if not versions:
            return None
        retired, counts = store.retired_states(queue), store.move_counts(queue)
        return upgrade_proof(lifecycle, versions[-1], retired, counts)


@app.command("retire")
def retire_state(
    queue: Annotated[str, argument("QUEUE", "The queue's name.")],
    state: Annotated[str, argument("STATE", "A state that is declared with retiring=True.")],
    *,
    lifecycle: arguments.LifecycleName = None,
    yes: arguments.Yes = False,
) -> None:
    """Retire an empty state permanently.

    No job can enter it again, even through a process that runs an older version.
    """
    with open_context() as context:
        opened = context.open_queue(queue, lifecycle)
        if not yes:
            what = f"{state} of {queue}"
            arguments.confirm(f"Retire {what} permanently?", f"retiring {what} cannot be undone")
        opened.retire(state)
    say(f"retired {state} of {queue}: the next version of the lifecycle may omit it")
