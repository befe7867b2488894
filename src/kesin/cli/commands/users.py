"""`kesin user`: users and passwords. A password is no argument, as process lists show arguments."""

import sys
from typing import Annotated, Any

import typer

from kesin.cli.support.arguments import AsJson, Several, argument, flag, option
from kesin.cli.support.context import local_operator, open_context
from kesin.cli.support.errors import UsageError, check_choice
from kesin.cli.support.records import print_records, record_of
from kesin.foundation.passwords import MAX_PASSWORD_LENGTH
from kesin.foundation.permissions import ROLES
from kesin.foundation.terminal import answer, warn
from kesin.store.directory import User

app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, argument("NAME", "The user's name.")]
Sites = Annotated[Several, option("SITE", "A site that the user may access; repeatable.", "--site")]
AllSites = Annotated[bool, flag("--all-sites", "All sites, including future ones.")]
Queues = Annotated[Several, option("QUEUE", "Restrict the user to a queue; repeatable.", "--queue")]
PasswordStdin = Annotated[bool, flag("--password-stdin", "Read the password from standard input.")]


@app.command("add")
def add_user(
    name: Name,
    *,
    role: Annotated[str, option("viewer|operator|admin", "What the user may do.")],
    site: Sites = None,
    all_sites: AllSites = False,
    queue: Queues = None,
    password_stdin: PasswordStdin = False,
    as_json: AsJson = False,
) -> None:
    """Add a user.

    The command asks for the password twice on a terminal, or reads it from standard input. A
    viewer or operator with neither a site nor a queue sees nothing; an admin sees everything.
    """
    _check_access(role, site, queue, all_sites=all_sites)
    with open_context(create=True) as context:
        queues = [context.readable_queue(queue_name) for queue_name in queue or ()]
        access: dict[str, Any] = {"all_sites": all_sites, "sites": site or (), "queues": queues}
        password = read_password(from_stdin=password_stdin)
        person = context.accounts.add_user(local_operator(), name, password, role=role, **access)
    _print_user(person, "added", as_json=as_json)


@app.command("passwd")
def set_password(name: Name, stdin: PasswordStdin = False, as_json: AsJson = False) -> None:
    """Set a user's password.

    All the user's sessions end.
    """
    with open_context(create=True) as context:
        # An unknown name is refused before a password is typed.
        context.accounts.user(local_operator(), name)
        context.accounts.set_password(local_operator(), name, read_password(from_stdin=stdin))
        person = context.accounts.user(local_operator(), name)
    _print_user(person, "changed the password of", as_json=as_json)


@app.command("list")
def list_users(as_json: AsJson = False) -> None:
    """List the users."""
    with open_context(create=True) as context:
        people = context.accounts.users(local_operator())
    records = [person_record(person) for person in people]
    for record in () if as_json else records:
        if record["all_sites"] or record["role"] == "admin":
            record["sites"] = "all"
        record["sign-in"] = "disabled" if record["disabled"] else "allowed"
    columns = ("name", "role", "sites", "queues", "sign-in", "changed_at")
    none = "there is no user yet: `kesin user add` creates one"
    print_records(records, columns, {"changed_at": "changed"}, as_json=as_json, empty=none)


@app.command("set")
def set_user(
    name: Name,
    *,
    role: Annotated[str | None, option("viewer|operator|admin", "What the user may do.")] = None,
    site: Sites = None,
    all_sites: AllSites = False,
    no_sites: Annotated[bool, flag("--no-sites", "Remove all sites.")] = False,
    queue: Queues = None,
    no_queues: Annotated[bool, flag("--no-queues", "Remove the queue restriction.")] = False,
    disabled: Annotated[bool | None, flag("--disable/--enable", "Disable or enable the account.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change a user's role, sites and queues.

    The given sites and queues replace the earlier ones. All the user's sessions end.
    """
    _check_access(role, site, queue, all_sites=all_sites, no_sites=no_sites)
    if queue and no_queues:
        raise UsageError("--queue and --no-queues cannot be combined")
    sited = bool(site or all_sites or no_sites)
    if role is None and not sited and not queue and not no_queues and disabled is None:
        raise UsageError(
            "nothing to change: give --role, --site, --all-sites, --no-sites, --queue, "
            "--no-queues, --disable or --enable"
        )
    with open_context(create=True) as context:
        queues = [context.readable_queue(queue_name) for queue_name in queue or ()]
        changes: dict[str, Any] = {"role": role, "disabled": disabled}
        changes |= {"all_sites": all_sites, "sites": site or ()} if sited else {}
        changes |= {"queues": queues} if queue or no_queues else {}
        person = context.accounts.set_user(local_operator(), name, **changes)
    _print_user(person, "changed", as_json=as_json)


def read_password(*, from_stdin: bool) -> str:
    """Read a line of standard input, or what is typed twice on a terminal without being shown."""
    if not from_stdin and not sys.stdin.isatty():
        raise UsageError("without a terminal the password cannot be typed: use --password-stdin")
    if not from_stdin:
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt="Again", err=True))
    raw = sys.stdin.buffer.read(4 * MAX_PASSWORD_LENGTH + 2)  # the longest there can be, in bytes
    try:
        text = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise UsageError("the password on standard input is not UTF-8 text") from None
    if "\n" in text:
        raise UsageError("the password on standard input must be one line")
    return text


def _check_access(role: str | None, site: Several, queue: Several, *, all_sites: bool, no_sites: bool = False) -> None:
    if role is not None:
        check_choice("role", role, ROLES)
    if bool(site) + all_sites + no_sites > 1:
        raise UsageError("--site, --all-sites and --no-sites cannot be combined")
    if role == "admin" and (site or queue):
        option = "--site" if site else "--queue"
        raise UsageError(f"an admin sees everything: omit {option}")


def _print_user(person: User, done: str, *, as_json: bool) -> None:
    answer(person_record(person), f"{done} {person.name} ({person.role})", as_json=as_json)
    sees = person.role == "admin" or person.all_sites or person.sites or person.queues
    if not (as_json or sees):
        warn(f"{person.name} sees nothing yet: give a site or a queue with `kesin user set`")


def person_record(person: User) -> dict[str, Any]:
    """A user as scripts read it, without the hash of the password."""
    return {
        **record_of(person, "name", "role", "all_sites", "sites", "queues"),
        "disabled": person.disabled_at is not None,
        **record_of(person, "created_at", "changed_at", "disabled_at"),
    }
