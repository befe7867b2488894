"""`kesin optiplan customers`: list, add and remove customers."""

from dataclasses import asdict
from typing import Annotated

import typer

from kesin.foundation.problems import NotFound
from kesin.foundation.terminal import answer, argument, format_examples, print_table, say_json, visible
from kesin.workloads.common.cli import JsonOption, local_operator, open_workload
from kesin.workloads.optiplan.service import QUEUE, OrderService

app = typer.Typer(help="Manage the workshop's customers, by phone number.", no_args_is_help=True)

Phone = Annotated[str, argument("PHONE", "The phone number; Turkish unless it starts with +.")]


@app.command("list", epilog=format_examples("kesin optiplan customers list"))
def list_customers(*, as_json: JsonOption = False) -> None:
    """List the customers."""
    with open_workload(QUEUE) as context:
        customers = list(OrderService(context).customers.following())
    if as_json:
        say_json([asdict(customer) for customer in customers])
        return
    rows = [(customer.phone, customer.name) for customer in customers]
    print_table(("phone", "name"), rows, empty="there are no customers yet")


@app.command("add", epilog=format_examples("kesin optiplan customers add 'Ayşe Usta' 05321234567"))
def add_customer(
    name: Annotated[str, argument("NAME", "The customer's name.")], phone: Phone, *, as_json: JsonOption = False
) -> None:
    """Add a customer, or rename the customer with this phone number."""
    with open_workload(QUEUE) as context:
        customer, new = OrderService(context).add_customer(local_operator(), name, phone)
    text = f"{customer.phone} {visible(customer.name)} {'added' if new else 'renamed'}"
    answer({**asdict(customer), "new": new}, text, as_json=as_json)


@app.command("remove", epilog=format_examples("kesin optiplan customers remove 05321234567"))
def remove_customer(phone: Phone, *, as_json: JsonOption = False) -> None:
    """Delete a customer; the customer's waiting orders will be held."""
    with open_workload(QUEUE) as context:
        customer = OrderService(context).remove_customer(local_operator(), phone)
    if customer is None:
        raise NotFound(f"no customer has the phone number {phone}")
    answer(asdict(customer), f"{customer.phone} {visible(customer.name)} removed", as_json=as_json)
