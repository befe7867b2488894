"""The program of mode A: plans all files, then writes them, the XML of each batch last."""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from kesin.workloads.optiplan.optimizer.input import PlanDefaults, read_batch, read_json
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Unplannable
from kesin.workloads.optiplan.optimizer.optimise import Effort, WrongPlan, optimise
from kesin.workloads.optiplan.optimizer.output import write_plans

EXIT_PLANNED, EXIT_USAGE, EXIT_UNPLANNABLE, EXIT_DEFECT = 0, 2, 3, 4
MAX_SECONDS: Final = 3_600.0


class _OneLineParser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _build_parser().parse_args(arguments)
    try:
        rules = read_json(options.rules) if options.rules else {}
        defaults, effort = PlanDefaults.from_rules(rules), Effort(seconds=options.time_limit)
        batches: dict[str, list[CuttingPlan]] = {}
        for file in options.files:
            if file.stem in batches:  # they would write the same XML
                raise Unplannable(f"{file.stem}: two files of this name were given")  # noqa: TRY301
            batches[file.stem] = [optimise(demand, effort) for demand in read_batch(file, defaults)]
        for stem, plans in batches.items():
            write_plans(options.out, stem, plans, options.language)
    except (Unplannable, WrongPlan, OSError) as problem:
        sys.stderr.write(f"{problem}\n")
        exits = {Unplannable: EXIT_UNPLANNABLE, WrongPlan: EXIT_DEFECT}
        return exits.get(type(problem), EXIT_USAGE)
    return EXIT_PLANNED


def _build_parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(
        prog="python -m kesin.workloads.optiplan.optimizer", description="Plan the cutting."
    )
    parser.add_argument("files", nargs="+", type=Path, help="batch files (.xlsx)")
    parser.add_argument("--out", required=True, type=Path, help="the folder for the XML")
    parser.add_argument("--rules", type=Path, help="the workload's rules.json")
    parser.add_argument("--time-limit", type=_parse_seconds, default=60.0, help="in seconds")
    parser.add_argument("--language", choices=["en", "tr"], default="en", help="of the drawings")
    return parser


def _parse_seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or not 0 < value <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"must be more than 0 and at most {MAX_SECONDS:g}")
    return value


if __name__ == "__main__":
    sys.exit(main())
