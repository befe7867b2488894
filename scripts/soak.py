"""The long forms of everything that is proved by trying, with a summary at the end.

Each part is a process of its own: one that fails or hangs takes no other with it. Run by
``make soak``; parts can be named (``make soak ARGS="simulation faults"``). It ends with 0 if every
promise held, 1 if one broke or was not tried to the end, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STEPS = 10_000_000  # of the simulation, added up over seeds
RUN_STEPS = 200_000  # of one seed; its proofs take as long as 10 000 steps
SUMS = ("steps", "jobs", "moves", "faults")
INVENTED = "tests.engine.simulation.random_lifecycle:invented"  # drawn by number
LEDGER = ROOT / "build/simulated.jsonl"  # what was done: Ctrl-C loses a seed a worker
LONGEST_S = 4 * 3_600  # of one part
LONGEST_TEST_S = 3_600
GRACE_S = 20  # for whoever is asked to end
SHOWN = 400  # lines of what went wrong
INTERRUPTED = 128 + signal.SIGINT
PARTS = {
    "simulation": "the adversary, ten million steps; goes on where it was stopped",
    "model": "random histories on every store beside the model; upgrades, query plans",
    "waves": "a million jobs from enqueue to prune on SQLite and PostgreSQL: nothing grows",
    "pooler": "the stores' tests on PostgreSQL, through PgBouncer in transaction mode",
    "faults": "kills, servers that die, wires that are cut, full disks, clocks, poison",
    "fuzzing": "every route as every role, every parser of foreign input",
    "attacks": "injections, hostile URLs, foreign pages, slow clients, bombs, scripts",
    "surface": "commands, service and dashboard, every page in a browser",
    "workloads": "the workloads' own tests, on both databases",
    "packaging": "the wheel in environments of its own, each extra alone; every page; the benches",
}
FUZZED_ROUTES = [f"tests/web/test_{what}.py" for what in ("schema", "fuzz", "matrix")]
TESTS = {
    "model": ["tests/store", "tests/engine", "tests/lifecycle", "tests/foundation"],
    "pooler": [*("--pooler", "-kpostgres"), *sorted(str(path) for path in (ROOT / "tests/store").glob("test_*.py"))],
    "faults": ["tests/faults", "--ignore-glob=*/test_parsers_*"],
    "fuzzing": [*FUZZED_ROUTES, *sorted(str(path) for path in (ROOT / "tests/faults").glob("test_parsers_*.py"))],
    "attacks": ["tests/attacks"],
    "surface": [*("tests/web", "tests/browser", "tests/cli"), *(f"--ignore={path}" for path in FUZZED_ROUTES)],
    "workloads": ["tests/workloads"],
    "packaging": ["tests/examples", "tests/packaging", "tests/docs", "tests/test_bench.py"],
}
_RUNNING: set[subprocess.Popen[str]] = set()
SIZES = {"HYPOTHESIS_PROFILE": "long", "KESIN_HISTORIES": "20"}


@dataclass(frozen=True)
class Ended:
    """How a process ended: with a status, or never (None) and was ended by us."""

    status: int | None
    said: str


@dataclass(frozen=True)
class Result:
    """What came of one part."""

    part: str
    held: bool
    detail: str
    seconds: float = 0.0


def simulated(first_seed: int, steps: int, workers: int) -> Result:
    """So many steps, added up over seeds; what this very code has done before is not repeated."""
    code, size = simulated_code(), min(RUN_STEPS, steps)
    seeds = range(first_seed, first_seed + -(-steps // size))
    done = _done_before(code, size)
    with ThreadPoolExecutor(workers) as pool:
        runs = [pool.submit(_run_seed, code, seed, size) for seed in seeds if seed not in done]
        try:
            for ended in as_completed(runs):
                done[ended.result()["seed"]] = ended.result()
        except BaseException as problem:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in tuple(_RUNNING):
                os.killpg(process.pid, signal.SIGKILL)  # it holds nothing but memory
            if isinstance(problem, _Broken):
                return Result("simulation", held=False, detail=str(problem))
            raise
    total = {what: sum(done[seed][what] for seed in seeds) for what in SUMS}
    trace = hashlib.sha256("".join(done[seed]["hash"] for seed in seeds).encode()).hexdigest()
    line = ", ".join(f"{total[what]} {what}" for what in SUMS)
    line += f"; seeds {first_seed} to {seeds[-1]}, trace hash {trace[:16]}"
    return Result("simulation", held=True, detail=line)


class _Broken(Exception):
    """A seed that broke a promise, or did not get to its end."""


def _simulate(seed: int, steps: int) -> Ended:
    from kesin.workloads import lifecycles

    command = [sys.executable, "-m", "kesin.cli", "simulate", *lifecycles(), f"{INVENTED}_{seed}"]
    return run([*command, "--json", "--seed", str(seed), "--steps", str(steps)])


def _run_seed(code: str, seed: int, size: int) -> dict[str, Any]:
    """Run one seed, and remember what came of it if every promise held."""
    ended = _simulate(seed, size)
    try:
        said = json.loads(ended.said)
    except ValueError:
        raise _Broken(f"seed {seed}: {_unfinished(ended)}") from None
    if not said["holds"] or ended.status != 0:
        raise _Broken(f"seed {seed} broke a promise")
    runs = said["runs"]
    done = {
        "code": code,
        "seed": seed,
        "size": size,
        "steps": sum(each["steps"] for each in runs),
        "jobs": sum(each["jobs"] for each in runs),
        "moves": sum(sum(each["moves"].values()) for each in runs),
        "faults": sum(sum(each["faults"].values()) for each in runs),
        "hash": said["hash"],
    }
    _remember(done)
    return done


def simulated_code() -> str:
    """What the simulation runs, and the lifecycles it runs: after a change its steps count anew."""
    from kesin.lifecycle.codec import rules_fingerprint
    from kesin.workloads import lifecycles

    folder, digest = ROOT / "src/kesin", hashlib.sha256()
    for pattern in ("lifecycle/**/*", "store/**/*", "engine/*", "engine/simulation/*"):
        for path in sorted(folder.glob(pattern)):
            if path.suffix in (".py", ".sql", ".lua"):
                digest.update(path.read_bytes())
    for name in ("lifecycle_plan", "random_lifecycle"):
        digest.update((ROOT / f"tests/engine/simulation/{name}.py").read_bytes())
    for name, lifecycle in sorted(lifecycles().items()):
        digest.update(f"{name} {rules_fingerprint(lifecycle())}".encode())
    return digest.hexdigest()[:16]


def _done_before(code: str, size: int) -> dict[int, dict[str, Any]]:
    if not LEDGER.exists():
        return {}
    runs = map(json.loads, LEDGER.read_text("utf-8").splitlines())
    return {each["seed"]: each for each in runs if (each["code"], each["size"]) == (code, size)}


def _remember(done: dict[str, Any]) -> None:
    LEDGER.parent.mkdir(exist_ok=True)
    with LEDGER.open("a", encoding="utf-8") as file:
        file.write(json.dumps(done) + "\n")


def waved() -> Result:
    """Waves of jobs through both stores; the sizes and what a job costs are shown."""
    ended = run([sys.executable, "-m", "bench.waves"])
    *lines, counted = ended.said.strip().splitlines() or [""]
    print("\n".join(lines), flush=True)
    if ended.status in (0, 1):
        return Result("waves", held=ended.status == 0, detail=counted)
    return Result("waves", held=False, detail=_unfinished(ended))


def tested(part: str, workers: int) -> Result:
    """The long form of some tests."""
    how = ["--long", "-q", "-n", str(workers), "--dist", "worksteal"]
    how += ["--timeout", str(LONGEST_TEST_S)]
    return judged(part, run([sys.executable, "-m", "pytest", *how, *TESTS[part]], SIZES))


def judged(part: str, ended: Ended) -> Result:
    """What pytest came to; what went wrong is shown at once."""
    lines = ended.said.strip().splitlines()
    counted = re.sub(r" in [\d.]+s.*", "", lines[-1].strip("= ")) if lines else ""
    if ended.status == 0:
        _show_table(lines)
        return Result(part, held=True, detail=counted)
    _show(lines)
    if ended.status == 1:  # some tests failed, and all were tried
        return Result(part, held=False, detail=counted)
    return Result(part, held=False, detail="; ".join(filter(None, (_unfinished(ended), counted))))


def _show_table(lines: Sequence[str]) -> None:
    """Show what the attacks tried, which pytest prints before its last line."""
    heads = (n for n, line in enumerate(lines) if re.match(r"=+ what the attacks tried =+$", line))
    for head in heads:
        print("\n".join(lines[head + 1 : -1]), flush=True)


def _unfinished(ended: Ended) -> str:
    if ended.status is None:
        return f"ended after {LONGEST_S // 60} minutes, unfinished"
    if ended.status < 0:
        return f"killed by {signal.Signals(-ended.status).name}"
    return f"crashed: exit status {ended.status}"


def _show(lines: Sequence[str]) -> None:
    """From the first failure on, which pytest tells before its summary; else what was said last."""
    heads = (n for n, line in enumerate(lines) if re.match(r"=+ (FAILURES|ERRORS) =+$", line))
    detail = lines[next(heads, 0) :]
    if len(detail) > SHOWN:
        left_out = f"… {len(detail) - SHOWN} lines …"
        detail = [*detail[: SHOWN // 2], left_out, *detail[-SHOWN // 2 :]]
    print("\n".join(detail), flush=True)


def run(command: Sequence[str], settings: dict[str, str] | None = None) -> Ended:
    """Run one of our programs; nothing that it started outlives it, whatever ends us."""
    process = subprocess.Popen(  # noqa: S603  # our own programs
        command,
        cwd=ROOT,
        env={**os.environ, **(settings or {})},
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    _RUNNING.add(process)
    try:
        said, _ = process.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return Ended(None, _ended(process))
    except BaseException:
        _ended(process)
        raise
    finally:
        _RUNNING.discard(process)
    return Ended(process.returncode, said)


def _ended(process: subprocess.Popen[str]) -> str:
    """Have it end as by Ctrl-C, then at any rate; what it had said by then."""
    for how in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            said, _ = process.communicate(timeout=GRACE_S)
            return said
    return ""


def main() -> int:
    """Run the parts and print what came of them."""
    asked = _asked()
    results: list[Result] = []
    interrupted = False
    for part in dict.fromkeys(asked.parts or PARTS):
        started = time.monotonic()
        try:
            print(f"{part}: {PARTS[part]} …", flush=True)
            if part == "simulation":
                result = simulated(asked.seed, asked.steps, asked.workers)
            elif part == "waves":
                result = waved()
            else:
                result = tested(part, asked.workers)
        except KeyboardInterrupt:
            result, interrupted = Result(part, held=False, detail="interrupted"), True
        results.append(replace(result, seconds=time.monotonic() - started))
        if interrupted:
            break
    print(f"\n{'PART':<12}{'HELD':<6}{'MINUTES':>8}  WHAT")
    for one in results:
        held = "yes" if one.held else "NO"
        print(f"{one.part:<12}{held:<6}{one.seconds / 60:>8.1f}  {one.detail}")
    if interrupted:
        return INTERRUPTED
    return 0 if all(one.held for one in results) else 1


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seed", type=int, default=1, help="of the simulation")
    parser.add_argument("--steps", type=int, default=STEPS, help="of the simulation")
    parser.add_argument("--workers", type=int, default=2, help="processes at once")
    asked = parser.parse_args()
    unknown = [part for part in asked.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}: choose from {', '.join(PARTS)}")
    return asked


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # a job in the background ignores Ctrl-C
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
