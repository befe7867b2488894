"""The instructions that a job of the plain queue on SQLite takes, counted by Valgrind's Cachegrind.

Processor time depends on the neighbours of a shared machine; a count hardly does. It leaves out
what the kernel does, which the feature bench times.

As a program it enqueues so many jobs with whichever revision is on the path, and may drain them;
so only ``main`` imports what the bench needs besides.
"""

from __future__ import annotations

import gc
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import NamedTuple

import kesin
from bench.drained import QUEUE, WARM, fill_by_the_thousand

ROOT = Path(__file__).parent.parent
SIZES = (1_000, 7_000)  # the difference leaves out the start, and evens out collections of garbage
CACHEGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
MOST_S = 1_800


class Counted(NamedTuple):
    """Instructions for a job."""

    enqueue: float
    drain: float


def main(*, against: str, write: bool) -> None:
    """Count, print, and write docs/contributing/instruction-counts.md if asked."""
    from bench.features import AT_MOST_PERCENT, checked_out
    from bench.report import Report

    if shutil.which(CACHEGRIND[0]) is None:
        sys.exit("Valgrind counts the instructions: install the package valgrind")
    report = Report("Instructions per job")
    few, many = SIZES
    report.say(
        "Counted with `make bench ARGS='instructions --write'` on"
        f" {datetime.now(tz=UTC):%Y-%m-%d}: Python {platform.python_version()}, SQLite"
        f" {sqlite3.sqlite_version}, Valgrind's Cachegrind. On SQLite the whole queue runs in the"
        " calling process, so every instruction that a job takes outside the kernel is counted."
        " Other work on the machine does not change the count, unlike the CPU time in the [feature"
        " benchmarks](feature-benchmarks.md): the percentages of two runs differ by less than one"
        " percentage point. Each figure is the difference between a run with"
        f" {few:,} jobs and one with {many:,}, per job. The plain queue uses none of the features"
        f" that were added since `{against}`."
    )
    with checked_out(against) as before, ThreadPoolExecutor(2) as threads:
        runs = list(product((before, ROOT), SIZES, ("enqueue", "drain")))
        found = dict(zip(runs, threads.map(lambda run: _instructions(*run), runs), strict=True))
        old, new = (_counted(found, tree) for tree in (before, ROOT))
    rows: list[tuple[str, ...]] = []
    for step, was, now in zip(Counted._fields, old, new, strict=True):
        percent = 100 * (now / was - 1)
        rows.append((step, f"{was:,.0f}", f"{now:,.0f}", f"{percent:+.1f}"))
        report.aim(f"SQLite, {step}: instructions, % more", percent, most=AT_MOST_PERCENT)
    report.table(("plain queue on SQLite", f"`{against}`", "this commit", "% more"), rows)
    text = report.text()
    print(text)
    if write:
        page = ROOT / "docs" / "contributing" / "instruction-counts.md"
        page.write_text(text, "utf-8")


def _counted(found: dict[tuple[Path, int, str], int], tree: Path) -> Counted:
    few, many = SIZES
    enqueue, both = ((found[tree, many, step] - found[tree, few, step]) / (many - few) for step in ("enqueue", "drain"))
    return Counted(enqueue, both - enqueue)


def _instructions(tree: Path, jobs: int, step: str) -> int:
    from bench.beside import own_environment

    with tempfile.TemporaryDirectory(prefix="kesin-bench-") as folder:
        counted = [sys.executable, "-P", "-m", "bench.instructions", f"{folder}/kesin.db", str(jobs), step]
        ended = subprocess.run(
            [*CACHEGRIND, *counted],
            env={**own_environment(), "PYTHONPATH": f"{tree / 'src'}:{ROOT}", "PYTHONHASHSEED": "0"},
            check=False,
            capture_output=True,
            text=True,
            timeout=MOST_S,
        )
    if ended.returncode:
        raise RuntimeError(f"{step} of {jobs} jobs in {tree}: {ended.stderr[-2000:]}")
    if not Path(ended.stdout.strip()).is_relative_to(tree):
        raise RuntimeError(f"the Kesin of {tree} was asked for, and {ended.stdout} answered")
    refs = re.search(r"I +refs: +([\d,]+)", ended.stderr)
    if refs is None:
        raise RuntimeError(f"Cachegrind gave no count: {ended.stderr[-500:]}")
    return int(refs[1].replace(",", ""))


def run(address: str, jobs: int, step: str) -> None:
    """Warm up, enqueue, and drain if asked; print whose Kesin it is."""
    with closing(kesin.open_store(address)) as store:
        queue = kesin.Queue(QUEUE, kesin.task_lifecycle(), store)
        worker = kesin.Worker(queue, lambda _job: None, threads=1)

        def fill(numbers: range) -> None:
            fill_by_the_thousand(queue, numbers, lambda number: kesin.NewJob({"n": number}))

        fill(range(WARM))
        worker.drain()
        gc.collect()
        gc.freeze()  # a collection of all that was imported falls into one run and not another
        fill(range(WARM, WARM + jobs))
        if step == "drain":
            worker.drain()
    print(kesin.__file__)


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), sys.argv[3])
