"""The long forms of everything that is proved by trying, with a summary at the end.

Each part is a process of its own: one that fails or hangs takes no other with it. Run by
``make soak``; parts can be named (``make soak ARGS="simulation faults"``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = 1_000_000
LONGEST_S = 4 * 3_600  # of one part
PARTS = {
    "simulation": "the adversary, a million steps",
    "model": "random histories on every store beside the model; state machines",
    "faults": "kills, servers that die, wires that are cut, full disks, clocks, poison",
    "fuzzing": "every door as every role, every parser of foreign input",
    "trades": "the workloads' own tests, on both databases",
}
TESTS = {
    "model": ["tests/store/model", "tests/engine", "tests/lifecycle"],
    "faults": ["tests/faults", "--ignore-glob=*/test_parsers_*"],
    "fuzzing": ["tests/web/test_schema.py"],  # and the parsers, which are found by name
    "trades": ["tests/workloads"],
}


@dataclass(frozen=True)
class Result:
    """What came of one part."""

    part: str
    held: bool
    told: str
    seconds: float


def simulated(seed: int, steps: int) -> Result:
    """A million steps, whatever the lifecycles do with them."""
    command = [sys.executable, "-m", "kesin.cli", "simulate", "--json"]
    started = time.monotonic()
    done = _run([*command, "--seed", str(seed), "--steps", str(steps)], {})
    try:
        told = json.loads(done.stdout)
    except ValueError:
        told = {"runs": [], "holds": False, "hash": "none: it gave no answer"}
    runs = told["runs"]
    sizes = {what: sum(run[what] for run in runs) for what in ("steps", "jobs")}
    moves = sum(sum(run["moves"].values()) for run in runs)
    faults = sum(sum(run["faults"].values()) for run in runs)
    line = (
        f"{sizes['steps']} steps of {len(runs)} lifecycles, {sizes['jobs']} jobs, {moves} moves,"
        f" {faults} faults; seed {seed}, trace hash {told['hash'][:16]}"
    )
    return Result("simulation", told["holds"], line, time.monotonic() - started)


def tested(part: str, workers: int) -> Result:
    """The long form of some tests."""
    chosen = [*TESTS[part]]
    if part == "fuzzing":
        parsers = sorted(str(path) for path in (ROOT / "tests/faults").glob("test_parsers_*.py"))
        chosen += parsers
    how = ["--long", "-q", "-n", str(workers), "--dist", "worksteal", "--timeout", "3600"]
    started = time.monotonic()
    done = _run(
        [sys.executable, "-m", "pytest", *how, *chosen],
        {"HYPOTHESIS_PROFILE": "long", "KESIN_HISTORIES": "20"},
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode:
        print("\n".join(lines[-60:]), flush=True)
    counted = re.sub(r" in [\d.]+s.*", "", lines[-1].strip("= ")) if lines else "it said nothing"
    return Result(part, done.returncode == 0, counted, time.monotonic() - started)


def _run(command: list[str], settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  # our own programs
        command,
        cwd=ROOT,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def main() -> int:
    """Run the parts and print what came of them; 1 if a promise broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seed", type=int, default=1, help="of the simulation")
    parser.add_argument("--steps", type=int, default=STEPS, help="of the simulation")
    parser.add_argument("--workers", type=int, default=2, help="test processes at once")
    asked = parser.parse_args()
    unknown = [part for part in asked.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}: choose from {', '.join(PARTS)}")
    results = []
    for part in asked.parts or PARTS:
        print(f"{part}: {PARTS[part]} …", flush=True)
        if part == "simulation":
            results.append(simulated(asked.seed, asked.steps))
        else:
            results.append(tested(part, asked.workers))
    print(f"\n{'PART':<12}{'HELD':<6}{'MINUTES':>8}  WHAT")
    for one in results:
        held = "yes" if one.held else "NO"
        print(f"{one.part:<12}{held:<6}{one.seconds / 60:>8.1f}  {one.told}")
    return 0 if all(one.held for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
