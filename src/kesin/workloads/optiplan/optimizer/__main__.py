"""The program of mode A: plans all files, then writes them, the XML of each batch last."""

import argparse
import math
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, cast, get_args

from kesin.workloads.optiplan.optimizer.input import parse_settings, read_batch, read_json
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Unplannable
from kesin.workloads.optiplan.optimizer.optimise import WrongPlan
from kesin.workloads.optiplan.optimizer.output.plan_files import write_plans
from kesin.workloads.optiplan.optimizer.run import PlanningRun
from kesin.workloads.optiplan.workshop.plan_settings import PlanSettings
from kesin.workloads.optiplan.workshop.rules import Rules, default_rules
from kesin.workloads.optiplan.workshop.saw_rules import MachineFile

EXIT_PLANNED, EXIT_USAGE, EXIT_UNPLANNABLE, EXIT_DEFECT = 0, 2, 3, 4
MAX_SECONDS: Final = 3_600.0
MEMORY_BYTES: Final = 2 * 1024**3


class _OneLineParser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _build_parser().parse_args(arguments)
    try:
        defaults, run = _read_defaults(options.rules), PlanningRun(options.time_limit)
        batches: dict[str, list[CuttingPlan]] = {}
        for file in options.files:
            if file.stem in batches:  # they would write the same XML
                raise Unplannable(f"{file.stem}: two files of this name were given")  # noqa: TRY301
            batches[file.stem] = [run.plan(demand) for demand in read_batch(file, defaults)]
        for stem, plans in batches.items():
            write_plans(options.out, stem, plans, options.language, options.machine_files)
    except MemoryError:
        sys.stderr.write(f"planning needs more than {MEMORY_BYTES >> 20} MB of memory: split the order\n")
        return EXIT_UNPLANNABLE
    except (Unplannable, WrongPlan, OSError) as problem:
        sys.stderr.write(f"{problem}\n")
        exits = {Unplannable: EXIT_UNPLANNABLE, WrongPlan: EXIT_DEFECT}
        return exits.get(type(problem), EXIT_USAGE)
    return EXIT_PLANNED


def _read_defaults(rules: Path | None) -> PlanSettings:
    """Read the defaults for batches that do not state them; without rules, only the saw."""
    if rules is None:
        return PlanSettings(saw=default_rules().saw())
    return PlanSettings.of(parse_settings(rules.name, Rules, read_json(rules)))


def _build_parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(prog="python -m kesin.workloads.optiplan.optimizer", description="Plan cuts.")
    parser.add_argument("files", nargs="+", type=Path, help="batch files (.xlsx)")
    parser.add_argument("--out", required=True, type=Path, help="the folder for the XML")
    parser.add_argument("--rules", type=Path, help="the workload's rules.json")
    parser.add_argument("--time-limit", type=_parse_seconds, default=60.0, help="the time limit in seconds")
    parser.add_argument("--language", choices=["en", "tr"], default="en", help="the drawings' language")
    machine_files: dict[str, Any] = {"type": _parse_machine_files, "default": (), "metavar": "xml,ptx,csv"}
    parser.add_argument("--machine-files", **machine_files, help="the files that the machine reads")
    return parser


def _parse_machine_files(text: str) -> tuple[MachineFile, ...]:
    given = tuple(text.split(","))
    if unknown := sorted(set(given) - set(get_args(MachineFile))):
        raise argparse.ArgumentTypeError(f"must be some of xml, ptx and csv, got {unknown}")
    return cast("tuple[MachineFile, ...]", given)


def _parse_seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or not 0 < value <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"must be more than 0 and at most {MAX_SECONDS:g}")
    return value


def _limit_memory() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (MEMORY_BYTES if most == resource.RLIM_INFINITY else min(MEMORY_BYTES, most), most)
    )


if __name__ == "__main__":
    _limit_memory()
    sys.exit(main())
