"""`kesin simulate`: the real engine under a virtual clock and an adversary."""

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Final

import typer

from kesin.cli.support.arguments import AsJson, argument, option
from kesin.cli.support.errors import FAILED
from kesin.cli.support.lifecycles import find_lifecycle, registered_lifecycles
from kesin.cli.support.progress import Advance, counting
from kesin.cli.support.records import record_of
from kesin.engine.simulation.random_lifecycle import random_lifecycle
from kesin.engine.simulation.simulate import SimulationResult
from kesin.engine.simulation.simulate import simulate as simulate_lifecycle
from kesin.foundation.terminal import print_table, say, say_json, warn
from kesin.lifecycle.declare import Lifecycle

INVENTED: Final = "invented"
INVENTED_STEPS: Final = 500  # of each lifecycle that is made up on the way


def simulate(
    names: Annotated[
        list[str] | None,
        argument(
            "NAME",
            "Lifecycles: registered names, module:attribute, or invented for made-up ones; "
            "all of these if none is named.",
        ),
    ] = None,
    *,
    seed: Annotated[int, option("N", "The same seed gives the same run.")] = 1,
    steps: Annotated[
        int, option("N", "Calls to the store, shared among the lifecycles.", min=1)
    ] = 10_000,
    as_json: AsJson = False,
) -> None:
    """Run queues under an adversary, and check the promise after every step.

    The real engine on SQLite in memory: workers die before, during and after each commit, answers
    come late, twice or from the wrong worker, operators press every button, clocks jump and sweeps
    overlap. At the end time passes until every job rests. A run is a pure function of its seed and
    its steps; a promise that breaks is shown with the shortest history that breaks it.
    """
    chosen = list(dict.fromkeys(names or [*registered_lifecycles(), INVENTED]))
    share = max(steps // len(chosen), 1)
    with counting("simulating", share * len(chosen), shown=not as_json) as progress:
        runs = [run for name in chosen for run in _runs(name, seed, share, progress)]
    whole = hashlib.sha256("".join(run.hash for run in runs).encode()).hexdigest()
    failed = [run for run in runs if not run]
    if as_json:
        say_json({"seed": seed, "hash": whole, "holds": not failed, "runs": [*map(_record, runs)]})
    else:
        _print(runs)
        say(f"seed {seed}, trace hash {whole}")
    for run in failed:
        assert run.failure is not None  # noqa: S101  # that is what makes it falsy
        again = f"kesin simulate {run.lifecycle} --seed {run.seed} --steps {run.failure.at_step}"
        warn(f"{run.lifecycle} broke a promise at step {run.failure.at_step}: {again}")
        warn(str(run.failure))
    if failed:
        raise typer.Exit(FAILED)


def _runs(name: str, seed: int, steps: int, progress: Advance) -> Iterator[SimulationResult]:
    run = partial(simulate_lifecycle, seed=seed, progress=progress)
    if name != INVENTED:
        yield run(_lifecycle_named(name), steps=steps)
        return
    for number in range(-(-steps // INVENTED_STEPS)):
        most = min(INVENTED_STEPS, steps - number * INVENTED_STEPS)
        yield run(_lifecycle_named(f"{INVENTED}_{seed + number}"), steps=most)


def _lifecycle_named(name: str) -> Lifecycle:
    made_up, _, number = name.partition("_")
    if made_up == INVENTED and number.isdecimal():
        return random_lifecycle(int(number))
    return find_lifecycle(name)


def _record(run: SimulationResult) -> dict[str, Any]:
    return {
        **record_of(run, "lifecycle", "seed", "steps", "eras", "jobs"),
        "moves": dict(sorted(run.moves.items())),
        "faults": dict(sorted(run.faults.items())),
        "hash": run.hash,
        "failure": run.failure and record_of(run.failure, "rule", "why", "at_step", "trace"),
    }


def _print(runs: Sequence[SimulationResult]) -> None:
    """Print a line per lifecycle; the invented ones share a line."""
    made_up = [run for run in runs if run.lifecycle.startswith(f"{INVENTED}_")]
    named = [run for run in runs if not run.lifecycle.startswith(f"{INVENTED}_")]
    rows = [(run.lifecycle, [run]) for run in named]
    if made_up:
        rows.append((f"{len(made_up)} invented", made_up))
    print_table(
        ("lifecycle", "steps", "jobs", "moves", "killed", "cut off", "held"),
        [
            (
                name,
                sum(run.steps for run in group),
                sum(run.jobs for run in group),
                sum(run.moves.total() for run in group),
                sum(run.faults["died"] for run in group),
                sum(run.faults["finds it away"] + run.faults["hears nothing"] for run in group),
                "yes" if all(group) else "NO",
            )
            for name, group in rows
        ],
    )
