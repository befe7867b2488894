"""`kesin optiplan`: import orders, plan cuts, manage customers, simulate a saw, run checks."""

import signal
import threading
from contextlib import suppress
from functools import partial
from typing import Annotated, Final

from kesin.foundation.terminal import flag, format_examples, option, pluralize, say, say_json, warn
from kesin.workloads.common.cli import JsonOption, command_group, read_settings, report_checks
from kesin.workloads.optiplan.cli.customers import app as customers
from kesin.workloads.optiplan.cli.doctor import check_orders, run_checks
from kesin.workloads.optiplan.cli.orders import import_order, optimize
from kesin.workloads.optiplan.pipeline.saw_simulator import SawSimulator
from kesin.workloads.optiplan.workshop.config import Workshop

app = command_group("Process cutting orders for the saw.")
LOOKS: Final = "Seconds between checks."

for _name, _command, _example in (
    ("import", import_order, "order.xlsx --order-id 2027-114 --phone 05321234567"),
    ("optimize", optimize, "order.xlsx --out plans --lang tr"),
):
    app.command(_name, epilog=format_examples(f"kesin optiplan {_name} {_example}"))(_command)
app.add_typer(customers, name="customers")


@app.command("saw-simulator", epilog=format_examples("kesin optiplan saw-simulator --once"))
def saw_simulator(
    *,
    every: Annotated[float, option("SECONDS", LOOKS, min=0.1, max=3_600)] = 2.0,
    once: Annotated[bool, flag("--once", "Check once and exit.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate the saw, which takes files from its inbox.

    Acknowledges files as a real saw does. Do not run it on a real saw's folder.
    """
    folder = Workshop(read_settings()).paths().machine_drop_folder
    saw, report = SawSimulator(folder), partial(_report_moved, as_json=as_json)
    if once:
        report(saw.process_inbox())
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    never = threading.Event()  # a signal ends the loop
    with suppress(KeyboardInterrupt):
        saw.run(never, every, on_moved=report, on_unavailable=lambda share: warn(share.message))


def _report_moved(moved: int, *, as_json: bool) -> None:
    if as_json:
        say_json({"moved": moved}, line=True)
    else:
        say(f"the saw took {pluralize(moved, 'file')}")


@app.command("doctor", epilog=format_examples("kesin optiplan doctor"))
def doctor(*, as_json: JsonOption = False) -> None:
    """Check the prerequisites for cutting orders.

    Checks rules, folders, template, optimiser and the saw's share; lists blocked orders.
    Exits with 1 if a check fails.
    """
    report_checks([*run_checks(Workshop(read_settings())), *check_orders()], as_json=as_json)
