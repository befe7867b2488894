"""How long commands take to start, beside Python itself; `python -m bench.startup`.

Each is run so many times in turn, and the medians are shown: the time that passed, and the time the
processor spent, which says more on a machine that has other things to do. A service has started
with its first answer, a worker with its first claim.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from bench.beside import own_environment
from bench.report import Report

NOTHING = "python -c pass"
KESIN = str(Path(sys.executable).with_name("kesin"))
COMMANDS = {
    NOTHING: [sys.executable, "-c", "pass"],
    "kesin --version": [KESIN, "--version"],
    "kesin --help": [KESIN, "--help"],
    "kesin lifecycle list": [KESIN, "lifecycle", "list"],
}
SERVE, WORKER = "kesin serve, first response", "kesin worker, first claim"
HANDLER = "def handle(job):\n    print('claimed', flush=True)\n"


def spent_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    before, began = spent_s(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
    return time.perf_counter() - began, spent_s() - before


def processor_s(program: subprocess.Popen[str]) -> float:
    """The processor time of a process and of its threads so far."""
    tasks = Path(f"/proc/{program.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def serve(env: dict[str, str]) -> tuple[float, float]:
    """Until a probe is answered; its own processor time then, before it is stopped."""
    began = time.perf_counter()
    command = [KESIN, "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as program:
        assert program.stderr is not None
        line = next(line for line in program.stderr if '"listening"' in line)
        address = urlsplit(json.loads(line)["address"])
        connection = HTTPConnection(address.hostname or "", address.port)
        connection.request("GET", "/health/live")
        status = connection.getresponse().status
        lasted, spent = time.perf_counter() - began, processor_s(program)
        assert status == 200
        program.send_signal(signal.SIGTERM)
        program.stderr.read()
    return lasted, spent


def work(env: dict[str, str]) -> tuple[float, float]:
    """Until its handler is called for the job that waits."""
    enqueue = [KESIN, "enqueue", "emails", "{}", "--lifecycle", "task"]
    subprocess.run(enqueue, check=True, stdout=subprocess.DEVNULL, env=env)
    began = time.perf_counter()
    command = [KESIN, "worker", "emails", "--handler", "work:handle", "--lifecycle", "task"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "claimed\n"
        lasted, spent = time.perf_counter() - began, processor_s(program)
        program.send_signal(signal.SIGTERM)
    return lasted, spent


def measure(runs: int) -> dict[str, list[float]]:
    """The median milliseconds of each, and those of the processor."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in [*COMMANDS, SERVE, WORKER]}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "work.py").write_text(HANDLER)
        own = {"KESIN_DATA_DIR": folder, "KESIN_LOG": "json", "PYTHONDONTWRITEBYTECODE": ""}
        env = {**own_environment(), **own, "PYTHONPATH": folder}
        for n in range(runs + 1):
            for name, command in COMMANDS.items():
                taken[name].append(run(command, env))
            if n <= max(runs // 2, 1):
                taken[SERVE].append(serve(env))
                taken[WORKER].append(work(env))
    return {  # the first run of each compiles and fills the disk's cache
        name: [median(column) * 1_000 for column in zip(*times[1:], strict=True)] for name, times in taken.items()
    }


def tell(report: Report, runs: int) -> None:
    """Add the times to a report, with their aims."""
    taken = measure(runs)
    wall, processor = taken[NOTHING]
    report.say(
        f"## Start\n\nFigures are medians of {runs} runs, or of {runs // 2} runs for `kesin serve` and `kesin worker`."
    )
    rows = [
        (name, f"{a:,.0f}", f"{b:,.0f}", f"{a / wall:.1f}", f"{b / processor:.1f}") for name, (a, b) in taken.items()
    ]
    beside = "/ Python itself"
    report.table(("command", "ms", "CPU ms", beside, f"{beside}, CPU"), rows)
    report.aim("kesin --help / bare interpreter, CPU", taken["kesin --help"][1] / processor, most=6)
    report.aim("kesin serve, seconds to the first response", taken[SERVE][0] / 1_000, most=1)
    report.aim("kesin worker, seconds to the first claim", taken[WORKER][0] / 1_000, most=0.7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.json:
        print(json.dumps(measure(asked.runs)))
        return
    report = Report("Start")
    tell(report, asked.runs)
    print(report.text())


if __name__ == "__main__":
    main()
