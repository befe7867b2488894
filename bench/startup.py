"""How long commands take to start, beside Python itself; `python -m bench.startup`.

Each is run so many times in turn, and the median told: the time that passed, and the time the
processor spent, which says more on a machine that has other things to do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

NOTHING = "python -c pass"
KESIN = str(Path(sys.executable).with_name("kesin"))
COMMANDS = {
    NOTHING: [sys.executable, "-c", "pass"],
    "kesin --version": [KESIN, "--version"],
    "kesin --help": [KESIN, "--help"],
    "kesin lifecycle list": [KESIN, "lifecycle", "list"],
}
SERVE = "kesin serve, until it listens"


def spent_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    before, began = spent_s(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
    return time.perf_counter() - began, spent_s() - before


def serve(env: dict[str, str]) -> tuple[float, float]:
    """Until the log says that it listens; its own processor time then, before it is stopped."""
    began = time.perf_counter()
    command = [KESIN, "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as program:
        assert program.stderr is not None
        for line in program.stderr:
            if '"listening"' in line:
                break
        lasted = time.perf_counter() - began
        fields = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()
        spent = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        program.send_signal(signal.SIGTERM)
        program.stderr.read()
    return lasted, spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in [*COMMANDS, SERVE]}
    with tempfile.TemporaryDirectory() as folder:
        own = {"KESIN_DATA_DIR": folder, "KESIN_LOG": "json", "PYTHONDONTWRITEBYTECODE": ""}
        env = {**os.environ, **own}
        for n in range(asked.runs + 1):
            for name, command in COMMANDS.items():
                taken[name].append(run(command, env))
            if n < 4:
                taken[SERVE].append(serve(env))
    told = {  # the first run of each compiles and fills the disk's cache
        name: [median(column) * 1_000 for column in zip(*times[1:], strict=True)]
        for name, times in taken.items()
    }
    if asked.json:
        print(json.dumps(told))
        return
    wall, processor = told[NOTHING]
    print(f"{'':32}{'ms':>8}{'CPU ms':>8}{'ratio':>8}{'CPU':>8}")
    for name, (lasted, spent) in told.items():
        print(f"{name:32}{lasted:8.0f}{spent:8.0f}{lasted / wall:8.1f}{spent / processor:8.1f}")


if __name__ == "__main__":
    main()
