"""``python -m kesin.workloads.optiplan.optimizer FILES… --out FOLDER``: what mode A runs.

For each batch file a solution XML, a drawing and a printable plan go into the folder; the XML
comes last, so whoever waits for it finds everything. Nothing is written unless all files can be
planned. Exit codes: 0 planned, 2 the call is wrong, 3 the order cannot be cut, 4 a defect of ours.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from kesin.workloads.optiplan.optimizer.input import Conditions, read_batch, read_json
from kesin.workloads.optiplan.optimizer.model import Plan, Unplannable
from kesin.workloads.optiplan.optimizer.optimise import Effort, WrongPlan, optimise
from kesin.workloads.optiplan.optimizer.output.files import write_plans

PLANNED, WRONG_CALL, NOT_CUTTABLE, OUR_DEFECT = 0, 2, 3, 4
LONGEST_S: Final = 3_600.0


class _OneSentence(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_CALL, f"{message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Plan the files; the exit code."""
    asked = _parser().parse_args(arguments)
    try:
        _check_names(asked.files)
        rules = Conditions.of_rules(read_json(asked.rules)) if asked.rules else Conditions()
        effort = Effort(seconds=asked.time_limit)
        batches: dict[str, list[Plan]] = {}
        for file in asked.files:
            batches[file.stem] = [optimise(demand, effort) for demand in read_batch(file, rules)]
        for stem, plans in batches.items():
            write_plans(asked.out, stem, plans, asked.language)
    except Unplannable as problem:
        return _say(problem, NOT_CUTTABLE)
    except WrongPlan as problem:
        return _say(problem, OUR_DEFECT)
    except OSError as problem:
        return _say(problem, WRONG_CALL)
    return PLANNED


def _check_names(files: Sequence[Path]) -> None:
    """Two files of one name would write the same XML."""
    twice = [stem for stem, count in Counter(file.stem for file in files).items() if count > 1]
    if twice:
        raise Unplannable(f"{twice[0]}: two files of this name were given")


def _say(problem: Exception, code: int) -> int:
    sys.stderr.write(f"{problem}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _OneSentence(
        prog="python -m kesin.workloads.optiplan.optimizer", description="Plan the cutting."
    )
    parser.add_argument("files", nargs="+", type=Path, help="batch files (.xlsx)")
    parser.add_argument("--out", required=True, type=Path, help="the folder the XML is awaited in")
    parser.add_argument("--rules", type=Path, help="rules.json of the workload")
    parser.add_argument("--time-limit", type=_seconds, default=60.0, help="safety net, seconds")
    parser.add_argument("--language", choices=["en", "tr"], default="en", help="of the drawings")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or not 0 < value <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"must be more than 0 and at most {LONGEST_S:g}")
    return value


if __name__ == "__main__":
    sys.exit(main())
