"""`kesin simulate`: the real engine under a virtual clock and an adversary."""

import hashlib
from functools import partial
from typing import Annotated, Any

import typer

from kesin.cli.support.arguments import AsJson, argument, option
from kesin.cli.support.context import find_lifecycle
from kesin.cli.support.errors import FAILED
from kesin.cli.support.records import record_of
from kesin.engine.simulation.simulate import SimulationResult
from kesin.engine.simulation.simulate import simulate as simulate_lifecycle
from kesin.foundation.terminal import bars, print_table, say, say_json, warn
from kesin.workloads import lifecycles


def simulate(
    names: Annotated[
        list[str] | None, argument("NAME", "Registered names, or module:attribute for your own; by default, all.")
    ] = None,
    *,
    seed: Annotated[int, option("N", "The seed; the same seed gives the same run.")] = 1,
    steps: Annotated[int, option("N", "Calls to the store, divided among the lifecycles.", min=1)] = 10_000,
    as_json: AsJson = False,
) -> None:
    """Run queues under simulated failures, and check the promises after every step.

    Runs the real engine on in-memory SQLite: workers die before, during and after each commit;
    results arrive late, twice or from the wrong worker; operators use every action; clocks jump and
    sweeps overlap. At the end, time passes until every job is at rest. The same seed and steps give
    the same run. If a promise is broken, the shortest history that breaks it is shown.
    """
    chosen = list(dict.fromkeys(names or lifecycles()))
    share = max(steps // len(chosen), 1)
    with bars(shown=not as_json) as bar:
        progress = bar("simulating", share * len(chosen))
        run_one = partial(simulate_lifecycle, seed=seed, steps=share, progress=progress)
        runs = [run_one(find_lifecycle(name)) for name in chosen]
    whole = hashlib.sha256("".join(run.hash for run in runs).encode()).hexdigest()
    failed = [run for run in runs if not run]
    if as_json:
        say_json({"seed": seed, "hash": whole, "holds": not failed, "runs": [*map(_record, runs)]})
    else:
        print_table(
            ("lifecycle", "steps", "jobs", "moves", "killed", "cut off", "held"),
            [
                (
                    *(run.lifecycle, run.steps, run.jobs, run.moves.total(), run.faults["died"]),
                    run.faults["store unreachable"] + run.faults["no response"],
                    "yes" if run else "NO",
                )
                for run in runs
            ],
        )
        say(f"seed {seed}, trace hash {whole}")
    for run in failed:
        assert run.failure is not None  # noqa: S101  # that is what makes it falsy
        again = f"kesin simulate {run.lifecycle} --seed {run.seed} --steps {run.failure.at_step}"
        warn(f"{run.lifecycle} broke a promise at step {run.failure.at_step}: {again}")
        warn(str(run.failure))
    if failed:
        raise typer.Exit(FAILED)


def _record(run: SimulationResult) -> dict[str, Any]:
    return {
        **record_of(run, "lifecycle", "seed", "steps", "eras", "jobs"),
        "moves": dict(sorted(run.moves.items())),
        "faults": dict(sorted(run.faults.items())),
        "hash": run.hash,
        "failure": run.failure and record_of(run.failure, "rule", "why", "at_step", "trace"),
    }
