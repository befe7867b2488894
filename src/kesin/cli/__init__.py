"""The command line: the help is answered at once, from a text that `make-reference.py` writes."""

import gc
import os
import sys
from pathlib import Path


def main() -> None:
    gc.set_threshold(20_000)  # what imports create stays: it need not be gone through each time
    if not _print_plain_help():
        from kesin.cli.root import run

        run()


def _print_plain_help() -> bool:
    """Print the help as it is outside a terminal; False if not requested, or if it differs here."""
    if sys.argv[1:] not in (["--help"], ["-h"]) or sys.stdout.isatty():
        return False
    from kesin.workloads import has_plug_ins

    if not {"COLUMNS", "_KESIN_COMPLETE"}.isdisjoint(os.environ) or has_plug_ins():
        return False
    sys.stdout.write(Path(__file__).with_name("help.txt").read_text("utf-8"))
    return True
